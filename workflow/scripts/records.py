"""Read the scenes of a source, check them, and deal them out to splits."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.config.entities import dataset_of
from bindscope.sources.reading import read_source
from bindscope.sources.records import write_records

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per scene: split, image, place in the source, object codes, boxes."""
    paths = [json.loads(Path(path).read_text())["path"] for path in job.input.download]
    images, splits, values, skipped = read_source(dataset_of(job), paths)
    write_records(job.output.rows, images, splits, values, job.keys, skipped)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
