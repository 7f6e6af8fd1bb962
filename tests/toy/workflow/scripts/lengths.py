"""Measure how long the tokens of one layer are."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import write_json
from bindscope.studies.toy.work import mean_length

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write one row."""
    names = {name: job.wildcards[name] for name in ("dataset", "model", "layer")}
    length = mean_length(job.input.index[0], job.spec["layer"])
    write_json(job.output.rows, {**names, "length": length, **job.keys})


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
