"""What the report says of what can be read and what is used."""

from __future__ import annotations

import pandas as pd

from bindscope.report.chapter import Chapter, Column, Finding, Section, page_table
from bindscope.studies.together.claims import ANSWERS, CHANGED, READABLE
from bindscope.studies.together.use import OPEN, UNTESTED, VERDICTS

_INTRODUCTION = (
    "Is what can be read also used? Study one reads, layer by layer, how many bits of what goes "
    "with what the image tokens of a toy vision-language model hold; the study of binding IDs "
    "replaces the same tokens, from that layer on, by those of the same scene whose things have "
    "each other's colours, and asks again. Read: the lower bound is significantly above "
    f"{READABLE:.0%} of all that there is. Used: significantly more than {CHANGED:.0%} of the "
    "answers go over to the other thing's item (Holm's correction over all layers and toys). "
    "Toys were trained here on this task alone; "
    "nothing of this is about models that people use."
)
_HOW = (
    "Bits are lower bounds: a probe that finds few has not shown that there are few. Image tokens "
    "are computed before any text, so they do not depend on it; after the last decoder layer no "
    "attention reads them, whatever they hold. What is replaced is what is read: the pairs of "
    "colour and shape, while all colours, shapes and places stay. A toy that answers "
    f"{ANSWERS:.0%} of the questions or fewer cannot show what it does not use."
)
_COLUMNS = (
    Column("model", "model", "label", "a toy"),
    Column("image tokens", "place", "label"),
    Column("bits >=", "patches_pairing_bits", "number",
           "lower bound on what goes with what", interval=True),
    Column("share", "patches_pairing_ratio", "number", "of H(O|M), all that there is", ".2f"),
    Column("used from here on", "anew_from", "number", "answers that change, by text or question",
           "+.2f", True),
    Column("by the question", "frozen_from", "number", "answers that change, context frozen",
           "+.2f", True),
    Column("here alone", "frozen_at", "number", "answers that change when this layer's input "
           "alone is replaced, context frozen", "+.2f", True),
    Column("verdict", "verdict", "label"),
)  # fmt: skip


def use_of(table: pd.DataFrame) -> Chapter:
    """Say what can be read and is used, a sentence per toy."""
    return Chapter(
        headline=("pairing_use",),
        findings=(Finding(_INTRODUCTION, tuple(_sentences(table))),),
        notes=(_HOW,),
        sections=(
            Section(
                "use", "Can it be read, is it used?",
                tables=(page_table("Read and used, layer by layer", _COLUMNS, table),),
            ),
        ),
    )  # fmt: skip


def _sentences(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Say of every toy where which verdict is right."""
    found = []
    for (_, model, suite, task), part in table.groupby(
        ["dataset", "model", "suite", "task"], sort=False
    ):
        words = []
        for one in dict.fromkeys([*VERDICTS.values(), OPEN, UNTESTED]):
            places = list(part.sort_values("layer")["place"][part["verdict"] == one])
            if places:
                words.append(f"{one}: {', '.join(places)}")
        several = table["suite"].nunique() > 1 or table["task"].nunique() > 1
        name = f"{model} (toy{f', {suite}, {task}' if several else ''})"
        found.append((name, f"{'; '.join(words)}."))
    return found
