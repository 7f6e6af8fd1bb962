"""Count the entropies of a dataset's splits."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.config.entities import dataset_of
from bindscope.core.files import write_json
from bindscope.priors.entropies import entropies

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a JSON list, a row per split."""
    names = {"dataset": job.wildcards.dataset, **job.keys}
    rows = [{**names, **row} for row in entropies(dataset_of(job))]
    write_json(job.output.rows, rows)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
