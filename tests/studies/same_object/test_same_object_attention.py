"""What attention has to do with scores and objects: closed forms, and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from bindscope.studies.same_object.effects.attention import (
    beyond_rivals,
    correlate,
    fisher,
    share_of_object,
)


def test_correlations_are_those_of_scipy() -> None:
    generator = np.random.default_rng(0)
    m = 9
    attention = generator.dirichlet(np.ones(m), (2, m))
    scores = generator.standard_normal((m, m))
    scores += scores.T
    computed = correlate(attention, scores)
    i, j = (~np.eye(m, dtype=bool)).nonzero()
    p = 1 / (1 + np.exp(-scores[i, j]))
    for head in range(2):
        a = attention[head, i, j]
        assert computed[head] == pytest.approx(pearsonr(a, p)[0])


def test_nothing_correlates_with_what_does_not_vary() -> None:
    m = 5
    assert np.isnan(correlate(np.full((1, m, m), 0.2), np.eye(m))[0])
    assert np.isnan(fisher(np.array([np.nan]))[0])


def image(m: int = 20) -> tuple[np.ndarray, ...]:
    """Objects of four patches, of two classes; places on a grid; tokens of noise."""
    draw = np.random.default_rng(1)
    instances = np.arange(m) // 4
    places = np.stack(np.divmod(draw.permutation(36)[:m], 6), -1).astype(float)
    same = instances[:, None] == instances[None]
    return same, instances % 2, places, draw.standard_normal((m, 32))


def softmax(logits: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def test_attention_by_class_distance_or_cosine_leaves_nothing_and_by_objects_does() -> None:
    same, classes, places, tokens = image()
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    unit = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    for rival in (
        2.0 * (classes[:, None] == classes[None]),
        3.0 * np.exp(-distance),
        4 * unit @ unit.T,
        np.random.default_rng(0).standard_normal(len(same))[None].repeat(len(same), 0),
    ):
        rest = beyond_rivals(softmax(rival)[None], same, classes, places, tokens)
        assert np.isnan(rest).all()  # nothing is left but rounding
        both = softmax(rival + 0.5 * same)[None]
        assert beyond_rivals(both, same, classes, places, tokens)[0] == pytest.approx(1)


def test_where_classes_are_objects_nothing_can_be_shown() -> None:
    same, _, places, tokens = image()
    attention = softmax(2.0 * same)[None]
    assert np.isnan(beyond_rivals(attention, same, np.arange(20) // 4, places, tokens)).all()


def test_the_share_of_an_object_leaves_out_the_query_itself() -> None:
    among = torch.tensor([[[0.6, 0.1, 0.3]]])
    itself, same = torch.tensor([[[True, False, False]]]), torch.tensor([[[False, True, False]]])
    assert float(share_of_object(among, same, itself)) == pytest.approx(0.25)
