"""Fit what a file of the zoo lacks for its own loss again: head, decoder or text tower."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.config.entities import model_of
from bindscope.core.devices import hold_device
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.models.refitting import refit
from bindscope.models.training import write_training

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write weights, history and a manifest; go on from a checkpoint of the same keys."""
    checkpoint = Checkpoint(Path(f"{job.output.weights}.checkpoint"), " ".join(job.keys.values()))
    with hold_device(job.spec["device"]) as device:
        fitted = refit(model_of(job), job.spec["steps"], device, checkpoint)
    write_training(
        fitted,
        job.output.weights, job.output.history, job.output.manifest,
        spec=job.spec_text, code=job.code,
    )  # fmt: skip
    checkpoint.remove()


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
