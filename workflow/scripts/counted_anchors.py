"""Estimate the prior log-odds of every bit of one split's codes from the train split."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.config.observed import CountedSpace
from bindscope.core.store.writer import write_arrays
from bindscope.priors.counted import counted_anchors, read_codes

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `object`, `feature` and `object_given_feature`, float32 nats."""
    space = CountedSpace.model_validate(job.spec["space"])
    arrays = counted_anchors(read_codes(job.input.codes), job.spec["split"], space)
    write_arrays(job.output.store, job.output.manifest, arrays, spec=job.spec_text, code=job.code)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
