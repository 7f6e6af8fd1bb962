"""Fit an approximator to an embedding of scenes of some objects, and ask about the others."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.core.devices import hold_device, make_current
from bindscope.core.files import canonical_json, write_atomic
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.studies.concepts.approximators import rows_of_runs
from bindscope.studies.concepts.inputs import read_dual, read_embedded

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per coverage, seed, state, split, quantity and stratum, and run of an encoder."""
    names = {name: job.wildcards[name] for name in ("analysis", "dataset", "embedding", "vectors")}
    about = {**names, "analysis_kind": "approximators", "variant": job.wildcards["approximator"]}
    # Not an output, which Snakemake would delete with the others of a job that failed.
    checkpoint = Checkpoint(Path(f"{job.output.rows}.checkpoint"), " ".join(job.keys.values()))
    with hold_device(job.spec["device"]) as device, make_current(device):
        if names["vectors"] == "dual":
            runs = read_dual(job.input.weights_weights[0], job.spec, device)
        else:
            runs = iter([({}, read_embedded(job.input, names["vectors"], job.spec, device))])
        rows = rows_of_runs(runs, job.spec, checkpoint)
    lines = [canonical_json({**about, **row, **job.keys}) + "\n" for row in rows]
    write_atomic(job.output.rows, "".join(lines))
    checkpoint.remove()


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
