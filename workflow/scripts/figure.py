"""Draw one figure."""

import sys
from typing import TYPE_CHECKING

if "snakemake" in globals():  # this clone's code, never an installed copy
    sys.path.insert(0, f"{snakemake.scriptdir}/../../src")

import bindscope
from bindscope.figures.job import make_figure, value_names
from bindscope.studies.binding_information.published import TREND_COLUMNS, read_published
from bindscope.tables.schema import BINDING_INFORMATION
from bindscope.tables.write import read_table

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job

NO_ROLE = ("table", "published", "trends")


def main(job: "Job") -> None:
    """Write it as PNG and SVG."""
    table = job.input.get("table")
    make_figure(
        job.spec["figure"],
        read_table(table[0], BINDING_INFORMATION) if table else None,
        {role: paths for role, paths in job.input.items() if role not in NO_ROLE},
        job.output.png,
        job.output.svg,
        published=read_published(job.input.published),
        trends=read_published(job.input.trends, TREND_COLUMNS),
        models=job.spec["models"],
        families={family["name"]: family["models"] for family in job.spec["families"]},
        groups={
            name: value_names(given["groups"], given["rendered"])
            for name, given in job.spec["datasets"].items()
        },
        datasets=job.spec.get("about", ()),
    )


if "snakemake" in globals():
    main(bindscope.start(snakemake))
