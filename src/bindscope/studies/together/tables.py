"""The study's two tables: numbers of several studies of the same models, joined.

`together` joins study one and IsSameObject, a row per dataset, model and layer. `pairing_use` joins
study one and the interventions of binding IDs on toys: study one decodes the pairing information of
a toy's image tokens, layer by layer; the study of binding IDs replaces the same tokens by those of
the same scene paired anew, and asks again. Both rules (`claims`) were fixed before the measurement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
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
from bindscope.studies.together.names import BINDING_ID, BITS, MEASURED, SAME_OBJECT, TOKENS
from bindscope.tables.flags import unusable
from bindscope.tables.rows import ENDS, rows_with
from bindscope.tables.rules import is_ratio, layer_number
from bindscope.tables.schema import (
    DATASET,
    KEYS,
    MODEL,
    SLUG,
    Column,
    TableSchema,
    bits,
    count,
    label,
    share,
    table_of,
)
from bindscope.tables.write import read_table


def _ends(meaning: str) -> zip[tuple[str, str]]:
    """Return the suffix and the meaning of a number and of the ends of its interval."""
    words = (meaning, "Lower end of its 95 % interval.", "Upper end of its 95 % interval.")
    return zip(ENDS, words, strict=True)


def _shares(
    name: str, unit: str, meaning: str, study: str, low: float = -1.0
) -> tuple[Column, ...]:
    return tuple(
        share(f"{name}{end}", unit, words, f"`{study}`", null="allowed", low=low)
        for end, words in _ends(meaning)
    )


def _status(name: str, what: str, study: str) -> Column:
    return label(
        f"{name}_status",
        f"`{MEASURED}`, or why {what} has no number here: flags of its fit, or what the other "
        "table says. Empty: not read at this layer.",
        f"`{study}`",
        null="allowed",
    )


def _bits_columns(tokens: str, label: str) -> tuple[Column, ...]:
    """Return the columns of the pairing information of some tokens, as `label` to a reader."""
    what = f"Lower bound on the pairing information I(O;Z|M) of {label}, by the best probe."
    return (
        _status(tokens, label, BITS),
        *(
            bits(f"{tokens}_pairing_bits{end}", words, f"`{BITS}`", null="allowed")
            for end, words in _ends(what)
        ),
        share(
            f"{tokens}_pairing_ratio",
            "share of H(O|M)",
            "That bound over `pairing_entropy_bits`.",
            f"`{BITS}`",
            null="allowed",
            low=None,
            high=None,
        ),
    )


_ENTROPY: Final = bits(
    "pairing_entropy_bits",
    "H(O|M): all that there is to say of what goes with what.",
    f"`{BITS}`",
    null="allowed",
    low=0.0,
)


def _pairing(rows: pd.DataFrame, tokens: str) -> dict[str, Any]:
    """Return what those columns say of the best probe's rows at one place: a mean over seeds."""
    if not len(rows):
        return {}
    flags = rows["flags"].map(unusable).map(";".join)
    good = rows[(flags == "") & rows["pairing_lower_bound_bits"].notna()]
    if not len(good):
        reasons = [*flags, *rows["reason"].fillna("")]
        return {f"{tokens}_status": _first(reasons)}
    numbers = {
        f"{tokens}_pairing_bits{end}": good[f"pairing_lower_bound_bits{end}"].mean() for end in ENDS
    }
    ratio = {f"{tokens}_pairing_ratio": good["pairing_ratio"].mean()}
    return {f"{tokens}_status": MEASURED, **numbers, **ratio}


def _first(reasons: Iterable[str]) -> str:
    return next((reason for reason in reasons if reason), "no number")


def _best(table: pd.DataFrame) -> pd.DataFrame:
    return rows_with(table, probe="best", control="none")


def _keys(*parts: pd.DataFrame) -> dict[str, str]:
    """Return hashes of the keys of the rows of several tables that a row was joined from."""
    return {
        name: sha256(canonical_json([sorted(set(part[name].astype(str))) for part in parts]))
        for name in ("spec_key", "code_key")
    }


# --- Bits and IsSameObject ----------------------------------------------------------------------

_PAIRS = "share of pairs"
_BITS_OF_CLS: Final = (
    _ENTROPY,
    *(column for name, title in TOKENS.items() for column in _bits_columns(name, title)),
)
_PATCHES: Final = (
    _status("same_object", "IsSameObject", SAME_OBJECT),
    *_shares(
        "same_object_accuracy",
        _PAIRS,
        "Pairs of patches that the quadratic probe classifies correctly.",
        SAME_OBJECT,
        0.0,
    ),
    *_shares("position_lead", _PAIRS, "That, minus the same of positions only.", SAME_OBJECT),
    Column(
        "same_object_val_loss_bits",
        "float64",
        "bits per pair",
        "Cross-entropy of validation's pairs: it chooses the layer.",
        f"`{SAME_OBJECT}`",
        "allowed",
        0.0,
    ),
)
SCHEMA = TableSchema(
    name="together",
    version=2,
    description="One row per dataset, model and layer that a study read, of those models that all "
    "joined studies measured on the same scenes. Numbers are those of the other tables; one whose "
    "fit has a flag that forbids to quote it is not repeated.",
    columns=(
        DATASET,
        MODEL,
        label("group", "Its group, or the model itself.", "config `groups[].name`", pattern=SLUG),
        count(
            "training_seed",
            "",
            "Seed of the model's training; empty where it is unknown.",
            "config `models[].seed`, or the zoo",
            null="allowed",
        ),
        label(
            "layer",
            "Layer that was read, see the other tables.",
            "`fits[].layers` of the studies",
            pattern=r"^(0|[1-9][0-9]*|final)$",
        ),
        *_BITS_OF_CLS,
        *_PATCHES,
        *KEYS,
    ),
    key=("dataset", "model", "layer"),
    rules=tuple(
        is_ratio(f"{name}_pairing_ratio", f"{name}_pairing_bits", "pairing_entropy_bits")
        for name in TOKENS
    ),
    order={"layer": layer_number},
)


def _binding_row(rows: pd.DataFrame) -> dict[str, Any]:
    """Take the best probe's pairing information, a mean over seeds of the probe."""
    row: dict[str, Any] = {"pairing_entropy_bits": rows["h_object_given_counts_bits"].mean()}
    for tokens in TOKENS:
        row |= _pairing(rows[rows["tokens"] == tokens], tokens)
    return row


def _same_object_row(rows: pd.DataFrame) -> dict[str, Any]:
    """Take the scores of the quadratic probe that validation prefers."""
    if not len(rows):
        return {}
    chosen = rows.sort_values("val_loss_bits", kind="stable").iloc[0]
    if flags := ";".join(unusable(str(chosen["flags"]))):
        return {"same_object_status": flags}
    numbers = {"same_object_accuracy": "accuracy", "position_lead": "position_lead"}
    row = {"same_object_status": MEASURED, "same_object_val_loss_bits": chosen["val_loss_bits"]}
    row |= {
        f"{name}{end}": chosen[f"{source}{end}"] for name, source in numbers.items() for end in ENDS
    }
    return row


class TogetherTable:
    """Measurements of several studies, of the same models on the same scenes."""

    schema = SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Join the tables; as content come `datasets`, and `models` with group and seed."""
        read = _best(read_table(inputs.paths(BITS)[0]))
        pairs = rows_with(read_table(inputs.paths(SAME_OBJECT)[0]), family="quadratic")
        rows = []
        for dataset, about in product(inputs.content["datasets"], inputs.content["models"]):
            sides = [
                rows_with(table, dataset=dataset, model=about["model"]) for table in (read, pairs)
            ]
            if any(side.empty for side in sides):
                continue
            for layer in pd.concat([side["layer"] for side in sides]).unique():
                bits_here, pairs_here = (rows_with(side, layer=layer) for side in sides)
                rows.append(
                    {
                        "dataset": dataset,
                        **about,
                        "layer": layer,
                        **_binding_row(bits_here),
                        **_same_object_row(pairs_here),
                        **_keys(bits_here, pairs_here),
                    }
                )
        return table_of(rows, self.schema)


TOGETHER = TogetherTable()

# --- Bits and interventions ---------------------------------------------------------------------

IMAGES, CONNECTED = 1, 2  # layers of a toy: its tower, and what enters decoder layer 0
_GO_OVER = (
    "Share of answers that go over to the next thing's item when {where} the image tokens of all "
    "things become those of the same scene whose things have each other's colors, minus the "
    "control's share: what goes with what is used by {who}."
)
_ONWARDS = "at this decoder layer and those after it"
_QUESTION = "the question (the context is frozen)"
# Column -> whether the context is frozen and it is edited from a layer on, and the meaning.
EFFECTS: Final = {
    "anew_from": (
        False,
        True,
        _GO_OVER.format(
            where=_ONWARDS, who="text or question (the context after the edit is computed anew)"
        ),
    ),
    "frozen_from": (True, True, _GO_OVER.format(where=_ONWARDS, who=_QUESTION)),
    "frozen_at": (
        True,
        False,
        _GO_OVER.format(where="at this decoder layer alone", who=_QUESTION),
    ),
}
YES, NO, OPEN = "yes", "no", "not significant"
UNTESTED = "not testable"
NO_EVIDENCE = "not shown"
VERDICTS: Final = {
    (YES, YES): "read and used",
    (YES, NO): "read, not used",
    (YES, AFTER_ALL): "read, not used",
    (YES, NOT_REPLACED): "read, not replaced here",
    (NO_EVIDENCE, YES): "used, not shown to be read",
    (NO_EVIDENCE, NO): "neither shown",
    (NO_EVIDENCE, AFTER_ALL): "neither shown",
    (NO_EVIDENCE, NOT_REPLACED): "not shown to be read",
}


PAIRING_USE_SCHEMA = TableSchema(
    name="pairing_use",
    version=3,
    description="What goes with what in the image tokens of toy vision-language models, a row per "
    "layer: the bits that study one reads, and what answers change when nothing but the pairs is "
    "replaced. Of toys; no row says what a real model does.",
    columns=(
        DATASET,
        MODEL,
        label("suite", "Suite of the interventions.", f"`{BINDING_ID}`", pattern=SLUG),
        label("task", "Their task.", f"`{BINDING_ID}`", pattern=SLUG),
        count("layer", "", "Layer that study one read.", "config `models[].n_layers`"),
        count(
            "depth", "", "The toy's last layer, which nothing reads.", "config `models[].source`"
        ),
        label("toy", "The toy whose images these are.", "config `models[].source`", pattern=SLUG),
        label(
            "place",
            "What this layer is: `tower`, `input of decoder layer l`, or `after the "
            "last decoder layer`.",
            "config `models[].source`",
        ),
        _ENTROPY,
        *_bits_columns("patches", "image tokens"),
        *(
            column
            for name, (*_, meaning) in EFFECTS.items()
            for column in _shares(name, "share of rows", meaning, BINDING_ID)
        ),
        share(
            "answered",
            "share of rows",
            "Right answers without intervention.",
            f"`{BINDING_ID}`",
            null="allowed",
        ),
        count("n_scenes", "scenes", "Test scenes of the bits.", f"`{BITS}`", null="allowed"),
        count(
            "n_rows",
            "pairs of contexts",
            "Those that were asked about.",
            f"`{BINDING_ID}`",
            null="allowed",
        ),
        label(
            "read",
            f"`{YES}`: the bits are above {READABLE} of H(O|M), significantly after "
            f"Holm's correction over the table's claims; `{NO_EVIDENCE}`: they are not, which "
            "does not say that they are not there; empty: no number.",
            f"`{BITS}`",
            null="allowed",
        ),
        label(
            "used",
            f"`{YES}`: `anew_from` (`frozen_from`, where nothing can be computed anew) "
            f"is significantly above {CHANGED}; `{NO}`: significantly below; "
            f"`{OPEN}`: neither; "
            f"`{AFTER_ALL}`: no layer comes after it; `{NO_ANSWERS}`: right without "
            f"intervention in {ANSWERS} of the rows or less; `{NOT_REPLACED}`: the tower's "
            "tokens, or a layer that the sweep skips.",
            f"`{BINDING_ID}`",
        ),
        label("verdict", "Both together.", "`studies.together.tables`"),
        *KEYS,
    ),
    key=("dataset", "model", "suite", "task", "layer"),
    rules=(is_ratio("patches_pairing_ratio", "patches_pairing_bits", "pairing_entropy_bits"),),
)


class PairingUseTable:
    """What can be read, beside what is used."""

    schema = PAIRING_USE_SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Join the tables; as content come `joins`: dataset, task, model, toy and its depth."""
        read = rows_with(_best(read_table(inputs.paths(BITS)[0])), tokens="patches")
        effects = read_table(inputs.paths(BINDING_ID)[0])
        effects = rows_with(effects, experiment="pairing", query="all")
        rows = [row for join in inputs.content["joins"] for row in _joined(join, read, effects)]
        return table_of(_judged(rows), self.schema)


def _joined(
    join: Mapping[str, Any], read: pd.DataFrame, effects: pd.DataFrame
) -> Iterator[dict[str, Any]]:
    """Yield a row per suite and layer of one toy."""
    bits = rows_with(read, dataset=join["dataset"], model=join["model"])
    there = rows_with(effects, task=join["task"], model=join["toy"])
    for suite, name in product(there["suite"].unique(), bits["layer"].unique()):
        here, suite_rows = rows_with(bits, layer=name), rows_with(there, suite=suite)
        layer = int(name)
        yield {
            **{name: join[name] for name in ("dataset", "model", "task", "toy")},
            "suite": suite,
            "layer": layer,
            "depth": join["depth"],
            "place": place_of(layer, join["depth"]),
            "pairing_entropy_bits": here["h_object_given_counts_bits"].mean(),
            **_pairing(here, "patches"),
            **_effects(suite_rows, layer),
            **_keys(here, suite_rows),
            "n_scenes": here["n_test"].max(),
            "n_rows": suite_rows["n_rows"].max(),
        }


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
    control = rows_with(rows, how="none")["share"]
    values: dict[str, Any] = {"answered": float(control.iloc[0]) if len(control) else None}
    edited = rows_with(rows, how="recombined")
    for name, (frozen, onwards, _) in EFFECTS.items():
        here = rows_with(edited, frozen=int(frozen))
        if onwards and entered == 0:
            here = here[here["first_layer"].isna()]  # all layers
        else:
            span = "from" if onwards else "window"  # windows that begin here
            here = rows_with(here, variant=span, first_layer=entered)
        if len(here):
            values |= {f"{name}{end}": float(here[f"change{end}"].iloc[0]) for end in ENDS}
    return values


def _judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to all rows of the table what is read, what is used, and both together."""
    names = [column.name for column in PAIRING_USE_SCHEMA.columns]
    effects = use_effects(pd.DataFrame(rows, columns=names))
    judgments = judge(CLAIMS, effects)
    judged_rows = []
    for row, of_read, of_used in zip(rows, judgments[::2], judgments[1::2], strict=True):
        read = YES if of_read.verdict == "holds" else NO_EVIDENCE
        read_or_none = read if row["patches_status"] == MEASURED else None
        used = {"holds": YES, "does not hold": NO, "not significant": OPEN}.get(of_used.verdict)
        used = used or of_used.reason
        both = VERDICTS.get((str(read_or_none), used), UNTESTED if used == NO_ANSWERS else OPEN)
        judged_rows.append(row | {"read": read_or_none, "used": used, "verdict": both})
    return judged_rows


PAIRING_USE = PairingUseTable()
