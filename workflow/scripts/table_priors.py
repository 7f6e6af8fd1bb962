"""Collect the entropies of all datasets."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if "snakemake" in globals():  # this clone's code, never an installed copy
    sys.path.insert(0, f"{snakemake.scriptdir}/../../src")

import bindscope
from bindscope.tables.build import build_priors
from bindscope.tables.schema import PRIORS
from bindscope.tables.write import write_table

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write Parquet, CSV and HTML."""
    frame = build_priors(job.input.priors, job.spec["expected"], job.input.get("assignments", ()))
    write_table(frame, Path(job.output.parquet).with_suffix(""), PRIORS)


if "snakemake" in globals():
    main(bindscope.start(snakemake))
