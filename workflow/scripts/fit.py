"""Fit the probes of one seed block."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.config.entities import entity
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.priors.labels import DatasetLabels
from bindscope.studies.binding_information.config import AnyProbe, Information
from bindscope.studies.binding_information.fit import load_data, run_fit, write_fit

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write rows, weights, histories and details; a null probe sees z = 0.

    A fit that is killed goes on from checkpoints of the same keys.
    """
    spec, probe = job.spec, entity(job, "probe", AnyProbe)
    index = None if job.rule == "null" else job.input.index[0]
    labels = DatasetLabels(job.input.labels[0])
    data = load_data(labels, index, spec["representation"], spec["sizes"])
    checkpoints = Checkpoints(job.output.weights, " ".join(job.keys.values()))
    results = run_fit(probe, data, spec["seeds"], spec["control"], checkpoints)
    wildcards = dict(job.wildcards.items())
    names = {
        "dataset": wildcards["dataset"],
        "model": wildcards.get("model", "null"),
        "layer": str(spec["representation"].get("layer", "")),
        "tokens": spec["representation"]["tokens"],
        "probe": wildcards["probe"],
        "control": spec["control"],
        **job.keys,
    }
    information = Information.model_validate(spec["information"])
    prior = labels.prior("test")
    write_fit(job.output, results, data, prior, names, probe, information, spec["disjoint"])
    checkpoints.remove()


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
