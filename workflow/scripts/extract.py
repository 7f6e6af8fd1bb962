"""Run a frozen model over one part: pooled tokens of all layers, or patch tokens of one."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.activations.extraction import extract
from bindscope.activations.images import JoinedImages, StoreImages
from bindscope.activations.parts import rows_by_split
from bindscope.config.entities import model_of
from bindscope.core.devices import hold_device
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.models.loading import load_model

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write the store of rule `patches` if the specification names a layer, else of `pooled`."""
    config = model_of(job)
    images = JoinedImages([StoreImages(open_store(path)) for path in job.input.scenes])
    weights = next(iter(job.input.weights), None)
    with (
        hold_device(job.spec["device"]) as device,
        StoreWriter(
            job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
        ) as writer,
    ):
        writer.attributes["splits"] = rows_by_split(job.spec["part"])
        model = load_model(config, weights and Path(weights), device, images.size_px)
        if "layer" in job.spec:
            extract(model, images, config.extraction, patches={job.spec["layer"]: writer})
        else:
            extract(model, images, config.extraction, pooled=writer)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
