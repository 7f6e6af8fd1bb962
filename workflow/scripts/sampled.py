"""Run a frozen model over one shard, and keep the sampled patches of some layers."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.activations.extraction import SampledPatches, StoreImages, extract
from bindscope.config.entities import model_of
from bindscope.core.devices import hold_device
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.models.loading import load_model

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `patches` (layer, n, M, dim) of the shard's scenes that are used."""
    config, start, stop = model_of(job), job.spec["start"], job.spec["stop"]
    images = StoreImages(open_store(job.input.scenes[0]), stop - start)
    samples = open_store(job.input.samples[0])
    weights = next(iter(job.input.weights), None)
    with (
        hold_device(job.spec["device"]) as device,
        StoreWriter(
            job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
        ) as writer,
    ):
        model = load_model(config, weights and Path(weights), device, images.size_px)
        sampled = SampledPatches(
            writer, job.spec["layers"], samples.read("patches", slice(start, stop)),
            tuple(samples.attributes["grid"]),
        )  # fmt: skip
        extract(model, images, config.extraction, sampled=sampled)


if "snakemake" in globals():
    main(bindscope.start(snakemake))
