"""The harness of the benchmarks: arithmetic, tables, records; and every listed benchmark."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import measure  # noqa: E402
import run  # noqa: E402
from measure import Entry, Options, Other  # noqa: E402

QUICK = Options(size="ci", threads=1, repetitions=2)


def toy(entries) -> ModuleType:
    module = ModuleType("toy")
    module.TITLE, module.entries = "A toy", entries
    return module


@pytest.fixture
def records(tmp_path, monkeypatch):
    """A harness that knows the toy and writes its records here."""
    monkeypatch.setattr(measure, "RECORDS", tmp_path)
    monkeypatch.setattr(run, "BENCHMARKS", ("toy",))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


@pytest.mark.parametrize(
    ("entry", "words", "holds"),
    [
        (Entry("it", 2.0, [Other("GEMM", 1.5, 0.75)]), "GEMM 1,500 ms: 0.75 (promised 0.75)", True),
        (Entry("it", 2.0, [Other("GEMM", 1.0, 0.6)]), "GEMM 1,000 ms: 0.5 (promised 0.6)", False),
        (Entry("it", 2.0, limits={"GB": (3.6, 3.5)}), "GB 3.6 (promised 3.5)", False),
        (Entry("it", 2.0, limits={"GB": (float("nan"), 3.5)}), "GB nan (promised 3.5)", False),
    ],
)
def test_a_broken_promise_is_named_and_bold(entry, words, holds):
    assert entry.broken == ([] if holds else [f"it: {words}"])
    assert (words if holds else f"**{words}**") in measure.table([entry])


def test_alternatives_take_turns_and_the_first_turn_does_not_count(monkeypatch):
    order, clock = [], iter([0, 0, 0, 1, 0, 3, 0, 2, 0, 7])  # the first turns only start
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    runs = {name: lambda name=name: order.append(name) for name in "ab"}
    assert measure.side_by_side(runs, QUICK) == {"a": 1.5, "b": 5}
    assert order == ["a", "b"] * 3


def test_a_broken_promise_and_a_failure_end_with_1_and_hide_nothing(records, monkeypatch, capsys):
    def fails(options):
        raise ValueError("no")

    slow = Entry("slow", 2.0, limits={"s": (2.0, 1.0)})
    monkeypatch.setattr(run, "BENCHMARKS", ("bad", "toy"))
    monkeypatch.setitem(sys.modules, "bad", toy(fails))
    monkeypatch.setitem(sys.modules, "toy", toy(lambda _: [slow]))
    assert run.main([]) == 1
    printed = capsys.readouterr().out
    assert "not kept: bad: failed" in printed
    assert "not kept: toy: slow: s 2 (promised 1)" in printed


@pytest.mark.parametrize("name", run.BENCHMARKS)
def test_every_benchmark_has_what_the_harness_asks_for(name):
    module = importlib.import_module(name)
    assert isinstance(module.TITLE, str)
    assert callable(module.entries)
    assert f"| `{name}` |" in (ROOT / "docs" / "development.md").read_text()


def test_the_step_that_is_timed_is_the_twins():
    """One small case of each family, timed for a moment: the losses of both must agree."""
    probe_fitting = importlib.import_module("probe_fitting")
    for case in probe_fitting.SMALL:
        tiny = {"side": 2, "dim": 3, "batch": 4, "tokens": min(case.tokens, 2)}
        entry = probe_fitting.step_entry(replace(case, **tiny), Options(repetitions=1), rate=1e12)
        assert [comparison.name for comparison in entry.others] == ["GEMM floor", "literal twin"]
