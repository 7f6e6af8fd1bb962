"""Measure what is read from an embedding, and how far it is a sum over objects."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.devices import hold_device, made_current
from bindscope.core.files import canonical_json, write_atomic, write_json
from bindscope.studies.concepts.embedded import (
    image_queries,
    read_alone,
    read_captions,
    read_embedded,
    read_embeddings,
)
from bindscope.studies.concepts.rows import geometry_rows

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per quantity and stratum, and the picture's points."""
    names = {name: job.wildcards[name] for name in ("analysis", "dataset", "embedding", "vectors")}
    how_read = names["vectors"], job.spec["sizes"], job.spec["split_by"]
    with hold_device(job.spec["device"]) as device, made_current(device):
        embedded = read_embedded(job.input, *how_read, device)
        queries, other = {}, None
        for path in job.input.get("captions", ()):
            queries["captions"], other = read_captions(path, embedded.scenes)
        for path in job.input.get("images", ()):
            objects, _ = read_alone(job.input["image_codes"])
            shown = read_embeddings(path, "joint")
            queries["images"] = image_queries(shown, objects, embedded.scenes)
        found = geometry_rows(embedded, job.spec["estimators"], queries, other)
        lines = [canonical_json({**names, **row, **job.keys}) + "\n" for row in found]
    write_atomic(job.output.rows, "".join(lines))
    placed = {"why": "none was requested"}
    if job.spec["picture"]:
        from bindscope.studies.concepts.mds import picture  # imports scikit-learn

        placed = picture(embedded.z, embedded.scenes)
    write_json(job.output.picture, {**names, **placed})


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
