"""Findings and caveats that the report makes out of the table of binding information.

A sentence names the probe and what it decodes, with the bound; only `claims` compares models. Every
number is a lower bound out of a row that may be quoted (`views.quote`), rounded down and written
with its sign; where the prior is estimated it is no bound, and "about" is written instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bindscope.models.baselines import BASELINES
from bindscope.report.chapter import Finding
from bindscope.statistics.claims import Judgment, judge
from bindscope.studies.binding_information.claims import CLAIMS, effects
from bindscope.studies.binding_information.flags import FLAGS
from bindscope.studies.binding_information.names import (
    OBJECTIVES,
    WORDS,
    is_positive_control,
    label_family,
    label_tokens,
    objective_of,
)
from bindscope.studies.binding_information.quantities import BEYOND, WHOLE
from bindscope.studies.binding_information.views import (
    SMALLEST_BITS,
    assumed_prior,
    headline_part,
    order_models,
    parts_of,
    quote,
    strongest_baselines,
    token_order,
)
from bindscope.tables.groups import with_groups
from bindscope.tables.numbers import at_least, number
from bindscope.tables.quoted import ABOUT, AT_LEAST, Estimate, Quoted, TableRow, name_order

SEEDS_FOR_A_CLAIM = 3
_NETWORK = "vision transformer"
_BASELINE = "baseline:"  # source of what reads the image without a network


# --- What sentences are made from ---------------------------------------------------------------


@dataclass(frozen=True)
class Measurements:
    """What the sentences are made from.

    `table` has groups, `quoted` is what may be quoted of it: last layers. `models` are names of
    models and groups in order (`views.order_models`), `controls` those that are positive controls,
    `sources` by name that of a model, or of a group's first one; `datasets` those with something to
    say, in order, `kinds` names of their feature groups.
    """

    table: pd.DataFrame
    quoted: Quoted
    models: list[str]
    controls: list[str]
    sources: dict[str, str]
    datasets: list[str]
    kinds: dict[str, list[str]]
    judgments: list[Judgment]

    def source_of(self, name: str) -> str:
        """Return the source of a model, or of a group's first one."""
        return self.sources.get(name, "")

    def by_role(self, quoted: Quoted) -> tuple[Quoted, Quoted, Quoted]:
        """Separate models that need a measurement, baselines, and positive controls."""
        models, baselines, controls = [], [], []
        for name in quoted.names("model"):
            if name in self.controls:
                controls.append(name)
            elif self.source_of(name).startswith(_BASELINE):
                baselines.append(name)
            else:
                models.append(name)
        return quoted.models(models), quoted.models(baselines), quoted.models(controls)

    def describe(self, row: TableRow) -> str:
        """Return what the models of a row are, and their name."""
        name = str(row["model"])
        words = model_words(self.source_of(name), row["n_models"])
        return f"{words} ({name})" if words else name


def gather(table: pd.DataFrame, config: Mapping[str, Any]) -> Measurements:
    """Gather what the sentences are made from, by the configuration's models, groups and orders."""
    section = config.get("studies", {}).get("binding_information") or {}
    groups = list(section.get("groups") or ())
    sources = {str(model["name"]): str(model["source"]) for model in config.get("models", ())}
    names = list(sources)
    for group in groups:
        members = [name for name in group["models"] if name in sources]
        if members:
            sources[str(group["name"])] = sources[members[0]]
    controls = [name for name, source in sources.items() if is_positive_control(source)]
    models = order_models(names, groups, controls)
    table = with_groups(table, groups).assign(is_control=table["model"].isin(controls))
    quoted = quote(table, models)
    kinds = {
        str(dataset["name"]): [str(group["name"]) for group in dataset["space"]["groups"]]
        for dataset in config.get("datasets", ())
    }
    datasets = name_order(quoted.names("dataset"), list(kinds))
    judgments = judge(CLAIMS, effects(table, quoted, models))
    return Measurements(table, quoted, models, controls, sources, datasets, kinds, judgments)


def probe_words(quoted: Quoted) -> str:
    """Name the probes that some rows were chosen from; "the best of" where they are several."""
    sets = {str(families) for families in quoted.rows["fitted"]}
    if len(sets) > 1:
        return "the best fitted probe"
    words = [label_family(family).words for family in sets.pop().split(";")]
    return words[0] if len(words) == 1 else f"the best of {listed(words)}"


def model_words(source: str, n: int) -> str:
    """Say what models are, by the source of the first; a file of the user's has no words."""
    kind, _, name = source.partition(":")
    if kind in ("zoo", "controlled"):
        objective = objective_of(source)
        trained = OBJECTIVES.get(objective, f"trained with the objective {objective or name}")
        alone = f"a {_NETWORK} {trained}, one training seed"
        return f"{n} {_NETWORK}s {trained}" if n > 1 else alone
    name = name.partition("@")[0]
    return "" if name.startswith("path:") else name


def listed(names: Sequence[str]) -> str:
    """Write names as a list in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


# --- Sentences ----------------------------------------------------------------------------------


def caveats(about: Measurements) -> tuple[str, ...]:
    """Say what changes how the numbers are read: the prior, the probe, the seeds, the models."""
    rows = about.quoted.rows
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
    kinds = {about.source_of(str(name)).partition(":")[0] for name in rows["model"]}
    if kinds <= {"zoo", "controlled"}:
        sentences.append(
            "Models are small vision transformers trained on rendered scenes: the values do not "
            "transfer to pretrained models or photos."
        )
    return tuple(sentences[:3])


def findings(about: Measurements) -> list[Finding]:
    """Say in sentences what the run found.

    Per dataset that models other than known-answer encoders were measured on one with a point per
    model or group.
    """
    findings = []
    for dataset in about.datasets:
        quoted = about.quoted[dataset]
        rows = quoted.rows if len(quoted) else about.table[about.table["dataset"] == dataset]
        like = rows.iloc[0].to_dict()
        names = name_order(quoted.names("model"), about.models)
        points = [(name, _about(about, quoted.where(model=name), name)) for name in names]
        points += _baselines(about, like)
        findings.append(Finding(_there_is(like, about.table, quoted), tuple(points)))
    return findings


def _there_is(like: TableRow, table: pd.DataFrame, quoted: Quoted) -> str:
    """State the entropies of a dataset's scenes, part by part."""
    estimated = like["dataset"] in assumed_prior(table)
    note = f" ({FLAGS['assumed_prior']})" if estimated else ""
    parts = [
        f"{number(like[part.entropy])} for {WORDS[part]}"
        for part in parts_of(like)
        if like[part.entropy] > SMALLEST_BITS
    ]
    text = (
        f"The objects of a scene of {like['dataset']} have {ABOUT if estimated else ''}"
        f"{number(like[WHOLE.entropy])} bits of entropy{note}{': ' if parts else ''}"
        f"{listed(parts)}."
    )
    if BEYOND in parts_of(like):
        text += " Counts and pairing are not separated here; the column reason says why."
    several = bool((quoted.rows["n_models"] > 1).any())
    seeds = ", with 95 % intervals over training seeds" if several else ""
    by_tokens = [
        f"{probe_words(quoted.where(tokens=token))} ({label_tokens(token).name})"
        for token in quoted.rows["tokens"].unique()
    ]
    by = f" by {listed(by_tokens)}" if by_tokens else ""
    return f"{text} Bits of {WORDS[headline_part(like)]} decoded from the last layers{by}{seeds}:"


def _about(about: Measurements, quoted: Quoted, name: str) -> str:
    """Say what the token inputs of one model or group hold, or why that is not quoted."""
    n_models = pd.concat([quoted.rows, quoted.refused]).groupby("tokens")["n_models"].sum()
    words = model_words(about.source_of(name), int(n_models.max()))
    if name in about.controls:
        words = f"positive control: {words}"
    clauses = []
    for token in token_order(n_models.index):
        here = quoted.where(tokens=token)
        where = f"from {label_tokens(token).words}"
        text = f"{_read(here)} {where}" if len(here) else f"there is no row to quote {where}"
        for row in here.refused.to_dict("records"):
            n = row["n_models"]
            text += f" ({n} model{'s' if n > 1 else ''} left out, flagged {row['flags']})"
        if len(here) and n_models[token] < n_models.max():
            text += f" ({n_models[token]} of them)"
        clauses.append(text)
    return f"{f' ({words})' if words else ''}: {'; '.join(clauses)}."


def _baselines(about: Measurements, like: TableRow) -> list[tuple[str, str]]:
    """Say what baselines hold of the headline's part, which are no models."""
    values = strongest_baselines(about.table, str(like["dataset"]), headline_part(like))
    sign = ABOUT if like["dataset"] in assumed_prior(about.table) else AT_LEAST
    bits = [
        f"{sign}{at_least(value)} from {BASELINES[name].words}" for name, value in values.items()
    ]
    return [("baselines", f" (of the images, no model): {'; '.join(bits)}.")] if bits else []


def _read(quoted: Quoted) -> str:
    """Write how much of the headline's part was decoded, and its interval over training seeds."""
    estimate = headline_estimate(quoted)
    return f"{estimate.words} ({estimate.interval})" if estimate.n_models > 1 else estimate.words


def headline_estimate(quoted: Quoted) -> Estimate:
    """Return the largest estimate of the part that the headline of a dataset is about."""
    return quoted.best(headline_part(quoted.rows.iloc[0].to_dict()))


def seed_note(about: Measurements) -> list[str]:
    """Warn where differences between models rest on few training seeds."""
    rows = about.by_role(about.quoted)[0].rows
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
