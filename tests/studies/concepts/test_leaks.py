"""What passed for binding before splits were of sets of objects, and intervals over objects."""

from __future__ import annotations

import cases_concepts as cases
import numpy as np
import pytest

from bindscope.codes.slots import slots_of
from bindscope.config.codes import SceneDistribution
from bindscope.statistics.node_bootstrap import resampled_set_means, set_interval
from bindscope.studies.concepts.approximators import approximator_rows
from bindscope.studies.concepts.decomposition import decomposition_rows
from bindscope.studies.concepts.planted_encoders import PlantedVectors, additive, lookup
from bindscope.studies.concepts.recognition import Embedded, fit_probes, recognition_rows, recognize
from bindscope.studies.concepts.scenes import Scenes, split_objects, split_scenes

CLEVR = Scenes.all_of((8, 3))


def objects_of_pairs(rows: list[dict[str, object]]) -> float:
    """The share of pairs that share no value whose objects are recognized."""
    (value,) = (
        row["value"]
        for row in rows
        if (row["measure"], row["stratum"], row.get("level", 0))
        in (("object", "none", 0), ("object", "none", 1))
    )
    assert isinstance(value, float)
    return value


def test_both_orders_and_all_pictures_of_a_pair_are_in_one_part() -> None:
    scenes = CLEVR.take(np.random.default_rng(0).integers(0, 576, 1500))
    parts = split_scenes(scenes)
    indices = [parts.probed, parts.estimated, parts.scored]
    np.testing.assert_array_equal(np.sort(np.concatenate(indices)), np.arange(1500))
    np.testing.assert_array_equal(parts.read, np.setdiff1d(np.arange(1500), parts.probed))
    sets = [set(scenes.unordered[part]) for part in indices]
    assert not sets[0] & sets[1]
    assert not (sets[0] | sets[1]) & sets[2]
    published = split_scenes(scenes, "scenes")
    assert set(scenes.unordered[published.probed]) & set(scenes.unordered[published.read])
    np.testing.assert_array_equal(published.scored, published.estimated)


@pytest.mark.parametrize("of_each", [1, 3])
def test_a_vector_per_pair_reads_as_binding_by_scene_and_not_by_set(of_each: int) -> None:
    scenes = cases.pictures(of_each, (8, 3))
    pairs = 3 * cases.drawn(scenes.unordered, 48, 0)
    z = additive(scenes, PlantedVectors(48)) + pairs
    by_scene, by_set = (
        objects_of_pairs(list(recognition_rows(Embedded(z, scenes, split_by=how), {})))
        for how in ("scenes", "objects")
    )
    assert by_scene > (0.4 if of_each == 1 else 0.7)  # a guess: 0.5
    assert by_set < 0.2


def test_noise_of_scenes_is_in_no_vector_that_sums_are_scored_with() -> None:
    z = cases.by_group(CLEVR, 0, groups="scene", dim=512)
    by_scene, by_set = (
        objects_of_pairs(
            [
                r
                for r in decomposition_rows(Embedded(z, CLEVR, split_by=how), ["ols"])
                if r["level"] == 1
            ]
        )
        for how in ("scenes", "objects")
    )
    assert by_scene > 0.6
    assert by_set < 0.3


def test_an_offset_of_all_scenes_changes_no_probe() -> None:
    z = lookup(CLEVR, PlantedVectors(48, slot_effect=0.3))
    offset = 100 * z.std() * np.random.default_rng(1).standard_normal(48)
    parts = split_scenes(CLEVR)
    near, far = (fit_probes(x, CLEVR, parts.probed) for x in (z, z + offset))
    np.testing.assert_allclose(far.objects, near.objects, atol=1e-6)
    np.testing.assert_array_equal(far.object_hits(z + offset, CLEVR), near.object_hits(z, CLEVR))


# --- Intervals ----------------------------------------------------------------------------------


def width(values: np.ndarray, members: np.ndarray) -> float:
    low, high = set_interval(resampled_set_means(values[:, None], members))[:, 0]
    return float(high - low)


def test_an_interval_over_objects_knows_that_pairs_share_them() -> None:
    """Pairs of objects that are hard or easy themselves are no independent trials."""
    draw = np.random.default_rng(2)
    pairs = np.array([(a, b) for a in range(24) for b in range(a)])
    of_object = draw.standard_normal(24)
    values = of_object[pairs].sum(1)
    independent = 2 * 1.96 * values.std() / np.sqrt(len(pairs))
    truth = 2 * 1.96 * 2 * of_object.std() / np.sqrt(24)
    assert independent < 0.45 * truth
    assert width(values, pairs) == pytest.approx(truth, rel=0.25)
    twice = np.concatenate([pairs, pairs[:, ::-1]])
    assert width(np.tile(values, 2), twice) == pytest.approx(width(values, pairs), abs=1e-12)
    same = np.repeat(pairs[:, :1], 2, axis=1)  # of one object twice: that object once
    assert width(values, same) == pytest.approx(width(values, pairs[:, :1]), abs=1e-12)


def test_there_is_no_interval_where_resamples_draw_no_set() -> None:
    pairs = np.array([(0, 1), (2, 3)])
    ends = set_interval(resampled_set_means(np.ones((2, 1)), pairs))
    assert np.isnan(ends).all()


def test_a_share_of_all_scenes_has_an_interval_of_some_width() -> None:
    z = lookup(CLEVR, PlantedVectors(96))
    readout = fit_probes(z, CLEVR, np.arange(576))
    (row,) = (
        row
        for row in recognize(readout, z, CLEVR)
        if (row["measure"], row["stratum"]) == ("object", "none")
    )
    assert row["value"] == row["value_high"] == 1
    assert 0.8 < row["value_low"] < 0.95
    assert row["gain"] == 0.5
    assert row["gain_low"] == pytest.approx(row["value_low"] - 0.5)
    assert row["n_resampled"] == 24


def test_more_splits_of_the_same_objects_do_not_narrow_an_interval_to_nothing() -> None:
    z = additive(CLEVR, PlantedVectors(24, slot_effect=1.0)).astype(np.float32)
    embedded = Embedded(z, CLEVR, fit_probes(z, CLEVR, np.arange(576)))
    widths = []
    for n in (10, 40):
        rows = approximator_rows(
            embedded, {"kind": "additive"}, [0.7], range(n), validation_share=0.0
        )
        (row,) = (
            row
            for row in rows
            if (row["split"], row["measure"], row["stratum"]) == ("test", "object", "none")
        )
        widths.append(row["value_high"] - row["value_low"])
        assert (row["n_splits"], row["fitted_share"]) == (n, 16 / 24)
    assert widths[1] > 0.6 * widths[0] > 0


def test_objects_that_validate_are_not_counted_as_fitted() -> None:
    split = split_objects(CLEVR, 0.9, 0, validation=0.1)
    assert len(split.fitted_objects) == 19
    assert len(set(CLEVR.slots[split.validation].ravel())) == 21
    fitted = set(CLEVR.slots[split.train].ravel())
    assert fitted == set(split.fitted_objects)


# --- Scenes that are drawn ----------------------------------------------------------------------


def test_no_scenes_have_no_slots() -> None:
    dataset = SceneDistribution.model_validate(
        {
            "name": "drawn",
            "split": {"rule": "random"},
            "slots": 2,
            "space": {
                "kind": "uniform",
                "min_objects": 2,
                "max_objects": 2,
                "groups": [{"name": "color", "size": 4}, {"name": "shape", "size": 3}],
            },
            "render": {"kind": "clevr_2d", "size_px": 32},
        }
    )
    assert slots_of(dataset, "train", 0, np.zeros((0, 12), np.uint8)).shape == (0, 2)
