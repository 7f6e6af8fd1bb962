"""Measure what is read from an embedding, and how far it is a sum over objects."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import canonical_json, write_atomic
from bindscope.studies.concepts.embedded import read_embeddings, read_queries, read_scenes
from bindscope.studies.concepts.rows import Embedded, geometry_rows

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per quantity and stratum."""
    names = {name: job.wildcards[name] for name in ("analysis", "dataset", "embedding", "vectors")}
    scenes, _ = read_scenes(job.input.codes, job.spec["sizes"])
    embedded = Embedded(read_embeddings(job.input.embeddings[0], names["vectors"]), scenes)
    captions = [read_queries(path, scenes) for path in job.input.captions]
    found = geometry_rows(embedded, job.spec["estimators"], *captions)
    lines = (canonical_json({**names, **row, **job.keys}) + "\n" for row in found)
    write_atomic(job.output.rows, "".join(lines))


if "snakemake" in globals():
    main(bindscope.start(snakemake))
