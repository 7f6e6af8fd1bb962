"""Estimate what tells roles, and slots, apart in the tokens of a model."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.studies.binding_id.suite import estimates

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write mean differences, and rows of a table about them."""
    estimates(job)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
