"""Claims about edits and attention, and the effects that the tables give for them.

Tokens that hold only the class, the position or something of the whole image also lose accuracy
under an edit of what a probe reads, and attention that goes by them also goes to patches of the
same object. So claims are about edits of the judged subspace, which is outside those of class and
position; about areas within images; and about attention beyond its rivals. No claim is about
injections: these write the labels into the tokens, and a probe of noise reads them there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bindscope.report.chapter import Finding, Section
from bindscope.statistics.claims import Claim, Effect
from bindscope.studies.same_object.marks import JUDGED, MEAN_HEAD
from bindscope.studies.same_object.views import where_validation_is_best

EDIT_TABLES = ("ablation", "attention", "retrained")  # in the order of `edit_effects`
FIGURES = ("same_object_attention", "same_object_edits")
TINY = 1e-9  # share of the tokens' squared length, below which an edit changes nothing
IMAGES, BATCHES = "test images", "batches"
_CLASSES = "classes and distances decide which patches are of one object"


class _Source(NamedTuple):
    """Where the tables have the effect of a claim: a column, at the row of an edit."""

    column: str
    scale: float
    edit: str = ""
    again: bool = False  # of the edited probe, fitted again to the edited layer
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
        _Source(_AREA, 100.0, "remove", again=True),
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
_READ = (
    "dataset", "model", "probe", "layer", "val_loss_bits", "edit", "strength", "subspace",
    "directions", "change", "n_images", "n_batches", "n_beyond_rivals", "pretraining_reason",
    *(f"{column}{end}" for column in dict.fromkeys(source.column for _, source in _DECLARED)
      for end in ("", "_low", "_high")),
)  # fmt: skip
EDIT_CLAIMS: tuple[Claim, ...] = tuple(claim for claim, _ in _DECLARED)
Row = Mapping[Any, Any]


def edit_effects(
    edits: pd.DataFrame, attention: pd.DataFrame, retrained: pd.DataFrame
) -> list[Effect]:
    """Return the effect of every claim about every edited model.

    Each is at the layer whose probe validation prefers. A claim whose edit changed nothing, or was
    not made, has a reason instead of an effect.

    Parameters
    ----------
    edits, attention, retrained
        `same_object_ablation`, `same_object_attention` and `same_object_retrained`.
    """
    heads = attention[attention["head"] == MEAN_HEAD]
    again = retrained[
        (retrained["reader"] == retrained["probe"])
        & (retrained["read_layer"] == retrained["layer"])
        & (retrained["subspace"] == JUDGED)
    ]
    rows = {
        name: where_validation_is_best(table[[c for c in _READ if c in table]]).to_dict("records")
        for name, table in (("edits", edits), ("heads", heads), ("again", again))
    }
    found: list[Effect] = []
    for place in dict.fromkeys(map(_place, rows["edits"])):
        here = {name: [row for row in of if _place(row) == place] for name, of in rows.items()}
        where = f"{place[1]} on {place[0]}, layer {here['edits'][0]['layer']}"
        found += [_effect(claim, source, where, here) for claim, source in _DECLARED]
    return found


def _place(row: Row) -> tuple[str, ...]:
    return row["dataset"], row["model"], row["probe"]


def _effect(claim: Claim, source: _Source, where: str, rows: Mapping[str, Sequence[Row]]) -> Effect:
    row, units, reason = _row(source, rows)
    value, low, high = (
        source.scale * _number(row.get(f"{source.column}{end}")) for end in ("", "_low", "_high")
    )
    n = int(np.nan_to_num(_number(row.get(units))))
    return Effect(claim.name, where, value, low, high, n, source.units, reason)


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _row(source: _Source, rows: Mapping[str, Sequence[Row]]) -> tuple[Row, str, str]:
    """Return the row of a claim, the column of its number of units, and why it is no evidence."""
    if not source.edit:
        (row,) = rows["heads"]
        return row, "n_beyond_rivals", "" if row["n_beyond_rivals"] else _CLASSES
    edit = (source.edit, 1.0, JUDGED)
    row = next((row for row in rows["edits"] if _edit(row) == edit), {})
    if not row:
        return row, "", f"the edit `{source.edit}` was not made"
    if not row["directions"] or row["change"] < TINY:
        return {}, "", "empty edit"
    if source.units == BATCHES:
        return row, "n_batches", row["pretraining_reason"]
    if source.again:
        row = next((row for row in rows["again"] if _edit(row) == edit), {})
    return row, "n_images", "" if row else "no probe was fitted again"


def _edit(row: Row) -> tuple[str, float, str]:
    return row["edit"], row["strength"], row["subspace"]


def effects_sections(tables: Mapping[str, pd.DataFrame]) -> list[Section]:
    """Return the section with both figures; none where nothing was edited."""
    edits = tables.get("same_object_ablation")
    if edits is None or edits.empty:
        return []
    return [Section("edits", "Ablating the probe subspace", _ABOUT, figures=FIGURES)]


def effects_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Say how far the models' own losses are those of their training; nothing without edits."""
    edits = tables.get("same_object_ablation")
    points = [] if edits is None else list(_about_losses(edits))
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
    why = edits[edits["pretraining_reason"] != ""].groupby("pretraining_reason")["model"].unique()
    for reason, models in why.items():
        yield "No loss", f"{', '.join(models)}: {reason}."
    again = edits[edits["pretraining_heads"] == "refitted"].drop_duplicates("model")
    for row in again.itertuples():
        yield (
            str(row.model),
            f"heads fitted again to the frozen transformer: {row.refitted_loss_bits:.3f} bits on "
            f"its own validation scenes, {row.trained_loss_bits:.3f} at the end of its training.",
        )
