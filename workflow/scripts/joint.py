"""Bring a dataset's images into the space where a model's images and captions meet."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.activations.reader import Activations
from bindscope.activations.texts import write_joint
from bindscope.config.entities import model_of
from bindscope.core.devices import hold_device
from bindscope.core.store.writer import StoreWriter
from bindscope.models.loading import load_texts

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write an array per split, (n, dim): the projection of [CLS] after the final norm."""
    weights = next(iter(job.input.weights), None)
    with (
        hold_device(job.spec["device"]) as device,
        StoreWriter(
            job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
        ) as writer,
    ):
        tower = load_texts(model_of(job), weights and Path(weights), device)
        write_joint(tower, Activations(job.input.index[0]), writer)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
