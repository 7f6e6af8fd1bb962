"""Run a frozen model over one part, and keep the sampled patches of some layers."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import bindscope
from bindscope.activations.extraction import SampledPatches, extract
from bindscope.activations.images import JoinedImages, StoreImages
from bindscope.activations.parts import rows_by_split
from bindscope.config.entities import model_of
from bindscope.core.devices import hold_device
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.models.crops import read_crops
from bindscope.models.loading import load_model

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `patches` (layer, n, M, dim) of the part's scenes that are used."""
    config, part = model_of(job), job.spec["part"]
    used = [slice(piece["start"], piece["stop"]) for piece in part]
    images = JoinedImages(
        [
            StoreImages(open_store(path), rows.stop - rows.start)
            for path, rows in zip(job.input.scenes, used, strict=True)
        ]
    )
    samples = [open_store(path) for path in job.input.samples]
    patches = [s.read("patches", rows) for s, rows in zip(samples, used, strict=True)]
    weights = next(iter(job.input.weights), None)
    with (
        hold_device(job.spec["device"]) as device,
        StoreWriter(
            job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
        ) as writer,
    ):
        model = load_model(config, weights and Path(weights), device, images.size_px)
        model = read_crops(model, images.crops)
        writer.attributes["splits"] = rows_by_split(part)
        sampled = SampledPatches(
            writer,
            job.spec["layers"],
            np.concatenate(patches),
            tuple(samples[0].attributes["grid"]),
        )
        extract(model, images, config.extraction, sampled=sampled)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
