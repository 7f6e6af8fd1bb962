"""Draw one figure of a study."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.figures.job import make_figure

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write it as PNG and SVG."""
    make_figure(job.spec["implementation"], job.inputs, job.output.png, job.output.svg)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
