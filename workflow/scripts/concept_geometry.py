"""Measure what is read from an embedding, whether it is a sum over objects, and edits of these."""

from typing import TYPE_CHECKING, Any

import numpy as np

import bindscope
from bindscope.core.files import canonical_json, write_atomic, write_json
from bindscope.studies.concepts.decomposition import picture
from bindscope.studies.concepts.inputs import (
    read_arrays,
    read_captions,
    read_slots,
)
from bindscope.studies.concepts.measure import concepts
from bindscope.studies.concepts.scenes import Scenes

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per quantity and stratum, and the picture's points."""
    names = {name: job.wildcards[name] for name in ("analysis", "dataset", "embedding", "vectors")}
    sizes, sums = job.spec["sizes"], {"estimators": job.spec["estimators"]}
    z, values = read_arrays(job.input, names["vectors"], job.spec)
    slots = np.concatenate(read_slots(job.input["codes"]))
    analyses: list[Any] = ["recognition", {"analysis": "decomposition", **sums}, "removal"]
    texts = None
    if job.spec["strengths"]:
        edits = {name: job.spec[name] for name in ("strengths", "max_edits")}
        edits["types"] = job.spec["edited_types"]
        analyses.append({"analysis": "editing", **edits, **sums})
    for path in job.input.get("captions", ()):
        texts = read_captions(path, sizes, len(z) - len(slots))
        analyses.append("alignment")
    result = concepts(
        z,
        values,
        texts=texts,
        analyses=analyses,
        split=job.spec["split_by"],
        **{name: job.spec[name] for name in ("protocol", "probe_steps") if name in job.spec},
        device=job.spec["device"],
        threads=job.threads,
    )
    rows = result.rows["concepts"]
    lines = [canonical_json({**names, **row, **job.keys}) + "\n" for row in rows]
    write_atomic(job.output.rows, "".join(lines))
    placed = {"why": "none was requested"}
    if job.spec["picture"]:
        placed = picture(z[: len(slots)], Scenes(slots, tuple(sizes)))
    write_json(job.output.picture, {**names, **placed})


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
