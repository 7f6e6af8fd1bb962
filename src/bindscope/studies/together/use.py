"""Table `pairing_use`: what can be read of what goes with what, beside what the model does with it.

Study one reads the pairing information of a toy's image tokens, layer by layer; the study of
binding IDs replaces the same tokens by those of the same scene paired anew, and asks again. Both
rules (`claims`) were fixed before the measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from bindscope.core.files import canonical_json, sha256
from bindscope.core.interfaces import Inputs
from bindscope.statistics.claims import judge
from bindscope.studies.together.claims import (
    AFTER_ALL,
    ANSWERS,
    CHANGED,
    CLAIMS,
    NO_ANSWERS,
    NOT_REPLACED,
    READABLE,
    use_effects,
)
from bindscope.studies.together.names import BINDING_ID, BITS, MEASURED
from bindscope.studies.together.sides import ENDS, ENTROPY, bits_columns, pairing_of
from bindscope.tables.rules import is_ratio
from bindscope.tables.schema import (
    DATASET,
    KEYS,
    MODEL,
    SLUG,
    Column,
    TableSchema,
    count,
    label,
    share,
    table_of,
)
from bindscope.tables.write import read_table

IMAGES, CONNECTED = 1, 2  # layers of a toy: its tower, and what enters decoder layer 0
# Column -> condition of the experiment, and whether it is edited from a layer on, or there alone.
EFFECTS: Final = {
    "anew_from": ("pairs anew", True),
    "anew_at": ("pairs anew", False),
    "frozen_from": ("pairs", True),
    "frozen_at": ("pairs", False),
}
_WHO = {
    "anew": "by text or question (the context after the edit is computed anew)",
    "frozen": "by the question (the context is frozen)",
}
_WHERE = {"from": "this decoder layer and those after it", "at": "this decoder layer alone"}
YES, NO, OPEN = "yes", "no", "not significant"
UNTESTED = "not testable"
NOT_SHOWN = "not shown"
VERDICTS: Final = {
    (YES, YES): "read and used",
    (YES, NO): "read, not used",
    (YES, AFTER_ALL): "read, not used",
    (YES, NOT_REPLACED): "read, not replaced here",
    (NOT_SHOWN, YES): "used, not shown to be read",
    (NOT_SHOWN, NO): "neither shown",
    (NOT_SHOWN, AFTER_ALL): "neither shown",
    (NOT_SHOWN, NOT_REPLACED): "not shown to be read",
}


def _effect(name: str) -> tuple[Column, ...]:
    context, where = name.split("_")
    meaning = (
        f"Share of answers that go over to the next thing's item when, at {_WHERE[where]}, the "
        "image tokens of all things become those of the same scene whose things have each other's "
        f"colours, minus the control's share: what goes with what is used {_WHO[context]}."
    )
    words = (meaning, "Lower end of its 95 % interval.", "Upper end of its 95 % interval.")
    return tuple(
        share(f"{name}{end}", "share of rows", text, f"`{BINDING_ID}`", null="allowed", low=-1)
        for end, text in zip(ENDS, words, strict=True)
    )


PAIRING_USE_SCHEMA = TableSchema(
    name="pairing_use",
    version=1,
    description="What goes with what in the image tokens of toy vision-language models, a row per "
    "layer: the bits that study one reads, and what answers change when nothing but the pairs is "
    "replaced. Of toys; no row says what a real model does.",
    columns=(
        DATASET,
        MODEL,
        label("suite", "Suite of the interventions.", f"`{BINDING_ID}`", pattern=SLUG),
        label("task", "Their task.", f"`{BINDING_ID}`", pattern=SLUG),
        count("layer", "", "Layer that study one read.", "config `models[].n_layers`"),
        label("toy", "The toy whose images these are.", "config `models[].source`", pattern=SLUG),
        label("place", "What this layer is: `tower`, `input of decoder layer l`, or `after the "
              "last decoder layer`.", "config `models[].source`"),
        ENTROPY,
        *bits_columns("patches", "image tokens"),
        *(column for name in EFFECTS for column in _effect(name)),
        share("answered", "share of rows", "Right answers without intervention.",
              f"`{BINDING_ID}`", null="allowed"),
        count("n_scenes", "scenes", "Test scenes of the bits.", f"`{BITS}`", null="allowed"),
        count("n_rows", "pairs of contexts", "Those that were asked about.", f"`{BINDING_ID}`",
              null="allowed"),
        label("read", f"`{YES}`: the bits are above {READABLE} of H(O|M), significantly after "
              f"Holm's correction over the table's claims; `{NOT_SHOWN}`: they are not, which does "
              "not say that they are not there; empty: no number.", f"`{BITS}`", null="allowed"),
        label("used", f"`{YES}`: `anew_from` (`frozen_from`, where nothing can be computed anew) "
              f"is significantly above {CHANGED}; `{NO}`: significantly below; "
              f"`{OPEN}`: neither; "
              f"`{AFTER_ALL}`: no layer comes after it; `{NO_ANSWERS}`: right without "
              f"intervention in {ANSWERS} of the rows or less; `{NOT_REPLACED}`: the tower's "
              "tokens, or a layer that the sweep skips.", f"`{BINDING_ID}`"),
        label("verdict", "Both together.", "`studies.together.use`"),
        *KEYS,
    ),
    key=("dataset", "model", "suite", "task", "layer"),
    rules=(is_ratio("patches_pairing_ratio", "patches_pairing_bits", "pairing_entropy_bits"),),
)  # fmt: skip


class PairingUseTable:
    """What can be read, beside what is used."""

    schema = PAIRING_USE_SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Join the tables; as content come `joins`: dataset, task, model, toy and its depth."""
        read = read_table(inputs.paths(BITS)[0])
        read = read[
            (read["probe"] == "best") & (read["control"] == "none") & (read["tokens"] == "patches")
        ]
        asked = read_table(inputs.paths(BINDING_ID)[0])
        asked = asked[(asked["experiment"] == "pairing") & (asked["query"] == "all")]
        rows = [row for join in inputs.content["joins"] for row in _joined(join, read, asked)]
        return table_of(_judged(rows), self.schema)


def _joined(
    join: Mapping[str, Any], read: pd.DataFrame, asked: pd.DataFrame
) -> list[dict[str, Any]]:
    """Return a row per suite and layer of one toy."""
    bits = read[(read["dataset"] == join["dataset"]) & (read["model"] == join["model"])]
    there = asked[(asked["task"] == join["task"]) & (asked["model"] == join["toy"])]
    found = []
    for suite, own in there.groupby("suite", sort=False):
        for layer, here in bits.groupby("layer", sort=False):
            row = {
                **{name: join[name] for name in ("dataset", "model", "task", "toy")},
                "suite": suite, "layer": int(layer), "place": place_of(int(layer), join["depth"]),
                "pairing_entropy_bits": here["h_object_given_counts_bits"].mean(),
                **pairing_of(here, "patches"), **_effects(own, int(layer)), **_keys(here, own),
                "n_scenes": here["n_test"].max(), "n_rows": own["n_rows"].max(),
            }  # fmt: skip
            found.append(row)
    return found


def place_of(layer: int, depth: int) -> str:
    """Say what a layer of a toy of `depth` layers is."""
    if layer == IMAGES:
        return "tower"
    if layer == depth:
        return "after the last decoder layer"
    return f"input of decoder layer {layer - CONNECTED}"


def _effects(rows: pd.DataFrame, layer: int) -> dict[str, Any]:
    """Return the numbers of the experiment at the decoder layer that a layer enters."""
    entered = layer - CONNECTED
    control = rows[rows["condition"] == "none"]["share"]
    found: dict[str, Any] = {"answered": float(control.iloc[0]) if len(control) else None}
    for name, (condition, onwards) in EFFECTS.items():
        own = rows[rows["condition"] == condition]
        if onwards:
            own = own[own["layers"] == (f"from {entered}" if entered else "all")]
        else:  # windows begin here
            own = own[own["layers"].str.match(rf"{entered}( to |$)")]
        if len(own):
            found |= {f"{name}{end}": float(own[f"change{end}"].iloc[0]) for end in ENDS}
    return found


def _judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to all rows of the table what is read, what is used, and both together."""
    names = [column.name for column in PAIRING_USE_SCHEMA.columns]
    effects = use_effects(pd.DataFrame(rows, columns=names))
    judgments = judge(CLAIMS, effects)
    found = []
    for row, of_read, of_used in zip(rows, judgments[::2], judgments[1::2], strict=True):
        read = YES if of_read.verdict == "holds" else NOT_SHOWN
        read_or_none = read if row["patches_status"] == MEASURED else None
        used = {"holds": YES, "does not hold": NO, "not significant": OPEN}.get(of_used.verdict)
        used = used or of_used.reason
        both = VERDICTS.get((str(read_or_none), used), UNTESTED if used == NO_ANSWERS else OPEN)
        found.append(row | {"read": read_or_none, "used": used, "verdict": both})
    return found


def _keys(*parts: pd.DataFrame) -> dict[str, str]:
    """Return hashes of the keys of all rows that a row was joined from."""
    names = ["spec_key", "code_key"]
    pairs = sorted({tuple(key) for part in parts for key in part[names].to_numpy().tolist()})
    return {
        name: sha256(canonical_json([pair[i] for pair in pairs])) for i, name in enumerate(names)
    }


PAIRING_USE = PairingUseTable()
