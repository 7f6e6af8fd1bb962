"""A preset with its counts cut; all else stays as it stands in its file."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bindscope.config.root import Config
from bindscope.core.files import canonical_json
from bindscope.core.splits import SPLITS

SCENES = {"train": 8, "val": 4, "test": 8}
CAPS: Mapping[str, float] = {
    "steps": 10,
    "probe_steps": 10,
    "rows": 4,
    "estimation_rows": 4,
    "resamples": 100,
    "bootstrap_samples": 50,
    "dual_objects": 24,
    "max_scenes": 200,
    "rounds": 5,
    "samples": 2,
    "train": 12,
    "val": 4,
    "threads": 1,
    "hidden": 128,
    "rank": 8,
    "n_patches": 64,
}
"""The most of each number, wherever a key of this name stands outside of datasets."""
ENCODER = {"width": 32, "layers": 2, "heads": 2, "hidden": 64, "dim": 32}
"""The most of each size of a dual encoder, which is trained, not read."""
SOME_LAYERS = [0, 6, 12]
"""Where every layer of deep models is fitted to pairs of patches: these ones."""
OWN_LAYERS = 2
"""The most blocks of a model that a job trains, whose every layer may be read."""
FIRST = {"seeds": 1, "seed_blocks": 1, "coverages": 2}
"""Of these lists the first and the last entries stay: so many in all."""
DRAWS = 2
"""Entries that differ in name and seed alone: so many of each kind stay."""


def cut(config: Config, device: str) -> dict[str, Any]:
    """Cut the counts of a configuration, those too that its file leaves at their defaults."""
    content = config.model_dump(mode="json")
    few = {key: value for key, value in content.items() if key != "studies"}
    few["models"] = [_capped(entry, device) for entry in content["models"]]
    for architecture in filter(None, (entry.get("architecture") for entry in few["models"])):
        architecture["n_layers"] = min(architecture["n_layers"], OWN_LAYERS)
    few["datasets"] = [_few_scenes(entry) for entry in content["datasets"]]
    few["studies"] = _capped(content["studies"], device)
    dropped = {key: _repeated(few[key]) for key in ("datasets", "models")}
    for key, names in dropped.items():
        few[key] = [entry for entry in few[key] if entry["name"] not in names]
    few["studies"] = _without(few["studies"], dropped)
    for entry in (few["studies"].get("concepts") or {}).get("dual_encoders", ()):
        entry["training"]["batch_size"] = min(entry["training"]["batch_size"], 16)
        entry["encoder"] = {
            key: min(value, ENCODER[key]) if key in ENCODER else value
            for key, value in entry["encoder"].items()
        }
    if effects := (few["studies"].get("same_object") or {}).get("effects"):
        fits = few["studies"]["same_object"]["fits"]
        parts = ("datasets", "models", "probes")
        edited = [fit for fit in fits if all({*fit[key]} & {*effects[key]} for key in parts)]
        everywhere = all(fit["layers"] == "all" for fit in edited)
        layers = SOME_LAYERS[1:2] if everywhere else effects["layers"][:1]
        effects |= {"scenes": 4, "layers": layers}
        for fit in fits:
            fit["layers"] = SOME_LAYERS if fit["layers"] == "all" else fit["layers"]
    return few


def _capped(value: Any, device: str, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _capped(part, device, name) for name, part in value.items()}
    if isinstance(value, list):
        if key in FIRST:
            value = value if len(value) <= FIRST[key] else [value[0], *value[-1:]][: FIRST[key]]
        if key == "seed_blocks":
            value = [block[:2] for block in value]
        return [_capped(part, device) for part in value]
    if key == "device":
        return device
    if key in CAPS and isinstance(value, int | float):
        return min(value, CAPS[key])
    return value


def _few_scenes(entry: dict[str, Any]) -> dict[str, Any]:
    """Keep two shards of the split that has several, and enumerated scenes up to some hundred."""
    numbers, shards = dict(entry["n_scenes"]), dict(entry["shard_size"])
    enumerated = entry["split"]["rule"] == "enumerated"
    total = sum(numbers.values())
    for split in SPLITS:
        several = numbers[split] > shards[split]
        if not enumerated:
            numbers[split] = min(numbers[split], SCENES[split])
        elif total > 400:
            numbers[split] = max(numbers[split] // (5 if total < 1000 else total // 100), 8)
        shards[split] = numbers[split] // 2 if several else numbers[split]
    few = {**entry, "n_scenes": numbers, "shard_size": shards}
    if few["split"]["rule"] == "index":
        few["split"] = {**entry["split"], "sizes": numbers}
    if few["render"] is not None and "samples" in (few["render"].get("backend") or {}):
        few["render"]["backend"]["samples"] = 2
    return few


def _repeated(entries: list[dict[str, Any]]) -> set[str]:
    """Return the names of entries of which enough differ in name and seed alone."""
    counts, names = Counter[str](), set()
    for entry in entries:
        nameless = {key: value for key, value in entry.items() if key not in ("name", "seed")}
        if isinstance(source := nameless.get("source"), str):
            nameless["source"] = re.sub(r"^(zoo:.*)-\d+$", r"\1", source)
        kind = canonical_json(nameless)
        counts[kind] += 1
        if counts[kind] > DRAWS:
            names.add(entry["name"])
    return names


def _without(value: Any, dropped: Mapping[str, set[str]], key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _without(part, dropped, name) for name, part in value.items()}
    if not isinstance(value, list):
        return value
    names = dropped.get(key, set())
    return [
        _without(part, dropped) for part in value if not (isinstance(part, str) and part in names)
    ]


def sources(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sources of models whose weights are downloaded."""
    language = (content["studies"].get("binding_id") or {}).get("models", ())
    for entry in (*content["models"], *language):
        if entry["source"].startswith(("hf:", "timm:")) and entry.get("pretrained", True):
            yield entry["source"]
