"""Sentences and key numbers that the report makes out of the table of binding information."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from bindscope.report.chapter import Finding, KeyNumber, Warned, number
from bindscope.studies.binding_information.names import (
    FLAG_WORDS,
    STATUS_WORDS,
    family_shown,
    tokens_shown,
)
from bindscope.studies.binding_information.rules import BOUNDS, STANDARD_ERRORS, flag_list
from bindscope.studies.binding_information.views import (
    assumed_prior,
    last_layers,
    measured,
    name_order,
    over_seeds,
    token_order,
)

Config = Mapping[str, Any]
Record = Mapping[Any, Any]

_MODEL_WORDS = {
    "controlled:objects": "a vision transformer trained to name the objects",
    "controlled:features": "a vision transformer trained to name the features only",
    "controlled:none": "an untrained vision transformer",
}
# The probe that is quoted for a token input: fixed beforehand, not the one that came out best.
_QUOTED = (
    "quadratic", "attention_quadratic", "quadratic_reuse", "multilinear_reuse", "dnn", "linear",
)  # fmt: skip
# What is quoted of a row with such a flag is quoted together with the flag.
_DOUBTFUL = ("collapsed", "diverged", "not_converged")
_QUANTITIES = ["binding_lower_bound_bits", "conditional_binding_lower_bound_bits"]
_ROW = ["dataset", "model", "layer", "tokens", "probe"]
SEEDS_FOR_A_CLAIM = 3
NOTICEABLE_BITS = 0.1


def bits(value: float) -> str:
    """Write bits with one decimal and a real minus sign."""
    return number(value, "z.1f")


def quoted_rows(table: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Choose one row per (dataset, model, tokens) of the last layers.

    It is the quadratic probe's, or attention's on patches, else the next family's: fixed
    beforehand, not the best. Means over seeds, in the configuration's order of models.

    Returns
    -------
    DataFrame
        The columns of `views.over_seeds`, and `doubts`: the flags that must be quoted with it.
    """
    rows = over_seeds(last_layers(measured(table, known_answer=False)))
    rows = rows[rows[_QUANTITIES].notna().all(axis=1)].copy()
    orders = {
        "model": name_order(rows["model"], models),
        "tokens": token_order(rows["tokens"]),
        "family": name_order(rows["family"], _QUOTED),
    }
    for name, order in orders.items():
        rows[f"{name}_rank"] = rows[name].map(order.index)
    ranks = [f"{name}_rank" for name in orders]
    rows = rows.sort_values(["dataset", *ranks, "probe"], kind="stable")
    chosen = rows.groupby(["dataset", "model", "tokens"], sort=False).head(1)
    chosen = chosen.reset_index(drop=True)
    return chosen.assign(doubts=pd.Series(_doubts(table, chosen), dtype=object))


def key_numbers(table: pd.DataFrame, models: Sequence[str]) -> list[KeyNumber]:
    """Return H(O) and H(O|F) of the first dataset, and each of its models' binding in [CLS]."""
    rows = quoted_rows(table, models)
    if not len(rows):
        return []
    rows = rows[rows["dataset"] == rows["dataset"].iloc[0]]
    first = rows.iloc[0]
    dataset = first["dataset"]
    estimated = dataset in assumed_prior(table)
    about = "about " if estimated else ""
    whole, given = (bits(first[f"h_object{end}_bits"]) for end in ("", "_given_feature"))
    binding = "of these are binding: they are left to say once the features are known"
    numbers = [
        KeyNumber(f"{about}{whole}", "bits", f"say which objects a scene of {dataset} has"),
        KeyNumber(f"{about}{given}", "bits", binding),
    ]
    for row in rows.drop_duplicates("model").to_dict("records"):
        flagged = f" (flagged {', '.join(row['doubts'])})" if row["doubts"] else ""
        found = _amount(row["conditional_binding_lower_bound_bits"], estimated)
        words = f"of binding in {tokens_shown(row['tokens']).words} of {row['model']}{flagged}"
        numbers.append(KeyNumber(found, "bits", words))
    return numbers


def findings(table: pd.DataFrame, config: Config) -> list[Finding]:
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
    rows = quoted_rows(table, list(sources))
    found = []
    estimated = assumed_prior(table)
    for dataset, part in rows.groupby("dataset", sort=False):
        first = part.iloc[0]
        about = "about " if dataset in estimated else ""
        note = f" ({FLAG_WORDS['assumed_prior']})" if dataset in estimated else ""
        lead = (
            f"It takes {about}{bits(first['h_object_bits'])} bits to say which objects a scene of "
            f"{dataset} has{note}. {bits(first['h_feature_bits'])} of them say which features "
            f"occur; the other {bits(first['h_object_given_feature_bits'])} say which features "
            "belong to the same object. What was read of them from the models' last layers:"
        )
        points = [
            (str(model), _about(of_model, sources.get(str(model), ""), dataset in estimated))
            for model, of_model in part.groupby("model", sort=False)
        ]
        found.append(Finding(lead, tuple(points)))
    return found


def nothing_measured(table: pd.DataFrame) -> list[str]:
    """Say so where there is no finding."""
    if len(quoted_rows(table, ())):
        return []
    return [
        "No model other than known-answer encoders was measured. Whether their numbers come out "
        "right is told under Can it be trusted?"
    ]


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
        f"{len(rows)} fits read the representations of {encoders} "
        f"encoder{'s' if encoders > 1 else ''} whose binding information is known in closed form; "
        "they went through the same steps as any other model. "
    )
    if above.any():
        text += (
            f"In {int(above.sum())} of them a lower bound is above the truth by more than "
            f"{STANDARD_ERRORS:g} standard errors; the warnings list them (above_truth)."
        )
    elif worst > 0:
        text += (
            f"No lower bound is above the truth by more than {STANDARD_ERRORS:g} standard errors; "
            f"the largest excess is {worst:.2f} bits."
        )
    else:
        text += f"No lower bound is above the truth; the closest is {-worst:.2f} bits below it."
    paragraphs = [text]
    if len(excess):
        paragraphs.append(
            f"The paper's estimate of B* is above the truth by more than {NOTICEABLE_BITS} bits in "
            f"{high} of {len(excess)} fits, by {bits(float(excess.max()))} bits at most, and below "
            f"it by {bits(float(-excess.min()))} bits at most."
        )
    return paragraphs


def warnings(table: pd.DataFrame) -> list[Warned]:
    """List what a reader must know: rows that failed, and each flag with the rows that carry it."""
    found = []
    for status, meaning in STATUS_WORDS.items():
        rows = table[table["status"] == status]
        if len(rows):
            lines = [f"{row_name(row)}: {row['reason']}" for row in rows.to_dict("records")]
            found.append(Warned(f"{status}: {meaning}", tuple(lines)))
    flags = table["flags"].map(flag_list)
    for flag in [*FLAG_WORDS, *sorted({name for names in flags for name in names} - {*FLAG_WORDS})]:
        rows = table[flags.map(lambda names, flag=flag: flag in names).astype(bool)]
        if len(rows):
            words = f"{flag}: {FLAG_WORDS[flag]}" if flag in FLAG_WORDS else flag
            found.append(Warned(words, tuple(row_name(row) for row in rows.to_dict("records"))))
    return found


def controls(table: pd.DataFrame) -> list[str]:
    """Say what the shuffled-label controls gave."""
    rows = table[(table["control"] == "shuffled_labels") & (table["status"] != "failed")]
    if not len(rows):
        return []
    largest = float(rows["binding_lower_bound_bits"].max())
    return [
        f"In {len(rows)} control fit{'s' if len(rows) > 1 else ''} scenes were given the labels of "
        "other scenes at random, so that their representations say nothing about them; the "
        f"largest lower bound on B_O is {bits(largest)} bits."
    ]


def row_name(row: Record) -> str:
    """Name a row by its labels."""
    control = "" if row["control"] == "none" else f", {row['control']}"
    return (
        f"{row['dataset']}, {row['model']}, layer {row['layer']}, {row['tokens']}, "
        f"{row['probe']}, seed {row['seed']}{control}"
    )


def _about(rows: pd.DataFrame, source: str, estimated: bool) -> str:
    """Say what one model's token inputs hold; no bounds where the prior is estimated."""
    first, *further = rows.to_dict("records")
    model = _model_words(source)
    text = (
        f"{f' ({model})' if model else ''}: from {tokens_shown(first['tokens']).words}, "
        f"{family_shown(first['family']).words} reads "
        f"{_amount(first['binding_lower_bound_bits'], estimated)} of the "
        f"{bits(first['h_object_bits'])} bits about the objects, and "
        f"{_amount(first['conditional_binding_lower_bound_bits'], estimated)} of the "
        f"{_binding(first, estimated)}."
    )
    if first["doubts"]:
        text += (
            f" This fit is flagged {' and '.join(first['doubts'])}, see the warnings above: its "
            "numbers may say more about the fit than about the model."
        )
    others = [
        f"{_amount(row['conditional_binding_lower_bound_bits'], estimated)} bits from "
        f"{tokens_shown(row['tokens']).words} ("
        + ", flagged ".join([family_shown(row["family"]).words, *row["doubts"]])
        + ")"
        for row in further
    ]
    return text + (f" Binding from its other tokens: {'; '.join(others)}." if others else "")


def _binding(row: Record, estimated: bool) -> str:
    """Say how much binding there is, and which share of it was read."""
    there_is = row["h_object_given_feature_bits"]
    text = f"{bits(there_is)} bits of binding"
    if there_is > 0:
        share = row["conditional_binding_lower_bound_bits"] / there_is
        text += f" ({_amount(share, estimated, 'z.0%')})"
    return text


def _amount(value: float, estimated: bool, form: str = "z.1f") -> str:
    """Write a bound as one: at least so much; or, where the prior is estimated, about so much."""
    text = number(value, form).replace("%", "\u00a0%")
    return f"about {text}" if estimated else f"\u2265\u00a0{text}"


def _doubts(table: pd.DataFrame, rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return for each row the doubtful flags of its fits, whichever seed carries them."""
    fits = measured(table, known_answer=False).groupby(_ROW)["flags"]
    carried = {name: {flag for text in flags for flag in flag_list(text)} for name, flags in fits}
    names: Iterable[Any] = rows[_ROW].itertuples(index=False, name=None)
    return [tuple(flag for flag in _DOUBTFUL if flag in carried[name]) for name in names]


def _model_words(source: str) -> str:
    """Say what a model is, by its source; a file of the user's has no words."""
    kind, _, name = source.partition(":")
    if source in _MODEL_WORDS:
        return _MODEL_WORDS[source]
    if kind == "controlled":
        return f"a vision transformer trained with the objective {name}"
    name = name.partition("@")[0]
    return "" if name.startswith("path:") else name


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
