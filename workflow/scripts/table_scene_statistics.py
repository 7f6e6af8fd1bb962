"""Collect how much is hidden in the scenes of all datasets."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if "snakemake" in globals():  # this clone's code, never an installed copy
    sys.path.insert(0, f"{snakemake.scriptdir}/../../src")

import bindscope
from bindscope.tables.build import build_scene_statistics
from bindscope.tables.schema import SCENE_STATISTICS
from bindscope.tables.write import write_table

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write Parquet, CSV and HTML."""
    frame = build_scene_statistics(job.input.statistics, job.spec["expected"])
    write_table(frame, Path(job.output.parquet).with_suffix(""), SCENE_STATISTICS)


if "snakemake" in globals():
    main(bindscope.start(snakemake))
