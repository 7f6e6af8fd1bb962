"""Splits of objects and approximators (invariants 2, 3 and 6)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bindscope.core.errors import InputError
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.generators import rng
from bindscope.studies.concepts import complexity_rows, planted, recognition
from bindscope.studies.concepts.complexity import descended
from bindscope.studies.concepts.complexity.approximators import (
    Approximator,
    approximate,
    approximations,
)
from bindscope.studies.concepts.complexity.coordinates import Starts
from bindscope.studies.concepts.complexity.descended import Descending
from bindscope.studies.concepts.complexity.models import Perceptron, Structured, combined
from bindscope.studies.concepts.complexity.splits import split_objects
from bindscope.studies.concepts.least_squares import value_columns
from bindscope.studies.concepts.parts import split_scenes
from bindscope.studies.concepts.recognition import fit_probes, hits_of, recognise
from bindscope.studies.concepts.rows import Embedded
from bindscope.studies.concepts.scenes import Scenes

CLEVR = Scenes.all_of((8, 3))
SQUARE = Scenes.all_of((7, 7))
SQUARE = SQUARE.take(np.sort(rng(0, 9).choice(len(SQUARE), 900, replace=False)))


@pytest.mark.parametrize(
    ("sizes", "coverage", "counts"),
    [
        ((8, 3), 0.9, (441, 9, 126)),
        ((8, 3), 0.5, (144, 144, 288)),
        ((8, 3), 0.1, (4, 484, 88)),
        ((20, 20), 0.5, (40_000, 40_000, 80_000)),
    ],
)
def test_counts_of_scenes_of_each_side(sizes, coverage, counts):
    split = split_objects(Scenes.all_of(sizes), coverage, 0, require_values=False)
    assert (len(split.train), len(split.test), len(split.mixed)) == counts
    assert len(split.validation) == 0


@pytest.mark.parametrize("seed", range(5))
def test_no_side_holds_an_object_of_the_other(seed):
    split = split_objects(CLEVR, 0.6, seed, validation=0.2)
    train, test = set(split.train_objects), set(split.test_objects)
    assert not train & test
    assert len(train | test) == 24
    objects = {name: set(CLEVR.slots[index].ravel()) for name, index in split.subsets.items()}
    assert objects["train"] | objects["validation"] <= train
    assert objects["test"] <= test
    assert len(objects["validation"] - objects["train"]) == 2  # a fifth of 14
    for i in split.mixed:
        assert {int(o) in train for o in CLEVR.slots[i]} == {True, False}
    assert sum(map(len, split.subsets.values())) == 576
    every = np.concatenate(list(split.subsets.values()))
    assert len(np.unique(every)) == 576


def test_a_value_that_no_training_object_has_is_drawn_again_or_counted():
    pair = split_objects(CLEVR, 0.1, 0)
    assert pair.draws == 100  # two objects never have eight values
    assert pair.absent_values == 6 + 1
    assert split_objects(CLEVR, 0.6, 0).absent_values == 0
    with pytest.raises(InputError, match="objects on both sides"):
        split_objects(CLEVR, 0.01, 0)


def test_products_and_sums_by_hand():
    vectors = torch.arange(1.0, 9.0).view(1, 4, 2)  # 2 slots of 2 types: 1 2, 3 4; 5 6, 7 8
    assert combined("additive", vectors, 2).tolist() == [[16, 20]]
    assert combined("per_object", vectors, 2).tolist() == [[1 * 3 + 5 * 7, 2 * 4 + 6 * 8]]
    assert combined("global", vectors, 2).tolist() == [[105, 384]]


def test_the_perceptron_is_the_one_on_joined_vectors():
    model = Perceptron((8, 3), 2, 5, 2, (6, 4), torch.Generator().manual_seed(0))
    columns = torch.from_numpy(value_columns(CLEVR)[:10]).expand(2, 10, 4)
    found = model(columns)
    for copy in range(2):
        joined = model.vectors[copy][columns[copy]].flatten(1)
        x = joined @ model.weights[0][copy]
        for weight, before in zip(list(model.weights)[1:], list(model.biases)[:-1], strict=True):
            x = torch.relu(x + before[copy]) @ weight[copy]
        assert torch.allclose(found[copy], x + model.biases[-1][copy], atol=1e-5)


def test_structured_learners_fitted_together_are_those_fitted_alone():
    model = Structured((8, 3), 2, 5, 2, ("additive", "global"), 4, torch.Generator().manual_seed(0))
    columns = torch.from_numpy(value_columns(CLEVR)[[3, 77, 400]])
    both = model(columns.expand(2, 3, 4))
    rows = model.rows
    for copy in range(2):
        additive, products = (
            model.tables[term][copy * rows : (copy + 1) * rows][columns]
            for term in ("additive", "global")
        )
        alone = additive.sum(1) + products.prod(1) @ model.heads["global"][copy]
        assert torch.allclose(both[copy], alone + model.bias[copy], atol=1e-5)


def on_test(approximator, encoder, scenes, coverage, **options):
    """Return the scores of the final learner on scenes of unseen objects."""
    z = planted.ENCODERS[encoder](scenes, planted.Planted(56, slot_effect=0.3, **options))
    z = z.astype(np.float32)
    readout = fit_probes(z, scenes, split_scenes(scenes).probed)
    split = split_objects(scenes, coverage, 0)
    rows = approximations(approximator, z, scenes, readout, [split])
    [row] = [row for row in rows if row.subset == "test"]
    of = {r.target: r.accuracy for r in row.probed if r.accuracy.stratum == "all"}
    return row, of["concept"], of["object"]


@pytest.mark.slow
def test_products_within_objects_foretell_unseen_objects_and_sums_do_not():
    row, _, objects = on_test(Approximator("per_object"), "per_object", SQUARE, 0.8)
    assert row.r2 > 0.999
    assert objects.value >= 0.95
    _, _, of_sums = on_test(Approximator("additive"), "per_object", SQUARE, 0.8)
    assert of_sums.value <= of_sums.bag_of_concepts_floor + 0.1


@pytest.mark.slow
def test_products_of_all_foretell_unseen_objects_of_their_encoder():
    row, concepts, _ = on_test(Approximator("global"), "global", SQUARE, 0.8)
    assert row.r2 > 0.998
    assert concepts.value >= 0.95
    of_sums, *_ = on_test(Approximator("additive"), "global", SQUARE, 0.8)
    assert of_sums.r2 < 0.95


FEW = Starts(number=2, iterations=100)


@pytest.mark.slow
@pytest.mark.parametrize(
    "approximator",
    [
        Approximator("additive"),
        Approximator("per_object", starts=FEW),
        Approximator("global", starts=FEW),
        Approximator("mlp", widths=(64,), descending=Descending(300)),
    ],
    ids=lambda approximator: approximator.name,
)
def test_no_approximator_foretells_the_unseen_objects_of_a_lookup(approximator):
    z = planted.lookup(SQUARE, planted.Planted(80, slot_effect=0.3), 0.5).astype(np.float32)
    parts = split_scenes(SQUARE)
    readout = fit_probes(z, SQUARE, parts.probed)
    held_out = recognise(readout, z[parts.read], SQUARE.take(parts.read), resamples=0)
    [objects] = [
        r.accuracy.value for r in held_out if (r.target, r.accuracy.stratum) == ("object", "all")
    ]
    assert objects >= 0.95  # probes read them
    split = split_objects(SQUARE, 0.8, 0, validation=0.15)
    rows = approximations(approximator, z, SQUARE, readout, [split])
    [chosen] = [row for row in rows if row.subset == "test"]
    of = {r.target: r.accuracy for r in chosen.probed if r.accuracy.stratum == "all"}
    assert of["object"].value <= of["object"].bag_of_concepts_floor + 0.1
    assert of["concept"].value >= 0.8
    assert chosen.r2 > 0


def test_where_a_product_does_not_hold_validation_objects_hold_it_back():
    z = planted.lookup(CLEVR, planted.Planted(12, slot_effect=0.3)).astype(np.float32)
    split = split_objects(CLEVR, 0.8, 1, validation=0.2)
    product = Approximator("per_object", starts=FEW)
    without = replace(split, validation=split.validation[:0])
    final, validated = (approximate(product, z, CLEVR, [own]) for own in (without, split))
    assert (final.selected, validated.selected) == ("final", "validation")
    errors = [np.square(one.predicted[0] - z)[split.test].mean() for one in (final, validated)]
    assert errors[1] < errors[0]


def test_a_product_of_low_rank_behind_a_map_is_found_by_descent():
    draw = rng(3)
    mix = draw.standard_normal((4, 30)) / 2
    z = planted.per_object(SQUARE, planted.Planted(4)) @ mix
    z = (z + planted.additive(SQUARE, planted.Planted(30))).astype(np.float32)
    split = split_objects(SQUARE, 0.8, 0)
    low = Approximator("per_object", rank=6, descending=Descending(800, 0.02))
    fitted = approximate(low, z, SQUARE, [split])
    error = np.square(fitted.predicted[0] - z)[split.test].mean()
    sums = approximate(Approximator("additive"), z, SQUARE, [split])
    of_sums = np.square(sums.predicted[0] - z)[split.test].mean()
    assert error < 0.5 * of_sums
    assert fitted.parameters == 28 * 30 + 28 * 6 + 6 * 30 + 30


def test_validation_objects_choose_the_state_that_is_judged():
    z = planted.additive(CLEVR, planted.Planted(12)).astype(np.float32)
    splits = [split_objects(CLEVR, 0.6, seed, validation=0.2) for seed in range(2)]
    small = Approximator("mlp", widths=(8,), descending=Descending(40))
    fitted = approximate(small, z, CLEVR, splits)
    last = approximate(small, z, CLEVR, [replace(s, validation=s.validation[:0]) for s in splits])
    assert (fitted.selected, last.selected) == ("validation", "final")
    for i, split in enumerate(splits):
        chosen, final = (
            np.square(one.predicted[i] - z)[split.validation].mean() for one in (fitted, last)
        )
        assert chosen <= final
    assert len(fitted.ended) == 2
    again = approximate(small, z, CLEVR, splits)
    np.testing.assert_array_equal(again.predicted, fitted.predicted)


def test_learners_that_do_not_fit_in_memory_together_are_fitted_in_parts(monkeypatch):
    z = planted.lookup(CLEVR, planted.Planted(12)).astype(np.float32)
    readout = fit_probes(z, CLEVR, split_scenes(CLEVR).probed)
    splits = [split_objects(CLEVR, 0.6, seed, validation=0.2) for seed in range(3)]
    small = Approximator("mlp", widths=(8,), descending=Descending(20))
    monkeypatch.setattr(descended, "NUMBERS_AT_ONCE", 1)
    each = [approximate(small, z, CLEVR, [split]).predicted for split in splits]
    parts = approximate(small, z, CLEVR, splits)
    np.testing.assert_array_equal(parts.predicted, np.concatenate(each))
    rows = approximations(small, z, CLEVR, readout, splits, ("test",), resamples=0)
    alone = [approximations(small, z, CLEVR, readout, [s], ("test",), resamples=0) for s in splits]
    assert rows[0].n_scenes == sum(row.n_scenes for (row,) in alone)
    assert rows[0].r2 == pytest.approx(np.mean([row.r2 for (row,) in alone]))
    hits = [row.probed[0].accuracy.value * row.n_scenes for (row,) in alone]
    assert rows[0].probed[0].accuracy.value == pytest.approx(sum(hits) / rows[0].n_scenes)


def test_the_paper_s_widest_perceptrons_take_a_gibibyte_at_a_time():
    """20 of width 4096 on CLEVR-2D took 5.9 GB."""
    widest = Approximator("mlp", widths=(4096,))

    def build(copies, generator):
        return Perceptron((8, 3), 2, 512, copies, widest.widths, generator)

    numbers = sum(p.numel() for p in build(1, torch.Generator()).parameters())
    size = descended.learners_at_once(build, (576, 512), 441, 4096)
    assert 4 <= size <= 8
    assert 16 * numbers * size < 2**30 < 16 * numbers * 20


def test_scenes_are_read_in_blocks(monkeypatch):
    z = planted.lookup(CLEVR, planted.Planted(12))
    z[5] = np.nan
    readout = fit_probes(np.nan_to_num(z), CLEVR, split_scenes(CLEVR).probed)
    whole = hits_of(readout, z, CLEVR)
    monkeypatch.setattr(recognition, "SCENES_AT_ONCE", 100)
    parts = hits_of(readout, z, CLEVR)
    for target, hits in whole.items():
        assert np.isnan(hits[5])
        np.testing.assert_array_equal(parts[target], hits)


def test_a_job_that_was_killed_goes_on_after_the_last_coverage(tmp_path, monkeypatch):
    z = planted.lookup(CLEVR, planted.Planted(30)).astype(np.float32)
    runs = [({"run": i}, Embedded(z + i, CLEVR)) for i in range(2)]
    sums = {"kind": "additive", "widths": [4], "rank": 0, "steps": 1, "learning_rate": 0.1,
            "starts": 1, "components": 1, "rounds": 1}  # fmt: skip
    spec = {"approximator": sums, "coverages": [0.5, 0.8], "seeds": [0, 1], "validation_share": 0}
    wanted = complexity_rows.rows_of_runs(runs, spec, Checkpoint(tmp_path / "whole", "key"))
    assert {(row["run"], row["coverage"]) for row in wanted} == {
        (run, coverage) for run in (0, 1) for coverage in (0.5, 0.8)
    }  # fmt: skip
    fitted, rows_of = [], complexity_rows.complexity_rows

    def dying(embedded, options, coverages, *how):
        fitted.append(coverages)
        if len(fitted) == 3:
            raise KeyboardInterrupt
        return rows_of(embedded, options, coverages, *how)

    monkeypatch.setattr(complexity_rows, "complexity_rows", dying)
    checkpoint = Checkpoint(tmp_path / "rows.jsonl.checkpoint", "key")
    with pytest.raises(KeyboardInterrupt):
        complexity_rows.rows_of_runs(runs, spec, checkpoint)
    assert complexity_rows.rows_of_runs(runs, spec, checkpoint) == wanted
    assert fitted == [[0.5], [0.8], [0.5], [0.5], [0.8]]
    assert complexity_rows.rows_of_runs(runs, spec, replace(checkpoint, key="x")) == wanted
    assert len(fitted) == 9  # of another key nothing is taken


def test_a_fit_that_still_falls_is_flagged():
    z = planted.lookup(CLEVR, planted.Planted(12)).astype(np.float32)
    split = split_objects(CLEVR, 0.6, 0)
    short = approximate(Approximator("mlp", descending=Descending(40)), z, CLEVR, [split])
    assert short.ended == [False]
    stopped = Approximator("per_object", starts=Starts(number=1, iterations=2))
    assert approximate(stopped, z, CLEVR, [split]).ended == [False]


@pytest.mark.parametrize("kind", ["forest", "booster"])
def test_trees_learn_what_they_saw(kind):
    z = planted.additive(CLEVR, planted.Planted(6)).astype(np.float32)
    split = split_objects(CLEVR, 0.9, 0)
    trees = Approximator(kind, rounds=40, components=4)
    fitted = approximate(trees, z, CLEVR, [split])
    assert fitted.losses[0, 0] < 0.4
    assert fitted.predicted.shape == (1, 576, 6)
