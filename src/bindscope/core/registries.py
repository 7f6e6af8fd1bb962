"""Names to implementations, as ``"module:object"`` strings that are resolved on use.

The strings keep a rule's code key small: only the module that a job really uses enters its hash,
so a new probe family reruns nothing that exists.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bindscope.core.interfaces import Study

DECIDES_NOTHING = True

SPACES = {
    "uniform": "bindscope.codes.uniform:Uniform",
    "balanced": "bindscope.codes.balanced:Balanced",
    "draws": "bindscope.codes.draws:Draws",
}

RENDERERS = {
    "shapes": "bindscope.scenes.shapes:render",
    "clutter": "bindscope.scenes.clutter.render:render",
    "solids": "bindscope.scenes.solids.render:render",
    "clevr_2d": "bindscope.scenes.clevr_2d:render",
    "sprites": "bindscope.scenes.sprites:render",
}

# Who draws the scenes that the solids renderer describes.
BACKENDS = {
    "raycast": "bindscope.scenes.solids.raycast_backend:draw",
    "mitsuba": "bindscope.scenes.solids.mitsuba_backend:draw",
}

# Readers of scenes by `source.kind`; a `python` source names its own.
READERS = {
    "table": "bindscope.sources.table:TableReader",
    "clevr": "bindscope.sources.clevr:ClevrReader",
    "visual_genome": "bindscope.sources.genome.reader:GenomeReader",
    "ade20k": "bindscope.sources.ade20k:Ade20kReader",
    "coco_panoptic": "bindscope.sources.coco_panoptic:CocoPanopticReader",
    "pug_spare": "bindscope.sources.pug_spare:PugSpareReader",
}

ADAPTERS = {
    "known-answer": "bindscope.models.known_answer:encode",
    "baseline": "bindscope.models.baselines:load",
    "controlled": "bindscope.models.controlled:load",
    "zoo": "bindscope.models.zoo:load",
    "timm": "bindscope.models.timm_adapter:load",
    "hf": "bindscope.models.hf_adapter:load",
    "python": "bindscope.models.python_adapter:load",
    "toy": "bindscope.studies.binding_id.toys.adapter:load_vision",
}

# Models that read captions too.
TEXT_TOWERS = {
    "controlled": "bindscope.models.own_texts:load",
    "zoo": "bindscope.models.own_texts:load",
    "hf": "bindscope.models.hf_texts:load",
}

# Types of vision-language models of transformers that engines read, in the order of their families.
LANGUAGE_TYPES = ("internvl", "llava", "llava_next", "llava_onevision", "qwen2_5_vl", "qwen2_vl")

# What controlled models are trained for; `none` trains nothing.
OBJECTIVES = {
    "objects": "bindscope.models.objectives.codes:Objects",
    "features": "bindscope.models.objectives.codes:Features",
    "captions": "bindscope.models.objectives.captions:PairedCaptions",
    "captions_unpaired": "bindscope.models.objectives.captions:CaptionsUnpaired",
    "masked": "bindscope.models.objectives.masked:Masked",
    "self_distillation": "bindscope.models.objectives.self_distillation:SelfDistillation",
}

# Studies in the order of the report's chapters; `together` reads the tables of those before it,
# `datasets` looks at what the others drew.
STUDIES = {
    "binding_information": "bindscope.studies.binding_information.study:STUDY",
    "same_object": "bindscope.studies.same_object.study:STUDY",
    "concepts": "bindscope.studies.concepts.study:STUDY",
    "binding_id": "bindscope.studies.binding_id.study:STUDY",
    "together": "bindscope.studies.together.study:STUDY",
    "datasets": "bindscope.studies.datasets.study:STUDY",
}


def resolve(reference: str) -> Any:
    """Import the object that a ``"module:object"`` string names."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


@cache
def plugged_in(group: str) -> dict[str, EntryPoint]:
    """Return what other packages register in a group of entry points (``bindscope.<group>``)."""
    return {point.name: point for point in entry_points(group=f"bindscope.{group}")}


@cache
def studies() -> dict[str, Study]:
    """Import the declarations of all studies, in their order."""
    return {name: resolve(reference) for name, reference in STUDIES.items()}
