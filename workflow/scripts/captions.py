"""Put the scenes of a dataset into words, and all objects and values of its space."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.codes.values import named_groups
from bindscope.config.captions import CaptionTemplate
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store
from bindscope.scenes.captions import queries, scene_captions, write_captions

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per text: scenes of each split, then the queries."""
    groups = named_groups(job.spec["groups"])
    templates = [CaptionTemplate.model_validate(content) for content in job.spec["templates"]]
    captions = list(queries(groups, templates))
    for split in SPLITS:
        slots = open_store(job.input[split][0]).read("slots")
        captions += scene_captions(split, slots, groups, templates)
    write_captions(job.output.texts, captions, job.keys)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
