"""Bring a published checkpoint onto this machine, pinned by revision and checksum."""

from pathlib import Path
from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import write_json
from bindscope.core.registries import resolve
from bindscope.models.weights import fetch

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a manifest of the files; the only script that uses a network."""
    manifest = Path(job.output.manifest)
    source, texts = job.spec["model"]["source"], job.spec.get("texts", False)
    types = resolve(job.spec["types"]) if "types" in job.spec else ()
    write_json(manifest, {**fetch(source, manifest, texts, types), **job.keys})


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
