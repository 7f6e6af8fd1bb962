"""Fit a probe of pairs of patches to each layer of a block."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.config.entities import entity
from bindscope.core.devices import hold_device, make_current
from bindscope.core.splits import SPLITS
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.studies.same_object.config import AnyScorer
from bindscope.studies.same_object.fit import fit_layers, write_results

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write rows, strata, weights, histories and what is told right of each test image."""
    spec, probe, wildcards = job.spec, entity(job, "probe", AnyScorer), dict(job.wildcards.items())
    tokens: dict[str, list[str]] = {}
    if spec["layers"]:
        tokens |= {split: job.input[split] for split in SPLITS}
    names = {
        "dataset": wildcards["dataset"],
        "model": wildcards["model"],
        "probe": wildcards["probe"],
        **job.keys,
    }
    with hold_device(probe.device) as device, make_current(device):
        checkpoints = Checkpoints(job.output.weights, " ".join(job.keys.values()))
        results = fit_layers(probe, job.input.samples, tokens, spec, names, checkpoints)
        write_results(job.output, results)
    checkpoints.remove()


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
