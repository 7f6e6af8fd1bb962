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
from bindscope.report.claims import claims_section, read_rates
from bindscope.statistics.claims import Judgment, judge
from bindscope.statistics.rank_correlation import FEWEST_GROUPS
from bindscope.studies.together.claims import CLAIMS, Judged, judged, use_effects
from bindscope.studies.together.names import TOKENS
from bindscope.studies.together.use_findings import use_of
from bindscope.studies.together.views import left_out, over_groups, points
from bindscope.studies.together.words import correlation, counted, in_short

_INTRODUCTION = (
    "Two studies measure the same models on the same scenes. One bounds how many bits of the "
    "pairing (which feature belongs to which) a linear probe decodes from [CLS], beyond which "
    "features occur and how often. The other measures how often a quadratic probe classifies "
    "correctly whether two patches belong to one object (IsSameObject), and its accuracy gain over "
    "a probe of the patches' positions."
)
_HOW = (
    "[CLS] is read after the last block, patches at the layer that the validation split prefers. "
    "Bits are lower bounds, so the correlation is one of what a probe decodes. It is Spearman's, "
    "of the means of groups (models that differ only in their training seed are one group), and "
    "partial, given the depth of [CLS], where depths differ. Its 95 % interval resamples groups, "
    f"and models within groups; with fewer than {FEWEST_GROUPS} groups the claim is not testable. "
    "Recipes that share what could explain both numbers belong in one group. A correlation does "
    "not show that one causes the other."
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
    use, verdicts = Chapter(), []
    if "pairing_use" in tables:
        use = use_of(tables["pairing_use"])
        verdicts = judge(CLAIMS, use_effects(tables["pairing_use"]))
    if "together" not in tables:
        return _with_claims(use, verdicts, inputs)
    found = _judged(tables["together"], inputs)
    own = _correlated(tables["together"], found)
    verdicts = [*(one.judgment for one in found), *verdicts]
    both = replace(
        own,
        headline=(*own.headline, *use.headline),
        findings=(*own.findings, *use.findings),
        notes=(*own.notes, *use.notes),
        sections=(*own.sections, *use.sections),
    )
    return _with_claims(both, verdicts, inputs)


def _with_claims(made: Chapter, verdicts: list[Judgment], inputs: Inputs) -> Chapter:
    """Add the section with all verdicts."""
    section = claims_section(verdicts, read_rates(inputs.resources["claims"]), "together")
    return replace(made, sections=(section, *made.sections))


def _judged(table: pd.DataFrame, inputs: Inputs) -> list[Judged]:
    section = inputs.content["studies"]["together"]
    return judged(points(table), section["bootstrap_samples"], section["bootstrap_seed"])


def _correlated(table: pd.DataFrame, verdicts: list[Judged]) -> Chapter:
    """Say whether bits in [CLS] follow the leads of patches."""
    shown = points(table)
    groups = page_table("Groups", _GROUPS, _in_percent(over_groups(shown)))
    rows = page_table("All joined rows", _ROWS, _in_percent(table), folded=True)
    return Chapter(
        lead=tuple(in_words(found) for found in verdicts),
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
    claim, _, reason = found.judgment.claim.sentence, found.dataset, found.judgment.reason
    why = f" ({reason})" if reason else ""
    return (
        f"{claim} On {found.dataset}: {found.judgment.verdict}{why}, "
        f"{in_short(found).rpartition(':')[0]}."
    )


def _key_number(found: Judged) -> KeyNumber:
    of = f"{counted(found.n_models, 'model')} in {counted(found.n_groups, 'group')}"
    return KeyNumber(
        correlation(found),
        "rank correlation",
        f"between bits of pairing decoded from [CLS] and IsSameObject, of {of} on {found.dataset}",
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
