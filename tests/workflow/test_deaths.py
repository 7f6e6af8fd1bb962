"""Jobs and runs that die: the next run ends where an undisturbed one does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from harness import Clone

pytestmark = [pytest.mark.workflow, pytest.mark.slow, pytest.mark.timeout(900)]
# Not in this preset: they write as the others do, through `write_atomic` and `StoreWriter`.
UNUSED = {
    "weights", "download", "drawn_release", "records", "record_codes", "record_scenes",
    "counted_priors", "counted_anchors", "assignment_priors", "scene_statistics",
    "table_scene_statistics",
}  # fmt: skip
DYING = Path(__file__).parent / "dying"
# Touches every script: the space alone decides priors and truths.
RECORDS_LOST = 4  # attempts with Snakemake's records of the earlier ones
CHANGE: dict[str, object] = {"datasets.0.space.max_objects": 4}


@pytest.fixture(scope="module")
def undisturbed(finished: Clone, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Products of the changed configuration, made in an empty folder."""
    clone = Clone.make(tmp_path_factory.mktemp("undisturbed") / "clone")
    clone.edit(CHANGE)
    clone.snakemake()
    return clone.results()


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_every_rule_dies_once_after_a_change(
    how: str, finished: Clone, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    """The first job of each script dies as it writes; midway Snakemake's records are lost too."""
    clone = finished.copy(tmp_path / "clone")
    clone.edit(CHANGE)
    records = tmp_path / "records"
    records.mkdir()
    environment = {"PYTHONPATH": str(DYING), "DIE": how, "DIE_RECORDS": str(records)}
    scripts = {path.stem for path in (clone.path / "workflow/scripts").glob("*.py")}
    for attempt in range(2 * len(scripts)):
        # Rules that do not need one another die in the same attempt: fewer of them.
        done = clone.snakemake("--keep-going", environment=environment, check=False)
        if done.returncode == 0:
            break
        if attempt == RECORDS_LOST:
            shutil.rmtree(clone.path / ".snakemake")
    assert done.returncode == 0, done.stdout + done.stderr
    assert attempt > RECORDS_LOST
    assert {path.name for path in records.iterdir()} == scripts - UNUSED
    made = clone.results()
    assert {path: made.get(path) for path in undisturbed} == undisturbed
    assert not list(clone.path.glob("results/**/*.tmp-*"))
    assert clone.would_run().total() == 0


def test_killed_snakemake_leaves_no_orphan_and_the_next_run_completes(
    undisturbed: dict[str, str], tmp_path: Path
) -> None:
    clone = Clone.make(tmp_path / "clone")
    clone.edit(CHANGE)
    run = subprocess.Popen(
        clone.command(), cwd=clone.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(clone.path.glob("results/scenes/tiny/*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    deadline = time.monotonic() + 10
    while jobs_of(clone):
        assert time.monotonic() < deadline, "a job outlived its Snakemake"
        time.sleep(0.1)
    clone.snakemake("--unlock")
    clone.snakemake()
    assert clone.results() == undisturbed


def jobs_of(clone: Clone) -> list[int]:
    """Processes that run a script of this clone."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            here = (entry / "cwd").readlink().is_relative_to(clone.path)
            if here and b".snakemake/scripts" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
