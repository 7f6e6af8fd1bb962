"""Measure how much of the objects is hidden in the scenes of a dataset."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import write_json
from bindscope.core.splits import SPLITS
from bindscope.scenes.statistics import scene_statistics

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a JSON list, a row per split."""
    inputs = dict(job.input.items())
    rows = scene_statistics({split: inputs[split] for split in SPLITS if split in inputs})
    about = {"dataset": job.wildcards.dataset, **job.spec["about"]}
    write_json(job.output.rows, [{**about, **row, **job.keys} for row in rows])


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
