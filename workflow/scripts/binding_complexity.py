"""Fit an approximator to an embedding of scenes of some objects, and ask about the others."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import canonical_json, write_atomic
from bindscope.studies.concepts.complexity_rows import complexity_rows
from bindscope.studies.concepts.embedded import read_embeddings, read_scenes
from bindscope.studies.concepts.rows import Embedded

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per coverage, seed, state, split, quantity and stratum."""
    names = {
        name: job.wildcards[name]
        for name in ("analysis", "dataset", "embedding", "vectors", "approximator")
    }
    scenes, _ = read_scenes(job.input.codes, job.spec["sizes"])
    embedded = Embedded(read_embeddings(job.input.embeddings[0], names["vectors"]), scenes)
    how = {name: job.spec[name] for name in ("coverages", "seeds", "validation_share")}
    found = complexity_rows(embedded, job.spec["approximator"], **how)
    lines = (canonical_json({**names, **row, **job.keys}) + "\n" for row in found)
    write_atomic(job.output.rows, "".join(lines))


if "snakemake" in globals():
    main(bindscope.start(snakemake))
