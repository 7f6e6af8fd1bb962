"""Exchange objects in an embedding of scenes, and see what comes of it."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import canonical_json, write_atomic
from bindscope.studies.concepts.inputs import read_arrays
from bindscope.studies.concepts.measure import concepts

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per estimator, type, strength, quantity and stratum."""
    names = {name: job.wildcards[name] for name in ("analysis", "dataset", "embedding", "vectors")}
    z, values = read_arrays(job.input, names["vectors"], job.spec["sizes"])
    options = {name: job.spec[name] for name in ("estimators", "strengths")}
    result = concepts(
        z, values, analyses=[{"analysis": "editing", **options}], split=job.spec["split_by"],
        device=job.spec["device"], threads=job.threads,
    )  # fmt: skip
    rows = result.rows["concepts"]
    lines = (canonical_json({**names, **row, **job.keys}) + "\n" for row in rows)
    write_atomic(job.output.rows, "".join(lines))


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
