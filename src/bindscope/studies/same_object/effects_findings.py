"""What the report says about edits and attention: the paper's claims with a verdict each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from bindscope.report.chapter import Column, Finding, Section, number, page_table, points_by_claim
from bindscope.statistics.verdict import Verdict, verdict
from bindscope.studies.same_object.marks import MEAN_HEAD
from bindscope.studies.same_object.views import where_validation_is_best

FIGURES = ("same_object_attention", "same_object_edits")


class Claim(NamedTuple):
    """A claim about a column of a table, at the row of an edit.

    Attributes
    ----------
    words
        Read after "that".
    column, unit, scale
        Where the effect stands, in which unit it is told, and the factor into it.
    side
        Which side of 0 is claimed.
    edit, strength
        Of the row; none for attention as it is.
    again
        Of probes that were fitted again: whether of the edited layer (`same`) or a `later` one.
    """

    words: str
    column: str
    unit: str
    scale: float
    side: Literal["above", "below"]
    edit: str = ""
    strength: float = 0.0
    again: Literal["", "same", "later"] = ""


_POINTS, _R, _BITS = "points", "r", "bits"
_SHARE, _LATER = "object_share_beyond_controls", "later_accuracy_beyond_controls"
CLAIMS = (
    Claim("attention goes where the probe sees the same object", "pearson", _R, 1.0, "above"),
    Claim("it does so beyond distance and cosine", "partial", _R, 1.0, "above"),
    Claim("attention on the same object falls more without what the probe reads than without any "
          "control's directions", _SHARE, _POINTS, 100.0, "below", "remove", 1.0),
    Claim("it does so where no weight writes what the probe reads", _SHARE, _POINTS, 100.0,
          "below", "weights", 1.0),
    Claim("the probe of a later layer does worse without it than without any control's directions",
          _LATER, _POINTS, 100.0, "below", "remove", 1.0),
    Claim("shuffling it among all patches makes that probe worse than shuffling any control's",
          _LATER, _POINTS, 100.0, "below", "shuffle", 1.0),
    Claim("the object's mean in its place makes the probe of the same layer better than in any "
          "control's place", "accuracy_beyond_controls", _POINTS, 100.0, "above", "inject", 1.0),
    Claim("a probe that is fitted again to what removal leaves does worse than after any control's "
          "removal", "accuracy_beyond_controls", _POINTS, 100.0, "below", "remove", 1.0, "same"),
    Claim("so does one that is fitted again to a later layer", "accuracy_beyond_controls", _POINTS,
          100.0, "below", "remove", 1.0, "later"),
    Claim("shuffling it raises the model's own loss more than shuffling any control's",
          "pretraining_loss_beyond_controls", _BITS, 1.0, "above", "shuffle", 1.0),
)  # fmt: skip


class JudgedEffect(NamedTuple):
    """A claim about one model, its verdict, and the control that left the least of the effect."""

    dataset: str
    model: str
    probe: str
    layer: str
    claim: str
    effect: float
    effect_low: float
    effect_high: float
    unit: str
    control: str
    verdict: Verdict


def judged_effects(
    edits: pd.DataFrame, attention: pd.DataFrame, retrained: pd.DataFrame | None = None
) -> list[JudgedEffect]:
    """Judge the claims, each at the layer whose probe validation prefers.

    Parameters
    ----------
    edits, attention, retrained
        `same_object_ablation`, `same_object_attention`; `same_object_retrained`, if there is one.
    """
    own = where_validation_is_best(edits)
    own = own[own["subspace"] == "probe"]
    heads = where_validation_is_best(attention)
    heads = heads[heads["head"] == MEAN_HEAD]
    again = own.iloc[:0] if retrained is None else where_validation_is_best(retrained)
    again = again[(again["subspace"] == "probe") & (again.get("reader") == again["probe"])]
    found = []
    for claim in CLAIMS:
        rows = heads
        if claim.edit:
            rows = again if claim.again else own
            rows = rows[(rows["edit"] == claim.edit) & (rows["strength"] == claim.strength)]
        if claim.again and len(rows):
            rows = rows[(rows["read_layer"] == rows["layer"]) == (claim.again == "same")]
        for row in rows.to_dict("records"):
            value, low, high = (
                claim.scale * float(row.get(f"{claim.column}{end}", np.nan))
                for end in ("", "_low", "_high")
            )
            if np.isnan(value):
                continue
            control = row.get(claim.column.replace("_beyond_controls", "_strictest"))
            found.append(JudgedEffect(
                row["dataset"], row["model"], row["probe"], row["layer"], claim.words, value, low,
                high, claim.unit, control if claim.edit and isinstance(control, str) else "",
                verdict(low, high, claim.side),
            ))  # fmt: skip
    return found


def effects_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Gather the verdicts by claim, a point for each; nothing where nothing was edited."""
    points = [*points_by_claim(_judged(tables), _in_short)]
    without = _about_losses(tables)
    points += [("The models' own pretraining loss", without)] if without else []
    words = "What edits of the directions that a probe reads do, and where attention goes:"
    return [Finding(words, tuple(points))] if points else []


def effects_sections(tables: Mapping[str, pd.DataFrame]) -> list[Section]:
    """Return the section with both figures and the verdicts; none where nothing was edited."""
    judged = _judged(tables)
    if not judged:
        return []
    frame = pd.DataFrame(judged)
    return [
        Section("edits", "What happens without it", _ABOUT, figures=FIGURES,
                tables=(page_table("Verdicts about edits and attention", _COLUMNS, frame),))
    ]  # fmt: skip


_ABOUT = (
    "Every claim is judged at the edited layer whose probe has the lowest loss on validation; "
    "test chooses nothing. Effects are correlations, percentage points or bits, with 95 % "
    "intervals over test images, of the loss over batches. Of an edit the effect is what is beyond "
    "the strictest control, named beside it: random directions, random ones that hold as much "
    "variance, the directions of most variance moved as far, and, of removal, tokens moved as far "
    "towards the mean. The strictest is chosen anew in each resample, so a claim that holds does "
    "so beyond all.",
    "That a probe fails where what it reads was removed shows that the directions are those that "
    "it reads, not that the model uses them. A probe that is fitted again tells what is gone from "
    "what the old one no longer finds; what speaks for use by the model is what follows in later "
    "layers, attention and its own loss.",
)
_COLUMNS = (
    Column("dataset", "dataset", "label"),
    Column("model", "model", "label"),
    Column("probe", "probe", "label"),
    Column("layer", "layer"),
    Column("claim", "claim"),
    Column("effect", "effect", "number", "in the unit beside it", "z.3f", True),
    Column("unit", "unit"),
    Column("strictest control", "control", "label"),
    Column("verdict", "verdict", "label"),
)


def _judged(tables: Mapping[str, pd.DataFrame]) -> list[JudgedEffect]:
    edits, attention = (tables.get(f"same_object_{name}") for name in ("ablation", "attention"))
    if edits is None or attention is None:
        return []
    return judged_effects(edits, attention, tables.get("same_object_retrained"))


def _in_short(one: JudgedEffect) -> str:
    form = "z.2f" if one.unit == _R else "z.1f"
    value, low, high = (
        number(v, form) for v in (one.effect, one.effect_low, one.effect_high)
    )  # fmt: skip
    told = f"r = {value}" if one.unit == _R else f"{value} {one.unit}"
    where = f"{one.model} on {one.dataset}, layer {one.layer}:"
    told += f" ({low} to {high})" if low and high else ""
    return f"{where} {told}" + (f", beyond {one.control}" if one.control else "")


def _about_losses(tables: Mapping[str, pd.DataFrame]) -> str:
    edits = tables.get("same_object_ablation")
    if edits is None:
        return ""
    why = edits[edits["pretraining_reason"] != ""].groupby("pretraining_reason")["model"].unique()
    said = [f"none of {', '.join(models)}: {reason}" for reason, models in why.items()]
    again = edits[edits["pretraining_heads"] == "refitted"].drop_duplicates("model")
    said += [
        f"of {row.model} with what was fitted again to its frozen transformer: "
        f"{row.refitted_loss_bits:.3f} bits on its own validation scenes, "
        f"{row.trained_loss_bits:.3f} at the end of its training"
        for row in again.itertuples()
    ]
    return "; ".join(said)
