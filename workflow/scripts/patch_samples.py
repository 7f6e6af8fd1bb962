"""Choose and label the patches of a split's images that all models are asked about."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.store.writer import StoreWriter
from bindscope.studies.same_object.config import PatchSampling
from bindscope.studies.same_object.patch_samples import write_samples

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write which patches they are, and what each of them shows."""
    spec = job.spec
    with StoreWriter(
        job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
    ) as writer:
        write_samples(
            job.input.scenes,
            spec["split"],
            spec["n_scenes"],
            tuple(spec["grid"]),
            {group["name"]: group["size"] for group in spec["groups"]},
            PatchSampling.model_validate(spec["sampling"]),
            writer,
        )


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
