"""Measure the embeddings of trained dual encoders: rules of object vectors, bits of pairing."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import canonical_json, write_atomic
from bindscope.studies.concepts.dual.geometry import rows
from bindscope.studies.concepts.dual.runs import stored_runs

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per coverage and seed."""
    names = {name: job.wildcards[name] for name in ("encoder", "space", "query_pool")}
    sizes = tuple(job.spec["sizes"])
    runs = stored_runs(job.input.encoders_weights[0], job.spec["encoder"], sizes)
    measures = rows(runs, job.spec["max_scenes"])
    lines = (canonical_json({**names, **row, **job.keys}) + "\n" for row in measures)
    write_atomic(job.output.rows, "".join(lines))


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
