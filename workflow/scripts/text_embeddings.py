"""Let a model read captions: their vectors in the space where it meets images."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.activations.texts import write_text_embeddings
from bindscope.config.entities import model_of
from bindscope.core.devices import hold_device
from bindscope.core.store.writer import StoreWriter
from bindscope.models.loading import load_texts
from bindscope.scenes.captions import read_captions

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write the vectors of scenes by split, and of the queries `object` and `concept`."""
    captions = read_captions(job.input.captions[0])
    weights = next(iter(job.input.weights), None)
    with (
        hold_device(job.spec["device"]) as device,
        StoreWriter(
            job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
        ) as writer,
    ):
        tower = load_texts(model_of(job), weights and Path(weights), device)
        write_text_embeddings(tower, captions, writer)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
