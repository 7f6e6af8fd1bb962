"""What the report says of several studies together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
from bindscope.studies.together.claims import (
    ANSWERS,
    CHANGED,
    CLAIMS,
    READABLE,
    correlation,
    groups_of,
    judged,
    use_effects,
)
from bindscope.studies.together.tables import OPEN, UNTESTED, VERDICTS
from bindscope.studies.together.views import left_out, over_groups, points
from bindscope.tables.numbers import at_least, percent

_INTRODUCTION = (
    "Two studies measure the same models on the same scenes. One bounds how many bits of the "
    "pairing (which feature belongs to which) probes decode from [CLS], beyond which "
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
    "Recipes that share what could explain both numbers belong in one group. Models trained to "
    "predict the objects linearly from [CLS] are positive controls of the bits. A correlation does "
    "not show that one causes the other."
)


def _percent(heading: str, source: str, explanation: str) -> Column:
    return Column(f"{heading}, %", source, "number", explanation, ".1f", True)


def _bound(share: float) -> str:
    """Write a lower bound that is a share in percent, rounded down."""
    return f"{at_least(100 * share, 0)}\u00a0%"


_CAVEATS = (
    "A correlation over model groups does not show that one value causes the other.",
    "Both values depend on the probes: bits are lower bounds.",
)
_USE_CAVEATS = (
    "Toys are trained on one task: the results do not extend to pretrained models.",
    "A small bound does not show that a token holds little.",
)
_GROUPS = (
    Column("dataset", "dataset", "label"),
    Column("models", "group", "label"),
    Column("networks", "n_models", "number", "that differ in their training seed", "d"),
    Column("[CLS] of layer", "cls_layer"),
    Column(
        "pairing, bits ≥",
        "cls_pairing_bits",
        "number",
        "lower bound on I(O;Z|M)",
        interval=True,
        bound=True,
    ),
    Column("share ≥", "cls_pairing_ratio", "number", "of the entropy H(O|M)", _bound),
    Column("patches of layers", "patch_layer"),
    _percent("pairs classified correctly", "same_object_accuracy", "by the quadratic probe"),
    Column(
        "gain over positions, points",
        "position_lead",
        "number",
        "percentage points of accuracy",
        "+.1f",
        True,
    ),
)
_JOINED = (
    "lead",
    "headline",
    "caveats",
    "warnings",
    "key_numbers",
    "findings",
    "notes",
    "sections",
)


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Say what several studies found together; see `core.interfaces.Findings`."""
    parts: list[Chapter] = []
    rates = read_rates(inputs.resources["claims"])
    if "together" in tables:
        parts.append(_correlated(tables["together"], rates))
    if "pairing_use" in tables:
        parts.append(_use(tables["pairing_use"], rates))
    both: dict[str, Any] = {
        name: tuple(item for part in parts for item in getattr(part, name)) for name in _JOINED
    }
    return Chapter(caveats=both.pop("caveats")[:3], **both)


def _correlated(table: pd.DataFrame, rates: pd.DataFrame) -> Chapter:
    """Say whether bits in [CLS] follow the leads of patches."""
    model_points = points(table)
    verdicts = judged(model_points)
    groups = page_table("Groups", _GROUPS, _in_percent(over_groups(model_points)))
    return Chapter(
        lead=tuple(in_words(judgment) for judgment in verdicts),
        headline=("together",),
        caveats=_CAVEATS,
        warnings=tuple(_warnings(table)),
        key_numbers=tuple(_key_number(judgment) for judgment in verdicts),
        findings=(Finding(_INTRODUCTION),),
        notes=(_HOW,),
        sections=(
            claims_section(verdicts, rates, "together"),
            Section("groups", "Group by group", tables=(groups,) if len(model_points) else ()),
        ),
    )


def in_words(judgment: Judgment) -> str:
    """Say the verdict on one dataset in a sentence."""
    why = f" ({judgment.reason})" if judgment.reason else ""
    return (
        f"{judgment.claim.sentence} On {judgment.effect.where}: {judgment.verdict}{why}, rank "
        f"correlation {correlation(judgment)}, {groups_of(judgment)}."
    )


def _key_number(judgment: Judgment) -> KeyNumber:
    return KeyNumber(
        correlation(judgment),
        "rank correlation",
        "between bits of pairing decoded from [CLS] and IsSameObject, of "
        f"{groups_of(judgment)} on {judgment.effect.where}",
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


# --- Decoded and used ---------------------------------------------------------------------------

_USE = (
    "Does a model use the pairing that a probe decodes? The binding information study decodes the "
    "pairing from the image tokens of a toy vision-language model, layer by layer. The binding ID "
    "study replaces the same tokens, from that layer on, by those of the scene whose objects swap "
    "colors, and repeats the question. Decoded: the lower bound is significantly above "
    f"{percent(READABLE)} of the entropy. Used: significantly more than {percent(CHANGED)} of the "
    "answers change to the other object's item (Holm's correction over all layers and toys). Toys "
    "are trained on this task only; the results do not extend to other models."
)
_HOW_USED = (
    "Bits are lower bounds: a small bound does not show that a token holds little. Image tokens "
    "are computed before any text and do not depend on it; after the last decoder layer no "
    "attention reads them. The replacement changes the pairs of color and shape only; colors, "
    "shapes and positions stay. The test is not possible for a toy that answers "
    f"{percent(ANSWERS)} of the questions or fewer correctly."
)
_USE_COLUMNS = (
    Column("model", "model", "label", "a toy"),
    Column("image tokens", "place", "label"),
    Column(
        "bits ≥",
        "patches_pairing_bits",
        "number",
        "lower bound on the pairing, I(O;Z|M)",
        interval=True,
        bound=True,
    ),
    Column("share ≥", "patches_pairing_ratio", "number", "of the entropy H(O|M)", _bound),
    Column(
        "used from this layer on",
        "anew_from",
        "number",
        "answers that change, by text or question",
        ".0%",
        True,
    ),
    Column(
        "by the question",
        "frozen_from",
        "number",
        "answers that change, context frozen",
        ".0%",
        True,
    ),
    Column(
        "here alone",
        "frozen_at",
        "number",
        "answers that change when this layer's input alone is replaced, context frozen",
        ".0%",
        True,
    ),
    Column("verdict", "verdict", "label"),
)


def _use(table: pd.DataFrame, rates: pd.DataFrame) -> Chapter:
    """Say what can be read and is used, a sentence per toy.

    Its claims are judged by themselves, as the verdicts in the table are.
    """
    claims = claims_section(judge(CLAIMS, use_effects(table)), rates, "together")
    return Chapter(
        headline=("pairing_use",),
        caveats=_USE_CAVEATS,
        findings=(Finding(_USE, tuple(_use_sentences(table))),),
        notes=(_HOW_USED,),
        sections=(
            replace(claims, name="claims-use", title=f"{claims.title}: use"),
            Section(
                "use",
                "Decoded and used pairing",
                tables=(page_table("Decoded and used pairing by layer", _USE_COLUMNS, table),),
            ),
        ),
    )


def _use_sentences(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Say of every toy where which verdict is right."""
    sentences = []
    for (_, model, suite, task), part in table.groupby(
        ["dataset", "model", "suite", "task"], sort=False
    ):
        words = []
        for verdict in dict.fromkeys([*VERDICTS.values(), OPEN, UNTESTED]):
            places = list(part.sort_values("layer")["place"][part["verdict"] == verdict])
            if places:
                words.append(f"{verdict}: {', '.join(places)}")
        several = table["suite"].nunique() > 1 or table["task"].nunique() > 1
        name = f"{model} (toy{f', {suite}, {task}' if several else ''})"
        sentences.append((name, f"{'; '.join(words)}."))
    return sentences
