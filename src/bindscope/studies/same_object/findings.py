"""What the report says about the study: verdicts on the paper's claims, numbers, caveats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.report.chapter import (
    Chapter,
    Column,
    Finding,
    KeyNumber,
    PageTable,
    Section,
    Warned,
    number,
    page_table,
    points_by_claim,
)
from bindscope.studies.same_object.comparisons import QUADRATIC, Judged, judged
from bindscope.studies.same_object.effects_findings import effects_findings, effects_sections
from bindscope.studies.same_object.geometry.findings import geometry_section
from bindscope.studies.same_object.published import read_published
from bindscope.studies.same_object.views import (
    at_best_layers,
    fitted,
    of_positions,
    with_groups,
)

_LABELS = ("dataset", "model", "layer", "probe", "control")


def _percent(heading: str, source: str, words: str, *, interval: bool = False) -> Column:
    return Column(heading, source, "number", words, ".1%", interval)


NUMBERS = (
    _percent("accuracy", "accuracy", "share of test pairs that are told right", interval=True),
    _percent("balanced", "balanced_accuracy", "mean over same and different pairs", interval=True),
    Column("AUC", "auc", "number", "area under the ROC curve", ".3f", interval=True),
    Column("loss", "loss_bits", "number", "cross-entropy, bits per pair", ".3f", interval=True),
    Column("ECE", "ece", "number", "expected calibration error", ".3f"),
    _percent("quadratic ahead", "quadratic_lead", "accuracy of the quadratic probe minus this "
             "one's, on the same pairs", interval=True),
    _percent("with positions ahead", "quadratic_position_lead", "accuracy of the quadratic probe "
             "with positions minus this one's, on the same pairs", interval=True),
    _percent("majority", "majority_accuracy", "of the commoner answer"),
    _percent("majority per image", "image_majority_accuracy", "of each image's commoner answer"),
    _percent("knowing the classes", "class_oracle_accuracy", "same class means same object"),
)  # fmt: skip
VERDICTS = (
    Column("dataset", "dataset", "label"),
    Column("model", "group", "label"),
    Column("claim", "claim"),
    Column("layer", "layer"),
    Column("ahead, points", "points", "number", "percentage points of accuracy", "z.2f", True),
    Column("models", "n_models", "number", "networks that differ in their training seed", "d"),
    Column("verdict", "verdict", "label"),
)
_INTRODUCTION = (
    "Two patches of an image are shown to a probe, which says whether they are of the same object "
    "(IsSameObject, arXiv 2510.24709). All probes and models of a patch grid are asked about the "
    "same pairs. Accuracy alone says little: most pairs are of two objects, patches that lie side "
    "by side are mostly of one, and two objects of one class can be told apart only by what is "
    "not their class. So every number stands beside the majority, a probe that reads positions "
    "alone, and one that reads class and position."
)


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Say what was found; see `core.interfaces.Findings`."""
    section = (inputs.content.get("studies") or {}).get("same_object") or {}
    table = with_groups(tables["same_object"], section.get("groups") or ())
    claims = judged(table)
    return Chapter(
        lead=tuple(_lead(table, claims)),
        headline=("same_object_layers",),
        warnings=tuple(_warnings(table)),
        key_numbers=tuple(_key_numbers(table)),
        findings=(
            Finding(_INTRODUCTION), *_verdicts_in_words(claims), *effects_findings(tables)
        ),
        notes=(*_notes(table), *_left_out(tables.get("same_object_skipped"))),
        sections=(
            Section("claims", "The paper's claims, one by one", _ABOUT_CLAIMS,
                    tables=tuple(_claims(claims))),
            Section("models", "Model by model", (), figures=("same_object_models",),
                    tables=(_published(inputs),)),
            *geometry_section(tables, list(section.get("groups") or ())),
            *effects_sections(tables),
            Section("pairs", "All measurements", (), tables=(_rows(table),)),
        ),
    )  # fmt: skip


_ABOUT_CLAIMS = (
    "The effect is the accuracy of the quadratic probe minus the other one's on the same pairs, at "
    "the layer that the validation split prefers for the quadratic probe, in percentage points; "
    "where the claim is about the quadratic probe with positions, that probe's accuracy at the "
    "layer that validation prefers for it. The paper makes no such claim: it is its fair question "
    "to class and position. "
    "Intervals are over training seeds where there are several models, else over test images; "
    "where neither is there, the verdict is `undecided`.",
)


def _best(table: pd.DataFrame) -> pd.DataFrame:
    """Return the quadratic probe of models at its best layers; of planted tokens without any."""
    rows = at_best_layers(table)
    rows = rows[rows["family"] == QUADRATIC]
    of_models = rows[rows["n_layers"] > 0]
    return of_models if len(of_models) else rows


def _lead(table: pd.DataFrame, claims: list[Judged]) -> list[str]:
    best = _best(table)
    if not len(best):
        return []
    top = best.sort_values("accuracy", kind="stable").iloc[-1]
    text = (
        f"Whether two patches are of one object, a quadratic probe tells in "
        f"{number(100 * top['accuracy'], '.1f')} % of the pairs at best ({top['group']} on "
        f"{top['dataset']}, layer {top['layer']}); always saying the commoner answer is right in "
        f"{number(100 * top['majority_accuracy'], '.1f')} %."
    )
    for words, who in (("the quadratic probe does", "It"),
                       ("with positions does", "With the positions beside it, it")):  # fmt: skip
        ahead = [c for c in claims if "class and position" in c.claim and words in c.claim]
        if ahead:
            held = sum(c.verdict == "holds" for c in ahead)
            text += (
                f" {who} does better than a probe of class and position in {held} of "
                f"{len(ahead)} cases."
            )
    return [text]


def _key_numbers(table: pd.DataFrame) -> list[KeyNumber]:
    best = _best(table)
    if not len(best):
        return []
    top = best.sort_values("accuracy", kind="stable").iloc[-1]
    of = f"{top['group']} on {top['dataset']}"
    found = [
        KeyNumber(number(100 * top["accuracy"], ".1f"), "% of pairs",
                  f"told right by the quadratic probe of {of}, layer {top['layer']}"),
        KeyNumber(number(100 * top["majority_accuracy"], ".1f"), "% of pairs",
                  "told right by the commoner answer"),
    ]  # fmt: skip
    positions = of_positions(table)
    here = positions[(positions[["dataset", "grid"]] == top[["dataset", "grid"]]).all(axis=1)]
    if len(here):
        found.append(
            KeyNumber(
                number(100 * here["accuracy"].iloc[0], ".1f"),
                "% of pairs",
                "told right from the places of the two patches alone",
            )
        )
    return found


def _verdicts_in_words(claims: list[Judged]) -> list[Finding]:
    points = points_by_claim(claims, _in_short)
    return [Finding("What the paper claims, and what these runs show:", points)] if points else []


def _in_short(c: Judged) -> str:
    low, high = number(c.low, "z.1f"), number(c.high, "z.1f")
    ends = f" ({low} to {high})" if low and high else ""
    return f"{c.group} on {c.dataset} {number(c.points, 'z.1f')} points{ends}"


def _claims(claims: list[Judged]) -> list[PageTable]:
    if not claims:
        return []
    frame = pd.DataFrame([c._asdict() for c in claims])
    frame = frame.rename(columns={"low": "points_low", "high": "points_high"})
    return [page_table("Verdicts", VERDICTS, frame)]


def _notes(table: pd.DataFrame) -> list[str]:
    rows = fitted(table)
    notes = []
    oracle = rows.groupby("dataset")["class_oracle_accuracy"].mean()
    told = sorted(str(name) for name in oracle.index[oracle > 1 - 1e-9])
    if told:
        notes.append(
            f"On {', '.join(told)} no scene has two objects of one class: there, knowing the "
            "classes is knowing the objects, and nothing beyond the class can be shown."
        )
    if len(rows):
        notes.append(
            "After the last block, patch tokens of a model whose training reads [CLS] alone are "
            "not trained; its interior layers are what counts."
        )
    return notes


def _left_out(skipped: pd.DataFrame | None) -> list[str]:
    """Count the images that take no part, by dataset and reason."""
    if skipped is None or not len(skipped):
        return []
    reasons = skipped.groupby(["dataset", "reason"], sort=True)["image"].nunique().reset_index()
    counted = [
        f"{row['dataset']}, {row['image']} images: {row['reason']}"
        for row in reasons.to_dict("records")
    ]
    return [
        "Images that take no part (each is listed in the table same_object_skipped): "
        f"{'; '.join(counted)}."
    ]


def _warnings(table: pd.DataFrame) -> list[Warned]:
    flagged = table[table["flags"].str.contains("not_converged")]
    named = tuple(
        " ".join(str(row[name]) for name in _LABELS) for row in flagged.to_dict("records")
    )
    words = "the fit had not ended: more steps would still lower its loss"
    return [Warned(words, named)] if named else []


def _published(inputs: Inputs) -> PageTable:
    published = read_published(inputs)
    columns = (
        Column("model", "model"),
        Column("version", "version", "label"),
        Column("quantity", "quantity", "label"),
        Column("value", "value", "number", format="g"),
        Column("unit", "unit"),
        Column("source", "source"),
        Column("note", "note"),
    )
    return page_table("The paper's table, in both versions", columns, published, folded=True)


def _rows(table: pd.DataFrame) -> PageTable:
    shown: list[Any] = [Column(name, name, "label") for name in _LABELS]
    shown += [c for c in NUMBERS if c.source in table and table[c.source].notna().any()]
    shown.append(Column("flags", "flags"))
    return page_table("All measurements", shown, table, folded=True)
