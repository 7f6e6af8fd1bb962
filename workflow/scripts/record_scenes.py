"""Read the images of one shard."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.config.observed import PhotosRenderer
from bindscope.core.store.writer import StoreWriter
from bindscope.sources.photos import write_photos

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `images`, `cells` and `boxes`, and masks where the source has them."""
    spec = job.spec
    with StoreWriter(
        job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
    ) as writer:
        write_photos(
            job.input.records[0],
            spec["split"],
            spec["start"],
            spec["stop"],
            PhotosRenderer.model_validate(spec["render"]),
            spec["max_objects"],
            writer,
        )


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
