"""Fit an approximator to an embedding of scenes of some objects, and ask about the others."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import canonical_json, write_atomic
from bindscope.studies.concepts.complexity_rows import complexity_rows
from bindscope.studies.concepts.embedded import read_dual, read_embedded

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per coverage, seed, state, split, quantity and stratum, and run of an encoder."""
    names = {
        name: job.wildcards[name]
        for name in ("analysis", "dataset", "embedding", "vectors", "approximator")
    }
    how = {name: job.spec[name] for name in ("coverages", "seeds", "validation_share")}
    if names["vectors"] == "dual":
        runs = read_dual(job.input.weights_weights[0], job.spec)
    else:
        how_read = names["vectors"], job.spec["sizes"], job.spec["split_by"]
        runs = iter([({}, read_embedded(job.input, *how_read))])
    lines = (
        canonical_json({**names, **row, **about, **job.keys}) + "\n"
        for about, embedded in runs
        for row in complexity_rows(embedded, job.spec["approximator"], **how)
    )
    write_atomic(job.output.rows, "".join(lines))


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
