"""Compute the exact prior log-odds of every bit of one split's codes."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.config.entities import dataset_of
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import write_arrays
from bindscope.priors.anchors import anchors

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `object`, `feature` and `object_given_feature`, float32 nats."""
    objects = open_store(job.input.codes[0]).read("objects")
    arrays = anchors(dataset_of(job), objects)
    write_arrays(job.output.store, job.output.manifest, arrays, spec=job.spec_text, code=job.code)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
