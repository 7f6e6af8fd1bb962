"""What scores and tokens are like: known answers, closed forms, and counts by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pair_problems import GRID, planted_geometry, planted_splits
from planted_patches import Planted

from bindscope.fitting.rows import ArrayRows
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import PairData, no_tokens
from bindscope.studies.same_object.estimates import Bootstrap
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.geometry import (
    across_layers,
    cross_scores,
    positions_decoded,
    transfers,
)
from bindscope.studies.same_object.quantities import GEOMETRY
from bindscope.studies.same_object.scorers import released
from bindscope.studies.same_object.tables import GEOMETRY_SCHEMA
from bindscope.tables.schema import table_of

BY = Bootstrap(50, 0)
CODES = Planted(classes=0.0, noise=0.0, rotated=False)  # tokens that are identity codes alone


def values(rows):
    return {(row["quantity"], row["at"]): row["value"] for row in rows}


def labels_of(instances, valid, positions, grid, classes=None):
    """Patches without tokens."""
    classes = np.zeros_like(instances) if classes is None else classes
    return PairData(no_tokens(valid.shape), instances, classes, valid, positions, grid)


def test_kinds_of_pairs_are_those_that_are_named_one_by_one():
    # Two copies (1, 2) of a class, another object of it (3), one of another class (4), nobody (0).
    instances = np.array([[1, 1, 2, 2, 3, 4, 0]], np.int16)
    classes = np.array([[5, 5, 5, 5, 5, 6, 0]], np.int16)
    copy_of = np.array([[2, 2, 1, 1, 0, 0, 0]], np.int16)
    valid = instances > 0
    labels = labels_of(instances, valid, np.zeros((1, 7, 2), np.float32), (1, 7), classes)
    draw = np.random.default_rng(0).standard_normal((7, 7)).astype(np.float32)
    scores = (draw + draw.T)[None]
    scorer = SimpleNamespace(logits=lambda block: block.packed(torch.from_numpy(scores)))
    by_kind = values(cross_scores(scorer, labels, copy_of, BY))
    p = 1 / (1 + np.exp(-scores[0].astype(float)))
    pairs = {
        "object": [(0, 1), (2, 3)],
        "copy": [(0, 2), (0, 3), (1, 2), (1, 3)],
        "class": [(0, 4), (1, 4), (2, 4), (3, 4)],
        "other": [(i, 5) for i in range(5)],
    }
    for kind, named in pairs.items():
        assert by_kind["cross_score", kind] == pytest.approx(np.mean([p[pair] for pair in named]))


def places_read(position):
    train, val, test = planted_splits(replace(CODES, position=position, noise=0.1))
    scaling = Standardiser.identity(train.dim)
    return values(positions_decoded([train, val, test], scaling, BY))


def test_planted_places_are_read_and_others_are_not():
    there, nowhere = places_read(1.0), places_read(0.0)
    assert there["position_r2", ""] > 0.8
    assert nowhere["position_r2", ""] < 0.05


def test_r2_is_that_of_all_patches_together():
    """A token that is the place with noise of its own variance has R^2 = 1 / 2."""
    train, val, test = (with_noisy_places(split, i) for i, split in enumerate(plain_splits()))
    scaling = Standardiser.identity(2)
    decoded = values(positions_decoded([train, val, test], scaling, BY))
    assert decoded["position_r2", ""] == pytest.approx(0.5, abs=0.03)


def turned(n=(120, 40, 60)):
    """The same identities in two layers, in one half of the dimensions and in the other."""
    splits = planted_splits(
        replace(CODES, dim=16, rank=8, class_dims=4, place_dims=4, noise=0.1), n=n, patches=16
    )
    q = np.roll(np.eye(16), 8, axis=1)
    second = [
        replace(
            split, tokens=ArrayRows((split.tokens.read(0, split.n_images) @ q).astype(np.float32))
        )
        for split in splits
    ]
    return {
        name: {"1": a, "2": b}
        for name, a, b in zip(("train", "val", "test"), splits, second, strict=True)
    }, q


def probe_of(matrix):
    d = len(matrix)
    return FittedScorer(
        torch.from_numpy(matrix.astype(np.float32)),
        torch.zeros(d),
        torch.zeros(1),
        Standardiser.identity(d),
    )


def test_other_dimensions_stop_a_probe():
    splits, q = turned()
    first = np.diag(np.arange(16) < 8).astype(float)
    probes = {"1": probe_of(first), "2": probe_of(q.T @ first @ q)}
    moved = values(transfers(probes["1"], splits["test"], BY))
    auc_same, auc_moved = moved["transfer_auc", "1"], moved["transfer_auc", "2"]
    assert auc_same > 0.99
    assert auc_moved == pytest.approx(0.5, abs=0.05)


def test_every_quantity_is_a_row_of_the_table():
    """One job on planted tokens: all that is declared is measured, and the schema takes it."""
    rows = planted_geometry(("0",), cross_layers=[("0", "0")])
    assert {row["quantity"] for row in rows} == set(GEOMETRY)
    names = {"dataset": "d", "model": "m", "probe": "p", "spec_key": "0" * 8, "code_key": "0" * 8}
    assert len(table_of([{**names, **row} for row in rows], GEOMETRY_SCHEMA)) == len(rows)


def plain_splits():
    return planted_splits(CODES)


def with_noisy_places(split: PairData, seed: int) -> PairData:
    """Tokens of two numbers: row and column, and noise with the variance that these have."""
    draw = np.random.default_rng(seed)
    valid_positions = split.positions[split.valid]
    noise = draw.standard_normal(split.positions.shape) * valid_positions.std(0)
    assert split.grid == GRID
    return replace(split, tokens=ArrayRows((split.positions + noise).astype(np.float32)))


@pytest.mark.parametrize("related", [True, False])
def test_a_bilinear_probe_compares_tokens_of_two_layers(
    related: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second layer is a rotation of the first one, or holds other objects."""
    torch.set_num_threads(1)
    first = planted_splits(
        Planted(noise=0.2, dim=24, rank=8, place_dims=4, classes=0.0), n=(300, 40, 60)
    )
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((24, 24)))[0]
    second = []
    for data in first:
        tokens = data.tokens.values @ rotation.astype(np.float32)
        second.append(replace(data, tokens=ArrayRows(tokens if related else tokens[::-1].copy())))
    monkeypatch.setattr(released, "IMAGES", 8)
    [row] = across_layers(first, second, "3", Bootstrap(50))
    assert (row["quantity"], row["at"]) == ("cross_layer_accuracy", "3")
    n_same, n = int(first[2].same_of_images.sum()), first[2].n_pairs
    gain = row["value"] - max(n_same, n - n_same) / n
    assert gain > 0.05 if related else gain < 0.01
