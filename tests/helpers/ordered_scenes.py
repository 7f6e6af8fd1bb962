"""Datasets whose objects stand in slots, for tests."""

from typing import Any

import datasets_by_hand

from bindscope.config.codes import Dataset


def ordered(
    space: dict[str, Any],
    slots: int | None,
    sizes: tuple[int, int, int] | None,
    groups: tuple[int, int] = (8, 3),
    **more: Any,
) -> Dataset:
    """Return a dataset with `slots`; enumerated where `sizes` of the splits are given."""
    full = {**space, "groups": datasets_by_hand.groups(color=groups[0], shape=groups[1])}
    counts = dict(zip(("train", "val", "test"), sizes or (64, 16, 16), strict=True))
    split = {"rule": "enumerated", "sizes": counts} if sizes else None
    return datasets_by_hand.dataset(full, split, counts, slots=slots, **more)


def clevr_2d(size_px: int = 224) -> Dataset:
    """All 576 scenes of CLEVR-2D, identical pairs included."""
    render = {"kind": "clevr_2d", "size_px": size_px}
    return ordered({"kind": "draws", "n_objects": 2}, 2, (240, 96, 240), render=render)


def single_objects(size_px: int = 224) -> Dataset:
    """Every object alone, on the left and on the right: 48 scenes."""
    render = {"kind": "clevr_2d", "size_px": size_px}
    space = {"kind": "uniform", "max_objects": 1}
    return ordered(space, 2, (24, 12, 12), render=render)
