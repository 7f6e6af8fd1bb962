"""Write the page that tells what was found."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if "snakemake" in globals():  # this clone's code, never an installed copy
    sys.path.insert(0, f"{snakemake.scriptdir}/../../src")

import bindscope
from bindscope.core.files import write_atomic
from bindscope.core.keys import numeric_versions
from bindscope.report.page import build_page
from bindscope.studies.binding_information.published import TREND_COLUMNS, read_published
from bindscope.tables.schema import BINDING_INFORMATION, PRIORS
from bindscope.tables.write import read_table

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write results/report.html: one self-contained page."""
    figures = [
        (Path(png).stem, png, svg, Path(caption).read_text())
        for png, svg, caption in zip(
            job.input.figures, job.input.figures_svg, job.input.captions, strict=True
        )
    ]
    page = build_page(
        job.spec["config"],
        {
            "binding_information": read_table(job.input.table[0], BINDING_INFORMATION),
            "priors": read_table(job.input.priors[0], PRIORS),
        },
        figures,
        published=read_published(job.input.published),
        trends=read_published(job.input.trends, TREND_COLUMNS),
        versions=numeric_versions(),
        keys=job.keys,
    )
    write_atomic(job.output.page, page)


if "snakemake" in globals():
    main(bindscope.start(snakemake))
