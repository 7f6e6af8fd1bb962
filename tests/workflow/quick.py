"""A preset with few scenes and steps: the same products and figures; its numbers mean nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bindscope.config.codes import Dataset
from bindscope.config.genome import GenomeSource
from bindscope.config.models import Controlled
from bindscope.config.root import Config
from bindscope.core.splits import SPLITS

SCENES = {"train": 64, "val": 32, "test": 32}
DRAWN_IMAGES = 1500  # of a stand-in for a release, so that its words stay common enough
TRAINING_STEPS = 20
PROBE_STEPS = 20
BOOTSTRAP_SAMPLES = 50


def quick(config: Config) -> dict[str, Any]:
    """Return a configuration of the same experiment that takes little time.

    At most `SCENES` scenes of a split, in one shard; at most `TRAINING_STEPS` and `PROBE_STEPS`
    (a linear probe is convex and keeps its own); of datasets that differ in the seed alone, the
    first. Models, layers, tokens, probes, seeds and figures stay.
    """
    content = config.model_dump(mode="json", exclude_unset=True)
    stands_for = _one_draw(config)
    content["datasets"] = [
        _few_scenes(given, dataset)
        for given, dataset in zip(content["datasets"], config.datasets, strict=True)
        if dataset.name in stands_for.values()
    ]
    for given, model in zip(content["models"], config.models, strict=True):
        if isinstance(model, Controlled):
            training = given["training"]
            training["steps"] = min(model.training.steps, TRAINING_STEPS)
            training["dataset"] = stands_for[training["dataset"]]
    for name, section in content.get("studies", {}).items():
        for probe in section.get("probes", ()):
            if probe["family"] != "linear":
                probe["steps"] = min(probe.get("steps", PROBE_STEPS), PROBE_STEPS)
        for block in section.get("fits", ()):
            block["datasets"] = list(dict.fromkeys(stands_for[d] for d in block["datasets"]))
        if hasattr(getattr(config.studies, name), "information"):
            section.setdefault("information", {})["bootstrap_samples"] = BOOTSTRAP_SAMPLES
    return content


def _one_draw(config: Config) -> dict[str, str]:
    """The dataset that stands for each: the first of those that differ in name and seed alone."""
    seen: list[Dataset] = []
    stands_for = {}
    for dataset in config.datasets:
        for other in seen:
            if dataset.model_copy(update={"name": other.name, "seed": other.seed}) == other:
                stands_for[dataset.name] = other.name
                break
        else:
            seen.append(dataset)
            stands_for[dataset.name] = dataset.name
    return stands_for


def _few_scenes(given: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    few = {split: min(getattr(dataset.n_scenes, split), SCENES[split]) for split in SPLITS}
    smaller = {**given, "n_scenes": few, "shard_size": dict(few)}
    if isinstance(dataset.source, GenomeSource) and (release := dataset.source.synthetic):
        n_images = min(release.n_images, DRAWN_IMAGES)
        drawing = {**given["source"]["synthetic"], "n_images": n_images}
        smaller["source"] = {**given["source"], "synthetic": drawing}
    return smaller
