"""The result in a few sentences and numbers: what needs a measurement, with verdicts over seeds.

A model that was trained to predict the objects linearly from [CLS] is a positive control: what a
linear probe decodes there follows from its training. So is it named, after the others. Which of two
groups more is decoded from is said only by a verdict on the claim about them.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from bindscope.report.chapter import KeyNumber
from bindscope.statistics.claims import Judgment
from bindscope.studies.binding_information.claims import MORE
from bindscope.studies.binding_information.gathered import (
    Measurements,
    by_role,
    dataset_rows,
    describe_model,
    listed,
    probe_words,
    source_of,
    write_bound,
    write_percent,
)
from bindscope.studies.binding_information.names import (
    CONTRAST,
    CONTROL,
    WORDS,
    label_family,
    label_tokens,
    objective_of,
)
from bindscope.studies.binding_information.quantities import BEYOND, COUNTS, Quantity
from bindscope.studies.binding_information.quotes import SMALLEST_BITS, Record, headline_part
from bindscope.studies.binding_information.views import token_order
from bindscope.tables.numbers import number, p_value

_LISTED = 4  # models, or comparisons, that a sentence names
# Before the bounds of models, of baselines, of positive controls.
_ROLES = (
    "", "baselines: ",
    "positive control, trained to predict the objects linearly from [CLS]: ",
)  # fmt: skip
Write = Callable[[Record, Quantity], str]  # of a row's bound on a part


def lead(about: Measurements) -> tuple[str, ...]:
    """Say the first dataset's result: of two models, of all others, and of the patch tokens."""
    rows = _first_rows(about)
    if not len(rows):
        return ()
    tokens = token_order(rows["tokens"])
    here = rows[rows["tokens"] == tokens[0]]
    sentences = [_contrast(about, here), _others(about, here)]
    if "patches" in tokens[1:]:
        patches = rows[rows["tokens"] == "patches"]
        sentences.append(f"{_decodes(patches)} {_amounts(about, patches)}.")
    return tuple(filter(None, sentences))


def _contrast(about: Measurements, here: pd.DataFrame) -> str:
    """Say what is decoded from two models, and the verdict on the difference."""
    chosen = _pair(about, here)
    if not chosen:
        return ""
    first = chosen[0]
    part, sign = headline_part(first), "about " if first["assumed_prior"] else ""
    kinds = about.kinds.get(str(first["dataset"]), [])
    example = f" (which {kinds[0]} belongs to which {kinds[1]})" if len(kinds) == 2 else ""
    text = (
        f"{_decodes(here)} {write_bound(first, part)} of {sign}{number(first[part.entropy])} bits "
        f"of {WORDS[part]}{example} from {describe_model(about, first)}"
    )
    for second in chosen[1:]:
        text += f", and {write_bound(second, part)} from {describe_model(about, second)}"
        if verdict := _verdict(about, first, second):
            text += f": {verdict}"
    return f"{text} (scenes of {first['dataset']}, last layer)."


def _others(about: Measurements, here: pd.DataFrame) -> str:
    """Say what is decoded from all others, and which comparisons are significant."""
    pair = {str(row["model"]) for row in _pair(about, here)}
    rest = here[~here["model"].isin(pair)]
    words = "Other models: " if pair and len(by_role(about, rest)[0]) else ""
    amounts = _amounts(about, rest)
    texts = [f"{words}{amounts[:1].upper()}{amounts[1:]}." if amounts else ""]
    return " ".join(filter(None, [*texts, _comparisons(about, here)]))


def _amounts(
    about: Measurements,
    rows: pd.DataFrame,
    part: Quantity | None = None,
    write: Write = write_bound,
) -> str:
    """List bounds by name: of models, then of baselines and positive controls, called that."""
    listings = []
    for words, of_role in zip(_ROLES, by_role(about, rows), strict=True):
        if len(of_role):
            chosen = part or headline_part(of_role.iloc[0].to_dict())
            listings.append(f"{words}{_named_bounds(of_role, chosen, write)}")
    return "; ".join(listings)


def _named_bounds(rows: pd.DataFrame, part: Quantity, write: Write) -> str:
    """List bounds with names; of very many the ends of their range."""
    if len(rows) > _LISTED:
        ranked = rows.sort_values(part.bound, kind="stable").iloc[[0, -1]].to_dict("records")
        ends = " to ".join(write(row, part) for row in ranked)
        return f"{ends} ({len(rows)} groups or models)"
    return listed(
        [
            f"{write(row, part)} ({str(row['model']).removesuffix(CONTROL)})"
            for row in rows.to_dict("records")
        ]
    )


def _comparisons(about: Measurements, here: pd.DataFrame) -> str:
    """Say which comparisons of groups are significant, by name up to a few."""
    place = tuple(here.iloc[0][["dataset", "tokens"]])
    tested = [
        judgment for judgment in about.judgments
        if judgment.claim.name == MORE and judgment.effect.about[:2] == place
        and judgment.verdict != "not testable"
    ]  # fmt: skip
    if not tested:
        return ""
    several = len({judgment.effect.about[2] for judgment in tested}) > 1
    names = [
        f"{more} over {less}{f' ({probe})' if several else ''}"
        for *_, probe, more, less in (j.effect.about for j in tested if j.verdict == "holds")
    ]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    words = f": {', '.join(names[:_LISTED])}{more}" if names else ""
    return (
        f"Of {len(tested)} comparison{'s' if len(tested) > 1 else ''} over training seeds, "
        f"{len(names) or 'none'} {'are' if len(names) > 1 else 'is'} significant{words}."
    )


def _decodes(rows: pd.DataFrame) -> str:
    """Begin a sentence on one token input: which probe decodes from what."""
    return f"From {label_tokens(rows['tokens'].iloc[0]).words}, {probe_words(rows)} decodes"


def _pair(about: Measurements, here: pd.DataFrame) -> list[Record]:
    """Return the two models of a headline: those that differ in the pairing alone, if both exist.

    Otherwise those with the largest and the smallest bound; a single one alone.
    """
    models, *_ = by_role(about, here)
    records: list[Record] = [*models.to_dict("records")]
    objectives = [objective_of(source_of(about, str(row["model"]))) for row in records]
    if all(objectives.count(name) == 1 for name in CONTRAST):
        return [records[objectives.index(name)] for name in CONTRAST]
    if not records:
        return []
    part = headline_part(records[0])
    records.sort(key=lambda row: -row[part.bound])
    return records[:1] if len(records) == 1 else [records[0], records[-1]]


def _verdict(about: Measurements, first: Record, second: Record) -> str:
    """Say whether more is decoded from the first model, as claims were judged; else why not."""
    names = {str(first["model"]), str(second["model"])}
    place = (first["dataset"], first["tokens"])
    judged = {
        judgment.effect.about[2]: _difference(judgment, str(first["model"]))
        for judgment in about.judgments
        if judgment.claim.name == MORE
        and judgment.effect.about[:2] == place
        and {*judgment.effect.about[3:]} == names
    }
    if len(set(judged.values())) > 1:
        return "; ".join(f"{words} ({probe})" for probe, words in judged.items())
    return next(iter(judged.values()), "")


def _difference(judgment: Judgment, first: str) -> str:
    if judgment.verdict == "not testable":
        return f"the difference is not testable ({judgment.reason})"
    if judgment.verdict != "holds":
        return "no significant difference"
    side = "more" if judgment.effect.about[3] == first else "less"
    p = p_value(judgment.p_value)
    return f"significantly {side} (p {p if p.startswith('<') else f'= {p}'}, over training seeds)"


def key_numbers(about: Measurements) -> list[KeyNumber]:
    """Return the first dataset's entropies, and the bounds of the headline for each token input."""
    rows = _first_rows(about)
    if not len(rows):
        return []
    first = rows.iloc[0].to_dict()
    part, sign = headline_part(first), "about " if first["assumed_prior"] else ""
    numbers = [
        KeyNumber(f"{sign}{number(first[entropy])}", "bits", words)
        for entropy, words in (
            ("h_object_bits", f"entropy of the objects of a scene of {first['dataset']}"),
            (part.entropy, f"entropy of the {WORDS[part]}"),
        )
    ]
    for token in token_order(rows["tokens"]):
        here = rows[rows["tokens"] == token]
        chosen = _pair(about, here)
        verdict = _verdict(about, chosen[0], chosen[1]) if len(chosen) > 1 else ""
        further = [f"; against {chosen[1]['model']}: {verdict}"] if verdict else []
        for row in chosen:
            label = _label(row) + "".join(further)
            numbers.append(KeyNumber(write_bound(row, part), "bits", label))
            further = []
    controls = by_role(about, rows[rows["tokens"] == token_order(rows["tokens"])[0]])[2]
    return [
        *numbers,
        *(
            KeyNumber(write_bound(row, part), "bits", _label(row))
            for row in controls.to_dict("records")
        ),
    ]


def _label(row: Record) -> str:
    """Say what a key number is: what is decoded, by which probe, and from where."""
    seeds = f", {row['n_models']} training seeds" if row["n_models"] > 1 else ""
    return (
        f"{WORDS[headline_part(row)]} decoded by {label_family(row['family']).words} from "
        f"{label_tokens(row['tokens']).words} of {row['model']}{seeds}"
    )


def counts_reach(about: Measurements) -> list[str]:
    """Put the bounds on B* beside what counts alone reach, where there is counting to do.

    One sentence per such dataset, about its first token input.
    """
    sentences = []
    for dataset in about.datasets:
        rows = dataset_rows(about, dataset)
        rows = rows[(rows[COUNTS.entropy] > SMALLEST_BITS) & rows[COUNTS.bound].notna()]
        rows = rows[~rows["assumed_prior"].astype(bool)]
        if not len(rows):
            continue
        rows = rows[rows["tokens"] == token_order(rows["tokens"])[0]]
        first = rows.iloc[0]
        sentences.append(
            f"In scenes of {dataset}, counts alone reach "
            f"{number(100 * first[COUNTS.entropy] / first[BEYOND.entropy], '.0f')}\u00a0% of B*. "
            f"{_decodes(rows)} {_amounts(about, rows, BEYOND, write_percent)}. Scenes "
            "and models differ from those of the binding problem paper."
        )
    return sentences


def _first_rows(about: Measurements) -> pd.DataFrame:
    """Return the rows of the first dataset, none where none may be quoted."""
    return dataset_rows(about, about.datasets[0] if about.datasets else "")
