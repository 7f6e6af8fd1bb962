"""Datasets of a few keys, for tests of what is listed, drawn, read and counted."""

from collections.abc import Mapping
from typing import Any

from bindscope.config.codes import Dataset

RANDOM = {"rule": "random"}


def groups(**sizes: int) -> list[dict[str, Any]]:
    """Return feature groups by name."""
    return [{"name": name, "size": size} for name, size in sizes.items()]


def uniform(most: int, **sizes: int) -> dict[str, Any]:
    """Return the space of all scenes of up to `most` different objects."""
    return {"kind": "uniform", "groups": groups(**sizes), "max_objects": most}


def counted(most: int, **sizes: int) -> dict[str, Any]:
    """Return the space of scenes that are read, of up to `most` objects."""
    return {**uniform(most, **sizes), "kind": "counted"}


def dataset(space: Any, split: Any = None, n: int | Mapping[str, int] = 1, **keys: Any) -> Dataset:
    """Return a dataset of `n` scenes in each split, random if it is not given, and in a shard."""
    counts = n if isinstance(n, Mapping) else dict.fromkeys(("train", "val", "test"), n)
    content = {
        "name": "toy",
        "space": space,
        "split": split or RANDOM,
        "n_scenes": counts,
        "shard_size": counts,
    }
    return Dataset.model_validate(content | keys)
