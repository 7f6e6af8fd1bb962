"""Estimate the entropies of all splits of scenes that were read."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.config.observed import CountedSpace
from bindscope.core.files import write_json
from bindscope.priors.counted import counted_entropies, read_codes

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a JSON list, a row per split."""
    space = CountedSpace.model_validate(job.spec["space"])
    rows = counted_entropies(read_codes(job.input.codes), space)
    names = {"dataset": job.wildcards.dataset, **job.keys}
    write_json(job.output.rows, [{**names, **row} for row in rows])


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
