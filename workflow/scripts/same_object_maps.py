"""Score query patches of a few scenes against all patches of the scene."""

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.numpy import load_file, save

import bindscope
from bindscope.config.entities import model_of
from bindscope.core.devices import hold_device
from bindscope.core.files import write_atomic
from bindscope.core.store.reader import open_store
from bindscope.models.loading import load_model
from bindscope.studies.same_object.fitted_scorer import score_maps

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write images, masks, queries and the maps of every layer."""
    spec, scenes = job.spec, open_store(job.input.scenes[0])
    few = slice(0, spec["n_scenes"])
    images, masks = scenes.read("images", few), scenes.read("masks", few)
    stuff = scenes.read("stuff", few) if "stuff" in scenes.names else None
    weights = next(iter(job.input.weights), None)
    with hold_device(spec["device"]) as device:
        model = load_model(model_of(job), weights and Path(weights), device, images.shape[1])
        fit = load_file(job.input.fit_weights[0])
        maps = score_maps(model, images, masks, stuff, fit, spec["layers"])
    write_atomic(job.output.maps, save(maps))


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
