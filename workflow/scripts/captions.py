"""Put the scenes of one split into words, or all objects and values of a space."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.codes.values import named_groups
from bindscope.config.captions import CaptionTemplate
from bindscope.core.store.reader import open_store
from bindscope.scenes.captions import queries, scene_captions, write_captions

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write a row per text: of each template all scenes, or the queries where there are no codes."""
    groups = named_groups(job.spec["groups"])
    templates = [CaptionTemplate.model_validate(given) for given in job.spec["templates"]]
    codes = next(iter(job.input.codes), None)
    if codes is None:
        captions = queries(groups, templates)
    else:
        captions = scene_captions(open_store(codes).read("slots"), groups, templates)
    write_captions(job.output.texts, list(captions), job.keys)


if "snakemake" in globals():
    main(bindscope.start(snakemake))
