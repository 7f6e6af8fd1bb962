"""What attention has to do with scores and objects: closed forms, and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

from bindscope.studies.same_object.attention_measures import (
    correlations,
    divergence_bits,
    fisher,
    share_of_object,
)


def test_correlations_are_those_of_scipy_and_of_regression_residuals() -> None:
    generator = np.random.default_rng(0)
    m = 9
    attention = generator.dirichlet(np.ones(m), (2, m))
    scores = generator.standard_normal((m, m))
    scores += scores.T
    places, tokens = generator.uniform(0, 5, (m, 2)), generator.standard_normal((m, 4))
    found = correlations(attention, scores, places, tokens)
    i, j = (~np.eye(m, dtype=bool)).nonzero()
    p = 1 / (1 + np.exp(-scores[i, j]))
    cosine = [tokens[a] @ tokens[b] / np.linalg.norm(tokens[a]) / np.linalg.norm(tokens[b])
              for a, b in zip(i, j, strict=True)]  # fmt: skip
    given = np.stack([np.ones(len(i)), np.linalg.norm(places[i] - places[j], axis=1), cosine], 1)
    for head in range(2):
        a = attention[head, i, j]
        rest = [v - given @ np.linalg.lstsq(given, v, rcond=None)[0] for v in (a, p)]
        alone = a / (1 - attention[head, i, i])
        expected = {
            "pearson": pearsonr(a, p)[0], "pearson_logit": pearsonr(a, scores[i, j])[0],
            "spearman": spearmanr(a, p)[0], "partial": pearsonr(*rest)[0],
            "pearson_renormalised": pearsonr(alone, p)[0],
        }  # fmt: skip
        assert {name: values[head] for name, values in found.items()} == pytest.approx(expected)


def test_nothing_correlates_with_what_does_not_vary() -> None:
    m = 5
    flat = correlations(np.full((1, m, m), 0.2), np.eye(m), np.eye(m)[:, :2], np.eye(m))
    assert np.isnan(flat["pearson"][0])
    # Scores that follow from the distance leave nothing to correlate beside it.
    places = np.arange(10.0).reshape(5, 2) ** 1.5
    far = np.linalg.norm(places[:, None] - places[None], axis=-1)
    scores = np.log(0.01 + far / 100) - np.log1p(-(0.01 + far / 100))
    same = correlations(np.random.default_rng(0).random((1, m, m)), scores, places, np.eye(m))
    assert np.isnan(same["partial"][0])
    assert np.isnan(fisher(np.array([np.nan]))[0])


def test_divergence_is_0_of_the_same_and_1_bit_of_what_shares_nothing() -> None:
    one, other = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    assert divergence_bits(one, other).tolist() == [1.0, 0.0]


def test_the_share_of_an_object_leaves_out_the_query_itself() -> None:
    among = torch.tensor([[[0.6, 0.1, 0.3]]])
    own, same = torch.tensor([[[True, False, False]]]), torch.tensor([[[False, True, False]]])
    assert float(share_of_object(among, same, own)) == pytest.approx(0.25)
