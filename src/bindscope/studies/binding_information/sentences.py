"""Findings and caveats that the report makes out of the table of binding information.

A sentence names the probe and what it decodes, with the bound; only `claims` compares models.
"""

from __future__ import annotations

import pandas as pd

from bindscope.report.chapter import Finding
from bindscope.report.claims import claims_findings
from bindscope.studies.binding_information.flags import FLAGS
from bindscope.studies.binding_information.gathered import (
    Measurements,
    by_role,
    dataset_rows,
    listed,
    model_words,
    probe_words,
    source_of,
    write_bound,
)
from bindscope.studies.binding_information.names import CONTROL, WORDS, label_tokens
from bindscope.studies.binding_information.quantities import BEYOND, with_ends
from bindscope.studies.binding_information.quotes import (
    SMALLEST_BITS,
    Record,
    headline_part,
    parts_of,
)
from bindscope.studies.binding_information.views import (
    assumed_prior,
    name_order,
    strongest_baselines,
    token_order,
)
from bindscope.tables.numbers import between, number

SEEDS_FOR_A_CLAIM = 3


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
    kinds = {source_of(about, str(name)).partition(":")[0] for name in rows["model"]}
    if kinds <= {"zoo", "controlled"}:
        sentences.append(
            "Models are small vision transformers trained on rendered scenes: the values do not "
            "transfer to pretrained models or photos."
        )
    return tuple(sentences[:3])


def findings(about: Measurements) -> list[Finding]:
    """Say in sentences what the run found, and which claims hold.

    Per dataset that models other than known-answer encoders were measured on one with a point per
    model or group; then the verdicts on the chapter's claims.
    """
    findings = []
    for dataset in about.datasets:
        rows = about.table[about.table["dataset"] == dataset]
        quoted = dataset_rows(about, dataset)
        like = (quoted if len(quoted) else rows).iloc[0].to_dict()
        refused = about.quotes.refused
        names = name_order(
            [*quoted["model"], *refused[refused["dataset"] == dataset]["model"]], about.models
        )
        points = [(name.removesuffix(CONTROL), _about(about, dataset, name)) for name in names]
        points += _baselines(about, like)
        findings.append(Finding(_there_is(like, about.table, quoted), tuple(points)))
    lead = "Claims, judged together (95 % intervals, Holm's correction over all of them):"
    return [*findings, *claims_findings(about.judgments, lead)]


def _there_is(like: Record, table: pd.DataFrame, quoted: pd.DataFrame) -> str:
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
    several = bool(len(quoted)) and bool((quoted["n_models"] > 1).any())
    seeds = ", with 95 % intervals over training seeds" if several else ""
    by_tokens = [
        f"{probe_words(rows)} ({label_tokens(token).name})"
        for token in token_order(quoted["tokens"])
        if len(rows := quoted[quoted["tokens"] == token])
    ]
    by = f" by {listed(by_tokens)}" if by_tokens else ""
    return f"{text} Bits of {WORDS[headline_part(like)]} decoded from the last layers{by}{seeds}:"


def _about(about: Measurements, dataset: str, name: str) -> str:
    """Say what the token inputs of one model or group hold, or why that is not quoted."""
    rows = dataset_rows(about, dataset)
    rows = rows[rows["model"] == name]
    refused = about.quotes.refused
    refused = refused[(refused["dataset"] == dataset) & (refused["model"] == name)]
    n_models = pd.concat([rows, refused]).groupby("tokens")["n_models"].sum()
    words = model_words(source_of(about, name), int(n_models.max()))
    if name.endswith(CONTROL):
        words = f"positive control: {words}"
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
        f"{write_bound({part.bound: value, 'assumed_prior': assumed}, part)} from {words}"
        for words, value in values.items()
    ]
    return [("baselines", f" (of the images, no model): {'; '.join(bits)}.")] if bits else []


def _read(row: Record) -> str:
    """Write how much of the headline's part was decoded, and its interval over training seeds."""
    part = headline_part(row)
    text = write_bound(row, part)
    if row["n_models"] > 1:
        low, high = (float(row[name]) for name in with_ends(part.bound)[1:])
        text += f" ({between(low, high)})"
    return text


def seed_note(about: Measurements) -> list[str]:
    """Warn where differences between models rest on few training seeds."""
    rows, *_ = by_role(about, about.quotes.rows)
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
