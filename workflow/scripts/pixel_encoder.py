"""Ask a model of images and captions what it recognises of objects that it was not trained on."""

from typing import TYPE_CHECKING

import numpy as np

import bindscope
from bindscope.config.entities import model_of
from bindscope.core.files import canonical_json, write_atomic
from bindscope.studies.concepts.embedded import read_embeddings, read_slots
from bindscope.studies.concepts.pixels import Measured, read_queries, rows
from bindscope.studies.concepts.scenes import Scenes

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write rows of recognition, and the row of the geometry."""
    sizes = tuple(job.spec["sizes"])
    names = {
        "encoder": job.wildcards["encoder"], "space": "x".join(map(str, sizes)),
        "query_pool": "train_only",
    }  # fmt: skip
    scenes = Scenes(np.concatenate(read_slots(job.input.codes)), sizes)
    z = read_embeddings(job.input.joint[0], "joint")
    queries = read_queries(job.input.texts[0])
    found = Measured(z, scenes.slots, queries, sizes, model_of(job))
    history, weights = job.input.training_history[0], job.input.training_weights[0]
    recognised = rows(found, job.spec["candidates"], history, weights)
    lines = (canonical_json({**names, **row, **job.keys}) + "\n" for row in recognised)
    write_atomic(job.output.rows, "".join(lines))
    geometry = canonical_json({**names, **found.geometry(), **job.keys})
    write_atomic(job.output.geometry, geometry + "\n")


if "snakemake" in globals():
    main(bindscope.start(snakemake))
