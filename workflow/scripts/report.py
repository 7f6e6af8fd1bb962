"""Write the page that tells what was found."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import write_atomic
from bindscope.report.job import make_report

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write results/report.html: one self-contained page."""
    write_atomic(job.output.page, make_report(job))


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
