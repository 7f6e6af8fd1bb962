"""Embed the scenes of a dataset with a planted encoder."""

from typing import TYPE_CHECKING

import numpy as np

import bindscope
from bindscope.core.splits import SPLITS
from bindscope.core.store.writer import write_arrays
from bindscope.studies.concepts.inputs import planted_vectors, read_slots

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write an array per split, float32 (n, d)."""
    slots = read_slots(job.input.codes)
    every = np.concatenate(slots)
    z = planted_vectors(every, job.spec["sizes"], job.spec["encoder"]).astype(np.float32)
    parts = np.split(z, np.cumsum([len(part) for part in slots])[:-1])
    arrays = {str(split): part for split, part in zip(SPLITS, parts, strict=True)}
    write_arrays(job.output.store, job.output.manifest, arrays, spec=job.spec_text, code=job.code)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
