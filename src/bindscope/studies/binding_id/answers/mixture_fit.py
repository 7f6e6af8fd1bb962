"""Rows of the table of mixtures: shares of accounts by maximum likelihood, and how well they fit.

An answer is one of the items of a scene's k things. It goes by an account with the account's share
w, and then is what the account predicts; or it is guessed, some items more often than others. With
m_i the item that account i predicts, the probability of item j is

    p(j) = w_slot N(j; m_slot, width) + w_color [j = m_color] + w_content [j = m_content] + g_j,

N a Gaussian over places in the text, set to sum 1 (arXiv 2510.06182; of width 0 the item itself),
and w_guess the sum of all g_j.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.statistics.bootstrap import Interval, interval, resampled_means
from bindscope.statistics.mixture_shares import TOLERANCE, mixture_shares
from bindscope.statistics.proportions import wilson_interval
from bindscope.studies.binding_id.answers.metrics import Answers, chosen, ends
from bindscope.studies.binding_id.experiments.plans import predictions
from bindscope.studies.binding_id.names import DISAGREEING, MIXED, PARTS, WIDTHS

Doubles = NDArray[np.float64]
Row = dict[str, Any]

_BETTER = 1e-7  # nats per answer
_N = len(MIXED)
FOLDS = 5  # of rows, that shares are fitted without and tested on


def parts_of(things: int, width: float) -> Doubles:
    """Return how probable each item is by each account, and by a guess of each of k items.

    float64 (conditions, roles asked for, items, accounts + k), of sum 1 over items; `width` is that
    of the account of slots, in places of the text.
    """
    away = np.abs(predictions(things)[:, :, None] - np.arange(things)[:, None])
    accounts = (away == 0).astype(np.float64)
    if width > 0:
        accounts[..., 0] = np.exp(-(away[..., 0] ** 2) / (2 * width**2))
        accounts /= accounts.sum(axis=2, keepdims=True)
    guesses = np.broadcast_to(np.eye(things), (*away.shape[:-1], things))
    return np.concatenate([accounts, guesses], axis=-1)


@dataclass(frozen=True, eq=False)
class Fit:
    """Shares (accounts and guesses, float64 (B, m)) of data sets, each with its best width."""

    shares: Doubles
    width: Doubles
    ended: NDArray[np.bool_]


def fit(counts: Doubles, parts: dict[float, Doubles]) -> Fit:
    """Fit shares and the width to data sets: answers by outcome, floats (B, ...).

    `parts` are the probabilities of the same outcomes, floats (..., m), by width: the likeliest is
    taken, of equal ones the first.
    """
    flat = counts.reshape(len(counts), -1)
    fitted = Fit(np.zeros((len(flat), next(iter(parts.values())).shape[-1])),
                np.zeros(len(flat)), np.zeros(len(flat), bool))  # fmt: skip
    best = np.full(len(flat), -np.inf)
    for size, part in parts.items():
        shares, log_likelihood, gap = mixture_shares(flat, part.reshape(flat.shape[1], -1))
        # Where nobody answers by slots all widths are alike, up to what fits are off.
        better = log_likelihood > best + _BETTER
        best[better], fitted.width[better] = log_likelihood[better], size
        fitted.shares[better], fitted.ended[better] = shares[better], gap[better] <= TOLERANCE
    return fitted


def mixture_rows(answers: Answers, samples: int, seed: int) -> Iterator[Row]:
    """Yield rows of `binding_id_mixture`: shares, how well they fit, and what was answered.

    Width and shares are fitted anew in every resample of the rows.
    """
    rows = chosen(answers.logs)
    n, things = len(rows), len(answers.queries)
    flat = rows.reshape(n, -1)
    means = np.concatenate([flat.mean(axis=0)[None], resampled_means(flat, samples, seed)])
    counts = means.reshape(-1, *rows.shape[1:])
    parts = {width: parts_of(things, width) for width in WIDTHS}
    edited = {width: part[1:] for width, part in parts.items()}  # all but the control
    whole = fit(counts[:, 1:], edited)
    bits = dict(held_out(rows[:, 1:], edited, samples, seed))
    weights = dict(evidence(answers, samples, seed))
    for name, row in _shares(whole, n):
        yield {**row, **ends("bits", bits.get(name)), **ends("effect", weights.get(name))}
    for name in ("mixture", "saturated"):
        yield {"conditions": DISAGREEING, "account": name, "n_rows": n, "ended": 1,
               **ends("bits", bits[name])}  # fmt: skip
    yield from _answered(counts, parts[float(whole.width[0])] @ whole.shares[0], n)


def evidence(answers: Answers, samples: int, seed: int) -> Iterator[tuple[str, Interval]]:
    """Yield the weight of each account in the log-probabilities, over the lead in the control.

    Least squares over all conditions but the control. Shares say which account decides an answer;
    where an answer weighs several, the strongest one decides all of them, and weights differ.
    Nothing is yielded where the control has no lead.
    """
    things = answers.logs.shape[-1]
    centered = answers.logs - answers.logs.mean(axis=-1, keepdims=True)
    design = parts_of(things, 0.0)[..., :_N]
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


def _shares(fitted: Fit, n: int) -> Iterator[tuple[str, Row]]:
    shares = np.column_stack([fitted.shares[:, :_N], fitted.shares[:, _N:].sum(axis=1)])
    for i, name in enumerate(PARTS):
        row = {
            "conditions": DISAGREEING, "account": name, "n_rows": n,
            "ended": int(fitted.ended.all()), **ends("share", _interval(shares[:, i], n)),
        }  # fmt: skip
        # Who has no share has no width.
        if name == "slot" and row["share_low"] > 0.01:
            row["width"] = float(fitted.width[0])
        yield name, row


def _interval(values: Doubles, n: int) -> Interval:
    """Return the first of some shares with percentiles of the rest; Wilson's where rows agree."""
    value = float(np.clip(values[0], 0, 1))
    low, high = interval(values[1:])
    if high - low < 1e-3 and min(value, 1 - value) < 1e-3:
        low, high = (float(end) for end in wilson_interval(round(value) * n, n))
    return Interval(value, min(max(low, 0.0), value), max(min(high, 1.0), value))


def _answered(counts: Doubles, fitted: Doubles, n: int) -> Iterator[Row]:
    """Yield what was answered where the same accounts agree, beside what the fit says of it."""
    things = counts.shape[-1]
    patterns, labels = agreeing(things)
    for pattern in dict.fromkeys(patterns):
        there = np.array([agreement == pattern for agreement in patterns])
        questions = int(there.sum()) * things
        for label in np.unique(labels[there]):
            cells = there[:, None, None] & (labels == label)
            values = counts[:, cells].sum(axis=1) / questions
            yield {
                "conditions": pattern, "account": who(int(label)), "n_rows": n,
                "ended": 1, **ends("share", _interval(values, n)),
                "fitted": float(fitted[cells].sum() / questions),
            }  # fmt: skip


def agreeing(things: int) -> tuple[list[str], NDArray[np.int64]]:
    """Return which accounts predict the same: by condition in words, and as labels.

    Labels are int64 (conditions, roles asked for, items): the sum of 2^i over the accounts i that
    predict the item.
    """
    predicted = predictions(things)[:, :, None] == np.arange(things)[:, None]
    labels = (predicted * 2 ** np.arange(len(MIXED))).sum(axis=-1)
    words = []
    for account_labels in labels:
        several = [
            who(label) for label in np.unique(account_labels).tolist() if label.bit_count() > 1
        ]
        words.append(f"{several[0]} agree" if several else "all differ")
    return words, labels


def who(label: int) -> str:
    """Return the accounts of a label of `agreeing` in words."""
    names = [name for i, name in enumerate(MIXED) if label & 2**i]
    return "all" if len(names) == len(MIXED) else " and ".join(names) or "none"


def held_out(
    rows: Doubles, parts: dict[float, Doubles], samples: int, seed: int
) -> Iterator[tuple[str, Interval]]:
    """Yield the bits that accounts save per answer of rows which they were not fitted to.

    Chance saves 0 bits, an account that is always right log2 k. Each account alone has a share of
    guesses of its own. `saturated`: each set of agreeing accounts has a share of its own in each
    kind of condition, the most that a fit can save which takes roles alike and knows no places near
    each other. Rows are float64 (n, conditions, roles asked for, items).
    """
    things, folds = rows.shape[-1], np.arange(len(rows)) % FOLDS
    present = np.unique(folds)
    train = np.stack([rows[folds != fold].sum(axis=0) if len(present) > 1 else rows.sum(axis=0)
                      for fold in present])  # fmt: skip
    at_zero = {0.0: parts[0.0]}
    models = {name: _mixed(train, {w: part[..., [i, *range(_N, part.shape[-1])]] for w, part in
                                   (at_zero if i else parts).items()})
              for i, name in enumerate(MIXED)}  # fmt: skip
    models["mixture"] = _mixed(train, parts)
    models["saturated"] = saturated(train, things)
    n_train = np.array([max((folds != fold).sum(), 1) for fold in present])[:, None, None, None]
    for name, probable in models.items():
        # One guess more than rows that were seen, so that nothing is impossible.
        smooth = (n_train * probable + 1 / things) / (n_train + 1)
        logs = np.log2(smooth)[np.searchsorted(present, folds)]
        per_row = np.log2(things) + (rows * logs).sum(axis=(1, 2, 3)) / rows[0].sum()
        low, high = interval(resampled_means(per_row[:, None], samples, seed)[:, 0])
        yield name, Interval(float(per_row.mean()), low, high)


def _mixed(train: Doubles, parts: dict[float, Doubles]) -> Doubles:
    """Return the probabilities that mixtures fitted to data sets give each item, like `train`."""
    mixed = fit(train, parts)
    return np.stack([parts[width] @ shares
                     for width, shares in zip(mixed.width, mixed.shares, strict=True)])  # fmt: skip


def saturated(train: Doubles, things: int) -> Doubles:
    """Return the shares of answers by which accounts predict them, in each kind of condition.

    `train` is float64 (B, conditions but the control, roles asked for, items); so are the
    probabilities, the same for items that the same accounts predict.
    """
    patterns, labels = agreeing(things)
    probabilities = np.zeros_like(train)
    for pattern in set(patterns[1:]):
        there = np.array([agreement == pattern for agreement in patterns[1:]])[:, None, None]
        counts = (train * there).sum(axis=(1, 2, 3))
        for label in np.unique(labels[1:][there[:, 0, 0]]):
            cells = there & (labels[1:] == label)
            alike = cells.sum() / (there.sum() * things)  # items of a question
            probabilities[:, cells] = (train[:, cells].sum(axis=1) / counts / alike)[:, None]
    return probabilities
