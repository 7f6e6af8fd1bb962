"""Bring a data set's archive onto this machine, checked by its checksum."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import write_json
from bindscope.sources.download import fetch

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a manifest that says where the archive lies; a rerun goes on where one stopped."""
    about = fetch(job.spec["url"], job.spec["sha256"], job.spec["folder"])
    write_json(job.output.manifest, {**about, **job.keys})


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
