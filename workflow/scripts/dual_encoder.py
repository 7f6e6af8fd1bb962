"""Train dual encoders of all coverages and seeds of a job, and score what they recognize."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.core.devices import hold_device
from bindscope.core.files import canonical_json, write_atomic
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.studies.concepts.dual.runs import entry_of, rows, weights_file
from bindscope.studies.concepts.dual.training import draw_runs, train

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write rows and weights; resume from a checkpoint of the same keys."""
    names = {name: job.wildcards[name] for name in ("encoder", "space", "query_pool")}
    sizes = tuple(job.spec["sizes"])
    entry = entry_of(job.spec, names)
    runs = draw_runs(entry, sizes)
    # Not an output, which Snakemake would delete with the others of a job that failed.
    checkpoint = Checkpoint(Path(f"{job.output.weights}.checkpoint"), " ".join(job.keys.values()))
    with hold_device(entry.device) as device:
        trained = train(entry, sizes, entry.query_pools[0], runs, device, checkpoint)
        scores = list(rows(entry, sizes, runs, trained, device))
    write_atomic(job.output.weights, weights_file(trained, runs))
    about = {
        "analysis": names["encoder"],
        "dataset": names["space"],
        "vectors": "dual",
        "embedding": f"{names['encoder']}-{names['query_pool']}",
        "analysis_kind": "generalization",
    }
    lines = (canonical_json({**about, **row, **job.keys}) + "\n" for row in scores)
    write_atomic(job.output.rows, "".join(lines))
    checkpoint.remove()


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
