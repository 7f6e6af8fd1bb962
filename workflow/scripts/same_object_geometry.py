"""Measure what a fitted probe's scores, and the tokens it reads, are like."""

from typing import TYPE_CHECKING

from safetensors.numpy import load_file

import bindscope
from bindscope.core.files import canonical_json, write_atomic
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.studies.same_object.estimates import Bootstrap
from bindscope.studies.same_object.fit import read_layers
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.geometry import measured_rows
from bindscope.studies.same_object.quantities import weights_name

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per layer and quantity."""
    names = {name: job.wildcards[name] for name in ("dataset", "model", "probe")}
    tokens: dict[str, list[str]] = {split: job.input[split] for split in SPLITS}
    layers, fit = job.spec["layers"], load_file(job.input.fit_weights[0])
    probes = {str(at): FittedScorer.read(fit, weights_name(str(at), 0, 0)) for at in layers}
    copy_of = open_store(job.input.samples[-1]).read("copy_of")
    checkpoints = Checkpoints(job.output.rows, " ".join(job.keys.values()))
    data = read_layers(job.input.samples, tokens, layers)
    pairs = [(str(first), str(second)) for first, second in job.spec["cross_layers"]]
    rows = measured_rows(data, probes, copy_of, Bootstrap(), checkpoints, pairs)
    lines = (canonical_json({**names, **row, **job.keys}) + "\n" for row in rows)
    write_atomic(job.output.rows, "".join(lines))
    checkpoints.remove()


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
