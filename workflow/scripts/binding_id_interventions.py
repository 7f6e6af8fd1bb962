"""Ask models which item goes with which thing, under the interventions of one experiment."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.studies.binding_id.suite import interventions

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write rows of a table, and the answers they are made of."""
    interventions(job)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
