"""`benchmarks/cuda.py` without a GPU: its rehearsal, a pretended device, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from pretend_cuda import pretend_cuda

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import cuda  # noqa: E402
import measure  # noqa: E402
import run  # noqa: E402
from measure import Entry  # noqa: E402

QUICK = ["--size", "ci", "--threads", "1", "--repetitions", "1"]
TINY = cuda.Sizes(
    side=2, n_objects=2, n_train=64, dim=4, tokens=2, steps=2, layers=1, width=64, px=16, images=4,
    n_known=512,
)  # fmt: skip
CHECKS = ("product on", "one step,", "fit,", "extraction,")


@pytest.fixture(autouse=True)
def _tiny(tmp_path, monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setitem(cuda.SIZES, "ci", TINY)
    monkeypatch.setattr(measure, "RECORDS", tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    torch.set_num_threads(before)


def test_without_a_device_it_says_so_in_one_line_and_ends_with_2(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path = tmp_path / "cuda.json"
    assert cuda.main([*QUICK, "--json", str(path)]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert "no CUDA device" in line
    assert not path.exists()


@pytest.mark.slow  # its parts are in test_pretend_cuda
def test_all_checks_pass_on_a_pretended_device(tmp_path, monkeypatch, capsys):
    """What a GPU would compute is computed here: the CPU's numbers must come out, and be compared.

    Known answers are left to the rehearsal: their fits converge, which is slow here.
    """
    monkeypatch.setattr(cuda, "ENCODERS", ())
    path = tmp_path / "cuda.json"
    with pretend_cuda():
        assert cuda.main([*QUICK, "--checks-only", "--json", str(path)]) == 0
    record = json.loads(path.read_text())
    checks = record["checks"]
    assert all(check["passed"] for check in checks)
    assert {name for name in CHECKS if any(c["what"].startswith(name) for c in checks)} == {*CHECKS}
    assert sum(check["what"].startswith("fit, ") for check in checks) == 6
    assert record["machine"]["gpu"] == "pretended"
    assert "FAILED" not in capsys.readouterr().out


def test_a_rehearsal_times_the_benchmarks_and_prints_a_table_last(tmp_path, monkeypatch, capsys):
    def measured(name, options):
        assert (options.device, options.repetitions) == ("cpu", 1)
        if name == "bad":
            raise ValueError("no")
        return [Entry("a step", 0.5, "GEMM", 0.4, 0.75), Entry("slow", 2.0, seconds_promised=1.0)]

    monkeypatch.setattr(run, "BENCHMARKS", ("toy", "bad"))
    monkeypatch.setattr(run, "measured", measured)
    monkeypatch.setattr(cuda, "ENCODERS", ("identity",))
    monkeypatch.setattr(cuda, "check_fits", lambda sizes, device: iter(()))
    path = tmp_path / "cuda.json"
    assert cuda.main([*QUICK, "--device", "cpu", "--json", str(path)]) == 1
    last = capsys.readouterr().out.split("\n\n")[-1]
    for words in (
        "kept    toy, a step",
        "80% of GEMM",
        "BROKEN  toy, slow",
        "FAILED  benchmark bad",
    ):
        assert words in last
    assert "one step, dnn" in last
    assert "known answer, identity: 10.83 bits" in last
    record = json.loads(path.read_text())
    assert record["failures"] == ["bad"]
    assert record["benchmarks"]["toy"][0]["share"] == 0.8


def test_a_check_that_is_off_or_raises_fails_and_hides_nothing(tmp_path, monkeypatch, capsys):
    def off(sizes, device):
        yield cuda.Check("off", 0.2, 0.1)
        raise ValueError("no")

    def undefined(sizes, device):
        yield cuda.Check("undefined", float("nan"), 0.1)

    monkeypatch.setattr(cuda, "check_steps", off)
    monkeypatch.setattr(cuda, "check_fits", undefined)
    for name in ("check_extraction", "check_known_answers"):
        monkeypatch.setattr(cuda, name, lambda sizes, device: iter(()))
    path = tmp_path / "cuda.json"
    assert cuda.main([*QUICK, "--device", "cpu", "--checks-only", "--json", str(path)]) == 1
    passed = {check["what"]: check["passed"] for check in json.loads(path.read_text())["checks"]}
    assert passed == {
        "product on cpu": True, "off": False, "off: ValueError": False, "undefined": False,
    }  # fmt: skip
