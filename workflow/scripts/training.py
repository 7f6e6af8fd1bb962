"""Train a controlled model, or only initialise it."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import bindscope
from bindscope.config.entities import dataset_of, model_of
from bindscope.core.devices import hold_device
from bindscope.core.store.reader import open_store
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.models.training import train, untrained, write_training
from bindscope.models.training_scenes import FreshScenes, StoredScenes, TrainingScenes

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write weights, history and a manifest; go on from a checkpoint of the same keys."""
    config, dataset = model_of(job), dataset_of(job)
    # Not an output, which Snakemake would delete with the others of a job that failed.
    checkpoint = Checkpoint(Path(f"{job.output.weights}.checkpoint"), " ".join(job.keys.values()))
    if config.source == "controlled:none":
        trained = untrained(config, dataset)
    else:
        with hold_device(job.spec["device"]) as device:
            trained = train(config, dataset, scenes(job), device, checkpoint)
    write_training(
        trained,
        job.output.weights,
        job.output.history,
        job.output.manifest,
        spec=job.spec_text,
        code=job.code,
    )
    checkpoint.remove()


def scenes(job: "Job") -> TrainingScenes:
    """Return scenes that are drawn for each step, or those of the stores."""
    config, dataset = model_of(job), dataset_of(job)
    size, seed = config.training.batch_size, config.seed
    if not job.input.get("scenes"):
        return FreshScenes(dataset, size, seed)
    images, objects = {}, {}
    for manifest in job.input.codes:
        split = manifest.rpartition("/")[2].partition("-")[0]
        shards = [path for path in job.input.scenes if f"/{split}-" in path]
        images[split] = np.concatenate([open_store(path).read("images") for path in shards])
        objects[split] = open_store(manifest).read("objects")
    return StoredScenes(images, objects, size, seed)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
