"""Collect the rows of all fits."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if "snakemake" in globals():  # this clone's code, never an installed copy
    sys.path.insert(0, f"{snakemake.scriptdir}/../../src")

import bindscope
from bindscope.tables.build import build_binding_information
from bindscope.tables.schema import BINDING_INFORMATION
from bindscope.tables.write import write_table

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write Parquet, CSV and HTML; rows of another configuration are refused."""
    frame = build_binding_information(
        job.input.fits, job.input.nulls, job.input.priors, job.input.truths,
        job.spec["expected"], job.spec["models"],
    )  # fmt: skip
    write_table(frame, Path(job.output.parquet).with_suffix(""), BINDING_INFORMATION)


if "snakemake" in globals():
    main(bindscope.start(snakemake))
