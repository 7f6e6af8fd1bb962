"""Scenes that are listed, and the order of objects: by brute force and by known counts."""

from collections import Counter
from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from ordered_scenes import clevr_2d, ordered
from pydantic import ValidationError

from bindscope.codes.enumeration import enumerated, n_ordered_scenes
from bindscope.codes.sampling import sample_codes
from bindscope.codes.slots import slots_of
from bindscope.config.codes import Dataset, endless
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SPLITS
from bindscope.graph.data import check_split

DRAWS = {"kind": "draws", "n_objects": 2}
PAIRS = {"kind": "uniform", "min_objects": 2, "max_objects": 2}
MATCHING = {"kind": "balanced", "chosen": [2, 2], "n_objects": 2}


def listed(dataset: Dataset) -> list[tuple[int, ...]]:
    """All scenes of all splits."""
    return [
        tuple(row)
        for split in SPLITS
        for row in enumerated(dataset, split, 0, getattr(dataset.n_scenes, split)).tolist()
    ]


def by_hand(kind: str, cells: int, shapes: int, slots: int, m: int) -> set[tuple[int, ...]]:
    """Every content of the slots with m objects that the space allows."""
    scenes = set()
    for scene in product(range(-1, cells), repeat=slots):
        objects = [cell for cell in scene if cell >= 0]
        if len(objects) != m or (kind != "draws" and len(set(objects)) < m):
            continue
        matched = len({o // shapes for o in objects}) == len({o % shapes for o in objects}) == m
        if kind != "balanced" or matched:
            scenes.add(scene)
    return scenes


@pytest.mark.parametrize(
    ("space", "slots"),
    [(DRAWS, 2), (PAIRS, 3), (MATCHING, 3)],
)
def test_every_ordered_scene_is_listed_once(space: dict[str, Any], slots: int) -> None:
    m = space.get("n_objects", space.get("max_objects"))
    expected = by_hand(str(space["kind"]), 6, 2, slots, m)
    n = len(expected)
    dataset = ordered(space, slots, (n - 2 * (n // 3), n // 3, n // 3), groups=(3, 2))
    assert n_ordered_scenes(dataset) == n
    scenes = listed(dataset)
    assert len(scenes) == n
    assert set(scenes) == expected


def test_pug_spare_and_text_scenes_are_spaces_that_exist() -> None:
    spare = ordered(MATCHING, 2, (3000, 392, 4000), groups=(12, 8))
    assert n_ordered_scenes(spare) == 7392
    assert n_ordered_scenes(ordered(DRAWS, 2, (64, 16, 16), groups=(20, 20))) == 160_000
    three = ordered({"kind": "draws", "n_objects": 3}, 3, (1000, 500, 500))
    assert n_ordered_scenes(three) == 13_824
    assert len(set(listed(three))) == 2000  # a sample without any scene twice


def test_codes_and_slots_say_the_same_and_do_not_depend_on_shards() -> None:
    dataset = clevr_2d()
    objects = sample_codes(dataset, "test", 0, 240)
    slots = slots_of(dataset, "test", 0, objects)
    assert ((objects.sum(axis=1) == 1) == (slots[:, 0] == slots[:, 1])).all()
    assert (np.take_along_axis(objects, slots.astype(int), axis=1) == 1).all()
    np.testing.assert_array_equal(sample_codes(dataset, "test", 100, 130), objects[100:130])
    np.testing.assert_array_equal(slots_of(dataset, "test", 100, objects[100:130]), slots[100:130])


@pytest.mark.parametrize("space", [DRAWS, PAIRS])
def test_orders_of_drawn_scenes_are_equally_likely(space: dict[str, Any]) -> None:
    dataset = ordered(space, 3, None, groups=(2, 1))
    n = 30_000
    objects = sample_codes(dataset, "train", 0, n)
    slots = slots_of(dataset, "train", 0, objects)
    np.testing.assert_array_equal(slots_of(dataset, "train", 700, objects[700:720]), slots[700:720])
    counts = Counter(map(tuple, slots.tolist()))
    scenes = by_hand(str(space["kind"]), 2, 1, 3, 2)
    assert set(counts) == scenes
    expected = n / len(scenes)
    chi2 = sum((counts[scene] - expected) ** 2 / expected for scene in scenes)
    assert chi2 < len(scenes) + 5 * np.sqrt(2 * len(scenes))


def test_the_order_knows_nothing_about_the_scenes() -> None:
    """Parts of a full list are samples: seeds change them, and orders hold every permutation."""
    first, shuffled = (enumerated(d, "train", 0, 240) for d in (clevr_2d(), reseeded(clevr_2d())))
    assert (first != shuffled).any()
    three = ordered({"kind": "uniform", "min_objects": 3, "max_objects": 3}, 3, (4, 1, 1), (3, 1))
    assert set(listed(three)) == set(permutations(range(3)))


def reseeded(dataset: Dataset) -> Dataset:
    return dataset.model_copy(update={"seed": 1})


TOO_MANY = {"train": 240, "val": 96, "test": 300}


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: ordered(DRAWS, None, (2, 1, 1)), "give `slots`"),
        (lambda: ordered(DRAWS, 1, None), "slots is 1"),
        (
            lambda: ordered({"kind": "uniform", "max_objects": 2}, 2, (2, 1, 1)),
            "needs one number of objects",
        ),
        (
            lambda: ordered(DRAWS, 2, (240, 96, 240), n_scenes=TOO_MANY, shard_size=TOO_MANY),
            r"n_scenes\.test is 300",
        ),
        (
            lambda: check_split(ordered(DRAWS, 2, (241, 96, 240))),
            "ask for 577 scenes, and there are 576",
        ),
        (
            lambda: check_split(ordered(DRAWS, 2, (2, 1, 1), groups=(50, 50))),
            "at most 4,194,304 can be listed",
        ),
        (lambda: enumerated(clevr_2d(), "test", 200, 241), "sets apart 240 scenes"),
    ],
)
def test_what_cannot_be_listed_is_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises((ConfigError, ValidationError), match=problem):
        make()


def test_a_list_that_ends_gives_no_fresh_scenes_for_a_training() -> None:
    render = {"kind": "shapes", "size_px": 32, "object_px": 8, "margin_px": 1, "area": "released"}
    drawn = ordered(PAIRS, 2, None, render=render)
    assert endless(drawn)
    assert not endless(ordered(PAIRS, 2, (64, 16, 16), render=render))
    assert not endless(clevr_2d())
