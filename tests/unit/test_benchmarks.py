"""The harness of the benchmarks: arithmetic, tables, records, marks; and every listed benchmark."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import measure  # noqa: E402
import run  # noqa: E402
from measure import Entry, Options  # noqa: E402

QUICK = Options(size="ci", threads=1, repetitions=2)


def toy(entries) -> ModuleType:
    module = ModuleType("toy")
    module.TITLE, module.entries = "A toy", entries
    return module


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A harness that writes here, with a page that has marks for the toy."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- toy -->\nold\n<!-- /toy -->\nafter\n")
    monkeypatch.setattr(measure, "RECORDS", tmp_path)
    monkeypatch.setattr(run, "PAGE", page)
    monkeypatch.setattr(run, "BENCHMARKS", ("toy",))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def test_shares_and_ratios_of_an_entry():
    entry = Entry("it", 2.0, "GEMM", 1.5, 0.75, "the other", 5.0, 2.5)
    assert (entry.share, entry.ratio, entry.broken) == (0.75, 2.5, [])
    assert Entry("it", 2.0).share is Entry("it", 2.0).ratio is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"floor": "GEMM", "floor_s": 1.0, "share_promised": 0.6}, "share of GEMM 0.50, promised"),
        ({"share_promised": 0.6}, "share of  0.00, promised"),  # a promise nobody measured
        ({"against": "it", "against_s": 3.0, "ratio_promised": 2}, "ratio to it 1.50, promised 2"),
        ({"seconds_promised": 1.9}, "seconds 2, promised at most 1.9"),
        ({"limits": {"GB": (3.6, 3.5)}}, "GB 3.6, promised at most 3.5"),
        ({"limits": {"GB": (float("nan"), 3.5)}}, "GB nan"),
    ],
)
def test_a_broken_promise_is_named_and_bold(changes, words):
    entry = Entry("it", 2.0, **changes)
    (line,) = entry.broken
    assert words in line
    if "floor_s" in changes or ("floor" not in changes and "share_promised" not in changes):
        assert "**" in measure.table([entry])


def test_the_table_has_the_columns_that_are_filled():
    kept = Entry("it", 2.0, seconds_promised=4.0, limits={"GB": (0.5, 1)})
    assert measure.table([kept, Entry("other", 0.0123)]).splitlines() == [
        "| what | ms | other |",
        "| --- | --- | --- |",
        "| it | 2,000 (promised 4,000) | GB 0.5 (promised 1) |",
        "| other | 12.3 |  |",
    ]


def test_alternatives_take_turns_and_the_first_turn_does_not_count():
    order = []
    runs = {name: lambda name=name: order.append(name) for name in "ab"}
    times = measure.side_by_side(runs, QUICK)
    assert order == ["a", "b"] * 3
    assert [len(values) for values in times.values()] == [2, 2]
    assert measure.medians({"a": [3.0, 1.0, 2.0]}) == {"a": 2.0}


def test_a_run_writes_a_record_and_fills_the_page(place, monkeypatch, capsys):
    def entries(options):
        assert options == QUICK
        seconds = measure.medians(measure.side_by_side({"a": lambda: None}, options))["a"]
        return [Entry("nothing", seconds, notes={"answer": 42})]

    monkeypatch.setitem(sys.modules, "toy", toy(entries))
    assert run.main(["--size", "ci", "--threads", "1", "--repetitions", "2", "--docs"]) == 0
    record = json.loads((place / "toy.json").read_text())
    (row,) = record["entries"]
    assert (record["title"], row["what"], row["notes"]) == ("A toy", "nothing", {"answer": 42})
    assert 0 <= row["seconds"] < 1
    assert record["options"]["threads"] == 1
    page = (place / "page.md").read_text()
    assert page.startswith(
        "before\n<!-- toy -->\n`python benchmarks/run.py toy --size ci --threads 1"
    )
    assert "| nothing |" in page
    assert page.endswith("<!-- /toy -->\nafter\n")
    assert "A toy" in capsys.readouterr().out


def test_a_broken_promise_and_a_failure_end_with_1_and_hide_nothing(place, monkeypatch, capsys):
    def fails(options):
        raise ValueError("no")

    monkeypatch.setattr(run, "BENCHMARKS", ("bad", "toy"))
    monkeypatch.setitem(sys.modules, "bad", toy(fails))
    monkeypatch.setitem(sys.modules, "toy", toy(lambda _: [Entry("slow", 2.0, seconds_promised=1)]))
    assert run.main([]) == 1
    said = capsys.readouterr().out
    assert "not kept: bad: failed" in said
    assert "not kept: toy: slow: seconds 2" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "no benchmark nonsense"),
        (["--repetitions", "0"], "not at least 1"),
        (["--device", "cuda"], "no CUDA device"),
    ],
)
def test_bad_arguments_are_refused(place, monkeypatch, capsys, arguments, words):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as stopped:
        run.main(arguments)
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


def test_marks_are_looked_for_before_anything_runs(place, monkeypatch):
    (place / "page.md").write_text("no marks")
    monkeypatch.setitem(sys.modules, "toy", toy(lambda _: pytest.fail("it ran")))
    with pytest.raises(SystemExit, match="no marks <!-- toy -->"):
        run.main(["--docs"])


PEAKS = """
import sys, time
sys.path.insert(0, "benchmarks")
import measure

def hold(megabytes):
    return sum(bytearray(b"x") * (megabytes * 10**6)) and time.sleep(0.01)

small, large = (measure.alone(hold, megabytes) for megabytes in (1, 40))
assert large.peak_mb - large.base_mb > 38, large
assert small.peak_mb - small.base_mb < 20, small
assert small.seconds >= 0.01
try:
    measure.alone(hold, None)
except RuntimeError as error:
    assert "TypeError" in str(error)
else:
    raise AssertionError("the error was lost")
"""


def test_a_process_of_its_own_has_its_own_peak():
    # In a fresh interpreter: one that ran other tests has freed memory, which an array may take.
    subprocess.run([sys.executable, "-c", PEAKS], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", run.BENCHMARKS)
def test_every_benchmark_has_what_the_harness_asks_for(name):
    module = importlib.import_module(name)
    assert isinstance(module.TITLE, str)
    assert callable(module.entries)
    run.marks(name, ROOT / "docs" / "benchmarks.md")
