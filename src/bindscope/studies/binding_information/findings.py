"""The chapter of the report about binding information."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from bindscope.core.interfaces import Inputs
from bindscope.report.chapter import Chapter, Column, PageTable, Section, Warned, page_table
from bindscope.report.claims import claims_section, read_rates
from bindscope.studies.binding_information import sentences
from bindscope.studies.binding_information.best import BEST
from bindscope.studies.binding_information.flags import FLAGS, STANDARD_ERRORS, STATUSES
from bindscope.studies.binding_information.names import FORMULA
from bindscope.studies.binding_information.published import (
    beside,
    read_color_cues,
    read_histograms,
    read_papers_table,
    read_trends,
)
from bindscope.studies.binding_information.quantities import BEYOND, BOUNDS, PAPER_BEYOND, WHOLE
from bindscope.studies.binding_information.sentences import gather, listed
from bindscope.studies.binding_information.views import measured
from bindscope.tables.flags import flag_list, has_flag, unusable
from bindscope.tables.numbers import at_least, number, percent
from bindscope.tables.quoted import TableRow

_STUDY = "binding_information"
NOTICEABLE_BITS = 0.1
LABELS = ("dataset", "model", "layer", "tokens", "probe", "control")

_NAMES = tuple(Column(label, label, "label") for label in LABELS)


def _bits(heading: str, source: str, explanation: str) -> Column:
    return Column(heading, source, "number", explanation)


def _bound(name: str, source: str, information: str) -> Column:
    words = f"lower bound on {information}"
    return Column(f"{name}, bound", source, "number", words, interval=True, bound=True)


def _formula(heading: str, source: str, explanation: str) -> Column:
    words = f"{explanation}: the formula of the binding problem paper, of the probe of this row"
    return Column(f"{heading}, {FORMULA}", source, "number", words, interval=True)


NUMBERS = (
    _bits("H(O)", "h_object_bits", "entropy of the objects"),
    _bits("loss O", "loss_object_bits", "test loss of the probe by the binding problem paper"),
    _bits("loss O, z = 0", "null_loss_object_bits", "the same with a constant representation"),
    _formula("B_O", "binding_bits", "H(O) minus the loss of O"),
    _bound("B_O", "binding_lower_bound_bits", "I(O;Z)"),
    _bits("H(O|F)", "h_object_given_feature_bits", "entropy of the objects given the features"),
    _formula(
        "B*", "conditional_binding_bits", "H(O|F) minus the difference of the losses of O and F"
    ),
    _bound("B*", "conditional_binding_lower_bound_bits", "I(O;Z|F): counts and pairing together"),
    _bound("features", "feature_lower_bound_bits", "I(F;Z)"),
    _bound("counts", "count_lower_bound_bits", "I(M;Z|F)"),
    _bits("H(O|M)", "h_object_given_counts_bits", "entropy of the objects given the counts"),
    _bound("pairing", "pairing_lower_bound_bits", "I(O;Z|M)"),
    _bits("truth B_O", "truth_bits", "I(O;Z) of a known-answer encoder, in closed form"),
    _bits(
        "truth B*", "truth_conditional_bits", "I(O;Z|F) of a known-answer encoder, in closed form"
    ),
)
COMPARED = (
    Column("dataset", "our_dataset"),
    Column("model", "our_model"),
    Column("tokens", "tokens"),
    Column("probe", "our_probe"),
    Column("quantity", "quantity"),
    Column("paper", "value", "number", format="g"),
    Column("here", "ours", "number", format=".3g"),
    Column("seeds", "n_seeds", "number", format=".0f"),
    Column("protocol", "protocol"),
    Column("source", "where"),
)
TRENDS = (
    *(Column(name, name) for name in ("study", "dataset", "model", "axis")),
    Column("at", "axis_value"),
    Column("quantity", "quantity"),
    Column("value", "value", "number", format="g"),
    Column("note", "note"),
    Column("source", "where"),
)


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Say what was found about binding information; see `core.interfaces.Findings`."""
    table, config = tables["binding_information"], inputs.content
    about = gather(table, config)
    introduction = inputs.resources["binding_information_introduction"]
    return Chapter(
        lead=sentences.lead(about),
        headline=("parts",),
        caveats=sentences.caveats(about),
        introduction=Markup(Path(introduction).read_text(encoding="utf-8")),
        warnings=tuple(warnings(table)),
        key_numbers=tuple(sentences.key_numbers(about)),
        findings=tuple(sentences.findings(about)),
        notes=() if about.datasets else (_UNMEASURED,),
        sections=(
            Section(
                "trust",
                "Validation",
                (
                    *calibration(table),
                    *controls(table),
                    *expected_flags(table),
                ),
                figures=("calibration",),
            ),
            claims_section(about.judgments, read_rates(inputs.resources["claims"]), _STUDY),
            _published(table, inputs, sentences.counts_reach(about)),
            Section("rows", "All measurements", _ABOUT_ROWS, tables=(_rows(table),)),
        ),
        provenance=(_keys(table),) if len(table) else (),
    )


_UNMEASURED = (
    "No model other than planted encoders was measured. Section Validation compares their values "
    "with the truth."
)
_ABOUT_ROWS = (
    "Bits per scene on the test split, with 95 % intervals over test scenes. A heading sorts the "
    "rows. results/tables/binding_information.parquet has all columns; docs/tables.md explains "
    "them.",
)


def _published(table: pd.DataFrame, inputs: Inputs, here: Sequence[str]) -> Section:
    """Put the papers' numbers beside those of the run, or say why that cannot be done.

    `here` says what a histogram reaches on the run's own scenes.
    """
    published, trends = read_papers_table(inputs), read_trends(inputs)
    sides = {model["name"]: model.get("input_px") for model in inputs.content.get("models", ())}
    compared = beside(table, published, sides)
    compared["protocol"] = compared["same"].map({True: "same", False: "other"})
    histogram = _histogram_words(read_histograms(inputs), read_color_cues(inputs))
    others = page_table("Further published values", TRENDS, _sourced(trends, "source"), folded=True)
    tables = [others]
    text = "No value of this run is comparable with a published one."
    if len(compared):
        title = "Published values and values of this run"
        tables.insert(0, page_table(title, COMPARED, _sourced(compared, "table")))
        text = (
            "Same dataset, model, token input and probe family as in the binding problem paper. "
            "Values of this run are means over probe seeds. The protocol is the same if the probe "
            "has `protocol: paper` and the model reads images of the paper's size. "
            "docs/tables.md explains the quantities."
        )
    return Section(
        "published",
        "Published values",
        (histogram, *here, text),
        figures=("histogram",),
        tables=tuple(tables),
    )


def _histogram_words(histograms: pd.DataFrame, cues: pd.DataFrame) -> str:
    """Say what counts, and colors without place, reach on the paper's data sets."""
    counted = histograms[histograms["share"].notna()].to_dict("records")
    each = [f"{percent(row['share'])} on {row['dataset']}" for row in counted]
    exact = cues[cues["probe"] == "exact"].to_dict("records")
    colors = [f"{number(row['share'], '.1%')} on {row['dataset']}" for row in exact]
    return (
        "B*, the binding information of the binding problem paper, is counts and pairing together. "
        "A representation of the counts alone, without the pairing, reaches exactly beta* = "
        f"{listed(each)}. The number of pixels of each color reaches "
        f"{listed(colors)}, because shapes differ in area. A smaller beta* is no "
        "evidence of pairing."
    )


def _sourced(published: pd.DataFrame, place: str) -> pd.DataFrame:
    return published.assign(where=published["paper"] + ", " + published[place])


def _rows(table: pd.DataFrame) -> PageTable:
    """List all rows, and of the columns those that have numbers."""
    notes = [
        ", ".join(([status] if status != "ok" else []) + flag_list(flags))
        for status, flags in zip(table["status"], table["flags"], strict=True)
    ]
    columns = (
        *_NAMES,
        Column("seed", "seed", "number", format="d"),
        *(column for column in NUMBERS if column.source in table and table[column.source].count()),
        Column("warnings", "notes"),
    )
    return page_table("All measurements", columns, table.assign(notes=notes))


def _keys(table: pd.DataFrame) -> PageTable:
    """List the keys of every fit, with its seeds on one line."""
    grouped = table.groupby([*LABELS, "spec_key", "code_key"], sort=False)["seed"]
    seeds = grouped.apply(lambda values: ", ".join(map(str, sorted(values))))
    rows = seeds.rename("seeds").reset_index()
    rows["spec_key"] = rows["spec_key"].str[:8]
    columns = (
        *(Column(label, label) for label in LABELS),
        Column("seeds", "seeds"),
        Column("spec key", "spec_key", "code"),
        Column("code key", "code_key", "code"),
    )
    return page_table(f"Keys of the {len(rows)} fits", columns, rows, folded=True)


# --- Validation: known answers, controls, rows that carry a warning ------------------------------


def calibration(table: pd.DataFrame) -> list[str]:
    """Say how the estimates compare with the truth of known-answer encoders."""
    rows = measured(table, "known-answer")
    rows = rows[rows[WHOLE.truth].notna() | rows[BEYOND.truth].notna()]
    if not len(rows):
        return []
    above = has_flag(rows, "above_truth")
    worst = max(float((rows[q.value] - rows[q.truth]).max()) for q in BOUNDS)
    excess = (rows[PAPER_BEYOND.value] - rows[BEYOND.truth]).dropna()
    high = int((excess > NOTICEABLE_BITS).sum())
    encoders = rows["model"].nunique()
    text = (
        f"{len(rows)} fits are of {encoders} planted encoder{'s' if encoders > 1 else ''} whose "
        "binding information is known exactly; they use the same steps as any other model. "
    )
    if above.any():
        text += (
            f"In {int(above.sum())} of them a lower bound is above the truth by more than "
            f"{STANDARD_ERRORS:g} standard errors; the warnings list them (above_truth)."
        )
    else:
        text += (
            f"No lower bound is above the truth by more than {STANDARD_ERRORS:g} standard errors; "
            f"the largest difference is {number(worst)} bits."
        )
    paragraphs = [text]
    if len(excess):
        most, least = (number(float(end)) for end in (excess.max(), -excess.min()))
        paragraphs.append(
            "The formula of the binding problem paper for B* is above the truth by more than "
            f"{NOTICEABLE_BITS} bits in {high} of {len(excess)} fits, by {most} bits at most, and "
            f"below it by {least} bits at most."
        )
    return paragraphs


def warnings(table: pd.DataFrame) -> list[Warned]:
    """List rows that failed, and each flag with the rows that carry it unexpectedly."""
    unexpected = table[~_is_expected(table)]
    parts = {
        f"{status}: {meaning}": table[table["status"] == status]
        for status, meaning in STATUSES.items()
        if status != "ok"
    }
    parts |= {f"{f}: {words}": unexpected[has_flag(unexpected, f)] for f, words in FLAGS.items()}
    return [
        Warned(what, tuple(map(_row_name, rows.to_dict("records"))))
        for what, rows in parts.items()
        if len(rows)
    ]


def _is_expected(table: pd.DataFrame) -> pd.Series[bool]:
    """Return which rows are controls or planted, and carry no flag that questions the method.

    Of baselines, those that decode nothing of a part.
    """
    expected = (table["control"] != "none") | (table["model_kind"] == "known-answer")
    expected |= (table["model_kind"] == "baseline") & (table["flags"] == "prior")
    return expected & ~has_flag(table, "above_truth")


def expected_flags(table: pd.DataFrame) -> list[str]:
    """Count the flagged rows of controls, planted encoders and baselines, which are no alarm."""
    n = int((_is_expected(table) & (table["flags"] != "")).sum())
    rows, are = ("row", "is") if n == 1 else ("rows", "are")
    text = f"{n} {rows} of controls, planted encoders or baselines {are} flagged, as expected."
    return [text] if n else []


def controls(table: pd.DataFrame) -> list[str]:
    """Say what the shuffled-label controls gave; fits that may not be quoted are counted only."""
    rows = table[(table["control"] == "shuffled_labels") & (table["status"] != "failed")]
    rows = rows[rows["probe"] != BEST]
    if not len(rows):
        return []
    text = (
        f"{len(rows)} control fit{'s use' if len(rows) > 1 else ' uses'} labels of other scenes, "
        "chosen at random: the representations encode nothing about them."
    )
    quoted = rows[rows["flags"].map(unusable).map(len) == 0]
    if len(quoted) < len(rows):
        text += f" Flagged, as expected: {len(rows) - len(quoted)} of them."
    if len(quoted):
        largest = float(quoted[WHOLE.value].max())
        text += f" The largest lower bound on B_O is {at_least(largest)} bits."
    return [text]


def _row_name(row: TableRow) -> str:
    """Name a row by its labels, with the reason why numbers of it are missing."""
    control = "" if row["control"] == "none" else f", {row['control']}"
    reason = "" if row["status"] == "ok" else f": {row['reason']}"
    return (
        f"{row['dataset']}, {row['model']}, layer {row['layer']}, {row['tokens']}, "
        f"{row['probe']}, seed {row['seed']}{control}{reason}"
    )
