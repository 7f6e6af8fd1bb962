"""Say which stores hold the codes and anchors of a dataset, and what its priors are."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import write_json
from bindscope.priors.labels import build_labels

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write what fits read."""
    inputs, path = job.input, Path(job.output.labels)
    labels = build_labels(inputs.codes, inputs.anchors, inputs.priors[0], path.parent)
    write_json(path, {**labels, "spec": job.spec_text, "code": job.code})


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
