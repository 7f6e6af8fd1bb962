"""Run a frozen model over one shard and pool the tokens of all its layers."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if "snakemake" in globals():  # this clone's code, never an installed copy
    sys.path.insert(0, f"{snakemake.scriptdir}/../../src")

import bindscope
from bindscope.activations.extraction import StoreImages, extract_pooled
from bindscope.models.devices import hold_device
from bindscope.models.loading import load_model
from bindscope.store.reader import open_store
from bindscope.store.writer import StoreWriter

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.job import Job


def main(job: "Job") -> None:
    """Write `cls`, `mean` and `registers` of every layer, those that the model has."""
    images = StoreImages(open_store(job.input.scenes[0]))
    weights = next(iter(job.input.weights), None)
    with (
        hold_device(job.spec["device"]) as device,
        StoreWriter(
            job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
        ) as writer,
    ):
        model = load_model(job.model, weights and Path(weights), device, images.size_px)
        extract_pooled(model, images, writer, job.model.extraction)


if "snakemake" in globals():
    main(bindscope.start(snakemake))
