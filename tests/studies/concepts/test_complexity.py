"""Splits of objects and approximators (invariants 2, 3 and 6)."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bindscope.core.errors import ConfigError, InputError
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.generators import rng
from bindscope.studies.concepts import approximators, recognition
from bindscope.studies.concepts import planted_encoders as planted
from bindscope.studies.concepts.approximators import MLP, approximate, combined
from bindscope.studies.concepts.config import Approximator
from bindscope.studies.concepts.decomposition import r_squared
from bindscope.studies.concepts.recognition import Embedded, fit_probes, hits_of, recognize
from bindscope.studies.concepts.scenes import Scenes, split_objects, split_scenes
from bindscope.studies.concepts.vectors import value_columns

CLEVR = Scenes.all_of((8, 3))
SQUARE = Scenes.all_of((7, 7))
SQUARE = SQUARE.take(np.sort(rng(0, 9).choice(len(SQUARE), 900, replace=False)))


@pytest.mark.parametrize(
    ("sizes", "coverage", "counts"),
    [
        ((8, 3), 0.9, (441, 9)),
        ((8, 3), 0.5, (144, 144)),
        ((8, 3), 0.1, (4, 484)),
    ],
)
def test_counts_of_scenes_of_each_side(sizes, coverage, counts):
    split = split_objects(Scenes.all_of(sizes), coverage, 0)
    assert (len(split.train), len(split.test)) == counts
    assert len(split.validation) == 0


@pytest.mark.parametrize("seed", range(5))
def test_no_side_holds_an_object_of_the_other(seed):
    split = split_objects(CLEVR, 0.6, seed, validation=0.2)
    train, validation, test = (
        set(CLEVR.slots[index].ravel()) for index in (split.train, split.validation, split.test)
    )
    assert train == set(split.fitted_objects)
    assert not (train | validation) & test
    assert len(train | validation | test) == 24
    assert len(validation - train) == 2  # a fifth of 14
    assert len(split.train) + len(split.validation) == 14**2
    assert len(split.test) == 10**2


def test_a_value_that_no_training_object_has_is_drawn_again_or_counted():
    assert split_objects(CLEVR, 0.1, 0).absent_values >= 6 + 1  # of two objects, in no draw fewer
    assert split_objects(CLEVR, 0.6, 0).absent_values == 0
    with pytest.raises(InputError, match="objects on both sides"):
        split_objects(CLEVR, 0.01, 0)


def test_training_objects_have_every_value_in_the_slots_of_their_own():
    every = Scenes.all_of((2, 4, 4))
    in_order = every.take((every.values[:, :, 0] == (0, 1)).all(axis=1))
    for seed in range(20):  # without regard to slots a quarter of the draws lack a value
        split = split_objects(in_order, 0.6, seed)
        trained = in_order.values[split.train]
        assert {len(np.unique(trained[:, p, k])) for p in (0, 1) for k in (1, 2)} == {4}
        assert split.absent_values == 0


def test_products_and_sums_by_hand():
    vectors = torch.arange(1.0, 9.0).view(1, 4, 2)  # 2 slots of 2 types: 1 2, 3 4; 5 6, 7 8
    assert combined("additive", vectors, 2).tolist() == [[16, 20]]
    assert combined("per_object", vectors, 2).tolist() == [[1 * 3 + 5 * 7, 2 * 4 + 6 * 8]]
    assert combined("global", vectors, 2).tolist() == [[105, 384]]


def test_the_mlp_is_the_one_on_joined_vectors():
    model = MLP((8, 3), 2, 5, (6, 4), torch.Generator().manual_seed(0))
    columns = torch.from_numpy(value_columns(CLEVR)[:10])
    x = model.vectors[columns].flatten(1) @ model.weights[0]
    for weight, before in zip(list(model.weights)[1:], list(model.biases)[:-1], strict=True):
        x = torch.relu(x + before) @ weight
    assert torch.allclose(model(columns), x + model.biases[-1], atol=1e-5)


def on_test(z, scenes, validation_share, **options):
    """Return R2, and the rows of concepts and objects, of scenes of unseen objects."""
    embedded = Embedded(z.astype(np.float32), scenes)
    rows = approximators.approximator_rows(
        embedded, options, [0.8], [0], validation_share=validation_share
    )
    of = {row["measure"]: row for row in rows if (row["split"], row["stratum"]) == ("test", "all")}
    return of["r2"]["value"], of["concept"], of["object"]


@pytest.mark.slow
def test_products_within_objects_predict_unseen_objects_and_sums_do_not():
    z = planted.per_object(SQUARE, planted.PlantedVectors(56, slot_effect=0.3))
    r2, _, objects = on_test(z, SQUARE, 0.0, kind="per_object")
    assert r2 > 0.999
    assert objects["value"] >= 0.95
    _, _, of_sums = on_test(z, SQUARE, 0.0, kind="additive")
    assert of_sums["value"] <= of_sums["bag_of_concepts_floor"] + 0.1


@pytest.mark.slow
def test_products_of_all_predict_unseen_objects_of_their_encoder():
    z = planted.global_product(SQUARE, planted.PlantedVectors(56, slot_effect=0.3))
    r2, concepts, _ = on_test(z, SQUARE, 0.0, kind="global")
    assert r2 > 0.998
    assert concepts["value"] >= 0.95
    of_sums, *_ = on_test(z, SQUARE, 0.0, kind="additive")
    assert of_sums < 0.95


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"kind": "global", "starts": 2},
        {"kind": "mlp", "widths": (64,), "steps": 300},
    ],
    ids=lambda options: options["kind"],
)
def test_no_approximator_predicts_the_unseen_objects_of_a_lookup(options):
    z = planted.lookup(SQUARE, planted.PlantedVectors(80, slot_effect=0.3), 0.5).astype(np.float32)
    parts = split_scenes(SQUARE)
    readout = fit_probes(z, SQUARE, parts.probed)
    held_out = recognize(readout, z[parts.read], SQUARE.take(parts.read))
    [objects] = [
        row["value"] for row in held_out if (row["measure"], row["stratum"]) == ("object", "all")
    ]
    assert objects >= 0.95  # probes recognize them
    r2, concepts, objects = on_test(z, SQUARE, 0.15, **options)
    assert objects["value"] <= objects["bag_of_concepts_floor"] + 0.1
    assert concepts["value"] >= 0.8
    assert r2 > 0


def test_where_a_product_does_not_hold_validation_objects_hold_it_back():
    z = planted.lookup(CLEVR, planted.PlantedVectors(12, slot_effect=0.3)).astype(np.float32)
    split = split_objects(CLEVR, 0.8, 1, validation=0.2)
    product = Approximator(kind="per_object", starts=2)
    without = replace(split, validation=split.validation[:0])
    final, validated = (approximate(product, z, CLEVR, each) for each in (without, split))
    errors = [np.square(fit.predicted - z)[split.test].mean() for fit in (final, validated)]
    assert errors[1] < errors[0]


def test_validation_objects_choose_the_state_that_is_judged():
    z = planted.additive(CLEVR, planted.PlantedVectors(12)).astype(np.float32)
    split = split_objects(CLEVR, 0.6, 1, validation=0.2)
    small = Approximator(kind="mlp", widths=(8,), steps=40)
    fit, again = (approximate(small, z, CLEVR, split) for _ in range(2))
    last = approximate(small, z, CLEVR, replace(split, validation=split.validation[:0]))
    chosen, final = (np.square(each.predicted - z)[split.validation].mean() for each in (fit, last))
    assert chosen <= final
    np.testing.assert_array_equal(again.predicted, fit.predicted)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "additive"},
        {"kind": "per_object", "starts": 1},
        {"kind": "mlp", "widths": (8,), "steps": 20},
        {"kind": "forest"},
    ],
    ids=str,
)
def test_no_embedding_of_a_test_scene_reaches_a_fit(options):
    z = planted.lookup(CLEVR, planted.PlantedVectors(12)).astype(np.float32)
    split = split_objects(CLEVR, 0.6, 1, validation=0.2)
    changed = z.copy()
    changed[split.test] = 3 - 2 * z[split.test]
    approximator = Approximator(**options)
    fit, again = (approximate(approximator, each, CLEVR, split) for each in (z, changed))
    np.testing.assert_array_equal(again.predicted, fit.predicted)


def test_scenes_of_several_splits_count_together():
    z = planted.lookup(CLEVR, planted.PlantedVectors(12)).astype(np.float32)
    embedded, options = Embedded(z, CLEVR), {"kind": "mlp", "widths": (8,), "steps": 20}
    together, *alone = (
        {
            row["measure"]: row
            for row in approximators.approximator_rows(embedded, options, [0.6], seeds)
            if (row["split"], row["stratum"]) == ("test", "all")
        }
        for seeds in (range(3), [0], [1], [2])
    )
    n = together["object"]["n_scenes"]
    assert n == sum(rows["object"]["n_scenes"] for rows in alone)
    assert together["r2"]["value"] == pytest.approx(np.mean([r["r2"]["value"] for r in alone]))
    hits = sum(rows["object"]["value"] * rows["object"]["n_scenes"] for rows in alone)
    assert together["object"]["value"] == pytest.approx(hits / n)


def test_scenes_are_read_in_blocks(monkeypatch):
    z = planted.lookup(CLEVR, planted.PlantedVectors(12))
    z[5] = np.nan
    readout = fit_probes(np.nan_to_num(z), CLEVR, split_scenes(CLEVR).probed)
    whole = hits_of(readout, z, CLEVR)
    monkeypatch.setattr(recognition, "SCORES_AT_ONCE", 100 * CLEVR.n_objects)
    parts = hits_of(readout, z, CLEVR)
    for target, hits in whole.items():
        assert np.isnan(hits[5])
        np.testing.assert_array_equal(parts[target], hits)


def test_a_job_that_was_killed_goes_on_after_the_last_coverage(tmp_path, monkeypatch):
    z = planted.lookup(CLEVR, planted.PlantedVectors(30)).astype(np.float32)
    runs = [({"run": i}, Embedded(z + i, CLEVR)) for i in range(2)]
    spec = {"approximator": {"kind": "additive"}, "coverages": [0.5, 0.8], "seeds": [0, 1]}
    expected = approximators.rows_of_runs(runs, spec, Checkpoint(tmp_path / "whole", "key"))
    assert {(row["run"], row["coverage"]) for row in expected} == {
        (run, coverage) for run in (0, 1) for coverage in (0.5, 0.8)
    }
    calls, rows_of = [], approximators.approximator_rows

    def dying(embedded, options, coverages, *how):
        calls.append(coverages)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return rows_of(embedded, options, coverages, *how)

    monkeypatch.setattr(approximators, "approximator_rows", dying)
    checkpoint = Checkpoint(tmp_path / "rows.jsonl.checkpoint", "key")
    with pytest.raises(KeyboardInterrupt):
        approximators.rows_of_runs(runs, spec, checkpoint)
    assert approximators.rows_of_runs(runs, spec, checkpoint) == expected
    assert calls == [[0.5], [0.8], [0.5], [0.5], [0.8]]
    assert approximators.rows_of_runs(runs, spec, replace(checkpoint, key="x")) == expected
    assert len(calls) == 9  # of another key nothing is taken


def test_a_fit_that_still_falls_is_flagged(monkeypatch):
    z = planted.lookup(CLEVR, planted.PlantedVectors(12)).astype(np.float32)
    split = split_objects(CLEVR, 0.6, 0)
    short = approximate(Approximator(kind="mlp", steps=40), z, CLEVR, split)
    assert not short.ended
    monkeypatch.setattr(approximators, "ITERATIONS", 2)
    stopped = Approximator(kind="per_object", starts=1)
    assert not approximate(stopped, z, CLEVR, split).ended


@pytest.mark.parametrize("kind", ["forest", "booster"])
def test_trees_learn_what_they_saw(kind):
    z = planted.additive(CLEVR, planted.PlantedVectors(6)).astype(np.float32)
    split = split_objects(CLEVR, 0.9, 0)
    fit = approximate(Approximator(kind=kind, rounds=20, components=4), z, CLEVR, split)
    assert r_squared(z[split.train], fit.predicted[split.train]) > 0.6
    assert fit.predicted.shape == (576, 6)


def test_xgboost_is_an_extra_of_one_version(monkeypatch):
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert f'"xgboost-cpu=={approximators.XGBOOST}"' in project
    split, options = split_objects(CLEVR, 0.6, 1), Approximator(kind="xgboost", rounds=20)
    z = planted.lookup(CLEVR, planted.PlantedVectors(12, slot_effect=0.5))
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ConfigError, match=r"xgboost is not installed.*\n.*kind: booster"):
        approximate(options, z, CLEVR, split)
    monkeypatch.setitem(sys.modules, "xgboost", SimpleNamespace(__version__="1.0"))
    with pytest.raises(ConfigError, match=r"version 1\.0 is installed"):
        approximate(options, z, CLEVR, split)


def test_xgboost_fits_what_it_is_trained_on_as_the_booster_does():
    pytest.importorskip("xgboost", reason="an extra: pip install 'bindscope[xgboost]'")
    z, split = planted.additive(CLEVR, planted.PlantedVectors(6)), split_objects(CLEVR, 0.7, 1)
    r2 = {}
    for kind in ("booster", "xgboost"):
        fitted = approximate(Approximator(kind=kind, rounds=60), z, CLEVR, split)
        for part in ("train", "test"):
            index = getattr(split, part)
            r2[kind, part] = r_squared(z[index], fitted.predicted[index])
    assert min(r2["booster", "train"], r2["xgboost", "train"]) > 0.9
    assert abs(r2["xgboost", "test"] - r2["booster", "test"]) < 0.3


@pytest.mark.parametrize("kind", ["forest", "booster", "xgboost", "mlp", "additive", "per_object"])
@pytest.mark.parametrize("protocol", ["converged", "paper"])
def test_one_training_scene_is_enough_and_none_predicts_nothing(kind, protocol):
    if kind == "xgboost":
        pytest.importorskip("xgboost", reason="an extra: pip install 'bindscope[xgboost]'")
    scenes = Scenes(np.array([[0, 1], [2, 3], [3, 2], [4, 5], [1, 4]]), (2, 3))
    z = rng(0, 5).standard_normal((5, 4)).astype(np.float32)
    score = None if protocol == "converged" else (lambda predicted: 0.0)
    options = Approximator(kind=kind, rounds=3, steps=5, widths=(4,), starts=1)
    for objects, n_train in (([0, 1, 2, 3], 3), ([0, 1], 1), ([0, 2], 0)):
        order = np.array([*objects, *(o for o in range(6) if o not in objects)])
        split = split_objects(scenes, len(objects) / 6, 0, order=order)
        assert len(split.train) == n_train
        predicted = approximate(options, z, scenes, split, score=score).predicted
        assert predicted.shape == z.shape
        assert np.isfinite(predicted).all() == bool(n_train)
