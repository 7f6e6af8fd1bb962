"""Rows of the table of mixtures: shares of accounts by maximum likelihood, and how well they fit.

An answer is one of the items of a scene's k things. It goes by an account with the account's share
w, and then is what the account predicts; or it is guessed, some items more often than others. With
m_i the item that account i predicts, the probability of item j is

    p(j) = w_slot [j = m_slot] + w_color [j = m_color] + w_content [j = m_content] + g_j,

and w_guess the sum of all g_j.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from bindscope.core.array_types import Doubles
from bindscope.statistics.bootstrap import Interval, interval, resampled_means
from bindscope.statistics.mixture_shares import TOLERANCE, MixtureShares, mixture_shares
from bindscope.statistics.proportions import wilson_interval
from bindscope.studies.binding_id.answers.rows import Answers, chosen
from bindscope.studies.binding_id.names import MIXED, PARTS
from bindscope.tables.rows import Row, interval_columns

_N = len(MIXED)
FOLDS = 5  # of rows, that shares are fitted without and tested on


def shifts(things: int) -> list[tuple[int, int]]:
    """Return by how many roles shapes and colors move in each condition; first not at all."""
    return list(product(range(things), range(things)))


def predictions(things: int) -> NDArray[np.int64]:
    """Return the role whose item each account predicts, int64 (conditions, roles, accounts)."""
    roles = np.arange(things)
    predicted = [
        np.stack([(roles - s) % things, (roles - s + t) % things, roles], axis=1)
        for s, t in shifts(things)
    ]
    return np.stack(predicted).astype(np.int64)


def parts_of(things: int) -> Doubles:
    """Return how probable each item is by each account, and by a guess of each of k items.

    float64 (conditions, roles asked for, items, accounts + k), of sum 1 over items.
    """
    predicted = predictions(things)[:, :, None] == np.arange(things)[:, None]
    guesses = np.broadcast_to(np.eye(things), (*predicted.shape[:-1], things))
    return np.concatenate([predicted.astype(np.float64), guesses], axis=-1)


def fit(counts: Doubles, parts: Doubles) -> MixtureShares:
    """Fit shares to data sets: answers by outcome, floats (B, ...).

    `parts` are the probabilities of the same outcomes, floats (..., m).
    """
    flat = counts.reshape(len(counts), -1)
    return mixture_shares(flat, parts.reshape(flat.shape[1], -1))


def mixture_rows(answers: Answers, samples: int, seed: int) -> Iterator[Row]:
    """Yield rows over all trials but the control: shares, their evidence, and bits that they save.

    Shares are fitted anew in every resample of the rows, and empty if a fit does not end.
    """
    rows = chosen(answers.logs)[:, 1:]  # all conditions but the control
    n, things = len(rows), answers.logs.shape[2]
    flat = rows.reshape(n, -1)
    means = np.concatenate([flat.mean(axis=0)[None], resampled_means(flat, samples, seed)])
    whole = fit(means, parts_of(things)[1:])
    shares = np.column_stack([whole.shares[:, :_N], whole.shares[:, _N:].sum(axis=1)])
    bits = dict(held_out(rows, samples, seed))
    weights = dict(evidence(answers, samples, seed))
    names = {"trial": 1, "query": "all", "expected": 0, "n_rows": n}
    has_ended = bool((whole.gap <= TOLERANCE).all())
    for name, values in zip(PARTS, shares.T, strict=True):
        yield {
            **names,
            "candidate": name,
            **interval_columns("share", _interval(values, n) if has_ended else None),
            **interval_columns("bits", bits.get(name)),
            **interval_columns("effect", weights.get(name)),
        }
    for name in ("mixture", "saturated"):
        yield {**names, "candidate": name, **interval_columns("bits", bits[name])}


def evidence(answers: Answers, samples: int, seed: int) -> Iterator[tuple[str, Interval]]:
    """Yield the weight of each account in the log-probabilities, over the lead in the control.

    Least squares over all conditions but the control. Shares say which account decides an answer;
    where an answer weighs several, the strongest one decides all of them, and weights differ.
    Nothing is yielded where the control has no lead.
    """
    things = answers.logs.shape[-1]
    centered = answers.logs - answers.logs.mean(axis=-1, keepdims=True)
    design = parts_of(things)[..., :_N]
    design = design - design.mean(axis=2, keepdims=True)
    flat = centered[:, 1:].reshape(len(centered), -1)
    weights = flat @ np.linalg.pinv(design[1:].reshape(-1, _N)).T
    control = design[0, ..., :1].reshape(-1)
    lead = centered[:, 0].reshape(len(centered), -1) @ control / (control @ control)
    columns = np.column_stack([weights, lead])
    drawn = resampled_means(columns, samples, seed)
    if interval(drawn[:, -1])[0] <= 0:
        return
    means = columns.mean(axis=0)
    for i, name in enumerate(MIXED):
        low, high = interval(drawn[:, i] / drawn[:, -1])
        value = float(means[i] / means[-1])
        yield name, Interval(value, min(low, value), max(high, value))


def _interval(values: Doubles, n: int) -> Interval:
    """Return the first of some shares with percentiles of the rest; Wilson's where rows agree."""
    value = float(np.clip(values[0], 0, 1))
    low, high = interval(values[1:])
    if high - low < 1e-3 and min(value, 1 - value) < 1e-3:
        low, high = (float(end) for end in wilson_interval(round(value) * n, n))
    return Interval(value, min(max(low, 0.0), value), max(min(high, 1.0), value))


def agreeing(things: int) -> tuple[list[tuple[int, ...]], NDArray[np.int64]]:
    """Return which accounts predict the same: by condition its labels, and all labels.

    Labels are int64 (conditions, roles asked for, items): the sum of 2^i over the accounts i that
    predict the item. Conditions are of one kind where they have the same ones.
    """
    predicted = predictions(things)[:, :, None] == np.arange(things)[:, None]
    labels = (predicted * 2 ** np.arange(_N)).sum(axis=-1)
    return [tuple(np.unique(of_condition).tolist()) for of_condition in labels], labels


def held_out(rows: Doubles, samples: int, seed: int) -> Iterator[tuple[str, Interval]]:
    """Yield the bits that accounts save per answer of rows which they were not fitted to.

    Chance saves 0 bits, an account that is always right log2 k. Each account alone has a share of
    guesses of its own. `saturated`: each set of agreeing accounts has a share of its own in each
    kind of condition, the most that a fit can save which takes roles alike. Rows are float64 (n,
    conditions but the control, roles asked for, items).
    """
    things, folds = rows.shape[-1], np.arange(len(rows)) % FOLDS
    present, parts = np.unique(folds), parts_of(things)[1:]
    train = np.stack(
        [
            rows[folds != fold].sum(axis=0) if len(present) > 1 else rows.sum(axis=0)
            for fold in present
        ]
    )
    guesses = range(_N, parts.shape[-1])
    models = {name: _mixed(train, parts[..., [i, *guesses]]) for i, name in enumerate(MIXED)}
    models["mixture"] = _mixed(train, parts)
    models["saturated"] = saturated(train)
    n_train = np.array([max((folds != fold).sum(), 1) for fold in present])[:, None, None, None]
    for name, probable in models.items():
        # One guess more than rows that were seen, so that nothing is impossible.
        smooth = (n_train * probable + 1 / things) / (n_train + 1)
        logs = np.log2(smooth)[np.searchsorted(present, folds)]
        per_row = np.log2(things) + (rows * logs).sum(axis=(1, 2, 3)) / rows[0].sum()
        low, high = interval(resampled_means(per_row[:, None], samples, seed)[:, 0])
        yield name, Interval(float(per_row.mean()), low, high)


def _mixed(train: Doubles, parts: Doubles) -> Doubles:
    """Return the probabilities that mixtures fitted to data sets give each item, like `train`."""
    return np.moveaxis(parts @ fit(train, parts).shares.T, -1, 0)


def saturated(train: Doubles) -> Doubles:
    """Return the shares of answers by which accounts predict them, in each kind of condition.

    `train` is float64 (B, conditions but the control, roles asked for, items); so are the
    probabilities, the same for items that the same accounts predict.
    """
    things = train.shape[-1]
    kinds, labels = agreeing(things)
    probabilities = np.zeros_like(train)
    for kind in set(kinds[1:]):
        there = np.array([candidate == kind for candidate in kinds[1:]])[:, None, None]
        counts = (train * there).sum(axis=(1, 2, 3))
        for label in kind:
            cells = there & (labels[1:] == label)
            alike = cells.sum() / (there.sum() * things)  # items of a question
            probabilities[:, cells] = (train[:, cells].sum(axis=1) / counts / alike)[:, None]
    return probabilities
