"""Measure what a fitted probe's scores, and the tokens it reads, are like."""

from typing import TYPE_CHECKING

from safetensors.numpy import load_file

import bindscope
from bindscope.core.files import canonical_json, write_atomic
from bindscope.core.splits import SPLITS
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.studies.same_object.geometry import GeometryInputs, measured_rows

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per layer and quantity."""
    names = {name: job.wildcards[name] for name in ("dataset", "model", "probe")}
    tokens: dict[str, list[str]] = {split: job.input[split] for split in SPLITS}
    fit = load_file(job.input.fit_weights[0])
    data = GeometryInputs.open(job.input.samples, tokens, fit, job.spec)
    checkpoints = Checkpoints(job.output.rows, " ".join(job.keys.values()))
    rows = measured_rows(data, job.spec, checkpoints)
    lines = (canonical_json({**names, **row, **job.keys}) + "\n" for row in rows)
    write_atomic(job.output.rows, "".join(lines))
    checkpoints.remove()


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
