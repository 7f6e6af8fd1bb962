"""Sentences and key numbers that the report makes out of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bindscope.studies.binding_information.rules import BOUNDS, STANDARD_ERRORS, flag_list
from bindscope.studies.binding_information.views import (
    assumed_prior,
    last_layers,
    measured,
    name_order,
    over_seeds,
)

Config = Mapping[str, Any]

FAMILY_WORDS = {
    "linear": "a linear probe",
    "quadratic": "a quadratic probe",
    "quadratic_reuse": "a shared quadratic probe",
    "multilinear_reuse": "a shared multilinear probe",
    "dnn": "a neural-net probe",
    "attention_quadratic": "an attention probe",
}
TOKEN_WORDS = {
    "cls": "the [CLS] token",
    "mean": "the mean of the patch tokens",
    "cls_mean": "[CLS] and the mean of the patch tokens",
    "patches": "the patch tokens",
}
_OBJECTIVES = {
    "controlled:objects": "a vision transformer trained to name the objects",
    "controlled:features": "a vision transformer trained to name the features only",
    "controlled:none": "an untrained vision transformer",
}
STATUS_WORDS = {
    "failed": "the fit did not end, and numbers are missing",
    "undefined": "measured, but a quantity has no value",
}
FLAG_WORDS = {
    "above_prior": "a probe of the row lost more than somebody who knows the prior alone; its "
    "estimate is negative",
    "above_truth": f"a lower bound more than {STANDARD_ERRORS:g} standard errors above the known "
    "truth: a bug, or bad luck",
    "assumed_prior": "nobody knows how these scenes came about: H(O) and H(O|F) are estimated from "
    "above out of the train split, so a difference from them is no lower bound",
    "collapsed": "a probe of the row gives the same answer to every scene",
    "diverged": "a probe of the row ended worse than before it was fitted",
    "not_converged": "a longer fit would still lower the validation loss of a probe of the row",
}
# The probe that speaks for a token input: fixed beforehand, not the one that came out best.
_SPOKESMEN = (
    "quadratic", "attention_quadratic", "quadratic_reuse", "multilinear_reuse", "dnn", "linear",
)  # fmt: skip
SEEDS_FOR_A_CLAIM = 3
NOTICEABLE_BITS = 0.1


@dataclass(frozen=True)
class KeyNumber:
    """A number that stands large on the page.

    Attributes
    ----------
    value, unit
        The number as text, and its unit.
    label
        What it is.
    """

    value: str
    unit: str
    label: str


def bits(value: float) -> str:
    """Write bits with one decimal and a real minus sign."""
    return f"{value:z.1f}".replace("-", "\u2212")


@dataclass(frozen=True)
class Finding:
    """What was found on one dataset.

    Attributes
    ----------
    lead
        What there is to know.
    points
        Per model its name, and a sentence or two.
    """

    lead: str
    points: tuple[tuple[str, str], ...]


def speakers(table: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Choose one row per (dataset, model, tokens) of the last layers.

    It is the quadratic probe's, or attention's on patches, else the next family's: fixed
    beforehand, not the best. Means over seeds, in the configuration's order of models.
    """
    rows = over_seeds(last_layers(measured(table, known_answer=False)))
    rows = rows[rows["conditional_binding_lower_bound_bits"].notna()].copy()
    order = name_order(rows["model"], models)
    rows["model_rank"] = rows["model"].map(order.index)
    rows["token_rank"] = rows["tokens"].map(list(TOKEN_WORDS).index)
    rows["family_rank"] = rows["family"].map(_SPOKESMEN.index)
    rows = rows.sort_values(
        ["dataset", "model_rank", "token_rank", "family_rank", "probe"], kind="stable"
    )
    return rows.groupby(["dataset", "model", "tokens"], sort=False).head(1).reset_index(drop=True)


def key_numbers(table: pd.DataFrame, models: Sequence[str]) -> list[KeyNumber]:
    """Return H(O) and H(O|F) of the first dataset, and each of its models' binding in [CLS]."""
    rows = speakers(table, models)
    if not len(rows):
        return []
    rows = rows[rows["dataset"] == rows["dataset"].iloc[0]]
    first = rows.iloc[0]
    least = "by estimate" if first["dataset"] in assumed_prior(table) else "at least"
    numbers = [
        KeyNumber(bits(first["h_object_bits"]), "bits", "to know which objects a scene holds"),
        KeyNumber(
            bits(first["h_object_given_feature_bits"]),
            "bits",
            "of these are binding: left to know once the features are known",
        ),
    ]
    for row in rows.drop_duplicates("model").to_dict("records"):
        numbers.append(
            KeyNumber(
                bits(row["conditional_binding_lower_bound_bits"]),
                "bits",
                f"of binding, {least}, in {TOKEN_WORDS[row['tokens']]} of {row['model']}",
            )
        )
    return numbers


def headline(table: pd.DataFrame, config: Config) -> list[Finding]:
    """Say in sentences what the run found.

    Parameters
    ----------
    table
        `binding_information`.
    config
        The configuration: what each model is, in which order.

    Returns
    -------
    list of Finding
        One per dataset that models other than known-answer encoders were measured on.
    """
    sources = {model["name"]: str(model["source"]) for model in config.get("models", ())}
    rows = speakers(table, list(sources))
    findings = []
    estimated = assumed_prior(table)
    for dataset, part in rows.groupby("dataset", sort=False):
        first = part.iloc[0]
        about = "about " if dataset in estimated else ""
        note = f" ({FLAG_WORDS['assumed_prior']})" if dataset in estimated else ""
        lead = (
            f"To say which objects a scene of {dataset} holds takes {about}"
            f"{bits(first['h_object_bits'])} bits{note}. "
            f"{bits(first['h_feature_bits'])} of them say which features occur; the other "
            f"{bits(first['h_object_given_feature_bits'])} say what goes with what. "
            "In the last layer of:"
        )
        points = [
            (str(model), _about(found, sources.get(str(model), ""), dataset in estimated))
            for model, found in part.groupby("model", sort=False)
        ]
        findings.append(Finding(lead, tuple(points)))
    return findings


def calibration(table: pd.DataFrame) -> list[str]:
    """Say how the estimates compare with the truth of known-answer encoders."""
    rows = measured(table, known_answer=True)
    rows = rows[rows["truth_bits"].notna() | rows["truth_conditional_bits"].notna()]
    if not len(rows):
        return []
    above = rows["flags"].map(lambda flags: "above_truth" in flag_list(flags)).astype(bool)
    worst = max(float((rows[name] - rows[truth]).max()) for name, truth in BOUNDS.items())
    excess = (rows["conditional_binding_bits"] - rows["truth_conditional_bits"]).dropna()
    high = int((excess > NOTICEABLE_BITS).sum())
    encoders = rows["model"].nunique()
    text = (
        f"{len(rows)} fits to {encoders} encoder{'s' if encoders > 1 else ''} whose binding "
        "information is known in closed form went through the same steps. "
    )
    if above.any():
        text += (
            f"In {int(above.sum())} of them a lower bound exceeds the truth by more than "
            f"{STANDARD_ERRORS:g} standard errors; they are listed below."
        )
    else:
        text += (
            f"No lower bound exceeds the truth by more than {STANDARD_ERRORS:g} standard errors; "
            f"the highest lies {abs(worst):.2f} bits {'above' if worst > 0 else 'below'} it."
        )
    paragraphs = [text]
    if len(excess):
        paragraphs.append(
            f"The paper's estimate of B* is above the truth by more than {NOTICEABLE_BITS} bits in "
            f"{high} of {len(excess)} fits, by {bits(float(excess.max()))} bits at most, and below "
            f"it by {bits(float(-excess.min()))} bits at most."
        )
    return paragraphs


def warnings(table: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """List what a reader must know: rows that failed, and each flag with the rows that carry it.

    Returns
    -------
    list of (what, rows)
        Rows as text.
    """
    found = []
    for status, meaning in STATUS_WORDS.items():
        rows = table[table["status"] == status]
        if len(rows):
            lines = [f"{row_name(row)}: {row['reason']}" for row in _records(rows)]
            found.append((f"{status}: {meaning}", lines))
    flags = table["flags"].map(flag_list)
    for flag, words in FLAG_WORDS.items():
        rows = table[flags.map(lambda names, flag=flag: flag in names).astype(bool)]
        if len(rows):
            found.append((f"{flag}: {words}", [row_name(row) for row in _records(rows)]))
    return found


def controls(table: pd.DataFrame) -> list[str]:
    """Say what the shuffled-label controls gave."""
    rows = table[(table["control"] == "shuffled_labels") & (table["status"] != "failed")]
    if not len(rows):
        return []
    largest = float(rows["binding_lower_bound_bits"].max())
    return [
        f"In {len(rows)} control fit{'s' if len(rows) > 1 else ''} labels and scenes were paired "
        "at random, so that there is nothing to know; the largest lower bound on B_O is "
        f"{bits(largest)} bits."
    ]


def row_name(row: Mapping[str, Any]) -> str:
    """Name a row by its labels."""
    control = "" if row["control"] == "none" else f", {row['control']}"
    return (
        f"{row['dataset']}, {row['model']}, layer {row['layer']}, {row['tokens']}, "
        f"{row['probe']}, seed {row['seed']}{control}"
    )


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in rows.to_dict("records")]


def _about(rows: pd.DataFrame, source: str, estimated: bool) -> str:
    """Say what one model's token inputs hold; no bounds where the prior is estimated."""
    first = rows.iloc[0]
    least, bound = ("about", "estimate") if estimated else ("at least", "lower bound")
    what = _OBJECTIVES.get(source, source.partition(":")[2].partition("@")[0])
    named = bool(what) and not what.startswith("path:")
    whole, part = first["binding_lower_bound_bits"], first["conditional_binding_lower_bound_bits"]
    text = (
        f"{f', {what}' if named else ''}: in {TOKEN_WORDS[first['tokens']]} "
        f"{FAMILY_WORDS[first['family']]} finds {least} {bits(whole)} of the "
        f"{bits(first['h_object_bits'])} bits, "
    )
    if part > NOTICEABLE_BITS:
        share = 100 * part / first["h_object_given_feature_bits"]
        text += f"and {least} {bits(part)} bits of binding, {share:.0f} % of what there is."
    else:
        text += f"and no binding ({bound} {bits(part)} bits)."
    others = [
        f"{bits(row['conditional_binding_lower_bound_bits'])} in {TOKEN_WORDS[row['tokens']]} "
        f"({FAMILY_WORDS[row['family']].partition(' ')[2]})"
        for row in _records(rows.iloc[1:])
    ]
    return text + (
        f" {bound.capitalize()}s on binding elsewhere: {', '.join(others)}." if others else ""
    )


def seed_note(table: pd.DataFrame, config: Config) -> list[str]:
    """Warn where differences between training objectives rest on few training seeds."""
    used = set(table["model"])
    seeds: dict[str, set[int]] = {}
    for model in config.get("models", ()):
        source = str(model["source"])
        if model["name"] in used and source.startswith("controlled:"):
            seeds.setdefault(source, set()).add(int(model.get("seed", 0)))
    few = min((len(found) for found in seeds.values()), default=SEEDS_FOR_A_CLAIM)
    if few >= SEEDS_FOR_A_CLAIM or len(seeds) < 2:
        return []
    return [
        f"Each objective was trained with {few} seed{'s' if few > 1 else ''}. That is too few to "
        "say that one objective binds more than another: these are numbers about these networks. "
        f"A claim about objectives needs {SEEDS_FOR_A_CLAIM} training seeds or more."
    ]
