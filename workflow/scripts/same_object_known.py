"""Plant known tokens at the sampled patches of a split."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.studies.same_object.config import Planted
from bindscope.studies.same_object.known import write_planted

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `patches` (1, n, M, dim) as layer 0."""
    planted = Planted.model_validate(job.spec["planted"])
    with StoreWriter(
        job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
    ) as writer:
        write_planted(planted, open_store(job.input.samples[0]), writer)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
