"""Probes that are fitted again to edited tokens: what is gone, and what has only moved.

A probe that was fitted to tokens as they are may fail on edited ones although these say as much as
before: they lie elsewhere than it looks. A probe of the same kind, fitted to tokens of train under
the same edit and chosen on validation under it, fails where the tokens no longer say it.

Source: arXiv 2510.24709, section 4.4 and Table 2, whose heads are trained again per condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bindscope.core.splits import SPLITS
from bindscope.fitting.rows import as_rows
from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.effects import Measuring
from bindscope.studies.same_object.effects_rows import PLAIN, Floats, Row, add_differences
from bindscope.studies.same_object.fit import fit_probe
from bindscope.studies.same_object.subspace import Editor, Intervention

if TYPE_CHECKING:
    from bindscope.studies.same_object.fit import ProbeResult
    from bindscope.studies.same_object.probes_config import AnyScorer

Found = tuple[Row, Floats]  # a row, and float64 (n, 2): pairs told right of each image, and pairs
_TAKEN = (
    "accuracy", "accuracy_low", "accuracy_high", "auc", "auc_low", "auc_high", "n_images",
    "n_pairs", "majority_accuracy", "flags",
)  # fmt: skip


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


def retrained_rows(
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
        Which are fitted; of one with seeds the seed 0, of one with ranks the last.
    n_samples, seed
        Resamples of the test images; all edits share each.
    """
    whats: list[Intervention | None] = [None, *edits]
    found: dict[tuple[str, int], list[Found]] = {}
    for what in whats:
        tokens = {name: splits[name].under(what) for name in SPLITS}
        for probe in probes:
            for layer in sorted(tokens["test"]):
                train, val, test = (tokens[name][layer] for name in SPLITS)
                result = fit_probe(
                    probe, train, val, test, bootstrap_samples=n_samples, bootstrap_seed=seed
                )[-1]
                row = (dict(PLAIN) if what is None else what._asdict()) | _columns(result)
                row |= {"reader": probe.name, "read_layer": str(layer)}
                row |= {"n_train_images": train.n_images, "n_reader_val_images": val.n_images}
                pairs = result.of_images.astype(np.float64)
                found.setdefault((probe.name, layer), []).append((row, pairs))
    for each in found.values():
        columns = [{"accuracy": pairs[:, 0], "pairs": pairs[:, 1]} for _, pairs in each]
        add_differences([row for row, _ in each], whats, columns, n_samples, seed)
    return [row for each in found.values() for row, _ in each]


def _columns(result: ProbeResult) -> Row:
    row = {name: result.row[name] for name in _TAKEN}
    row["patches_named"] = result.row.get("pointwise_accuracy")
    row |= {name: result.row.get(name) for name in ("class_miou", "instance_miou")}
    return row | {"reader_val_loss_bits": result.row.get("val_loss_bits")}


def with_old_reader(rows: Iterable[Row], old: Iterable[Row], layer: int, probe: str) -> list[Row]:
    """Add what the probe that was fitted to tokens as they are makes of the same edit.

    Parameters
    ----------
    rows, old
        Of `retrained_rows`, and of `ablation_rows`.
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
