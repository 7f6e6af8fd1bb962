"""Jobs on the GPUs of one machine: never two on one device."""

import contextlib
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bindscope.core import devices
from bindscope.core.devices import hold_device
from bindscope.studies.binding_information import fit as job


def _work(folder: Path, visible: list[str], rounds: int) -> None:
    """Take a device again and again; a mark on it that is there already is another job's."""
    for _ in range(rounds):
        with hold_device("cuda", devices=visible, folder=folder / "locks", poll_s=0.002) as device:
            mark = folder / visible[int(device.removeprefix("cuda:"))]
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            time.sleep(0.005)
            mark.unlink()


def test_jobs_that_see_devices_in_other_orders_never_share_one(tmp_path: Path) -> None:
    """As under other values of CUDA_VISIBLE_DEVICES: all, one of them, the other way round."""
    fork = multiprocessing.get_context("fork")
    views = (["GPU-a", "GPU-b"], ["GPU-b", "GPU-a"], ["GPU-b"], ["GPU-a", "GPU-b"], ["GPU-a"])
    jobs = [fork.Process(target=_work, args=(tmp_path, view, 10)) for view in views]
    for process in jobs:
        process.start()
    for process in jobs:
        process.join(timeout=60)
    assert [process.exitcode for process in jobs] == [0] * len(jobs)
    assert {path.name for path in tmp_path.iterdir()} == {"locks"}


def test_fits_side_by_side_take_a_device_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What probes call "cuda" is the device that the job holds."""
    current: list[str] = []

    @contextlib.contextmanager
    def pretend(device: str) -> Iterator[None]:
        current.append(device)
        yield

    probe = SimpleNamespace(device="cuda")

    def fit(arguments: object, data: object, seeds: list[int], *_: object) -> list[str]:
        """While the fit of the first seed is at work, fit the others in another job."""
        if seeds[1:]:
            job.run_fit(probe, None, seeds[1:], "none")
        return []

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(devices, "visible_devices", lambda: ["GPU-a", "GPU-b"])
    monkeypatch.setattr(torch.cuda, "device", pretend)
    monkeypatch.setattr(job, "fit", fit)
    job.run_fit(probe, None, [0, 1], "none")
    assert current == ["cuda:0", "cuda:1"]
    current.clear()
    job.run_fit(probe, None, [0], "none")
    assert current == ["cuda:0"]
