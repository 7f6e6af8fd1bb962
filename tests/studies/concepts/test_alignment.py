"""One orthogonal map between two sets of vectors, and the picture of values and scenes."""

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from bindscope.core.errors import InputError
from bindscope.studies.concepts import planted_encoders as planted
from bindscope.studies.concepts.alignment import align, orthogonal_map
from bindscope.studies.concepts.decomposition import picture
from bindscope.studies.concepts.scenes import Scenes

DRAW = np.random.default_rng(0)
FIT, HELD = np.arange(0, 40), np.arange(40, 60)


def test_the_map_is_that_of_procrustes():
    first, second = DRAW.standard_normal((2, 30, 6))
    np.testing.assert_allclose(
        orthogonal_map(first, second), orthogonal_procrustes(first, second)[0], atol=1e-12
    )


def aligned(first, second, fitted=FIT, held_out=HELD):
    """Return the rows by map and measure."""
    rows = align(first, second, fitted, held_out)
    return {(row["variant"], row["measure"]): row for row in rows}


def test_a_rotated_copy_is_found_and_controls_find_nothing():
    first = DRAW.standard_normal((60, 8))
    turn = np.linalg.qr(DRAW.standard_normal((8, 8)))[0]
    rows = aligned(first, first @ turn + 5)
    assert rows["orthogonal", "cosine"]["value"] == pytest.approx(1)
    assert rows["orthogonal", "retrieval_of_all"]["value"] == 1
    assert rows["orthogonal", "retrieval_of_all"]["chance"] == 1 / 60
    for control in ("identity", "permuted"):
        assert rows[control, "retrieval_held_out"]["value"] < 0.4
        assert rows[control, "cosine"]["value_high"] < 0.6
    assert aligned(first, first)["identity", "retrieval_held_out"]["value"] == 1


def test_held_out_vectors_decide_neither_the_map_nor_its_origin():
    """One of them lies far away: it is lost itself, and the 19 others are where they were."""
    first = DRAW.standard_normal((60, 8))
    second = first @ np.linalg.qr(DRAW.standard_normal((8, 8)))[0]
    second[HELD[0]] += 1000
    assert aligned(first, second)["orthogonal", "cosine"]["value"] >= (19 - 1) / 20
    others = aligned(first, second, held_out=HELD[1:])
    assert others["orthogonal", "retrieval_held_out"]["value"] == 1


def test_unrelated_vectors_align_as_badly_as_exchanged_ones():
    first, second = DRAW.standard_normal((60, 8)), DRAW.standard_normal((60, 12))
    rows = aligned(first, second)
    assert {name for name, _ in rows} == {"orthogonal", "permuted"}
    cosine = rows["orthogonal", "cosine"]
    assert cosine["value_low"] < 0 < cosine["value_high"]


def test_directions_that_nothing_was_seen_of_go_to_zero():
    first = DRAW.standard_normal((10, 50))
    first -= first.mean(axis=0)
    assert np.linalg.matrix_rank(orthogonal_map(first, first)) == 9


def test_unknown_vectors_are_skipped_and_counted():
    first = DRAW.standard_normal((60, 4))
    broken = first.copy()
    broken[[0, 50]] = np.nan
    row = aligned(broken, first)["orthogonal", "cosine"]
    assert (row["n_scenes"], row["n_skipped"]) == (19, 2)
    with pytest.raises(InputError, match="to judge it by"):
        aligned(broken, first, held_out=np.array([50]))


def test_a_scene_stands_in_the_picture_where_the_sum_of_its_objects_does():
    scenes = Scenes.all_of((4, 3))
    z = planted.additive(scenes, planted.PlantedVectors(20))
    drawn = picture(z, scenes)
    kinds = [point["kind"] for point in drawn["points"]]
    assert [kinds.count(kind) for kind in ("value", "object", "scene", "sum")] == [4, 4, 12, 6]
    places = {(p["kind"], p["objects"]): np.array(p["place"]) for p in drawn["points"]}
    same = np.linalg.norm(places["sum", (0, 4)] - places["scene", (0, 4)])
    other_scene = np.linalg.norm(places["sum", (0, 4)] - places["scene", (1, 3)])
    assert same < 0.2 < other_scene + 0.2
    assert "two objects" in picture(z, Scenes.all_of((2, 2), 3))["why"]
    lacking = scenes.take((scenes.slots != 0).all(axis=1))
    assert "is missing" in picture(np.zeros((len(lacking), 3)), lacking)["why"]
