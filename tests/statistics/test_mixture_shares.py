"""Shares of mixtures of known parts: closed forms, brute force, and the bound that ends a fit."""

from itertools import product

import numpy as np
import pytest

from bindscope.statistics.mixture_shares import TOLERANCE, mixture_shares


def test_parts_that_do_not_overlap_have_the_shares_of_what_was_seen() -> None:
    fitted = mixture_shares(np.array([[30.0, 60.0, 10.0]]), np.eye(3))
    assert fitted.shares[0] == pytest.approx([0.3, 0.6, 0.1], abs=1e-4)
    entropy = -(0.3 * np.log(0.3) + 0.6 * np.log(0.6) + 0.1 * np.log(0.1))
    assert fitted.log_likelihood[0] == pytest.approx(-entropy, abs=1e-7)


@pytest.mark.parametrize("hits", [0.2, 0.5, 0.7, 1.0])
def test_a_sure_part_and_a_guess_between_two(hits: float) -> None:
    # p(hit) = w + (1 - w) / 2 is right at w = 2 p - 1, or at the bound where that is below 0.
    fitted = mixture_shares(np.array([[hits, 1 - hits]]), np.array([[1.0, 0.5], [0.0, 0.5]]))
    assert fitted.shares[0, 0] == pytest.approx(max(2 * hits - 1, 0), abs=1e-4)


def test_no_shares_on_a_grid_do_better_and_the_bound_holds() -> None:
    rng = np.random.default_rng(0)
    parts = rng.dirichlet(np.full(5, 0.5), size=3).T
    counts = rng.integers(0, 20, size=(4, 5)) + 1.0
    fitted = mixture_shares(counts, parts)
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    grid = np.array([w for w in product(np.linspace(0, 1, 41), repeat=3) if abs(sum(w) - 1) < 1e-9])
    with np.errstate(divide="ignore"):
        best = (frequencies @ np.log(grid @ parts.T).T).max(axis=1)
    assert (fitted.gap <= TOLERANCE).all()
    assert (best <= fitted.log_likelihood + TOLERANCE).all()
    # A fit that was stopped says by how much it may be off, and it is by no more than that.
    early = mixture_shares(counts, parts, most_steps=2)
    assert (early.gap > TOLERANCE).all()
    assert (fitted.log_likelihood - early.log_likelihood <= early.gap).all()
    assert early.shares.sum(axis=1) == pytest.approx(np.ones(4))


@pytest.mark.parametrize(
    ("counts", "parts", "message"),
    [
        (np.ones((1, 3)), np.eye(2), "other outcomes"),
        (np.ones((1, 2)), np.array([[1.0], [0.0]]), "no part allows"),
        (np.zeros((1, 2)), np.eye(2), "empty"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    counts: np.ndarray, parts: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        mixture_shares(counts, parts)
