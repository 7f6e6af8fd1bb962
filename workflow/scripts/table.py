"""Make one table of a study."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.core.registries import resolve
from bindscope.tables.write import write_table

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write Parquet, CSV and HTML; rows of another configuration are refused."""
    table = resolve(job.spec["implementation"])
    frame = table.build(job.inputs)
    write_table(frame, Path(job.output.parquet).with_suffix(""), table.schema)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
