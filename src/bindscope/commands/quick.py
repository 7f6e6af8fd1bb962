"""A preset in the size of CI: the same products and figures, from few scenes and few steps.

Nothing is listed by name here: a new preset is made small in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bindscope.config.codes import SPLITS, Dataset
from bindscope.config.genome import GenomeSource
from bindscope.config.loading import load_file
from bindscope.config.models import Controlled
from bindscope.config.root import Config
from bindscope.core.files import write_atomic

SCENES = {"train": 64, "val": 32, "test": 32}
DRAWN_IMAGES = 1500  # of a stand-in for a release, so that its words stay common enough
TRAINING_STEPS = 20
PROBE_STEPS = 20
BOOTSTRAP_SAMPLES = 50


def write_quick(preset: Path, target: Path) -> None:
    """Write a preset's quick form.

    Parameters
    ----------
    preset, target
        Configuration files.

    Raises
    ------
    ConfigError
        If the preset is wrong.
    """
    text = yaml.safe_dump(quick(load_file(preset)), sort_keys=False)
    header = f"# {preset.stem} with few scenes and steps; its numbers mean nothing.\n"
    write_atomic(target, (header + text).encode())


def quick(config: Config) -> dict[str, Any]:
    """Return a configuration of the same experiment that takes little time.

    At most `SCENES` scenes of a split, in one shard; at most `TRAINING_STEPS` and `PROBE_STEPS`
    (a linear probe is convex and keeps its own); of datasets that differ in the seed alone, the
    first. Models, layers, tokens, probes, seeds and figures stay.
    """
    content = config.model_dump(mode="json", exclude_unset=True)
    kept = _one_draw(config)
    content["datasets"] = [
        _few_scenes(given, dataset)
        for given, dataset in zip(content["datasets"], config.datasets, strict=True)
        if dataset.name in kept.values()
    ]
    for given, model in zip(content["models"], config.models, strict=True):
        if isinstance(model, Controlled):
            training = given["training"]
            training["steps"] = min(model.training.steps, TRAINING_STEPS)
            training["dataset"] = kept[training["dataset"]]
    for given, probe in zip(content["probes"], config.probes, strict=True):
        if probe.family != "linear":
            given["steps"] = min(probe.steps, PROBE_STEPS)
    for block in content["fits"]:
        block["datasets"] = list(dict.fromkeys(kept[name] for name in block["datasets"]))
    content["information"] = {
        **content.get("information", {}), "bootstrap_samples": BOOTSTRAP_SAMPLES,
    }  # fmt: skip
    return content


def _one_draw(config: Config) -> dict[str, str]:
    """The dataset that stands for each: the first of those that differ in name and seed alone."""
    seen: list[Dataset] = []
    kept = {}
    for dataset in config.datasets:
        for other in seen:
            if dataset.model_copy(update={"name": other.name, "seed": other.seed}) == other:
                kept[dataset.name] = other.name
                break
        else:
            seen.append(dataset)
            kept[dataset.name] = dataset.name
    return kept


def _few_scenes(given: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    few = {split: min(getattr(dataset.n_scenes, split), SCENES[split]) for split in SPLITS}
    small = {**given, "n_scenes": few, "shard_size": dict(few)}
    if isinstance(dataset.source, GenomeSource) and (drawn := dataset.source.drawn):
        n_images = min(drawn.n_images, DRAWN_IMAGES)
        drawing = {**given["source"]["drawn"], "n_images": n_images}
        small["source"] = {**given["source"], "drawn": drawing}
    return small
