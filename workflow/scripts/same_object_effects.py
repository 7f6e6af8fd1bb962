"""Edit what a fitted probe reads; measure attention, probes and the model's own loss."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.config.entities import model_of
from bindscope.core.devices import hold_device, make_current
from bindscope.core.files import canonical_json, write_atomic
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.studies.same_object.effects.job import measured

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per edit and quantity."""
    names = {
        "dataset": job.wildcards["dataset"],
        "model": job.wildcards["model"],
        "layer": str(job.spec["layer"]),
        "probe": job.wildcards["probe"],
        **job.keys,
    }
    with hold_device(job.spec["device"]) as device, make_current(device):
        checkpoints = Checkpoints(job.output.rows, " ".join(job.keys.values()))
        rows = measured(model_of(job), job.input, job.spec, device, checkpoints)
    lines = [canonical_json({**row, **names}) + "\n" for row in rows]
    write_atomic(job.output.rows, "".join(lines))
    checkpoints.remove()


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
