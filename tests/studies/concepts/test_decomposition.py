"""Vectors of objects and values and what is put together from them (invariant 1)."""

import numpy as np
import pytest

from bindscope.core.errors import InputError
from bindscope.studies.concepts import planted_encoders as planted
from bindscope.studies.concepts.decomposition import decomposition_rows, nearest, r_squared
from bindscope.studies.concepts.recognition import Embedded, fit_probes
from bindscope.studies.concepts.scenes import Parts, Scenes
from bindscope.studies.concepts.vectors import (
    ESTIMATORS,
    SingleScenes,
    design,
    object_columns,
    object_vectors,
    one_hot_fit,
    one_hot_sum,
    value_columns,
)

CLEVR = Scenes.all_of((8, 3))
U = CLEVR.n_objects


def embedded(encoder, slot_effect, dim=48):
    return planted.ENCODERS[encoder](CLEVR, planted.PlantedVectors(dim, slot_effect=slot_effect))


def rows_of(z, fit=None, scored=None, estimators=ESTIMATORS, single=None):
    """Return the rows of all scenes by measure, by level and estimator."""
    every = np.arange(len(CLEVR))
    parts = Parts(every if fit is None else fit, every, every if scored is None else scored, every)
    embedded = Embedded(z, CLEVR, fit_probes(z, CLEVR, every), single, parts=parts)
    rows = {}
    for row in decomposition_rows(embedded, estimators):
        if row["stratum"] in ("all", "none"):
            by_measure = rows.setdefault((row["level"], row["variant"]), {})
            by_measure[row["measure"], row["stratum"]] = row
    return rows


def value(rows, measure, stratum="all"):
    return rows[measure, stratum]["value"]


@pytest.mark.parametrize("columns", [object_columns, value_columns])
def test_least_squares_through_counts_is_that_of_the_design_written_out(columns):
    scenes = CLEVR.take(np.random.default_rng(0).choice(576, 200))
    z = np.random.default_rng(1).standard_normal((200, 5))
    index = columns(scenes)
    n = 2 * (U if columns is object_columns else 11)
    by_hand = np.zeros((200, n))
    for column in index.T:
        by_hand[np.arange(200), column] += 1
    np.testing.assert_array_equal(design(index, n).toarray(), by_hand)
    best = np.linalg.lstsq(by_hand, z, rcond=None)[0]
    table = one_hot_fit(index, n, z)
    np.testing.assert_allclose(one_hot_sum(table, index), by_hand @ best, atol=1e-5)
    np.testing.assert_allclose(table, best, atol=1e-5)  # the smallest of them


def test_additive_with_slots_of_their_own_is_put_together_exactly():
    rows = rows_of(embedded("additive", 0.5))
    for level in (1, 2):
        for estimator in ("avg_pos", "ols"):
            row = rows[level, estimator]
            assert value(row, "r2") == pytest.approx(1, abs=1e-9)
            assert value(row, "retrieval_strict") == value(row, "retrieval_unordered") == 1
    assert value(rows[1, "avg"], "r2") < 0.95
    assert value(rows[2, "ols"], "r2_objects") == pytest.approx(1, abs=1e-9)


def test_averages_over_slots_are_too_short_by_a_known_factor_where_slots_are_equal():
    # Scenes with o: 2U - 2 with another object, and one with o twice: its mean is
    # (2U - 2) / (2U - 1) times the vector, so that 1 / (2U - 1)^2 of the variance stays.
    rows = rows_of(embedded("lookup", 0))
    assert value(rows[1, "avg"], "r2") == pytest.approx(1 - 1 / (2 * U - 1) ** 2, abs=1e-9)
    assert value(rows[1, "avg_pos"], "r2") == pytest.approx(1, abs=1e-9)
    # Both orders have one embedding, and the first of them is found: 24 + 276 of 576.
    for estimator in ("avg", "avg_pos", "ols"):
        strict = value(rows[1, estimator], "retrieval_strict")
        assert strict == pytest.approx((U + U * (U - 1) / 2) / U**2)
        assert value(rows[1, estimator], "retrieval_unordered") == 1


def test_on_all_pairs_averages_by_slot_are_the_main_effects():
    z = np.random.default_rng(2).standard_normal((576, 7))
    grid = z.reshape(U, U, 7)
    first = grid.mean(1, keepdims=True) - grid.mean((0, 1))
    second = grid.mean(0, keepdims=True) - grid.mean((0, 1))
    share = (np.square(first).sum() + np.square(second).sum()) * U
    share /= np.square(grid - grid.mean((0, 1))).sum()
    for estimator in ("avg_pos", "ols"):
        vectors = object_vectors(z, CLEVR, estimator)
        assert r_squared(z, vectors.reconstruct(CLEVR)) == pytest.approx(share, abs=1e-6)


def test_where_objects_depend_on_one_another_only_least_squares_is_right():
    scenes = Scenes.all_of((4, 4))
    scenes = scenes.take(~scenes.shared)  # as in PUG:SPARE
    z = planted.additive(scenes, planted.PlantedVectors(20, slot_effect=0.5))
    exact, averaged = (
        r_squared(z, object_vectors(z, scenes, estimator).reconstruct(scenes))
        for estimator in ("ols", "avg_pos")
    )
    assert exact == pytest.approx(1, abs=1e-9)
    assert averaged < 0.99


def test_objects_of_a_lookup_are_not_sums_of_their_values():
    rows = rows_of(embedded("lookup", 0.3, dim=200))
    assert value(rows[1, "ols"], "r2") == pytest.approx(1, abs=1e-9)
    # Of an object's variance, 2 is of values and 1 its own, of which values explain 9 of 23.
    of_values = rows[2, "ols"]
    assert value(of_values, "r2_objects") == pytest.approx(1 - 14 / 23 / 3 * 1.05, abs=0.08)
    assert value(of_values, "object", "none") <= 0.55


def test_single_scenes_give_vectors_and_lacking_ones_are_counted():
    tables = planted.PlantedVectors(40, slot_effect=0.4)
    z = planted.additive(CLEVR, tables)
    both = np.arange(2 * U)
    objects, slots = both % U, both // U
    scene_of = np.stack([objects, objects], axis=1)
    parts = tables.concepts(Scenes(scene_of, (8, 3)), 1).sum(axis=2)
    single = SingleScenes(parts[both, slots], objects, slots)
    assert value(rows_of(z, single=single, estimators=("single",))[1, "single"], "r2") > 0.98
    fewer = SingleScenes(single.z[3:], objects[3:], slots[3:])
    row = rows_of(z, single=fewer, estimators=("single",))[1, "single"]["r2", "all"]
    assert row["n_skipped"] == 3 * U
    assert row["n_scenes"] == 576 - 3 * U
    table = object_vectors(z, CLEVR, "single", fewer).table
    assert np.isnan(table[:, :, 0]).any(axis=0).sum() == 3
    anywhere = SingleScenes(single.z, objects, np.full(2 * U, -1))
    vectors = object_vectors(z, CLEVR, "single", anywhere)
    np.testing.assert_array_equal(vectors.table[0], vectors.table[1])
    with pytest.raises(InputError, match="no embeddings of scenes with one object"):
        object_vectors(z, CLEVR, "single")


def test_out_of_sample_noise_is_not_explained():
    z = np.random.default_rng(3).standard_normal((576, 30))
    train, test = np.split(np.random.default_rng(5).permutation(576), 2)
    inside = rows_of(z, fit=train, scored=train, estimators=("ols",))[1, "ols"]
    outside = rows_of(z, fit=train, scored=test, estimators=("ols",))[1, "ols"]
    assert value(inside, "r2") > 0.1
    assert value(outside, "r2") < 0


def test_nearest_is_the_greatest_cosine():
    draw = np.random.default_rng(4)
    queries, bank = draw.standard_normal((9, 4)), draw.standard_normal((30, 4))
    cosines = [[q @ b / np.linalg.norm(q) / np.linalg.norm(b) for b in bank] for q in queries]
    assert nearest(queries, bank).tolist() == np.argmax(cosines, axis=1).tolist()
    assert nearest(queries, np.concatenate([bank, 2 * bank])).max() < 30
