"""What the report says of binding information: lead, key numbers, findings and caveats.

A sentence names the probe and what it decodes, with the bound; only `claims` compares models. Every
number is a lower bound out of a row that may be quoted (`views.quote`), rounded down and written
with its sign; where the prior is estimated it is no bound, and "about" is written instead.

A model that was trained to predict the objects linearly from [CLS] is a positive control: what a
linear probe decodes there follows from its training. So is it named, after the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bindscope.models.baselines import BASELINES
from bindscope.report.chapter import Finding, KeyNumber
from bindscope.statistics.claims import Judgment, judge
from bindscope.studies.binding_information.claims import CLAIMS, Compared, effects
from bindscope.studies.binding_information.flags import FLAGS
from bindscope.studies.binding_information.names import (
    CONTRAST,
    OBJECTIVES,
    WORDS,
    is_positive_control,
    label_family,
    label_tokens,
    objective_of,
    show_model,
)
from bindscope.studies.binding_information.quantities import BEYOND, COUNTS, WHOLE
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
from bindscope.tables.numbers import SMALLEST_P, at_least, number, p_value, percent
from bindscope.tables.quantities import Quantity
from bindscope.tables.quoted import ABOUT, AT_LEAST, Estimate, Quoted, TableRow, name_order

SEEDS_FOR_A_CLAIM = 3
_LISTED = 4  # models, or comparisons, that a sentence names
_NETWORK = "vision transformer"
_CONTROL = "positive control, trained to predict the objects linearly from [CLS]: "


# --- What sentences are made from ---------------------------------------------------------------


@dataclass(frozen=True)
class Measurements:
    """What the sentences are made from.

    `table` has groups, `quoted` is what may be quoted of it: last layers. `models` are names of
    models and groups in order (`views.order_models`), `sources` by name that of a model, or of a
    group's first one; `datasets` those with something to say, in order, `kinds` names of their
    feature groups.
    """

    table: pd.DataFrame
    quoted: Quoted
    models: list[str]
    sources: dict[str, str]
    datasets: list[str]
    kinds: dict[str, list[str]]
    judgments: list[Judgment]

    def describe(self, row: TableRow) -> str:
        """Return what the models of a row are, and their name."""
        name = str(row["model"])
        words = model_words(self.sources.get(name, ""), row["n_models"])
        return f"{words} ({name})" if words else name


def gather(table: pd.DataFrame, config: Mapping[str, Any]) -> Measurements:
    """Gather what the sentences are made from, by the configuration's models, groups and orders."""
    section = config.get("studies", {}).get("binding_information") or {}
    groups = list(section.get("groups") or ())
    sources = {str(model["name"]): str(model["source"]) for model in config.get("models", ())}
    controls = [name for name, source in sources.items() if is_positive_control(source)]
    models = order_models(list(sources), groups, controls)
    for group in groups:
        first = next((name for name in group["models"] if name in sources), "")
        sources[str(group["name"])] = sources.get(first, "")
    table = with_groups(table, groups).assign(is_control=table["model"].isin(controls))
    quoted = quote(table, models)
    kinds = {
        str(dataset["name"]): [str(group["name"]) for group in dataset["space"]["groups"]]
        for dataset in config.get("datasets", ())
    }
    datasets = name_order(quoted.names("dataset"), list(kinds))
    judgments = judge(CLAIMS, effects(table, quoted, models))
    return Measurements(table, quoted, models, sources, datasets, kinds, judgments)


def _separate_controls(quoted: Quoted) -> tuple[Quoted, Quoted]:
    """Separate rows of models that need a measurement from those of positive controls."""
    is_control = quoted.rows["is_control"].astype(bool)
    return quoted.take(~is_control), quoted.take(is_control)


def _first_row(quoted: Quoted) -> TableRow:
    """Return a row, for what all rows share."""
    return quoted.rows.iloc[0].to_dict()


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


# --- The lead: the first dataset's result, with verdicts over training seeds --------------------


def lead(about: Measurements) -> tuple[str, ...]:
    """Say the first dataset's result: of two models, of all others, and of the patch tokens."""
    by_tokens = _first_dataset(about)
    if not by_tokens:
        return ()
    here, *others = by_tokens.values()
    pair = _pair(about, here)
    sentences = [_contrast(about, here, pair), _others(about, here, pair)]
    sentences += [_decoded(q) for q in others if _first_row(q)["tokens"] == "patches"]
    return tuple(filter(None, sentences))


def _first_dataset(about: Measurements) -> dict[str, Quoted]:
    """Return what may be quoted of the first dataset, by token input."""
    if not about.datasets:
        return {}
    quoted = about.quoted[about.datasets[0]]
    return {token: quoted.where(tokens=token) for token in quoted.rows["tokens"].unique()}


def _pair(about: Measurements, here: Quoted) -> list[Estimate]:
    """Return the two models of a headline: those that differ in the pairing alone, if both exist.

    Otherwise those with the largest and the smallest bound; a single one alone.
    """
    models, _ = _separate_controls(here)
    if not len(models):
        return []
    estimates = [*models.estimates(headline_part(_first_row(models)))]
    objectives = [objective_of(about.sources.get(e.row["model"], "")) for e in estimates]
    if all(objectives.count(name) == 1 for name in CONTRAST):
        return [estimates[objectives.index(name)] for name in CONTRAST]
    ranked = sorted(estimates, key=lambda estimate: -estimate.value)
    return ranked if len(ranked) == 1 else [ranked[0], ranked[-1]]


def _contrast(about: Measurements, here: Quoted, pair: Sequence[Estimate]) -> str:
    """Say what is decoded from two models, and the verdict on the difference."""
    if not pair:
        return ""
    row = pair[0].row
    part = headline_part(row)
    kinds = about.kinds.get(str(row["dataset"]), [])
    example = f" (which {kinds[0]} belongs to which {kinds[1]})" if len(kinds) == 2 else ""
    text = (
        f"From {label_tokens(row['tokens']).words}, {probe_words(here)} decodes {pair[0].words} of "
        f"{_entropy(row, part)} bits of {WORDS[part]}{example} from {about.describe(row)}"
    )
    for second in pair[1:]:
        verdict = _verdict(about, pair)
        text += f", and {second.words} from {about.describe(second.row)}"
        text += f": {verdict}" if verdict else ""
    return f"{text} (scenes of {row['dataset']}, last layer)."


def _entropy(row: TableRow, quantity: Quantity) -> str:
    """Write the entropy of a quantity; "about" stands before one that is estimated."""
    return f"{ABOUT if row['assumed_prior'] else ''}{number(row[quantity.entropy])}"


def _others(about: Measurements, here: Quoted, pair: Sequence[Estimate]) -> str:
    """Say what is decoded from all others, and which comparisons are significant."""
    of_pair = [estimate.row["model"] for estimate in pair]
    rest = here.take(~here.rows["model"].isin(of_pair))
    if not pair:
        return f"{_decoded(rest)} {_comparisons(about, here)}".strip()
    amounts = _amounts(rest, headline_part(_first_row(here)))
    models, _ = _separate_controls(rest)
    others = f"{'Other models: ' if len(models) else ''}{amounts}."
    sentences = [f"{others[0].upper()}{others[1:]}" if amounts else "", _comparisons(about, here)]
    return " ".join(filter(None, sentences))


def _decoded(here: Quoted) -> str:
    """Say what is decoded from one token input."""
    row = _first_row(here)
    part = headline_part(row)
    return (
        f"Bits of {WORDS[part]} decoded from {label_tokens(row['tokens']).words} by "
        f"{probe_words(here)}: {_amounts(here, part)}."
    )


def _amounts(quoted: Quoted, part: Quantity) -> str:
    """List bounds by name: of models, then of positive controls, called that."""
    models, controls = _separate_controls(quoted)
    listings = [_named_bounds(models, part)] if len(models) else []
    if len(controls):
        listings.append(_CONTROL + _named_bounds(controls, part))
    return "; ".join(listings)


def _named_bounds(quoted: Quoted, part: Quantity) -> str:
    """List bounds with names; of very many the ends of their range."""
    ranked = sorted(quoted.estimates(part), key=lambda estimate: estimate.value)
    if len(ranked) > _LISTED:
        return f"{ranked[0].words} to {ranked[-1].words} ({len(ranked)} groups or models)"
    names = [f"{estimate.words} ({estimate.row['model']})" for estimate in quoted.estimates(part)]
    return listed(names)


def _compared(about: Measurements, row: TableRow) -> Iterator[tuple[Judgment, Compared]]:
    """Yield the verdicts on which of two groups more is decoded from, of a row's token input."""
    for judgment in about.judgments:
        pair = judgment.effect.about
        if isinstance(pair, Compared) and pair[:2] == (row["dataset"], row["tokens"]):
            yield judgment, pair


def _comparisons(about: Measurements, here: Quoted) -> str:
    """Say which comparisons of groups are significant, by name up to a few."""
    compared = _compared(about, _first_row(here))
    tested = [(j, pair) for j, pair in compared if j.verdict != "not testable"]
    if not tested:
        return ""
    several = len({pair.probe for _, pair in tested}) > 1
    names = [
        f"{pair.more} over {pair.less}{f' ({pair.probe})' if several else ''}"
        for judgment, pair in tested
        if judgment.verdict == "holds"
    ]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    words = f": {', '.join(names[:_LISTED])}{more}" if names else ""
    return (
        f"Of {len(tested)} comparison{'s' if len(tested) > 1 else ''} over training seeds, "
        f"{len(names) or 'none'} {'are' if len(names) > 1 else 'is'} significant{words}."
    )


def _verdict(about: Measurements, pair: Sequence[Estimate]) -> str:
    """Say whether more is decoded from the first model, as claims were judged; else why not."""
    first, second = (str(estimate.row["model"]) for estimate in pair)
    judged = {
        names.probe: _difference(judgment, names.more == first)
        for judgment, names in _compared(about, pair[0].row)
        if {names.more, names.less} == {first, second}
    }
    if len(set(judged.values())) > 1:
        return "; ".join(f"{words} ({probe})" for probe, words in judged.items())
    return next(iter(judged.values()), "")


def _difference(judgment: Judgment, more: bool) -> str:
    if judgment.verdict == "not testable":
        return f"the difference is not testable ({judgment.reason})"
    if judgment.verdict != "holds":
        return "no significant difference"
    equals = "" if judgment.p_value < SMALLEST_P else "= "
    return (
        f"significantly {'more' if more else 'less'} (p {equals}{p_value(judgment.p_value)}, "
        "over training seeds)"
    )


def key_numbers(about: Measurements) -> list[KeyNumber]:
    """Return the first dataset's entropies, and the bounds of the headline for each token input."""
    by_tokens = _first_dataset(about)
    if not by_tokens:
        return []
    first = next(iter(by_tokens.values()))
    row = _first_row(first)
    part = headline_part(row)
    of_whole = f"entropy of the objects of a scene of {row['dataset']}"
    numbers = [
        KeyNumber(_entropy(row, WHOLE), "bits", of_whole),
        KeyNumber(_entropy(row, part), "bits", f"entropy of the {WORDS[part]}"),
    ]
    for here in by_tokens.values():
        pair = _pair(about, here)
        verdict = _verdict(about, pair) if len(pair) > 1 else ""
        against = f"; against {pair[1].row['model']}: {verdict}" if verdict else ""
        numbers += [_key_number(e, "" if i else against) for i, e in enumerate(pair)]
    _, controls = _separate_controls(first)
    return numbers + [_key_number(estimate) for estimate in controls.estimates(part)]


def _key_number(estimate: Estimate, more: str = "") -> KeyNumber:
    """Say what is decoded, by which probe, and from where."""
    row = estimate.row
    seeds = f", {estimate.n_models} training seeds" if estimate.n_models > 1 else ""
    label = (
        f"{WORDS[headline_part(row)]} decoded by {label_family(row['family']).words} from "
        f"{label_tokens(row['tokens']).words} of {show_model(row['model'], row['is_control'])}"
        f"{seeds}{more}"
    )
    return KeyNumber(estimate.words, "bits", label)


def counts_reach(about: Measurements) -> list[str]:
    """Say how much of B* counts alone reach, of each dataset where there is counting to do."""
    rows = about.quoted.rows
    rows = rows[(rows[COUNTS.entropy] > SMALLEST_BITS) & ~rows["assumed_prior"].astype(bool)]
    return [
        f"In scenes of {row['dataset']}, counts alone reach "
        f"{percent(row[COUNTS.entropy] / row[BEYOND.entropy])} of B*."
        for row in rows.drop_duplicates("dataset").to_dict("records")
    ]


# --- Findings, dataset by dataset, and caveats --------------------------------------------------


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
        like["assumed_prior"] = dataset in assumed_prior(about.table)
        names = name_order(quoted.names("model"), about.models)
        points = [(name, _of_model(about, quoted.where(model=name), name)) for name in names]
        points += _baselines(about, like)
        findings.append(Finding(_there_is(like, quoted), tuple(points)))
    return findings


def _there_is(like: TableRow, quoted: Quoted) -> str:
    """State the entropies of a dataset's scenes, part by part."""
    note = f" ({FLAGS['assumed_prior']})" if like["assumed_prior"] else ""
    parts = [
        f"{number(like[part.entropy])} for {WORDS[part]}"
        for part in parts_of(like)
        if like[part.entropy] > SMALLEST_BITS
    ]
    text = (
        f"The objects of a scene of {like['dataset']} have {_entropy(like, WHOLE)} bits of "
        f"entropy{note}{': ' if parts else ''}{listed(parts)}."
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


def _of_model(about: Measurements, quoted: Quoted, name: str) -> str:
    """Say what the token inputs of one model or group hold, or why that is not quoted."""
    both = pd.concat([quoted.rows, quoted.refused])
    n_models = both.groupby("tokens")["n_models"].sum()
    words = model_words(about.sources.get(name, ""), int(n_models.max()))
    if both["is_control"].iloc[0]:
        words = f"positive control: {words}"
    clauses = []
    for token in token_order(n_models.index):
        here = quoted.where(tokens=token)
        text = "there is no row to quote"
        if len(here):
            estimate = here.best(headline_part(_first_row(here)))
            ends = f" ({estimate.interval})" if estimate.n_models > 1 else ""
            text = f"{estimate.words}{ends}"
        text += f" from {label_tokens(token).words}"
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
    sign = ABOUT if like["assumed_prior"] else AT_LEAST
    bits = [f"{sign}{at_least(bound)} from {BASELINES[n].words}" for n, bound in values.items()]
    return [("baselines", f" (of the images, no model): {'; '.join(bits)}.")] if bits else []


def caveats(about: Measurements) -> tuple[str, ...]:
    """Say what changes how the numbers are read: the prior, the probe, the seeds, the models."""
    rows = about.quoted.rows
    if not len(rows):
        return ()
    estimated = rows.loc[rows["assumed_prior"].astype(bool), "dataset"].unique()
    sentences = []
    if len(estimated):
        sentences.append(
            f"The scene distribution of {listed([*map(str, estimated)])} is unknown: its values "
            "are estimates, not bounds."
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
