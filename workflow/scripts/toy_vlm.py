"""Train a toy vision-language model; a toy that misses a gate fails."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.studies.binding_id.config import Toy
from bindscope.studies.binding_id.toys.model import write
from bindscope.studies.binding_id.toys.training import train

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write weights and a manifest; go on from a checkpoint of the same keys."""
    config = Toy.model_validate({**job.spec["toy"], "name": job.wildcards["toy"]})
    # Not an output, which Snakemake would delete with the others of a job that failed.
    checkpoint = Checkpoint(Path(f"{job.output.weights}.checkpoint"), " ".join(job.keys.values()))
    trained = train(config, checkpoint)
    write(
        trained,
        config,
        job.output.weights,
        job.output.manifest,
        spec=job.spec_text,
        code=job.code,
    )
    checkpoint.remove()


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
