"""Fit the probes of one seed block."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if "snakemake" in globals():  # this clone's code, never an installed copy
    sys.path.insert(0, f"{snakemake.scriptdir}/../../src")

import bindscope
from bindscope.config.information import Information
from bindscope.information.job import load_data, run_fit, write_fit

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.job import Job


def main(job: "Job") -> None:
    """Write rows, weights, histories and details; a null probe sees z = 0."""
    spec = job.spec
    index = None if job.rule == "null" else job.input.index[0]
    data = load_data(
        job.input.codes, job.input.anchors, index, spec["representation"], spec["sizes"]
    )
    results = run_fit(job.probe, data, spec["seeds"], spec["control"])
    priors = json.loads(Path(job.input.priors[0]).read_text())
    prior = next(row for row in priors if row["split"] == "test")
    wildcards = dict(job.wildcards.items())
    names = {
        "dataset": wildcards["dataset"], "model": wildcards.get("model", "null"),
        "layer": str(spec["representation"].get("layer", "")),
        "tokens": spec["representation"]["tokens"], "probe": wildcards["probe"],
        "control": spec["control"], **job.keys,
    }  # fmt: skip
    information = Information.model_validate(spec["information"])
    write_fit(job.output, results, data, prior, names, job.probe, information, spec["disjoint"])


if "snakemake" in globals():
    main(bindscope.start(snakemake))
