"""Collect what the attention probes look at."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if "snakemake" in globals():  # this clone's code, never an installed copy
    sys.path.insert(0, f"{snakemake.scriptdir}/../../src")

import bindscope
from bindscope.tables.build import build_attention
from bindscope.tables.schema import ATTENTION
from bindscope.tables.write import write_table

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write Parquet, CSV and HTML; rows of another configuration are refused."""
    frame = build_attention(job.input.maps_share, job.spec["expected"])
    write_table(frame, Path(job.output.parquet).with_suffix(""), ATTENTION)


if "snakemake" in globals():
    main(bindscope.start(snakemake))
