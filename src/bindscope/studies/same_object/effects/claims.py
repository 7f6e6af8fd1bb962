"""Claims about edits and attention, and the effects that the tables give for them.

Tokens that hold only the class, the position or something of the whole image also lose accuracy
under an edit of what a probe reads, and attention that goes by them also goes to patches of the
same object. So claims are about edits of the judged subspace, which is outside those of class and
position; about areas within images; and about attention beyond its rivals. No claim is about
injections: these write the labels into the tokens, and a probe of noise reads them there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bindscope.report.chapter import Finding, Section
from bindscope.statistics.claims import Claim, Effect
from bindscope.studies.same_object.marks import JUDGED
from bindscope.studies.same_object.views import where_validation_is_best

TABLE = "same_object_edits"
FIGURES = ("same_object_attention", "same_object_edits")
TINY = 1e-9  # share of the tokens' squared length, below which an edit changes nothing
IMAGES, BATCHES = "test images", "batches"
_CLASSES = "classes and distances decide which patches are of one object"
_EMPTY = "empty edit"


class _Source(NamedTuple):
    """Where the table has the effect of a claim: a quantity, under an edit."""

    quantity: str
    scale: float
    edit: str = ""
    units: str = IMAGES


_AREA = "auc_within_beyond_controls"
_WITHOUT = "outside class and position"
_DECLARED: tuple[tuple[Claim, _Source], ...] = (
    (
        Claim(
            "attention-beyond-rivals",
            "Attention in the next block goes to patches of the same object beyond what classes, "
            "distance and the similarity of tokens predict.",
            unit="r",
        ),
        _Source("beyond_rivals", 1.0),
    ),
    (
        Claim(
            "attention-without-subspace",
            "Attention on the same object falls more when the probe's subspace "
            f"{_WITHOUT} is removed than under any control.",
            "below",
        ),
        _Source("object_share_beyond_controls", 100.0, "remove"),
    ),
    (
        Claim(
            "attention-without-weights",
            "Attention on the same object falls more when no weight writes the probe's subspace "
            f"{_WITHOUT} than under any control.",
            "below",
        ),
        _Source("object_share_beyond_controls", 100.0, "weights"),
    ),
    (
        Claim(
            "later-probe-without-subspace",
            f"The probe of a later layer ranks pairs worse when the subspace {_WITHOUT} is removed "
            "than under any control.",
            "below",
        ),
        _Source(f"later_{_AREA}", 100.0, "remove"),
    ),
    (
        Claim(
            "later-probe-after-shuffle",
            "The probe of a later layer ranks pairs worse when patches exchange the subspace "
            f"{_WITHOUT} than under any control.",
            "below",
        ),
        _Source(f"later_{_AREA}", 100.0, "shuffle"),
    ),
    (
        Claim(
            "refitted-probe-without-subspace",
            f"A probe fitted after the subspace {_WITHOUT} was removed ranks pairs worse than "
            "after the removal of any control.",
            "below",
        ),
        _Source(f"refitted_{_AREA}", 100.0, "remove"),
    ),
    (
        Claim(
            "loss-after-shuffle",
            "The model's own loss rises more when patches exchange the subspace "
            f"{_WITHOUT} than under any control.",
            unit="bits",
        ),
        _Source("pretraining_loss_beyond_controls", 1.0, "shuffle", units=BATCHES),
    ),
)
EDIT_CLAIMS: tuple[Claim, ...] = tuple(claim for claim, _ in _DECLARED)
Told = Mapping[tuple[str, str], Any]
"""(edit, quantity) -> row, of the judged subspace at full strength, and of no edit (none)."""


def edit_effects(table: pd.DataFrame) -> list[Effect]:
    """Return the effect of every claim about every edited model.

    Each is at the layer whose probe validation prefers. A claim whose edit changed nothing, or was
    not made, has a reason instead of an effect.

    Parameters
    ----------
    table
        `same_object_edits`.
    """
    best = where_validation_is_best(table)
    full = (best["subspace"] == JUDGED) & (best["strength"] == 1)
    best = best[full | (best["edit"] == "none")]
    found: list[Effect] = []
    for (dataset, model, _, layer), rows in best.groupby(_PLACE, sort=False):
        told = {(row["edit"], row["quantity"]): row for row in rows.to_dict("records")}
        where = f"{model} on {dataset}, layer {layer}"
        found += [_effect(claim, source, where, told) for claim, source in _DECLARED]
    return found


_PLACE = ["dataset", "model", "probe", "layer"]


def _effect(claim: Claim, source: _Source, where: str, told: Told) -> Effect:
    row = told.get((source.edit or "none", source.quantity), {})
    reason = _no_evidence(source, told, row)
    row = {} if reason == _EMPTY else row
    value, low, high = (source.scale * _number(row.get(end)) for end in ("value", "low", "high"))
    n = int(np.nan_to_num(_number(row.get("n"))))
    return Effect(claim.name, where, value, low, high, n, source.units, reason)


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _no_evidence(source: _Source, told: Told, row: Mapping[str, Any]) -> str:
    """Return why a row is no evidence for a claim; empty where it may be."""
    if not source.edit:
        return "" if row["n"] else _CLASSES
    if (source.edit, "change") not in told:
        return f"the edit `{source.edit}` was not made"
    directions, change = (told[source.edit, name]["value"] for name in ("directions", "change"))
    if not directions or change < TINY:
        return _EMPTY
    if source.units == BATCHES:
        return str(told["none", "pretraining_loss"]["reason"])
    again = source.quantity.startswith("refitted")
    return "no probe was fitted again" if again and not row else ""


def effects_sections(tables: Mapping[str, pd.DataFrame]) -> list[Section]:
    """Return the section with both figures; none where nothing was edited."""
    if TABLE not in tables or tables[TABLE].empty:
        return []
    return [Section("edits", "Ablating the probe subspace", _ABOUT, figures=FIGURES)]


def effects_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Say how far the models' own losses are those of their training; nothing without edits."""
    points = list(_about_losses(tables[TABLE])) if TABLE in tables else []
    words = "The models' own pretraining loss under edits:"
    return [Finding(words, tuple(points))] if points else []


_ABOUT = (
    "Each model is judged at the edited layer whose probe has the lowest loss on validation. "
    "Claims are about the directions that the probe reads most, without those in which patches "
    "differ by class or by position; the table gives the overlap of each subspace with both. The "
    "effect of an edit is the difference from every control: random directions, random ones that "
    "hold as much variance, the directions of most variance moved as far, and, for removal, "
    "tokens moved as far towards the mean.",
    "That a probe fails where what it reads was removed shows that the directions are those that "
    "it reads, not that the model uses them. Later layers, attention and the model's own loss are "
    "evidence for use by the model.",
)


def _about_losses(edits: pd.DataFrame) -> Iterator[tuple[str, str]]:
    reasons, losses = own_losses(edits)
    for reason, models in reasons.items():
        yield "No loss", f"{', '.join(models)}: {reason}."
    for model, (refitted, trained) in losses.items():
        yield (
            model,
            f"heads fitted again to the frozen transformer: {refitted:.3f} bits on its own "
            f"validation scenes, {trained:.3f} at the end of its training.",
        )


def own_losses(
    edits: pd.DataFrame,
) -> tuple[dict[str, list[str]], dict[str, tuple[float, float]]]:
    """Return what is to be said of the models' own losses.

    Returns
    -------
    Reason -> models that have none; and model -> its loss with heads that were fitted again, and at
    the end of its training, in bits.
    """
    none = edits[(edits["quantity"] == "pretraining_loss") & (edits["reason"] != "")]
    reasons = none.groupby("reason")["model"].unique()
    refitted, trained = (
        edits[edits["quantity"] == name].drop_duplicates("model").set_index("model")["value"]
        for name in ("refitted_loss_bits", "trained_loss_bits")
    )
    losses = {str(model): (refitted[model], trained[model]) for model in refitted.index}
    return {str(reason): list(models) for reason, models in reasons.items()}, losses
