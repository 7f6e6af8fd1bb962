"""What the report says of several studies together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.report.chapter import (
    Chapter,
    Column,
    Finding,
    KeyNumber,
    Section,
    Warned,
    page_table,
)
from bindscope.statistics.rank_correlation import FEWEST_GROUPS
from bindscope.studies.together.names import TOKENS
from bindscope.studies.together.use_findings import use_of
from bindscope.studies.together.views import Judged, judged, left_out, over_groups, points
from bindscope.studies.together.words import CLAIM, correlation, counted, in_short

_INTRODUCTION = (
    "Two studies look at the same models on the same scenes. One asks how many bits of what goes "
    "with what a probe reads out of [CLS], beyond what occurs and how many there are of each; the "
    "other whether two patches are told to be of one object or of two (IsSameObject), and by how "
    "much more often than from the places of the patches alone."
)
_HOW = (
    "[CLS] is read after the last block, patches at the layer that the validation split prefers. "
    "Bits are lower bounds: a linear probe that finds few has not shown that there are few. The "
    "correlation is Spearman's, of the means of groups: models that differ in their training seed "
    "alone are one group. Its 95 % interval resamples groups, and models within groups; of fewer "
    f"than {FEWEST_GROUPS} groups there is none, and the verdict is `undecided`. A correlation of "
    "models does not say that one causes the other."
)


def _percent(heading: str, source: str, explanation: str) -> Column:
    return Column(f"{heading}, %", source, "number", explanation, "z.1f", True)


_GROUPS = (
    Column("dataset", "dataset", "label"),
    Column("models", "group", "label"),
    Column("networks", "n_models", "number", "that differ in their training seed", "d"),
    Column("[CLS] of layer", "cls_layer"),
    Column("what goes with what, bits >=", "cls_pairing_bits", "number",
           "lower bound on I(O;Z|M)", interval=True),
    Column("share", "cls_pairing_ratio", "number", "of H(O|M), all that there is", ".3f"),
    Column("patches of layers", "patch_layer"),
    _percent("pairs told right", "same_object_accuracy", "by the quadratic probe"),
    _percent("ahead of positions", "position_lead", "percentage points of accuracy"),
    _percent("ahead of class and position", "class_position_lead", "percentage points"),
)  # fmt: skip
_ROWS = (
    *(Column(name, name, "label") for name in ("dataset", "model", "group", "layer")),
    *(
        column
        for name, shown in TOKENS.items()
        for column in (
            Column(f"{shown}, bits >=", f"{name}_pairing_bits", "number",
                   "lower bound on what goes with what", interval=True),
            Column(f"{shown}: status", f"{name}_status"),
        )
    ),
    _percent("pairs told right", "same_object_accuracy", "by the quadratic probe"),
    _percent("ahead of positions", "position_lead", "percentage points of accuracy"),
    _percent("ahead of class and position", "class_position_lead", "percentage points"),
    Column("IsSameObject: status", "same_object_status"),
)  # fmt: skip


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Say what several studies found together; see `core.interfaces.Findings`."""
    use = use_of(tables["pairing_use"]) if "pairing_use" in tables else Chapter()
    if "together" not in tables:
        return use
    own = _correlated(tables["together"], inputs)
    return replace(
        own,
        headline=(*own.headline, *use.headline),
        findings=(*own.findings, *use.findings),
        notes=(*own.notes, *use.notes),
        sections=(*own.sections, *use.sections),
    )


def _correlated(table: pd.DataFrame, inputs: Inputs) -> Chapter:
    """Say whether models whose patches tell objects apart also bind in [CLS]."""
    section = inputs.content["studies"]["together"]
    shown = points(table)
    verdicts = judged(shown, section["bootstrap_samples"], section["bootstrap_seed"])
    groups = page_table("Groups", _GROUPS, _in_percent(over_groups(shown)))
    rows = page_table("All joined rows", _ROWS, _in_percent(table), folded=True)
    return Chapter(
        lead=tuple(f"That {CLAIM}: {in_words(found)}" for found in verdicts),
        headline=("together",),
        warnings=tuple(_warnings(table)),
        key_numbers=tuple(_key_number(found) for found in verdicts),
        findings=(Finding(_INTRODUCTION),),
        notes=(_HOW,),
        sections=(
            Section("groups", "Group by group", tables=(groups,) if len(shown) else ()),
            Section("rows", "All joined measurements", tables=(rows,)),
        ),
    )


def in_words(found: Judged) -> str:
    """Say the verdict on one dataset in a sentence."""
    few = found.n_groups < FEWEST_GROUPS
    why = f" (fewer than {FEWEST_GROUPS} groups have no interval)" if few else ""
    return f"{found.verdict} on {found.dataset}, {in_short(found).rpartition(':')[0]}{why}."


def _key_number(found: Judged) -> KeyNumber:
    of = f"{counted(found.n_models, 'model')} in {counted(found.n_groups, 'group')}"
    return KeyNumber(
        correlation(found),
        "rank correlation",
        f"between bits of what goes with what in [CLS] and IsSameObject, of {of} on "
        f"{found.dataset}",
    )


def _warnings(table: pd.DataFrame) -> list[Warned]:
    rows = tuple(f"{dataset}, {model}: {why}" for dataset, model, why in left_out(table))
    return [Warned("no point in the figure: a number of one study may not be quoted", rows)] * bool(
        rows
    )


def _in_percent(rows: pd.DataFrame) -> pd.DataFrame:
    """Turn shares of pairs, and the ends of their intervals, into percent."""
    names = [str(name) for name in rows.columns]
    shares = [name for name in names if "lead" in name or "same_object_accuracy" in name]
    return rows.assign(**{name: 100 * rows[name].astype(float) for name in shares})
