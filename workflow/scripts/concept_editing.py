"""Exchange objects in an embedding of scenes, and see what comes of it."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.devices import hold_device, made_current
from bindscope.core.files import canonical_json, write_atomic
from bindscope.studies.concepts.embedded import read_embedded
from bindscope.studies.concepts.rows import editing_rows

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per estimator, type, strength, quantity and stratum."""
    names = {name: job.wildcards[name] for name in ("analysis", "dataset", "embedding", "vectors")}
    how_read = names["vectors"], job.spec["sizes"], job.spec["split_by"]
    with hold_device(job.spec["device"]) as device, made_current(device):
        embedded = read_embedded(job.input, *how_read, device)
    found = editing_rows(embedded, job.spec["estimators"], job.spec["strengths"])
    lines = (canonical_json({**names, **row, **job.keys}) + "\n" for row in found)
    write_atomic(job.output.rows, "".join(lines))


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
