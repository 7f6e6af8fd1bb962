"""Make the images, texts and questions of a shapes task."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.core.files import write_atomic
from bindscope.core.store.writer import StoreWriter
from bindscope.studies.binding_id.tasks.shapes_task import Task, write_task

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `images`, `masks` and `boxes`, and a row per thing."""
    with StoreWriter(
        job.output.store, job.output.manifest, spec=job.spec_text, code=job.code
    ) as writer:
        rows = write_task(Task.of(job.spec), writer, job.keys)
    write_atomic(job.output.rows, rows)


if "snakemake" in globals():
    main(bindscope.start(snakemake))
