"""One undisturbed run of the CI preset, shared by the tests that look at it or copy it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from harness import ROOT, Clone, forget

from bindscope.core import keys


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Clone:
    """A clone in which `config/presets/ci.yaml` has run; tests must not change it."""
    base = tmp_path_factory.getbasetemp()
    # Workers of pytest-xdist have a folder each in one that they share.
    folder = (base if worker_id == "master" else base.parent) / "finished"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            Clone.make(folder.with_name("unfinished")).snakemake()
            folder.with_name("unfinished").rename(folder)
    return Clone(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a worker waits for the run above; on a busy machine that takes minutes."""
    for item in items:
        if item.get_closest_marker("workflow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the library that the keys are computed from."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(keys, "SOURCE", tmp_path / "src")
    forget()
    yield tmp_path / "src" / "bindscope"
    forget()
