"""Draw the scenes of one shard."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.codes.sampling import sample_codes
from bindscope.config.entities import dataset_of
from bindscope.core.store.writer import StoreWriter
from bindscope.scenes.render import write_scenes

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `images`, `masks`, `boxes` and `cells`."""
    split, start, stop = job.spec["split"], job.spec["start"], job.spec["stop"]
    dataset = dataset_of(job)
    objects = sample_codes(dataset, split, start, stop)
    with StoreWriter(
        job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
    ) as writer:
        write_scenes(dataset, split, start, objects, writer)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
