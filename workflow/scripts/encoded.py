"""Encode the codes of one shard with a known-answer encoder."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.activations.encoded import write_encoded
from bindscope.codes.sampling import sample_codes
from bindscope.config.entities import dataset_of, model_of
from bindscope.core.store.writer import StoreWriter
from bindscope.models.known_answer import encode, token_map

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write the encoder's arrays as layer 0."""
    split, start, stop = job.spec["split"], job.spec["start"], job.spec["stop"]
    dataset, model = dataset_of(job), model_of(job)
    objects = sample_codes(dataset, split, start, stop)
    arrays = encode(model, dataset, split, start, objects)
    with StoreWriter(
        job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
    ) as writer:
        write_encoded(arrays, writer, token_map=token_map(model, dataset))


if "snakemake" in globals():
    main(bindscope.start(snakemake))
