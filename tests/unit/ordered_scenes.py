"""Datasets whose objects stand in slots, for tests."""

from __future__ import annotations

from typing import Any

from bindscope.config.codes import Dataset


def ordered(
    space: dict[str, Any],
    slots: int | None,
    sizes: tuple[int, int, int] | None,
    groups: tuple[int, int] = (8, 3),
    **more: Any,
) -> Dataset:
    """Return a dataset with `slots`; enumerated where `sizes` of the splits are given."""
    names = ("color", "shape")
    full = {
        **space, "groups": [{"name": n, "size": s} for n, s in zip(names, groups, strict=True)],
    }  # fmt: skip
    counts = dict(zip(("train", "val", "test"), sizes or (64, 16, 16), strict=True))
    split: dict[str, Any] = {"rule": "random"}
    if sizes:
        split = {"rule": "enumerated", "sizes": counts}
    return Dataset.model_validate(
        {
            "name": "ordered", "space": full, "split": split, "slots": slots, "n_scenes": counts,
            "shard_size": counts, **more,
        }
    )  # fmt: skip


def clevr_2d(size_px: int = 224) -> Dataset:
    """All 576 scenes of CLEVR-2D, identical pairs included."""
    render = {"kind": "clevr_2d", "size_px": size_px}
    return ordered({"kind": "draws", "n_objects": 2}, 2, (240, 96, 240), render=render)


def single_objects(size_px: int = 224) -> Dataset:
    """Every object alone, on the left and on the right: 48 scenes."""
    render = {"kind": "clevr_2d", "size_px": size_px}
    space = {"kind": "uniform", "max_objects": 1}
    return ordered(space, 2, (24, 12, 12), render=render)
