"""A preset with little of everything: the same kinds of things; its numbers mean nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bindscope.config.codes import Dataset
from bindscope.config.genome import GenomeSource
from bindscope.config.models import Controlled
from bindscope.config.root import Config
from bindscope.core.splits import SPLITS

SCENES = {"train": 64, "val": 32, "test": 32}
DRAWN_IMAGES = 1500  # of a stand-in for a release, so that its words stay common enough
TRAINING_STEPS = 10
BATCH = 16
PROBE_STEPS = 20
BOOTSTRAP_SAMPLES = 50
AXES = ("datasets", "models", "layers", "tokens", "probes", "controls")


def quick(config: Config) -> dict[str, Any]:
    """Return a configuration of the same kind of experiment that takes little time.

    At most `SCENES` scenes of a split, in one shard; at most `TRAINING_STEPS` and `PROBE_STEPS`
    (a linear probe is convex and keeps its own). A block of fits keeps a dataset and a model of
    every kind (`kind`), of the first kind two, and its first and last layer; it fits each of them
    once, not every combination. Probes, tokens, controls and figures stay.
    """
    content = config.model_dump(mode="json", exclude_unset=True)
    kinds = {entry.name: kind(entry) for entry in (*config.datasets, *config.models)}
    draws = set(_other_draws(config))
    used: set[str] = set()
    for name, section in content.get("studies", {}).items():
        full = getattr(config.studies, name)
        for probe, known in zip(section.get("probes", ()), full.probes, strict=True):
            if probe["family"] != "linear" and hasattr(known, "steps"):
                probe["steps"] = min(known.steps, PROBE_STEPS)
        for key in {"fits", "learning_curves"} & set(section):
            for block in section[key]:
                block["datasets"] = [name for name in block["datasets"] if name not in draws]
            blocks = [_few(block, kinds) for block in section[key]]
            used |= {name for block in blocks for name in block["datasets"] + block["models"]}
            section[key] = [part for block in blocks for part in _each_once(block)]
        for key in ("information", "intervals"):
            if hasattr(full, key):
                section.setdefault(key, {})["bootstrap_samples"] = BOOTSTRAP_SAMPLES
        if scenes := section.get("scenes"):
            section["scenes"] = {split: min(n, SCENES[split]) for split, n in scenes.items()}
        if maps := section.get("maps"):
            maps |= {key: maps[key][:1] for key in ("datasets", "models")}
    content["models"] = [
        _short_training(given, model)
        for given, model in zip(content["models"], config.models, strict=True)
        if not used or model.name in used
    ]
    used |= {given["training"]["dataset"] for given in content["models"] if "training" in given}
    content["datasets"] = [
        _few_scenes(given, dataset)
        for given, dataset in zip(content["datasets"], config.datasets, strict=True)
        if dataset.name in used
    ]
    for section in content.get("studies", {}).values():
        for key in {"families", "groups"} & set(section):
            for entry in section[key]:
                entry["models"] = [name for name in entry["models"] if name in used]
            section[key] = [entry for entry in section[key] if len(entry["models"]) > 1]
    return content


def kind(entry: Any) -> object:
    """Return what tells an entry from others of the section: all but its name and its numbers."""

    def blank(value: object) -> object:
        if isinstance(value, Mapping):
            return {key: blank(item) for key, item in value.items() if key != "name"}
        if isinstance(value, list):
            return [blank(item) for item in value]
        if isinstance(value, str):
            return re.sub(r"\d+", "0", value)
        return 0 if isinstance(value, int | float) and not isinstance(value, bool) else value

    return blank(entry.model_dump(mode="json"))


def _other_draws(config: Config) -> Iterator[str]:
    """Return the datasets that differ from one before them in name and seed alone."""
    seen: list[Dataset] = []
    for dataset in config.datasets:
        nameless = dataset.model_copy(update={"name": "any", "seed": 0})
        if nameless not in seen:
            seen.append(nameless)
        else:
            yield dataset.name


def _few(block: Mapping[str, Any], kinds: Mapping[str, object]) -> dict[str, Any]:
    """Return a block with few datasets, models, layers and seeds."""

    def of_each_kind(names: Iterable[str]) -> list[str]:
        kept: list[str] = []
        for name in names:
            known = [kinds[other] for other in kept]
            # A second one, so that there is a mean over training seeds or a curve over datasets.
            if kinds[name] not in known or (len(known) == known.count(kinds[name]) == 1):
                kept.append(name)
        return kept

    few = {**block, **{key: of_each_kind(block[key]) for key in ("datasets", "models")}}
    if isinstance(layers := block.get("layers"), list) and len(layers) > 1:
        few["layers"] = [layers[-1], layers[0]]
    if "seed_blocks" in block:
        few["seed_blocks"] = block["seed_blocks"][:1]
    return few


def _each_once(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield blocks that vary one axis each, the others at their first value."""
    axes = {axis: block[axis] for axis in AXES if isinstance(block.get(axis), list)}
    first = {axis: values[:1] for axis, values in axes.items()}
    varied = {axis: values for axis, values in axes.items() if len(values) > 1}
    for axis, values in (varied or first).items():
        yield {**block, **first, axis: values, "name": f"{block['name']}-{axis}"}
        if not varied:
            return


def _short_training(given: Mapping[str, Any], model: object) -> dict[str, Any]:
    if not isinstance(model, Controlled):
        return dict(given)
    steps, batch = min(model.training.steps, TRAINING_STEPS), min(model.training.batch_size, BATCH)
    return {**given, "training": {**given["training"], "steps": steps, "batch_size": batch}}


def _few_scenes(given: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    few = {split: min(getattr(dataset.n_scenes, split), SCENES[split]) for split in SPLITS}
    smaller = {**given, "n_scenes": few, "shard_size": dict(few)}
    if isinstance(dataset.source, GenomeSource) and (release := dataset.source.synthetic):
        n_images = min(release.n_images, DRAWN_IMAGES)
        drawing = {**given["source"]["synthetic"], "n_images": n_images}
        smaller["source"] = {**given["source"], "synthetic": drawing}
    return smaller
