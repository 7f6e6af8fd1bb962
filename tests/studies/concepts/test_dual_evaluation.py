"""Recognition by dual encoders: pairs, swaps, floors and chance."""

from __future__ import annotations

from itertools import permutations, product
from math import comb, prod
from typing import Any

import numpy as np
import pytest
from dual_twins import BagOfConcepts, OneHot, Random
from hypothesis import given, settings
from hypothesis import strategies as st

from bindscope.studies.concepts.dual.runs import evaluate, pairs, singles
from bindscope.studies.concepts.scenes import Scenes, values_of
from bindscope.studies.concepts.set_separation import swaps

quick = settings(max_examples=25, deadline=None, derandomize=True)
SIZES = st.lists(st.integers(2, 4), min_size=2, max_size=3).map(tuple)


@quick
@given(SIZES, st.data())
def test_pairs_are_all_pairs_and_swaps_all_that_their_values_make(
    sizes: tuple[int, ...], data: Any
) -> None:
    total = prod(sizes)
    drawn = data.draw(st.sets(st.integers(0, total - 1), min_size=2, max_size=8))
    objects = np.array(sorted(drawn))
    scenes = pairs(objects, sizes, None, 0)
    listed = map(tuple, scenes.slots.tolist())
    assert sorted(listed) == sorted(permutations(objects.tolist(), 2))
    assert len(pairs(objects, sizes, 1, 0)) == 1
    values = values_of(scenes.slots, sizes)
    for scene, shared, mixed in zip(values, scenes.shared, swaps(scenes.slots, sizes), strict=True):
        assert shared == any(scene[0] == scene[1])
        present = [set(column) for column in scene.T.tolist()]
        expected_objects = [
            i
            for i in range(total)
            if all(v in present[k] for k, v in enumerate(values_of(np.array(i), sizes)))
        ]
        assert sorted(set(mixed.tolist())) == expected_objects


def test_of_many_objects_some_are_drawn_as_scenes() -> None:
    objects = np.arange(10, 40)
    everything = singles(objects, (5, 8), None, 0)
    assert everything.slots[:, 0].tolist() == objects.tolist()
    few, again, others = (singles(objects, (5, 8), 7, seed).slots for seed in (0, 0, 1))
    assert few.shape == (7, 1)
    assert len(np.unique(few)) == 7
    assert np.isin(few, objects).all()
    assert np.array_equal(few, again)
    assert not np.array_equal(few, others)


def scores(encoder: Any, objects: np.ndarray, n: int = 2) -> dict[tuple[str, str, str], Any]:
    scenes = pairs(objects, encoder.sizes, None, 0)
    if n == 1:
        scenes = Scenes(objects[:, None], encoder.sizes)
    z, queries = encoder.embed(scenes.slots), encoder.queries()
    rows = [*evaluate(z, queries, scenes), *evaluate(z, queries, scenes, objects)]
    return {
        (row["measure"], row["variant"], row["stratum"]): row for row in rows if row["n_scenes"]
    }


@pytest.mark.parametrize("sizes", [(5, 4), (3, 4, 2), (2, 2)])
def test_the_floor_is_what_a_bag_of_concepts_recognizes(sizes: tuple[int, ...]) -> None:
    rows = scores(BagOfConcepts(sizes), np.arange(prod(sizes)))
    for (target, _, _), score in rows.items():
        expected = score["bag_of_concepts_floor"] if target == "object" else 1.0
        assert score["value"] == pytest.approx(expected)
    full = rows["object", "full", "all"]
    # Two different objects of a complete space that differ in one type alone.
    alike = sum(size - 1 for size in sizes) / (prod(sizes) - 1)
    assert full["bag_of_concepts_floor"] == pytest.approx(alike)
    assert rows["object", "full", "none"]["bag_of_concepts_floor"] == 0.0
    if len(sizes) == 2:
        assert rows["object", "full", "shared"]["bag_of_concepts_floor"] == 1.0
        with_itself = 1 - (1 - 1 / sizes[0]) * (1 - 1 / sizes[1])  # the specification's formula
        n = prod(sizes)
        assert full["bag_of_concepts_floor"] == pytest.approx((with_itself - 1 / n) / (1 - 1 / n))
    else:  # two that share one of three values have swaps
        assert rows["object", "full", "shared"]["bag_of_concepts_floor"] < 1.0


def test_one_that_knows_every_object_recognizes_all_and_a_single_object_needs_no_binding() -> None:
    for (target, *_), score in scores(OneHot((5, 4)), np.arange(20)).items():
        if target == "object":
            assert score["value"] == 1.0
    single = scores(BagOfConcepts((5, 4)), np.arange(20), n=1)
    assert {key[1:] for key in single} == set(product(("full", "trained"), ("all", "none")))
    assert all(score["value"] == 1.0 for score in single.values())
    assert single["object", "full", "all"]["bag_of_concepts_floor"] == 1.0
    assert single["object", "full", "all"]["chance"] == pytest.approx(1 / 20)
    few = dict(scores(BagOfConcepts((5, 4)), np.arange(5), n=1))
    assert few["object", "full", "all"]["chance"] == pytest.approx(1 / 20)
    assert few["object", "trained", "all"]["chance"] == pytest.approx(1 / 5)


def test_chance_is_that_of_random_embeddings() -> None:
    sizes = (4, 3)
    runs = [scores(Random(sizes, 40, seed), np.arange(12)) for seed in range(60)]
    n = 60 * comb(12, 2)
    for key, score in runs[0].items():
        mean = np.mean([run[key]["value"] for run in runs])
        expected = np.mean([run[key]["chance"] for run in runs])
        assert mean == pytest.approx(
            expected, abs=6 * (expected * (1 - expected) / n) ** 0.5 + 0.01
        )
        if key == ("object", "full", "all"):
            assert score["chance"] == pytest.approx(1 / comb(12, 2))
