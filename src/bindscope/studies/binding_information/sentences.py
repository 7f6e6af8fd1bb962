"""Sentences and key numbers that the report makes out of the table of binding information.

A sentence names the probe and what it decodes, with the bound; only `claims` compares models. Every
number is a lower bound out of a row that may be quoted (`quotes`), rounded down and written
with its sign; where the prior is estimated it is no bound, and "about" is said instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from bindscope.report.chapter import Finding, KeyNumber, number
from bindscope.report.claims import claims_findings
from bindscope.statistics.claims import Judgment, judge
from bindscope.studies.binding_information.claims import CLAIMS, effects
from bindscope.studies.binding_information.flags import FLAGS
from bindscope.studies.binding_information.names import WORDS, label_family, label_tokens
from bindscope.studies.binding_information.quantities import BEYOND, COUNTS, Quantity, with_ends
from bindscope.studies.binding_information.quotes import (
    SMALLEST_BITS,
    Quotes,
    Record,
    at_least,
    between,
    headline_part,
    parts_of,
    quotes,
)
from bindscope.studies.binding_information.views import (
    assumed_prior,
    name_order,
    strongest_baselines,
    token_order,
)
from bindscope.tables.groups import group_names, with_groups

Config = Mapping[str, Any]
SEEDS_FOR_A_CLAIM = 3
_OBJECTIVES = {
    "objects": "trained to classify the objects",
    "features": "trained to classify the features",
    "captions": "trained on captions that pair the words",
    "captions_unpaired": "trained on captions of the same words, unpaired",
    "masked": "trained to predict masked patches",
    "self_distillation": "trained by self-distillation",
    "none": "not trained",
}
_NETWORK = "vision transformer"


class Measurements(NamedTuple):
    """What the sentences are made from.

    `table` has groups, `quotes` is what may be quoted of it: last layers. `models` are names of
    groups, and of models that are in none, in the configuration's order, `sources` that of each
    one's first model; `datasets` those with something to say, in order, `kinds` names of their
    feature groups.
    """

    table: pd.DataFrame
    quotes: Quotes
    models: list[str]
    sources: dict[str, str]
    datasets: list[str]
    kinds: dict[str, list[str]]
    judgments: list[Judgment]


def gather(table: pd.DataFrame, config: Config) -> Measurements:
    """Gather what the sentences are made from, by the configuration's models, groups and orders."""
    groups = groups_of(config)
    sources = {str(model["name"]): str(model["source"]) for model in config.get("models", ())}
    table = with_groups(table, groups)
    models = group_names(sources, groups)
    for group in groups:
        members = [name for name in group["models"] if name in sources]
        if members:
            sources[str(group["name"])] = sources[members[0]]
    quoted = quotes(table, models)
    kinds = {
        str(dataset["name"]): [str(group["name"]) for group in dataset["space"]["groups"]]
        for dataset in config.get("datasets", ())
    }
    datasets = name_order([*quoted.rows["dataset"], *quoted.refused["dataset"]], list(kinds))
    judgments = judge(CLAIMS, effects(table, quoted, models))
    return Measurements(table, quoted, models, sources, datasets, kinds, judgments)


def groups_of(config: Config) -> list[Mapping[str, Any]]:
    """Return the study's groups of models that differ in their training seed alone."""
    section = config.get("studies", {}).get("binding_information") or {}
    return list(section.get("groups") or ())


def lead(about: Measurements) -> tuple[str, ...]:
    """Say the first dataset's result in a sentence, about its first token input."""
    rows = _headline_rows(about)
    if not len(rows):
        return ()
    first = rows.iloc[0].to_dict()
    part, sign = headline_part(first), _about_sign(first)
    kinds = about.kinds.get(about.datasets[0], [])
    example = f" (which {kinds[0]} belongs to which {kinds[1]})" if len(kinds) == 2 else ""
    rows = rows[rows["tokens"] == token_order(rows["tokens"])[0]]
    ordered = rows.sort_values(part.bound, ascending=False, kind="stable").to_dict("records")
    most, least = ordered[0], ordered[-1]
    text = (
        f"{_decodes(rows)} {_amount(most, part)} of {sign}{number(first[part.entropy])} bits of "
        f"{WORDS[part]}{example} in {_named(about, most)}"
    )
    if len(ordered) > 1:
        text += f", and {_amount(least, part)} in {_named(about, least)}"
    return (f"{text}, on scenes of {first['dataset']} (last layer).",)


def caveats(about: Measurements) -> tuple[str, ...]:
    """Say what changes how the numbers are read: the prior, the probe, the seeds, the models."""
    rows = about.quotes.rows
    if not len(rows):
        return ()
    estimated = [str(name) for name in rows.loc[rows["assumed_prior"].astype(bool), "dataset"]]
    sentences = []
    if estimated:
        sentences.append(
            f"The scene distribution of {listed(list(dict.fromkeys(estimated)))} is unknown: its "
            "values are estimates, not bounds."
        )
    sentences.append(
        "Values with ≥ are lower bounds of a probe: a model can encode more, and the "
        "difference of two bounds is not a difference of information."
    )
    few = bool((rows["n_models"] < SEEDS_FOR_A_CLAIM).any())
    sentences.append(
        "Some models have fewer than three training seeds: their values are examples, not findings."
        if few
        else "Intervals cover a few training seeds and are wide; another training recipe may "
        "give other values."
    )
    kinds = {about.sources.get(str(name), "").partition(":")[0] for name in rows["model"]}
    if kinds <= {"zoo", "controlled"}:
        sentences.append(
            "Models are small vision transformers trained on rendered scenes: the values do not "
            "transfer to pretrained models or photos."
        )
    return tuple(sentences[:3])


def _decodes(rows: pd.DataFrame) -> str:
    """Begin a sentence on one token input: which probe decodes from what."""
    probes = list(dict.fromkeys(label_family(family).words for family in rows["family"]))
    probe = probes[0] if len(probes) == 1 else f"the best of {listed(probes)}"
    return f"From {label_tokens(rows['tokens'].iloc[0]).words}, {probe} decodes"


def _named(about: Measurements, row: Record) -> str:
    words = _model_words(about.sources.get(row["model"], ""), row["n_models"])
    return f"{words} ({row['model']})" if words else str(row["model"])


def key_numbers(about: Measurements) -> list[KeyNumber]:
    """Return the first dataset's entropy, and the largest and the smallest bound on a part."""
    rows = _headline_rows(about)
    if not len(rows):
        return []
    first = rows.iloc[0].to_dict()
    part, sign = headline_part(first), _about_sign(first)
    numbers = [
        KeyNumber(
            f"{sign}{number(first['h_object_bits'])}",
            "bits",
            f"entropy of the objects of a scene of {first['dataset']}",
        ),
        KeyNumber(f"{sign}{number(first[part.entropy])}", "bits", f"entropy of the {WORDS[part]}"),
    ]
    for token in token_order(rows["tokens"]):
        here = rows[rows["tokens"] == token].sort_values(part.bound, ascending=False, kind="stable")
        for row in here.iloc[[0, -1] if len(here) > 1 else [0]].to_dict("records"):
            probe = label_family(row["family"]).words
            where = f"{label_tokens(token).words} of {row['model']}"
            label = f"{WORDS[part]} decoded by {probe} from {where}"
            numbers.append(KeyNumber(_amount(row, part), "bits", label))
    return numbers


def findings(about: Measurements) -> list[Finding]:
    """Say in sentences what the run found, and which claims hold.

    Per dataset that models other than known-answer encoders were measured on one with a point per
    model or group; then the verdicts on the chapter's claims.
    """
    findings = []
    for dataset in about.datasets:
        rows = about.table[about.table["dataset"] == dataset]
        quoted = _rows(about, dataset)
        like = (quoted if len(quoted) else rows).iloc[0].to_dict()
        refused = about.quotes.refused
        names = name_order(
            [*quoted["model"], *refused[refused["dataset"] == dataset]["model"]], about.models
        )
        points = [(name, _about(about, dataset, name)) for name in names]
        points += _baselines(about, like)
        several = bool(len(quoted)) and bool((quoted["n_models"] > 1).any())
        findings.append(Finding(_there_is(like, about.table, several), tuple(points)))
    lead = "Claims, judged together (95 % intervals, Holm's correction over all of them):"
    return [*findings, *claims_findings(about.judgments, lead)]


def listed(names: Sequence[str]) -> str:
    """Write names as a list in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _there_is(like: Record, table: pd.DataFrame, several: bool) -> str:
    """Say what there is to know of a dataset's scenes, part by part."""
    estimated = like["dataset"] in assumed_prior(table)
    note = f" ({FLAGS['assumed_prior']})" if estimated else ""
    parts = [
        f"{number(like[part.entropy])} for {WORDS[part]}"
        for part in parts_of(like)
        if like[part.entropy] > SMALLEST_BITS
    ]
    text = (
        f"The objects of a scene of {like['dataset']} have {'about ' if estimated else ''}"
        f"{number(like['h_object_bits'])} bits of entropy{note}{': ' if parts else ''}"
        f"{listed(parts)}."
    )
    if BEYOND in parts_of(like):
        text += " Counts and pairing are not separated here; the column reason says why."
    seeds = ", with 95 % intervals over training seeds" if several else ""
    return (
        f"{text} Bits of {WORDS[headline_part(like)]} that the best probes decode from the "
        f"last layers{seeds}:"
    )


def _about(about: Measurements, dataset: str, name: str) -> str:
    """Say what the token inputs of one model or group hold, or why that is not quoted."""
    rows = _rows(about, dataset)
    rows = rows[rows["model"] == name]
    refused = about.quotes.refused
    refused = refused[(refused["dataset"] == dataset) & (refused["model"] == name)]
    n_models = pd.concat([rows, refused]).groupby("tokens")["n_models"].sum()
    words = _model_words(about.sources.get(name, ""), int(n_models.max()))
    clauses = []
    for token in token_order(n_models.index):
        where = f"from {label_tokens(token).words}"
        row = rows[rows["tokens"] == token].to_dict("records")
        rest = refused[refused["tokens"] == token].to_dict("records")
        text = f"{_read(row[0])} {where}" if row else f"there is no row to quote {where}"
        if rest:
            n = rest[0]["n_models"]
            text += f" ({n} model{'s' if n > 1 else ''} left out, flagged {rest[0]['flags']})"
        if row and n_models[token] < n_models.max():
            text += f" ({n_models[token]} of them)"
        clauses.append(text)
    return f"{f' ({words})' if words else ''}: {'; '.join(clauses)}."


def _baselines(about: Measurements, like: Record) -> list[tuple[str, str]]:
    """Say what baselines hold of the headline's part, which are no models."""
    part = headline_part(like)
    values = strongest_baselines(about.table, str(like["dataset"]), part.bound)
    assumed = like["dataset"] in assumed_prior(about.table)
    bits = [
        f"{_amount({part.bound: value, 'assumed_prior': assumed}, part)} from {words}"
        for words, value in values.items()
    ]
    return [("baselines", f" (of the images, no model): {'; '.join(bits)}.")] if bits else []


def _read(row: Record) -> str:
    """Write how much of the headline's part was decoded, and its interval over training seeds."""
    part = headline_part(row)
    text = _amount(row, part)
    if row["n_models"] > 1:
        low, high = (float(row[name]) for name in with_ends(part.bound)[1:])
        text += f" ({between(low, high)})"
    return text


def histogram_here(about: Measurements) -> list[str]:
    """Put the bounds on B* beside what a histogram reaches, where there is counting to do.

    One sentence per such dataset, about its first token input.
    """
    sentences = []
    for dataset in about.datasets:
        rows = _rows(about, dataset)
        rows = rows[(rows[COUNTS.entropy] > SMALLEST_BITS) & rows[COUNTS.bound].notna()]
        rows = rows[~rows["assumed_prior"].astype(bool)]
        if not len(rows):
            continue
        rows = rows[rows["tokens"] == token_order(rows["tokens"])[0]]
        ordered = rows.sort_values(BEYOND.bound, ascending=False, kind="stable").to_dict("records")
        reached = 100 * ordered[0][COUNTS.entropy] / ordered[0][BEYOND.entropy]
        read = [
            f"\u2265\u00a0{at_least(100 * row[BEYOND.bound] / row[BEYOND.entropy], 0)}\u00a0% in "
            f"{_named(about, row)}"
            for row in (ordered if len(ordered) == 1 else [ordered[0], ordered[-1]])
        ]
        sentences.append(
            f"In scenes of {dataset}, counts alone reach {reached:.0f}\u00a0% of B*; from "
            f"{label_tokens(ordered[0]['tokens']).words}, probes decode {listed(read)}. Scenes and "
            "models differ from those of the binding problem paper."
        )
    return sentences


def seed_note(about: Measurements) -> list[str]:
    """Warn where differences between models rest on few training seeds."""
    rows = about.quotes.rows
    few = rows[rows["n_models"] < SEEDS_FOR_A_CLAIM]
    if rows["model"].nunique() < 2 or not len(few):
        return []
    places = [
        f"{label_tokens(str(token)).words} of {listed([str(n) for n in part['model'].unique()])} "
        f"in scenes of {dataset}"
        for (dataset, token), part in few.groupby(["dataset", "tokens"], sort=False)
    ]
    return [
        f"Fewer than {SEEDS_FOR_A_CLAIM} training seeds: {'; '.join(places)}. Comparisons with "
        "other models are not testable there."
    ]


def _rows(about: Measurements, dataset: str) -> pd.DataFrame:
    return about.quotes.rows[about.quotes.rows["dataset"] == dataset]


def _headline_rows(about: Measurements) -> pd.DataFrame:
    """Return the rows of the first dataset, none where none may be quoted."""
    return _rows(about, about.datasets[0] if about.datasets else "")


def _about_sign(row: Record) -> str:
    return "about " if row["assumed_prior"] else ""


def _amount(row: Record, part: Quantity) -> str:
    """Write a bound as one: at least so much; or, where the prior is estimated, about so much."""
    if row["assumed_prior"]:
        return f"about {number(row[part.bound])}"
    return f"\u2265\u00a0{at_least(row[part.bound])}"


def _model_words(source: str, n: int) -> str:
    """Say what models are, by the source of the first; a file of the user's has no words."""
    kind, _, name = source.partition(":")
    if kind == "zoo":
        match = re.fullmatch(rf"(?:.*-)?({'|'.join(_OBJECTIVES)})-\d+".replace("_", "-"), name)
        name = match[1].replace("-", "_") if match else name
    if kind in ("zoo", "controlled"):
        network = f"{n} {_NETWORK}s" if n > 1 else f"a {_NETWORK}"
        return f"{network} {_OBJECTIVES.get(name, f'trained with the objective {name}')}"
    name = name.partition("@")[0]
    return "" if name.startswith("path:") else name
