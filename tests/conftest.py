"""Order of the suite, and an environment that no test leaves changed."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from filelock import FileLock

from bindscope.core.errors import CONFIGFILES
from bindscope.core.files import CACHE

if TYPE_CHECKING:
    from harness import Clone

PUBLISHED = Path(__file__).parents[1] / "resources" / "published"
# What takes longest starts first, so that no worker ends with it while the others wait. The first
# module makes the run that others share; its worker gets the third too, and other workers meanwhile
# those that do not need the run.
FIRST = (
    "test_deaths",
    "test_gates",
    "test_chaos",
    "test_impostors",
    "test_one_truth",
    "test_rehearsals",
    "test_config_keys",
    "test_training",
    "test_interval_coverage",
    "test_commands",
    "test_bad_input",
    "test_toy_study",
    "test_forecast",
    "test_reruns",
    "test_staleness",
)


def pytest_configure(config: pytest.Config) -> None:
    """Keep notes on files out of the user's cache; workers and subprocesses inherit the folder."""
    if not hasattr(config, "workerinput"):
        os.environ[CACHE] = tempfile.mkdtemp(prefix="bindscope-tests-")
        config.add_cleanup(partial(shutil.rmtree, os.environ[CACHE], ignore_errors=True))
    # Each core has a worker: a second thread in it would wait, in a loop, for another's core.
    # Libraries read this as they are loaded, so it reaches workers and subprocesses.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    gc.disable()  # all that is imported and collected stays to the end: see below


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over a million objects of modules and tests."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the slowest modules to the front; the order within a module stays."""
    place = {name: i for i, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(Path(item.path).stem, len(FIRST)))


@pytest.fixture(autouse=True)
def _no_configuration_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a configuration notes its files for later messages; the next test starts without."""
    monkeypatch.setenv(CONFIGFILES, "")  # so that it is put back as it was before the test
    monkeypatch.delenv(CONFIGFILES)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Clone:
    """Return a clone in which `config/presets/ci.yaml` has run; tests must not change it."""
    from harness import Clone

    base = tmp_path_factory.getbasetemp()
    # Workers of pytest-xdist have a folder each in one that they share.
    folder = (base if worker_id == "master" else base.parent) / "finished"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            Clone.make(folder.with_name("unfinished")).snakemake()
            folder.with_name("unfinished").rename(folder)
    return Clone(folder)


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count states that are kept: `left` until the computation dies, `read` when it goes on."""
    from killed_jobs import die_where_kept

    return die_where_kept(monkeypatch)


@pytest.fixture
def few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few pixels: what is tested does not depend on how many there are."""
    from bindscope.figures import style

    monkeypatch.setitem(style._RC, "savefig.dpi", 30)


@pytest.fixture(scope="session")
def published() -> pd.DataFrame:
    """Return the paper's table."""
    from bindscope.studies.binding_information.published import COLUMNS
    from bindscope.tables.published import read_published

    return read_published(PUBLISHED / "binding_information.csv", COLUMNS)


@pytest.fixture(scope="session")
def trends() -> pd.DataFrame:
    """Return the paper's numbers beside its table."""
    from bindscope.studies.binding_information.published import TREND_COLUMNS
    from bindscope.tables.published import read_published

    return read_published(PUBLISHED / "trends.csv", TREND_COLUMNS)
