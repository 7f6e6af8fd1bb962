"""The Slurm profile on a real Slurm of one node: `make test-cluster` installs it and runs this."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import pytest
from harness import ROOT, Clone
from slurm import Slurm, Submission, missing

PROFILE = ROOT / "workflow/profiles/slurm"
# Faster than on a real cluster: one machine, so no file is late and nobody else asks for states.
QUICK = (
    "--latency-wait",
    "5",
    "--slurm-init-seconds-before-status-checks",
    "2",
    "--seconds-between-status-checks",
    "2",
)
# The CI preset with fewer jobs: all shards of a split in one, one layer and probe, one figure.
SMALLER: dict[str, object] = {
    "datasets.0.shard_size": {"train": 128, "val": 64, "test": 64},
    "studies.binding_information.fits": [
        {
            "name": "fits",
            "datasets": ["tiny"],
            "models": ["vit", "identity"],
            "layers": "last",
            "tokens": ["cls"],
            "probes": ["linear"],
        },
    ],
    "report": {"figures": ["tokens"]},
}


Found = TypeVar("Found")


def _reason() -> str | None:
    if find_spec("snakemake_executor_plugin_slurm") is None:
        return "snakemake-executor-plugin-slurm is not installed (make test-cluster installs it)"
    return missing()


pytestmark = [
    pytest.mark.skipif(_reason() is not None, reason=f"no Slurm here: {_reason()}"),
    pytest.mark.slow,
    pytest.mark.workflow,
    pytest.mark.timeout(3600),
]


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    with Slurm() as slurm:
        yield slurm


def snakemake(*arguments: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "snakemake",
        "--workflow-profile",
        str(PROFILE),
        *QUICK,
        *arguments,
    ]


def test_partitions_groups_and_retries(slurm: Slurm, tmp_path: Path) -> None:
    """CUDA jobs go to the GPU partition; a failed one asks for more; fits share one."""
    done = subprocess.run(
        snakemake(
            "--snakefile",
            str(ROOT / "tests/cluster/toy.smk"),
            "--slurm-partition-config",
            str(PROFILE / "partitions.yaml"),
        ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + slurm.logs()
    jobs = slurm.submissions()
    (gpu,) = select(jobs, "rule_on_gpu")
    assert (gpu.partition, gpu.gres) == ("gpu", "gres:gpu:1")
    grown = select(jobs, "rule_grown")
    assert [(job.state, job.memory, job.limit) for job in grown] == [
        ("FAILED", "100M", "10:00"),
        ("COMPLETED", "200M", "20:00"),
    ]
    assert (tmp_path / "grown.txt").read_text() == "200\n"
    (fits,) = [job for job in jobs if "fits" in job.comment]
    # One after another: three times what the profile gives a job of the rule.
    assert (fits.cpus, fits.memory, fits.limit) == ("1", "100M", "3:00:00")
    assert {job.partition for job in (*grown, fits)} == {"cpu"}
    assert len(list(tmp_path.glob("fit-*.txt"))) == 3


def test_a_run_with_killed_jobs_ends_with_the_tables_of_a_local_run(
    slurm: Slurm, tmp_path: Path
) -> None:
    """Two jobs die midway: one is cancelled in Slurm, of the other the script is killed."""
    clone = Clone.make(tmp_path / "cluster")
    clone.edit(SMALLER)
    local = clone.copy(tmp_path / "local")
    subprocess.run(local.command("--quiet", "all"), cwd=local.path, check=True)

    log = tmp_path / "cluster.log"
    with log.open("w") as out:
        run = subprocess.Popen(
            snakemake("--configfile", clone.configfile), cwd=clone.path, stdout=out, stderr=out
        )
        try:
            wait_for(run, lambda: script_of(clone, "training.py"))
            cancelled = wait_for(run, lambda: running(slurm, "rule_training"))
            slurm.run("scancel", cancelled.id)
            victim = wait_for(run, lambda: script_of(clone, "extract.py"))
            os.kill(victim, signal.SIGKILL)
            code = run.wait(timeout=3000)
        finally:
            run.kill()
            run.wait()
    assert code == 0, log.read_text()[-8000:] + slurm.logs()

    jobs = slurm.submissions()
    assert [job.state for job in select(jobs, "rule_training")] == ["CANCELLED", "COMPLETED"]
    assert [job.state for job in select(jobs, "rule_pooled")].count("FAILED") == 1
    lost = [job for job in jobs if job.state != "COMPLETED"]
    assert len(lost) == 2
    snakemakes = clone.path / "results/logs/snakemake.log"
    assert snakemakes.read_text().count("Trying to restart job") == 2
    assert clone.results() == local.results()
    assert clone.would_run().total() == 0


def select(jobs: list[Submission], comment: str) -> list[Submission]:
    return [job for job in jobs if job.comment.startswith(comment)]


def running(slurm: Slurm, comment: str) -> Submission | None:
    """A job of a rule that Slurm has started."""
    running_jobs = [job for job in select(slurm.submissions(), comment) if job.state == "RUNNING"]
    return running_jobs[0] if running_jobs else None


def script_of(clone: Clone, name: str) -> int | None:
    """The process that runs a script of the clone."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode().split("\0")
            here = (entry / "cwd").readlink() == clone.path
        except OSError:
            continue
        if here and any(".snakemake/scripts" in x and x.endswith(name) for x in command[1:2]):
            return int(entry.name)
    return None


def wait_for(run: subprocess.Popen[bytes], look: Callable[[], Found | None]) -> Found:
    """Look until something is there; the run must still be at work."""
    while (result := look()) is None:
        assert run.poll() is None, "the run ended before its job could be killed"
        time.sleep(0.2)
    return result
