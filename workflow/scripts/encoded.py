"""Encode the codes of one part with a known-answer encoder."""

from typing import TYPE_CHECKING

import numpy as np

import bindscope
from bindscope.activations.encoded import write_encoded
from bindscope.activations.parts import rows_by_split
from bindscope.codes.sampling import sample_codes
from bindscope.config.entities import dataset_of, model_of
from bindscope.core.store.writer import StoreWriter
from bindscope.models.known_answer import encode, token_map

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write the encoder's arrays as layer 0."""
    dataset, model, part = dataset_of(job), model_of(job), job.spec["part"]
    pieces = []
    for split, start, stop in ((piece["split"], piece["start"], piece["stop"]) for piece in part):
        objects = sample_codes(dataset, split, start, stop)
        pieces.append(encode(model, dataset, split, start, objects))
    arrays = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    with StoreWriter(
        job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
    ) as writer:
        writer.attributes["splits"] = rows_by_split(part)
        write_encoded(arrays, writer, token_map=token_map(model, dataset))


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
