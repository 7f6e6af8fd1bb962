"""List the shards of one array of activations, checked against each other."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.activations.index import build_index
from bindscope.core.files import write_json

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write the index that fits read."""
    shards = {split: list(job.input[split]) for split in ("train", "val", "test")}
    folder = Path(job.output.index).parent
    index = build_index(shards, job.spec["n_scenes"], folder)
    write_json(job.output.index, {**index, "spec": job.spec_text, "code": job.code})


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
