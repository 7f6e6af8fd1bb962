"""What the report says about edits and attention: the paper's claims with a verdict each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import pandas as pd

from bindscope.report.chapter import Column, Finding, Section, number, page_table, points_by_claim
from bindscope.statistics.verdict import Verdict, verdict
from bindscope.studies.same_object.marks import MEAN_HEAD
from bindscope.studies.same_object.views import edited_where_best

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
    """

    words: str
    column: str
    unit: str
    scale: float
    side: Literal["above", "below"]
    edit: str = ""
    strength: float = 0.0


_POINTS, _R, _BITS = "points", "r", "bits"
CLAIMS = (
    Claim("attention goes where the probe sees the same object", "pearson", _R, 1.0, "above"),
    Claim("it does so beyond distance and cosine", "partial", _R, 1.0, "above"),
    Claim("attention on the same object falls more without what the probe reads than without "
          "random directions", "object_share_beyond_random", _POINTS, 100.0, "below", "remove",
          1.0),
    Claim("the probe of a later layer does worse without it than without random directions",
          "later_accuracy_beyond_random", _POINTS, 100.0, "below", "remove", 1.0),
    Claim("shuffling it among all patches makes that probe worse than shuffling random directions",
          "later_accuracy_beyond_random", _POINTS, 100.0, "below", "shuffle", 1.0),
    Claim("the object's mean in its place makes the probe of the same layer better",
          "accuracy_change", _POINTS, 100.0, "above", "inject", 1.0),
    Claim("shuffling it raises the model's own loss", "pretraining_loss_change", _BITS, 1.0,
          "above", "shuffle", 1.0),
)  # fmt: skip


class JudgedEffect(NamedTuple):
    """A claim about one model, and its verdict."""

    dataset: str
    model: str
    probe: str
    layer: str
    claim: str
    effect: float
    effect_low: float
    effect_high: float
    unit: str
    verdict: Verdict


def judged_effects(edits: pd.DataFrame, attention: pd.DataFrame) -> list[JudgedEffect]:
    """Judge the claims: of attention at every layer, of edits at the one with the best probe.

    Parameters
    ----------
    edits, attention
        `same_object_ablation` and `same_object_attention`.
    """
    best = edited_where_best(edits)
    heads = attention[attention["head"] == MEAN_HEAD]
    own = best[best["subspace"] == "probe"]
    found = []
    for claim in CLAIMS:
        rows = heads
        if claim.edit:
            rows = own[(own["edit"] == claim.edit) & (own["strength"] == claim.strength)]
        for row in rows[rows[claim.column].notna()].to_dict("records"):
            value, low, high = (
                claim.scale * float(row[f"{claim.column}{end}"]) for end in ("", "_low", "_high")
            )
            found.append(JudgedEffect(
                row["dataset"], row["model"], row["probe"], row["layer"], claim.words, value, low,
                high, claim.unit, verdict(low, high, claim.side),
            ))  # fmt: skip
    return found


def effects_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Gather the verdicts by claim, a point for each; nothing where nothing was edited."""
    points = [*points_by_claim(_judged(tables), _in_short)]
    without = _without_loss(tables)
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
    "Claims about edits are judged at the edited layer where the probe is right most often. "
    "Effects are correlations, percentage points or bits, with 95 % intervals over test images, of "
    "the loss over batches. That a probe fails where what it reads was removed shows that the "
    "directions are those that it reads, not that the model uses them: what speaks for use is what "
    "follows in later layers and attention, beyond what as many random directions do.",
)
_COLUMNS = (
    Column("dataset", "dataset", "label"),
    Column("model", "model", "label"),
    Column("probe", "probe", "label"),
    Column("layer", "layer"),
    Column("claim", "claim"),
    Column("effect", "effect", "number", "in the unit beside it", "z.3f", True),
    Column("unit", "unit"),
    Column("verdict", "verdict", "label"),
)


def _judged(tables: Mapping[str, pd.DataFrame]) -> list[JudgedEffect]:
    edits, attention = (tables.get(f"same_object_{name}") for name in ("ablation", "attention"))
    return [] if edits is None or attention is None else judged_effects(edits, attention)


def _in_short(one: JudgedEffect) -> str:
    form = "z.2f" if one.unit == _R else "z.1f"
    value, low, high = (
        number(v, form) for v in (one.effect, one.effect_low, one.effect_high)
    )  # fmt: skip
    told = f"r = {value}" if one.unit == _R else f"{value} {one.unit}"
    where = f"{one.model} on {one.dataset}, layer {one.layer}:"
    return f"{where} {told}" + (f" ({low} to {high})" if low and high else "")


def _without_loss(tables: Mapping[str, pd.DataFrame]) -> str:
    edits = tables.get("same_object_ablation")
    if edits is None:
        return ""
    why = edits[edits["pretraining_reason"] != ""].groupby("pretraining_reason")["model"].unique()
    return "; ".join(f"none of {', '.join(models)}: {reason}" for reason, models in why.items())
