"""The result in a few sentences and numbers: what needs a measurement, with verdicts over seeds.

A model that was trained to predict the objects linearly from [CLS] is a positive control: what a
linear probe decodes there follows from its training. So is it named, after the others. Which of two
groups more is decoded from is said only by a verdict on the claim about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bindscope.report.chapter import KeyNumber
from bindscope.statistics.claims import Judgment
from bindscope.studies.binding_information.claims import Compared
from bindscope.studies.binding_information.names import (
    CONTRAST,
    WORDS,
    label_family,
    label_tokens,
    objective_of,
    show_model,
)
from bindscope.studies.binding_information.quantities import BEYOND, COUNTS, WHOLE
from bindscope.studies.binding_information.sentences import Measurements, listed, probe_words
from bindscope.studies.binding_information.views import SMALLEST_BITS, headline_part
from bindscope.tables.numbers import SMALLEST_P, number, p_value
from bindscope.tables.quantities import Quantity
from bindscope.tables.quoted import ABOUT, Estimate, Quoted

_LISTED = 4  # models, or comparisons, that a sentence names
# Before the bounds of models, of baselines, of positive controls.
_ROLES = (
    "",
    "baselines: ",
    "positive control, trained to predict the objects linearly from [CLS]: ",
)


def lead(about: Measurements) -> tuple[str, ...]:
    """Say the first dataset's result: of two models, of all others, and of the patch tokens."""
    by_tokens = _first_dataset(about)
    if not by_tokens:
        return ()
    here = next(iter(by_tokens.values()))
    sentences = [_contrast(about, here), _others(about, here)]
    if "patches" in list(by_tokens)[1:]:
        patches = by_tokens["patches"]
        sentences.append(_decoded(about, patches, _part(patches)))
    return tuple(filter(None, sentences))


def _first_dataset(about: Measurements) -> dict[str, Quoted]:
    """Return what may be quoted of the first dataset, by token input."""
    if not about.datasets:
        return {}
    quoted = about.quoted[about.datasets[0]]
    return {token: quoted.where(tokens=token) for token in quoted.rows["tokens"].unique()}


def _part(quoted: Quoted) -> Quantity:
    """Return the part that the headline of a dataset is about."""
    return headline_part(quoted.rows.iloc[0].to_dict())


def _contrast(about: Measurements, here: Quoted) -> str:
    """Say what is decoded from two models, and the verdict on the difference."""
    chosen = _pair(about, here)
    if not chosen:
        return ""
    part, first = _part(here), chosen[0]
    row = first.row
    kinds = about.kinds.get(str(row["dataset"]), [])
    example = f" (which {kinds[0]} belongs to which {kinds[1]})" if len(kinds) == 2 else ""
    text = (
        f"{_decodes(here)} {first.words} of {_sign(first)}{number(row[part.entropy])} bits "
        f"of {WORDS[part]}{example} from {about.describe(row)}"
    )
    for second in chosen[1:]:
        text += f", and {second.words} from {about.describe(second.row)}"
        if verdict := _verdict(about, here, (first, second)):
            text += f": {verdict}"
    return f"{text} (scenes of {row['dataset']}, last layer)."


def _sign(estimate: Estimate) -> str:
    """Return what is written before an entropy: that it is estimated, or nothing."""
    return ABOUT if estimate.row["assumed_prior"] else ""


def _others(about: Measurements, here: Quoted) -> str:
    """Say what is decoded from all others, and which comparisons are significant."""
    pair = {str(estimate.row["model"]) for estimate in _pair(about, here)}
    rest = here.models(set(here.rows["model"]) - pair)
    words = "Other models: " if len(about.by_role(rest)[0]) else ""
    if not pair:
        return " ".join(
            filter(None, [_decoded(about, rest, _part(here)), _comparisons(about, here)])
        )
    amounts = _amounts(about, rest, _part(here))
    texts = [f"{words}{amounts[:1].upper()}{amounts[1:]}." if amounts else ""]
    return " ".join(filter(None, [*texts, _comparisons(about, here)]))


def _amounts(
    about: Measurements, quoted: Quoted, part: Quantity, *, in_percent: bool = False
) -> str:
    """List bounds by name: of models, then of baselines and positive controls, called that."""
    listings = []
    for words, of_role in zip(_ROLES, about.by_role(quoted), strict=True):
        if len(of_role):
            listings.append(words + _named_bounds(of_role, part, in_percent))
    return "; ".join(listings)


def _named_bounds(quoted: Quoted, part: Quantity, in_percent: bool) -> str:
    """List bounds with names; of very many the ends of their range."""

    def write(estimate: Estimate) -> str:
        return estimate.percent(estimate.row[part.entropy]) if in_percent else estimate.words

    estimates = [*quoted.estimates(part)]
    if len(estimates) > _LISTED:
        ranked = sorted(estimates, key=lambda estimate: estimate.value)
        return f"{write(ranked[0])} to {write(ranked[-1])} ({len(ranked)} groups or models)"
    return listed([f"{write(estimate)} ({estimate.row['model']})" for estimate in estimates])


def _compared(about: Measurements, here: Quoted) -> Iterator[tuple[Judgment, Compared]]:
    """Yield the verdicts on which of two groups more is decoded from, of one token input."""
    row = here.rows.iloc[0]
    for judgment in about.judgments:
        pair = judgment.effect.about
        if not isinstance(pair, Compared):
            continue
        if (pair.dataset, pair.tokens) == (row["dataset"], row["tokens"]):
            yield judgment, pair


def _comparisons(about: Measurements, here: Quoted) -> str:
    """Say which comparisons of groups are significant, by name up to a few."""
    tested = [(j, pair) for j, pair in _compared(about, here) if j.verdict != "not testable"]
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


def _decodes(here: Quoted) -> str:
    """Begin a sentence on one token input: which probe decodes from what."""
    tokens = label_tokens(here.rows["tokens"].iloc[0]).words
    return f"From {tokens}, {probe_words(here)} decodes"


def _decoded(about: Measurements, here: Quoted, part: Quantity, *, in_percent: bool = False) -> str:
    """Say in a sentence what is decoded from one token input, if only from controls, too."""
    amounts = _amounts(about, here, part, in_percent=in_percent)
    models, *_ = about.by_role(here)
    if len(models):
        return f"{_decodes(here)} {amounts}."
    tokens = label_tokens(here.rows["tokens"].iloc[0]).words
    words = "Decoded" if in_percent else f"Bits of {WORDS[part]} decoded"
    return f"{words} from {tokens} by {probe_words(here)}: {amounts}."


def _pair(about: Measurements, here: Quoted) -> list[Estimate]:
    """Return the two models of a headline: those that differ in the pairing alone, if both exist.

    Otherwise those with the largest and the smallest bound; a single one alone.
    """
    models, *_ = about.by_role(here)
    if not len(models):
        return []
    estimates = [*models.estimates(_part(models))]
    objectives = [objective_of(about.source_of(e.row["model"])) for e in estimates]
    if all(objectives.count(name) == 1 for name in CONTRAST):
        return [estimates[objectives.index(name)] for name in CONTRAST]
    ranked = sorted(estimates, key=lambda estimate: -estimate.value)
    return ranked if len(ranked) == 1 else [ranked[0], ranked[-1]]


def _verdict(about: Measurements, here: Quoted, chosen: Sequence[Estimate]) -> str:
    """Say whether more is decoded from the first model, as claims were judged; else why not."""
    first, second = (str(estimate.row["model"]) for estimate in chosen)
    judged = {
        pair.probe: _difference(judgment, pair.more == first)
        for judgment, pair in _compared(about, here)
        if {pair.more, pair.less} == {first, second}
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
    row, part = first.rows.iloc[0], _part(first)
    sign = ABOUT if row["assumed_prior"] else ""
    of_whole = f"entropy of the objects of a scene of {row['dataset']}"
    numbers = [
        KeyNumber(f"{sign}{number(row[WHOLE.entropy])}", "bits", of_whole),
        KeyNumber(f"{sign}{number(row[part.entropy])}", "bits", f"entropy of the {WORDS[part]}"),
    ]
    for here in by_tokens.values():
        chosen = _pair(about, here)
        verdict = _verdict(about, here, chosen) if len(chosen) > 1 else ""
        for i, estimate in enumerate(chosen):
            against = f"; against {chosen[1].row['model']}: {verdict}" if verdict and not i else ""
            numbers.append(_key_number(about, estimate, against))
    _, _, controls = about.by_role(first)
    return numbers + [_key_number(about, estimate) for estimate in controls.estimates(part)]


def _key_number(about: Measurements, estimate: Estimate, more: str = "") -> KeyNumber:
    """Say what is decoded, by which probe, and from where."""
    row = estimate.row
    seeds = f", {estimate.n_models} training seeds" if estimate.n_models > 1 else ""
    name = show_model(row["model"], row["model"] in about.controls)
    label = (
        f"{WORDS[headline_part(row)]} decoded by {label_family(row['family']).words} from "
        f"{label_tokens(row['tokens']).words} of {name}{seeds}{more}"
    )
    return KeyNumber(estimate.words, "bits", label)


def counts_reach(about: Measurements) -> list[str]:
    """Put the bounds on B* beside what counts alone reach, where there is counting to do.

    One sentence per such dataset, about its first token input.
    """
    sentences = []
    for dataset in about.datasets:
        quoted = about.quoted[dataset]
        rows = quoted.rows
        counted = (rows[COUNTS.entropy] > SMALLEST_BITS) & rows[COUNTS.value].notna()
        quoted = quoted.take(counted & ~rows["assumed_prior"].astype(bool))
        if not len(quoted):
            continue
        first = quoted.rows.iloc[0]
        here = quoted.where(tokens=first["tokens"])
        sentences.append(
            f"In scenes of {dataset}, counts alone reach "
            f"{number(100 * first[COUNTS.entropy] / first[BEYOND.entropy], '.0f')}\u00a0% of B*. "
            f"{_decoded(about, here, BEYOND, in_percent=True)} Scenes and "
            "models differ from those of the binding problem paper."
        )
    return sentences
