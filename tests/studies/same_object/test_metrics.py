"""Scores and strata against brute force, and rows of fits, which are rows of the tables."""

from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pair_problems import GRID, planted_splits
from pair_twins import block_of, couples
from pydantic import TypeAdapter
from sklearn.linear_model import LogisticRegression

from bindscope.core.errors import InputError
from bindscope.studies.same_object.config import FAMILIES, AnyScorer, CosineScorer
from bindscope.studies.same_object.data import PairData, PatchPairs
from bindscope.studies.same_object.estimates import add_leads
from bindscope.studies.same_object.fit import fit_probe
from bindscope.studies.same_object.metrics import (
    UNCHANGED,
    Calibration,
    Stratum,
    kinds,
    measure,
    platt,
    tally,
)
from bindscope.studies.same_object.scorers.classes import ClassProbabilities
from bindscope.studies.same_object.scorers.identity import IdentityProbabilities
from bindscope.studies.same_object.tables import SAME_OBJECT_SCHEMA, STRATA_SCHEMA
from bindscope.tables.schema import table_of

NATS = np.log(2.0)


def scored(n=3, m=5, seed=0, rounded=False):
    """A few patches, a score of each pair that is read off the tokens, and the pairs one by one."""
    draw = np.random.default_rng(seed)
    sample = {
        "patches": np.sort([draw.choice(64, m, replace=False) for _ in range(n)], axis=1),
        "instances": draw.integers(1, 3, (n, m)),
        "classes": draw.integers(1, 3, (n, m)),
    }
    sample["patches"][0, 1] = -1
    tokens = draw.standard_normal((n, m, 2)).astype(np.float32)
    data = PairData.from_arrays(sample, tokens, GRID)

    def logits(block):
        a, b = block.both(block.x)
        products = (a * b).sum(-1) * 2
        return products.round() if rounded else products

    scorer = SimpleNamespace(logits=logits)
    rows = list(couples(data))
    g = np.array([2 * (tokens[n, i] * tokens[n, j]).sum() for n, i, j, *_ in rows], np.float64)
    return data, scorer, rows, np.round(g) if rounded else g


def measured(data, scorer, calibration=UNCHANGED, **options):
    return measure(tally(scorer, PatchPairs(data, **options)), 200)


def literal(rows, g):
    """The metrics of pairs, one by one."""
    same = np.array([row[3] for row in rows])
    right = (g > 0) == same
    measures = {
        "n_pairs": len(rows),
        "positives": same.mean(),
        "accuracy": right.mean(),
        "loss_bits": np.mean(np.logaddexp(0, np.where(same, -g, g))) / NATS,
    }
    if 0 < same.sum() < len(same):
        measures["balanced_accuracy"] = (right[same].mean() + right[~same].mean()) / 2
    image = np.array([row[0] for row in rows])
    within = [
        (a > b) + (a == b) / 2
        for n in np.unique(image)
        for a in g[same & (image == n)]
        for b in g[~same & (image == n)]
    ]
    if within:
        measures["auc_within"] = np.mean(within)
    counts = (
        [same[image == n].sum() for n in np.unique(image)],
        np.unique(image, return_counts=True),
    )
    majority = sum(max(ones, n - ones) for ones, n in zip(counts[0], counts[1][1], strict=True))
    measures["image_majority_accuracy"] = majority / len(rows)
    return measures


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("block", [1, 2**22])
def test_a_row_is_what_counting_pairs_one_by_one_gives(rounded, block):
    data, scorer, rows, g = scored(rounded=rounded)
    row, _ = measured(data, scorer, block=block)
    for name, value in literal(rows, g).items():
        assert row[name] == pytest.approx(value, abs=1e-6), name
    assert row["class_oracle_accuracy"] == pytest.approx(np.mean([r[4] == r[3] for r in rows]))
    assert row["n_images"] == 3


def test_strata_are_what_counting_pairs_one_by_one_gives():
    data, scorer, rows, g = scored(n=6, m=11)
    _, strata = measured(data, scorer)
    kinds = {
        "same_class": np.array(["same" if r[4] else "different" for r in rows]),
        "distance": np.array(
            [
                ("up to 1.5", "1.5 to 3", "3 to 6", "6 to 12", "over 12")[
                    np.searchsorted((1.5, 3, 6, 12), r[5])
                ]
                for r in rows
            ]
        ),
    }
    n_pairs = 0
    for row in strata:
        inside = np.ones(len(rows), bool)
        for name, kind in kinds.items():
            inside &= (row[name] == "all") | (kind == row[name])
        assert inside.any()
        expected = literal([r for r, chosen in zip(rows, inside, strict=True) if chosen], g[inside])
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, abs=1e-6), name
        if "balanced_accuracy" not in expected:
            assert row["balanced_accuracy"] is row["balanced_accuracy_low"] is None
        if "auc_within" not in expected:
            assert row["auc_within"] is row["auc_within_low"] is None
        n_pairs += row["n_pairs"] * (row["same_class"] != "all") * (row["distance"] != "all")
    assert n_pairs == len(rows)


def test_patches_without_a_class_are_alike_within_an_object_only():
    """Class 0 says that nobody named one: two such objects are not of the same class."""
    instances, classes = [[1, 1, 2, 3]], [[0, 0, 0, 5]]
    block = block_of(np.zeros((1, 4, 2)), instances, np.ones((1, 4), bool), classes)
    same_class, _ = kinds(block)
    assert same_class.tolist() == [True, *[False] * 5]


def test_what_is_constant_in_an_image_is_worth_nothing_within_images():
    data, _, rows, _ = scored(n=40, m=8)
    image = np.array([row[0] for row in rows])
    same = np.array([row[3] for row in rows])
    shares = np.array([same[image == n].mean() for n in range(40)])

    def logits(block):
        return torch.tensor(shares, dtype=torch.float32)[block.image + block.first]

    row, strata = measured(data, SimpleNamespace(logits=logits))
    assert row["auc_within"] == row["auc_within_low"] == row["auc_within_high"] == 0.5
    assert {stratum["auc_within"] for stratum in strata} <= {None, 0.5}


def test_decisions_are_made_after_platts_map():
    data, scorer, *_ = scored(n=20, m=8)
    moved = SimpleNamespace(logits=lambda block: scorer.logits(block) + 50)
    tallied = tally(moved, PatchPairs(data), Calibration(2.0, -100.0))
    expected = tally(scorer, PatchPairs(data))
    assert np.array_equal(tallied.of_images(), expected.of_images())


def test_intervals_resample_images():
    """The accuracy's interval is that of a ratio of sums over drawn images."""
    data, scorer, rows, g = scored(n=40, m=6)
    row, _ = measured(data, scorer)
    image = np.array([r[0] for r in rows])
    right = (g > 0) == np.array([r[3] for r in rows])
    sums = np.array([[right[image == n].sum(), (image == n).sum()] for n in range(40)])
    draw = np.random.default_rng(5)
    drawn = sums[draw.integers(0, 40, (4000, 40))].sum(1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    assert row["accuracy_low"] == pytest.approx(low, abs=0.01)
    assert row["accuracy_high"] == pytest.approx(high, abs=0.01)
    assert row["auc_within_low"] < row["auc_within"] < row["auc_within_high"]


def test_platts_map_is_the_logistic_regression_of_the_logits():
    draw = np.random.default_rng(0)
    g = draw.normal(0, 3, 5000).astype(np.float32)
    same = draw.random(5000) < 1 / (1 + np.exp(-(0.4 * g - 1)))
    fitted = platt(g, same)
    model = LogisticRegression(C=1e8).fit(g[:, None], same)
    assert fitted.scale == pytest.approx(model.coef_[0, 0], rel=5e-3)
    assert fitted.offset == pytest.approx(model.intercept_[0], rel=5e-3)


def test_platts_map_of_one_number_or_of_a_perfect_scorer_is_finite():
    by = platt(np.full(100, 2.5, np.float32), np.arange(100) < 30)
    assert by.scale * 2.5 + by.offset == pytest.approx(np.log(30 / 70), abs=0.05)
    perfect = platt(np.linspace(-1, 1, 100).astype(np.float32), np.arange(100) >= 50)
    assert np.isfinite(perfect).all()
    nothing = np.zeros(0, np.float32)
    assert platt(nothing, nothing > 0) == Calibration(1.0, 0.0)


def test_a_few_pairs_of_unbounded_logits_do_not_pull_the_others_towards_zero() -> None:
    """A form had 1,500 for pairs of a class with one object; Platt's scale was 0.09, not 1."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, 4000).astype(np.float32)
    same = rng.random(4000) < 1 / (1 + np.exp(-logits))
    logits = np.concatenate([logits, np.full(100, 2e4, np.float32)])
    assert platt(logits, np.append(same, [True] * 100)) == pytest.approx((1, 0), abs=0.1)


def test_logits_that_are_not_finite_are_flagged_and_not_counted():
    g, same = np.array([0.5, -0.5, 0.7], np.float32), np.array([True, False, True])
    with_nan = platt(np.append(g, np.float32(np.nan)), np.append(same, False))
    assert with_nan == platt(g, same)
    data, scorer, *_ = scored()
    odd = SimpleNamespace(logits=lambda block: scorer.logits(block) * np.inf)
    assert tally(scorer, PatchPairs(data)).finite
    assert not tally(odd, PatchPairs(data)).finite


def test_a_split_without_a_pair_or_of_one_kind_is_refused(splits):
    train, val, test = splits
    none = replace(train, valid=np.zeros_like(train.valid))
    single_object = replace(train, instances=np.ones_like(train.instances))
    probe = CosineScorer(name="p", family="cosine")
    for odd in (none, single_object):
        with pytest.raises(InputError, match="patch sample of train"):
            fit_probe(probe, odd, val, test)
    with pytest.raises(InputError, match="patch sample of test"):
        fit_probe(probe, train, val, replace(test, valid=np.zeros_like(test.valid)))


# --- Rows of fits ---

NAMES = {
    "dataset": "blobs",
    "model": "planted",
    "layer": "0",
    "probe": "p",
    "spec_key": "0" * 8,
    "code_key": "0" * 8,
}


SHORT = {"identity_pointwise": {"steps": 20}, "class_position": {"iterations": 3}}


@pytest.fixture(scope="module")
def splits():
    return planted_splits(n=(20, 10, 10))


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_every_family_obey_the_schemas(splits, family):
    options = {"name": "p", "family": family, **SHORT.get(family, {})}
    probe = TypeAdapter(AnyScorer).validate_python(options)
    results = fit_probe(probe, *splits, names=NAMES, bootstrap_samples=20)
    rows = [result.row | {"n_layers": None} for result in results]
    add_leads([(row, r.of_images) for row, r in zip(rows, results, strict=True)], 20, 0)
    table = table_of(rows, SAME_OBJECT_SCHEMA)
    assert len(table) == len(results)
    strata = table_of([row for result in results for row in result.strata], STRATA_SCHEMA)
    whole = strata[(strata[list(Stratum._fields)] == "all").all(axis=1)]
    assert whole["accuracy"].tolist() == pytest.approx(table["accuracy"].tolist())
    assert whole["n_pairs"].tolist() == table["n_pairs"].tolist()


# Patches of two images, the last one not valid; tokens are the logits of three classes or queries.
VALID = torch.tensor([[True] * 6, [True] * 5 + [False]])
TRUTH = torch.tensor([[1, 1, 1, 2, 2, 3], [1, 2, 2, 2, 3, 3]])
SAID = torch.tensor([[0, 0, 1, 1, 1, 2], [2, 2, 0, 0, 1, 1]])


def predicted_and_true(truth, predicted):
    """Sets of the patches of one image by label: those that are said, and those that are true."""
    return ([set(np.flatnonzero(values == k)) for k in range(4)] for values in (predicted, truth))


def test_classes_overlap_with_what_is_named_as_counted_by_hand():
    tokens = torch.nn.functional.one_hot(SAID, 3).float()
    scorer = ClassProbabilities(torch.eye(3), torch.zeros(3), classes=torch.tensor([1, 2, 3]))
    both, either = scorer.graded(block_of(tokens, TRUTH, VALID))["class_miou"]
    truth, predicted = TRUTH[VALID].numpy(), SAID[VALID].numpy() + 1
    for place, k in enumerate((1, 2, 3)):
        assert both[place] == np.sum((truth == k) & (predicted == k))
        assert either[place] == np.sum((truth == k) | (predicted == k))


def test_pairs_of_classes_are_graded_by_equal_names_as_counted_by_hand():
    tokens = torch.nn.functional.one_hot(SAID, 3).float()
    optimum = ClassProbabilities(torch.eye(3), torch.zeros(3), classes=torch.tensor([1, 2, 3]))
    block = block_of(tokens, TRUTH, VALID)
    assert "class_pair_accuracy" not in optimum.graded(block)
    right, n = replace(optimum, released=True).graded(block)["class_pair_accuracy"]
    pairs = [
        (SAID[image][i] == SAID[image][j]) == (TRUTH[image][i] == TRUTH[image][j])
        for image in range(2)
        for i in range(6)
        for j in range(6)
        if VALID[image][i] and VALID[image][j]
    ]
    assert (right, n) == (sum(map(bool, pairs)), 36 + 25)


def test_objects_overlap_with_the_queries_of_the_best_of_all_matchings():
    tokens = torch.nn.functional.one_hot(SAID, 3).float()
    scorer = IdentityProbabilities(torch.eye(3), torch.zeros(3))
    total, n = scorer.graded(block_of(tokens, TRUTH, VALID))["instance_miou"]
    expected = 0.0
    for truth, predicted, valid in zip(TRUTH.numpy(), SAID.numpy() + 1, VALID.numpy(), strict=True):
        queries, objects = predicted_and_true(truth[valid], predicted[valid])
        expected += max(
            sum(len(o & q) / len(o | q) for o, q in zip(objects[1:], order, strict=True))
            for order in permutations(queries[1:])
        )
    assert n == 6
    assert total == pytest.approx(expected, abs=1e-5)


def test_a_test_split_of_one_kind_has_rows_without_an_area(splits):
    train, val, test = splits
    single_object = replace(test, instances=np.ones_like(test.instances))
    [result] = fit_probe(CosineScorer(name="p", family="cosine"), train, val, single_object)
    assert result.row["auc_within"] is result.row["balanced_accuracy"] is None
    assert result.row["auc_within_low"] is None
    assert result.row["positives"] == 1.0
    assert torch.is_grad_enabled()
