"""Rows of the tables about edits and attention, with intervals over the test images.

A probe that was fitted to tokens as they are may fail on edited ones that say as much as before,
elsewhere. A probe of the same kind, fitted to tokens of train under the same edit, fails where the
tokens no longer say it (arXiv 2510.24709, section 4.4 and Table 2: heads per condition).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.core.splits import SPLITS
from bindscope.fitting.rows import as_rows
from bindscope.statistics.bootstrap import interval, resampled_means
from bindscope.statistics.means import mean_interval
from bindscope.studies.same_object.attention_measures import fisher
from bindscope.studies.same_object.data import PairData, Pairs
from bindscope.studies.same_object.effects.passes import Measuring, Seen, Unedited
from bindscope.studies.same_object.fit import fit_probe
from bindscope.studies.same_object.marks import CONTROLS, JUDGED, MEAN_HEAD
from bindscope.studies.same_object.subspace import Editor, Intervention

if TYPE_CHECKING:
    from bindscope.studies.same_object.fit import ProbeResult
    from bindscope.studies.same_object.probes_config import AnyScorer

Floats = NDArray[np.float64]
Row = dict[str, Any]
# Measure -> sums and numbers of each image, (n,) each: it is the ratio of their means.
Columns = dict[str, tuple[Floats, Floats]]
PLAIN = {"edit": "none", "strength": 0.0, "subspace": "none"}
# Measures that claims are about: no image-level part of the tokens moves an image's own areas.
COMPARED = ("auc_within", "later_auc_within", "object_share")


def attention_rows(found: Unedited, n_samples: int, seed: int) -> list[Row]:
    """Return a row per head, and one of the mean over heads.

    Correlations are averaged over images as Fisher's z. An image counts where the measure exists.
    The share of the mean is the mean of the heads' shares, as under an edit.
    """
    rows = []
    shares = np.concatenate([found.shares, found.shares.mean(0, keepdims=True)])
    for head, share in enumerate(shares):
        values = {name: fisher(each[head]) for name, each in found.correlations.items()}
        values |= {"object_share": share, "uniform_share": found.uniform}
        columns = {name: over_images(each) for name, each in values.items()}
        row: Row = {
            "head": MEAN_HEAD if head == len(shares) - 1 else str(head + 1),
            "n_images": int(columns["object_share"][1].sum()),
            "n_correlated": int(columns["pearson"][1].sum()),
            "n_beyond_rivals": int(columns["beyond_rivals"][1].sum()),
        }
        for name, drawn in _means([columns], n_samples, seed)[0].items():
            row |= with_ends(name, np.tanh(drawn) if name in found.correlations else drawn)
        for end in ("low", "high"):
            row.pop(f"uniform_share_{end}")
        rows.append(row)
    return rows


def over_images(values: Floats) -> tuple[Floats, Floats]:
    """Return numbers (n,) as sums and counts of images; NaN is no image."""
    there = np.isfinite(values)
    return np.where(there, values, 0.0), there.astype(np.float64)


def _means(columns: Sequence[Columns], n_samples: int, seed: int) -> list[dict[str, Floats]]:
    """Return means (1 + B,) of each measure: of the images, and of resamples that all share."""
    table = np.column_stack([part for one in columns for both in one.values() for part in both])
    drawn = np.vstack([table.mean(0), resampled_means(table, n_samples, seed)])
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = iter((drawn[:, 0::2] / drawn[:, 1::2]).T)
    return [{name: next(ratios) for name in one} for one in columns]


def with_ends(name: str, drawn: Floats) -> Row:
    """Return a number and the ends of its interval (1 + B,); None where there is no number."""
    value, resampled = drawn[0], drawn[1:][np.isfinite(drawn[1:])]
    if not np.isfinite(value) or not len(resampled):
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    low, high = interval(resampled)
    ends = {f"{name}_low": min(low, value), f"{name}_high": max(high, value)}
    return {name: float(value)} | {end: float(number) for end, number in ends.items()}


def couples_won(
    logits: NDArray[Any], same: NDArray[np.bool_], counts: NDArray[Any]
) -> tuple[Floats, Floats]:
    """Count couples of a pair of the same object and one of different objects, of each image.

    Parameters
    ----------
    logits, same
        (P,): of the pairs of successive images.
    counts
        (n,): how many pairs each image has.

    Returns
    -------
    (n,) each: couples in which the first has the greater logit (a tie counts one half), and all.
    Their ratio is the area under the ROC curve within images.
    """
    n, image = len(counts), np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((logits, image))
    sorted_, home = logits[order], image[order]
    first = np.ones(len(order), bool)
    first[1:] = (sorted_[1:] != sorted_[:-1]) | (home[1:] != home[:-1])
    group = first.cumsum() - 1  # equal logits of an image
    before = (np.cumsum(counts) - counts)[home]
    rank = (np.bincount(group, np.arange(len(order)) - before) / np.bincount(group))[group]
    labels = same[order]
    n_same = np.bincount(home, labels, n)
    won = np.bincount(home, rank * labels, n) - n_same * (n_same - 1) / 2
    couples = n_same * (counts - n_same)
    return np.where(couples > 0, won, 0.0), couples.astype(np.float64)


def ablation_rows(
    labels: PairData, seen: Mapping[Intervention | None, Seen], n_samples: int, seed: int
) -> list[Row]:
    """Return a row for the tokens as they are, and one per edit.

    Parameters
    ----------
    labels
        Pairs of the images.
    seen
        What was kept without an edit (None) and under each; logits of the edited layer, and of a
        later one, if there is one.
    n_samples, seed
        Resamples of the images; all edits share each, so that differences are paired.
    """
    same = torch.cat([block.same for block in Pairs(labels).blocks()]).numpy()
    counts = labels.pairs_of_images
    positives = float(same.mean())
    about = {
        "n_images": int((counts > 0).sum()), "n_pairs": len(same),
        "majority_accuracy": max(positives, 1 - positives),
    }  # fmt: skip
    rows: list[Row] = []
    columns: list[Columns] = []
    for what, kept in seen.items():
        moved, whole = np.concatenate(kept.change).sum(0)
        edit = PLAIN if what is None else what._asdict()
        rows.append(edit | about | {"change": float(moved / whole)})
        columns.append(_columns(kept, same, counts))
    add_differences(rows, list(seen), columns, n_samples, seed)
    return rows


def _columns(kept: Seen, same: NDArray[np.bool_], counts: NDArray[np.int64]) -> Columns:
    """Return what is averaged over images of one edit; the mean over heads is of their numbers."""
    found: Columns = {}
    image = np.repeat(np.arange(len(counts)), counts)
    for layer, name in zip(sorted(kept.logits), ("", "later_"), strict=False):
        logits = torch.cat(kept.logits[layer]).numpy()
        right = np.bincount(image, (logits > 0) == same, len(counts)).astype(np.float64)
        found[f"{name}accuracy"] = right, counts.astype(np.float64)
        found[f"{name}auc_within"] = couples_won(logits, same, counts)
    for name, parts in (("object_share", kept.share), ("divergence_bits", kept.divergence)):
        found[name] = over_images(np.concatenate(parts, axis=1).mean(0))
    return found


def add_differences(
    rows: Sequence[Row],
    whats: Sequence[Intervention | None],
    columns: Sequence[Columns],
    n_samples: int,
    seed: int,
) -> None:
    """Add means over images, changes by the edit, and what is beyond the controls.

    Parameters
    ----------
    rows, whats
        Rows to add to, and what they are of; the first is of no edit.
    columns
        Of each row; denominators are the same for all.
    n_samples, seed
        Resamples of the images, the same for all rows.
    """
    means = _means(columns, n_samples, seed)
    for row, what, here in zip(rows, whats, means, strict=True):
        for name, drawn in here.items():
            row |= with_ends(name, drawn)
            if what is None or name == "divergence_bits":
                continue
            row |= with_ends(f"{name}_change", drawn - means[0][name])
            if name in COMPARED:
                row |= beyond(
                    name,
                    {
                        control: with_ends("", drawn - means[j][name])
                        for j, control in controls_of(what, whats)
                    },
                    falls=what.edit != "inject",
                )


def controls_of(what: Intervention, whats: Iterable[Intervention | None]) -> list[tuple[int, str]]:
    """Return number and name of the controls of an edit that claims are about."""
    if what.subspace != JUDGED:
        return []
    alike = (what.edit, what.strength)
    return [
        (j, one.subspace) for j, one in enumerate(whats)
        if one is not None and one.subspace in CONTROLS and (one.edit, one.strength) == alike
    ]  # fmt: skip


def beyond(name: str, rivals: Mapping[str, Row], *, falls: bool) -> Row:
    """Return an effect beyond every control: of each number the one nearest to no effect.

    An interval on the claimed side of 0 is there for every control, so that to claim it of all
    needs no correction (an intersection-union test).

    Parameters
    ----------
    name
        Of the measure.
    rivals
        Control -> the measure minus that under the control's edit, as `with_ends` returns it.
    falls
        Whether the measure is claimed to fall.
    """
    rivals = {control: row for control, row in rivals.items() if row[""] is not None}
    if not rivals:
        return {}
    nearest = max if falls else min
    ends = {
        f"{name}_beyond_controls{end}": nearest(row[end] for row in rivals.values())
        for end in ("", "_low", "_high") if all(end in row for row in rivals.values())
    }  # fmt: skip
    return ends | {f"{name}_strictest": nearest(rivals, key=lambda control: rivals[control][""])}


def loss_columns(
    losses: Mapping[Intervention | None, Floats] | str, what: Intervention | None
) -> Row:
    """Return the columns about the model's own loss: means over batches, or why there is none."""
    name = "pretraining_loss"
    if isinstance(losses, str):
        return {"pretraining_reason": losses}
    found = {"n_batches": len(losses[what]), "pretraining_reason": ""}
    found |= _over_batches(f"{name}_bits", losses[what])
    if what is None:
        return found
    found |= _over_batches(f"{name}_change", losses[what] - losses[None])
    whats = list(losses)
    rivals = {
        control: _over_batches("", losses[what] - losses[whats[j]])
        for j, control in controls_of(what, whats)
    }
    return found | beyond(name, rivals, falls=False)


def _over_batches(name: str, values: Floats) -> Row:
    """Return a mean over batches and, of several, the ends of its t interval."""
    found: Row = {name: float(values.mean())}
    if len(values) > 1:
        _, found[f"{name}_low"], found[f"{name}_high"] = mean_interval(values)
    return found


@dataclass(frozen=True)
class Edited:
    """The scenes of a split, and the editor that knows them.

    Attributes
    ----------
    measuring
        The model and the scenes.
    editor
        With the order and the objects of the patches of these scenes.
    """

    measuring: Measuring
    editor: Editor

    def under(self, what: Intervention | None) -> dict[int, PairData]:
        """Return the sampled patches of the layers that are read, under an edit or None."""
        parts: dict[int, list[Any]] = {layer: [] for layer in self.measuring.scorers}
        for start, pixels in self.measuring.batches():
            found = self.measuring.tokens_under(pixels, start, self.editor, what)
            for layer, tokens in found.items():
                parts[layer].append(self.measuring.taken(start, tokens))
        labels = self.measuring.scenes.labels
        return {
            layer: replace(labels, tokens=as_rows(np.concatenate(each)))
            for layer, each in parts.items()
        }


def strongest(edits: Iterable[Intervention], names: Sequence[str]) -> list[Intervention]:
    """Return the edits with one of these names, at the greatest strength that each has."""
    kept = [what for what in edits if what.edit in names]
    most = {what.edit: max(o.strength for o in kept if o.edit == what.edit) for what in kept}
    return [what for what in kept if what.strength == most[what.edit]]


def refitted_rows(
    splits: Mapping[str, Edited],
    edits: Sequence[Intervention],
    probes: Sequence[AnyScorer],
    n_samples: int,
    seed: int,
) -> list[Row]:
    """Fit probes to tokens as they are and under each edit; return a row for each.

    Parameters
    ----------
    splits
        By split: train decides the weights, val what is chosen among them, test is measured.
    edits
        What is done to the tokens of all three.
    probes
        Which are fitted; of one with seeds the seed 0, of one with ranks the full form.
    n_samples, seed
        Resamples of the test images; all edits share each.
    """
    whats: list[Intervention | None] = [None, *edits]
    found: dict[tuple[str, int], list[tuple[Row, Columns]]] = {}
    for what in whats:
        tokens = {name: splits[name].under(what) for name in SPLITS}
        for probe in probes:
            for layer in sorted(tokens["test"]):
                train, val, test = (tokens[name][layer] for name in SPLITS)
                result = fit_probe(
                    probe, train, val, test, bootstrap_samples=n_samples, bootstrap_seed=seed
                )[-1]
                row = (dict(PLAIN) if what is None else what._asdict()) | _graded(result)
                row |= {"reader": probe.name, "read_layer": str(layer)}
                row |= {"n_train_images": train.n_images, "n_reader_val_images": val.n_images}
                right, pairs, _, won, couples = result.of_images.astype(np.float64).T
                columns: Columns = {"accuracy": (right, pairs), "auc_within": (won, couples)}
                found.setdefault((probe.name, layer), []).append((row, columns))
    for each in found.values():
        add_differences([row for row, _ in each], whats, [c for _, c in each], n_samples, seed)
    return [row for each in found.values() for row, _ in each]


def _graded(result: ProbeResult) -> Row:
    row = {name: result.row[name] for name in ("n_images", "n_pairs", "majority_accuracy", "flags")}
    row["patches_named"] = result.row.get("pointwise_accuracy")
    row |= {name: result.row.get(name) for name in ("class_miou", "instance_miou")}
    return row | {"reader_val_loss_bits": result.row.get("val_loss_bits")}


def with_old_reader(rows: Iterable[Row], old: Iterable[Row], layer: int, probe: str) -> list[Row]:
    """Add what the probe that was fitted to tokens as they are makes of the same edit.

    Parameters
    ----------
    rows, old
        Of `refitted_rows`, and of `ablation_rows`.
    layer, probe
        The layer and the name of the probe whose subspace is edited; the old reader of a later
        layer is of the same kind.
    """
    told = {(row["edit"], row["strength"], row["subspace"]): row for row in old}
    found = []
    for row in rows:
        name = "accuracy" if row["read_layer"] == str(layer) else "later_accuracy"
        one = told[row["edit"], row["strength"], row["subspace"]]
        own = row["reader"] == probe
        found.append(row | {"old_accuracy": one[name] if own else None})
    return found
