"""Rows of the tables about edits and attention, with intervals over the images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.statistics.bootstrap import interval, resampled_means
from bindscope.statistics.means import mean_interval
from bindscope.studies.same_object.attention_measures import fisher
from bindscope.studies.same_object.data import PairData, Pairs
from bindscope.studies.same_object.effects import Seen, Unedited
from bindscope.studies.same_object.fitted_scorer import Recorded
from bindscope.studies.same_object.histogram import UNCHANGED
from bindscope.studies.same_object.marks import MEAN_HEAD
from bindscope.studies.same_object.metrics import measure, tally, validated
from bindscope.studies.same_object.subspace import Intervention

Floats = NDArray[np.float64]
Row = dict[str, Any]
PLAIN = {"edit": "none", "strength": 0.0, "subspace": "none"}


def attention_rows(found: Unedited, n_samples: int, seed: int) -> list[Row]:
    """Return a row per head, and one of the mean over heads.

    Correlations are averaged over images as Fisher's z. An image counts where the measure exists.
    """
    rows = []
    for head in range(len(found.shares)):
        values = {name: fisher(each[head]) for name, each in found.correlations.items()}
        values |= {"object_share": found.shares[head], "uniform_share": found.uniform}
        means, drawn, counts = _averaged(values, n_samples, seed)
        row: Row = {
            "head": MEAN_HEAD if head == len(found.shares) - 1 else str(head + 1),
            "n_images": counts["object_share"],
            "n_correlated": counts["pearson"],
        }
        for name, value in means.items():
            back = np.tanh if name in found.correlations else np.asarray
            row |= _with_ends(name, back(value), back(drawn[name]))
        for end in ("low", "high"):
            row.pop(f"uniform_share_{end}")
        rows.append(row)
    return rows


def _averaged(
    values: Mapping[str, Floats], n_samples: int, seed: int
) -> tuple[dict[str, float], dict[str, Floats], dict[str, int]]:
    """Average columns (n,) over the images that have them, and over resamples of the images."""
    there = {name: np.isfinite(column) for name, column in values.items()}
    columns = [np.where(there[name], column, 0.0) for name, column in values.items()]
    table = np.column_stack([*columns, *(mask.astype(float) for mask in there.values())])
    drawn = resampled_means(table, n_samples, seed)
    k = len(columns)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = drawn[:, :k] / drawn[:, k:]
        means = table[:, :k].sum(0) / table[:, k:].sum(0)
    names = list(values)
    return (
        {name: float(means[i]) for i, name in enumerate(names)},
        {name: ratios[:, i] for i, name in enumerate(names)},
        {name: int(mask.sum()) for name, mask in there.items()},
    )


def _with_ends(name: str, value: Any, drawn: Any) -> Row:
    """Return a number and the ends of its interval; None where there is no number."""
    drawn = np.asarray(drawn)[np.isfinite(drawn)]
    if not np.isfinite(value) or not len(drawn):
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    low, high = interval(drawn)
    return {name: float(value), f"{name}_low": low, f"{name}_high": high}


def ablation_rows(
    labels: PairData,
    plain: Mapping[int, Recorded],
    edited: Mapping[Intervention, Mapping[int, Recorded]],
    seen: Mapping[Intervention, Seen],
    shares: Floats,
    n_samples: int,
    seed: int,
) -> list[Row]:
    """Return a row for the tokens as they are, and one per edit.

    Parameters
    ----------
    labels
        Pairs of the images.
    plain, edited
        Logits by layer: of the edited layer first, of a later one second, if there is one.
    seen
        What else was kept of each edit.
    shares
        Share of attention on the same object without an edit, mean over heads (n,).
    n_samples, seed
        Resamples of the images; all edits share each, so that differences are paired.
    """
    pairs, names = Pairs(labels), list(zip(sorted(plain), ("", "later_"), strict=False))
    edges = {layer: validated(scorer, pairs)[1] for layer, scorer in plain.items()}
    rows: list[Row] = []
    columns: list[dict[str, Floats]] = []
    whats: list[Intervention | None] = [None, *edited]
    for what in whats:
        row: Row = dict(PLAIN) if what is None else what._asdict()
        column: dict[str, Floats] = {}
        for layer, name in names:
            scorer = plain[layer] if what is None else edited[what][layer]
            found = tally(scorer, pairs, edges[layer])
            measured, _ = measure(found, UNCHANGED, n_samples, seed)
            row |= {f"{name}{key}": measured[key] for key in _SCORES}
            if not name:
                row |= {key: measured[key] for key in _SIZES}
            counts = found.of_images()
            column[f"{name}accuracy"] = counts[:, 0].astype(np.float64)
            column["pairs"] = counts[:, 1].astype(np.float64)
        row |= _kept(column, None if what is None else seen[what], shares)
        rows.append(row)
        columns.append(column)
    add_differences(rows, whats, columns, n_samples, seed)
    return rows


_SIZES = ("n_images", "n_pairs", "majority_accuracy")
_SCORES = tuple(f"{name}{end}" for name in ("accuracy", "auc") for end in ("", "_low", "_high"))


def _kept(column: dict[str, Floats], seen: Seen | None, shares: Floats) -> Row:
    """Add to the columns of an edit what is a mean over images; return how much tokens changed."""
    if seen is None:
        column["object_share"] = shares
        column["divergence_bits"] = np.where(np.isfinite(shares), 0.0, np.nan)
        return {"change": 0.0}
    column["object_share"] = np.concatenate(seen.share, axis=1).mean(0)
    column["divergence_bits"] = np.concatenate(seen.divergence, axis=1).mean(0)
    moved, whole = np.concatenate(seen.change).sum(0)
    return {"change": float(moved / whole)}


def add_differences(
    rows: Sequence[Row],
    whats: Sequence[Intervention | None],
    columns: Sequence[Mapping[str, Floats]],
    n_samples: int,
    seed: int,
) -> None:
    """Add means over images, changes by the edit, and what is beyond the strictest control.

    Parameters
    ----------
    rows, whats
        Rows to add to, and what they are of; the first is of no edit.
    columns
        Of each row: measure -> (n,) over images, and `pairs`, those of each image.
    n_samples, seed
        Resamples of the images, the same for all rows.
    """
    names = [name for name in columns[0] if name != "pairs"]
    weights = {
        name: columns[0]["pairs"] if name.endswith("accuracy")
        else np.isfinite(columns[0][name]).astype(float)
        for name in names
    }  # fmt: skip
    there = {name: weight > 0 for name, weight in weights.items()}
    table = [np.where(there[n], c[n], 0.0) for c in columns for n in names]
    table += list(weights.values())
    stacked = np.column_stack(table)
    drawn = np.vstack([stacked.mean(0), resampled_means(stacked, n_samples, seed)])
    with np.errstate(invalid="ignore", divide="ignore"):
        means = {
            (i, name): drawn[:, i * len(names) + j] / drawn[:, len(columns) * len(names) + j]
            for i in range(len(columns)) for j, name in enumerate(names)
        }  # fmt: skip
    for i, (row, what) in enumerate(zip(rows, whats, strict=True)):
        for name in names:
            here = means[i, name]
            if not name.endswith("accuracy"):
                row |= _with_ends(name, here[0], here[1:])
            if what is None:
                continue
            if name != "divergence_bits":
                change = here - means[0, name]
                row |= _with_ends(f"{name}_change", change[0], change[1:])
            rivals: dict[str, Floats] = {
                one.subspace: means[j, name] for j, one in controls_of(what, whats)
            }
            if rivals:
                falls = name != "divergence_bits" and what.edit != "inject"
                strictest, beyond = _beyond(here, rivals, falls=falls)
                row |= _with_ends(f"{name}_beyond_controls", beyond[0], beyond[1:])
                row[f"{name}_strictest"] = strictest if np.isfinite(beyond[0]) else None


def controls_of(
    what: Intervention, whats: Iterable[Intervention | None]
) -> list[tuple[int, Intervention]]:
    """Return number and edit of the controls of an edit of the probe's subspace."""
    if what.subspace != "probe":
        return []
    alike = (what.edit, what.strength)
    return [
        (j, one) for j, one in enumerate(whats)
        if one is not None and one != what and (one.edit, one.strength) == alike
    ]  # fmt: skip


def _beyond(here: Floats, rivals: Mapping[str, Floats], *, falls: bool) -> tuple[str, Floats]:
    """Return the control with the greatest effect, and the effect minus the greatest.

    Numbers (1 + B,) are of the images as they are and of each resample; the greatest effect is
    taken anew in each of them, so that an interval on one side of 0 is there for every control.
    """
    others = np.stack(list(rivals.values()))
    beyond = here - (others.min(0) if falls else others.max(0))
    place = others[:, 0].argmin() if falls else others[:, 0].argmax()
    return list(rivals)[place], beyond


def loss_columns(
    losses: Mapping[Intervention | None, Floats] | str, what: Intervention | None
) -> Row:
    """Return the columns about the model's own loss: means over batches, or why there is none."""
    if isinstance(losses, str):
        return {"pretraining_reason": losses}
    about = {"n_batches": len(losses[what]), "pretraining_reason": ""}
    return about | losses_compared("pretraining_loss", losses, what)


def losses_compared(
    name: str, losses: Mapping[Intervention | None, Floats], what: Intervention | None
) -> Row:
    """Return a loss under an edit, its change, and what is beyond the controls, over batches."""
    found = _over_batches(f"{name}_bits", losses[what])
    if what is None:
        return found
    found |= _over_batches(f"{name}_change", losses[what] - losses[None])
    rivals = [
        (one.subspace, _over_batches("beyond", losses[what] - losses[one]))
        for _, one in controls_of(what, losses)
    ]
    if rivals:
        strictest, least = min(rivals, key=lambda rival: rival[1]["beyond"])
        found[f"{name}_strictest"] = strictest
        found[f"{name}_beyond_controls"] = least["beyond"]
        if "beyond_low" in least:  # both ends are the lowest: so far beyond every control
            for end in ("low", "high"):
                found[f"{name}_beyond_controls_{end}"] = min(
                    rival[f"beyond_{end}"] for _, rival in rivals
                )
    return found


def _over_batches(name: str, values: Floats) -> Row:
    """Return a mean over batches and, of several, the ends of its t interval."""
    found: Row = {name: float(values.mean())}
    if len(values) > 1:
        _, found[f"{name}_low"], found[f"{name}_high"] = mean_interval(values)
    return found
