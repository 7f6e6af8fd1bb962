"""Entropies of attributes given back to the objects of each image."""

from typing import TYPE_CHECKING

import numpy as np

import bindscope
from bindscope.core.array_types import Integers
from bindscope.core.files import write_json
from bindscope.core.splits import SPLITS
from bindscope.priors.assignments import assignment_rows
from bindscope.sources.records import read_records

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a JSON list, a row per split: means over its scenes, in bits."""
    shape = job.spec["sizes"]
    splits: dict[str, list[Integers]] = {}
    for split in SPLITS:
        records = read_records(job.input.records[0], split, 0, job.spec["n_scenes"][split])
        splits[split] = [
            np.array([divmod(cell, shape[1]) for cell in scene.cells]) for scene in records.scenes
        ]
    names = {"dataset": job.wildcards.dataset, **job.keys}
    write_json(job.output.rows, [{**names, **row} for row in assignment_rows(splits, shape)])


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
