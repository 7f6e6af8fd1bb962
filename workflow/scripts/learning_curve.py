"""Fit a probe to growing shares of the train scenes."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.config.entities import entity
from bindscope.core.files import canonical_json, write_atomic
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.priors.labels import DatasetLabels
from bindscope.studies.binding_information.config import AnyProbe, Information
from bindscope.studies.binding_information.fit import load_data
from bindscope.studies.binding_information.learning_curve import learning_curve

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per quantity, share and seed."""
    spec, labels = job.spec, DatasetLabels(job.input.labels[0])
    data = load_data(labels, job.input.index[0], spec["representation"], spec["sizes"])
    checkpoints = Checkpoints(job.output.rows, " ".join(job.keys.values()))
    rows = learning_curve(
        entity(job, "probe", AnyProbe),
        data,
        spec["seeds"],
        spec["shares"],
        labels.prior("test"),
        Information.model_validate(spec["information"]),
        disjoint=spec["disjoint"],
        control=spec["control"],
        checkpoints=checkpoints,
    )
    names = {
        name: job.wildcards[name] for name in ("dataset", "model", "probe", "tokens", "control")
    }
    names |= {"layer": str(spec["representation"]["layer"]), **job.keys}
    write_atomic(Path(job.output.rows), "".join(canonical_json(names | r) + "\n" for r in rows))
    checkpoints.remove()


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
