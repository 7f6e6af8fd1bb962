"""Copies of the library, and time for tests that run Snakemake."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, forget

from bindscope.core import keys


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
