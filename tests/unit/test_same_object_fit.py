"""Rows of a fit are rows of the study's tables."""

from itertools import permutations

import numpy as np
import pytest
import torch
from pair_problems import planted_splits
from pair_twins import block_of
from pydantic import TypeAdapter

from bindscope.core.splits import SPLITS
from bindscope.studies.same_object.config import FAMILIES, AnyScorer
from bindscope.studies.same_object.estimates import add_leads
from bindscope.studies.same_object.fit import fit_rows
from bindscope.studies.same_object.metrics import Stratum
from bindscope.studies.same_object.scorers.classes import ClassProbabilities
from bindscope.studies.same_object.scorers.identity import IdentityProbabilities
from bindscope.studies.same_object.tables import SAME_OBJECT_SCHEMA, STRATA_SCHEMA
from bindscope.tables.schema import table_of

NAMES = {
    "dataset": "blobs", "model": "planted", "layer": "0", "probe": "p",
    "spec_key": "0" * 8, "code_key": "0" * 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def splits():
    return planted_splits(n=(20, 10, 10))


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_every_family_obey_the_schemas(splits, family):
    probe = TypeAdapter(AnyScorer).validate_python({"name": "p", "family": family})
    data = dict(zip(SPLITS, splits, strict=True))
    results = fit_rows(probe, data, NAMES, 0, bootstrap_samples=20)
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
