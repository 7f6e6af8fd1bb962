"""Say which stores hold the codes and anchors of a dataset, and what its priors are."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if "snakemake" in globals():  # this clone's code, never an installed copy
    sys.path.insert(0, f"{snakemake.scriptdir}/../../src")

import bindscope
from bindscope.core.files import write_json
from bindscope.priors.labels import build_labels

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write what fits read."""
    given, path = job.input, Path(job.output.labels)
    labels = build_labels(given.codes, given.anchors, given.priors[0], path.parent)
    write_json(path, {**labels, "spec": job.spec_text, "code": job.code})


if "snakemake" in globals():
    main(bindscope.start(snakemake))
