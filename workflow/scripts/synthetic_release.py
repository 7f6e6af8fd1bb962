"""Draw a stand-in for Visual Genome, in the release's files."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.config.genome import SyntheticRelease
from bindscope.core.files import write_json
from bindscope.sources.genome.synthetic import write_release

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write the files of a release, and a manifest that says where they lie."""
    files = {name: path for name, path in job.output.items() if name != "manifest"}
    write_release(SyntheticRelease.model_validate(job.spec["release"]), files)
    folder = Path(job.output.images).parent
    write_json(job.output.manifest, {"path": str(folder), **job.keys})


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
