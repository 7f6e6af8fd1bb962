"""The study's tables: type, unit and meaning of each column, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_id import names
from bindscope.studies.binding_id.names import NO_EFFECT, ORIGINS, RECORDS
from bindscope.studies.binding_id.registry import EXPERIMENTS
from bindscope.tables.numbers import percent
from bindscope.tables.rows import rows_of
from bindscope.tables.schema import (
    KEYS,
    SLUG,
    Column,
    RowRule,
    RowTable,
    TableSchema,
    count,
    label,
    share,
    table_of,
)

_ENTRY = "config `suites[]`"
_TRIALS = "`studies.binding_id.plans`"
_METRICS = "`studies.binding_id.answers.rows`"
_VECTORS = "`studies.binding_id.estimates`"
_ANSWERS = "share of rows"

_NAMES: tuple[Column, ...] = (
    label("suite", "Name of the suite.", _ENTRY, pattern=SLUG),
    label(
        "task",
        "Name of the task, or of the records.",
        "config `tasks[]`, `records[]`",
        pattern=SLUG,
    ),
    label("model", "Name of the model.", _ENTRY, pattern=SLUG),
)
_ORIGIN = label(
    "origin",
    "What kind of model it is. An oracle's mechanism is planted; a toy is "
    "trained here on this task alone, `interchange_toy` to bind by slot; `random` has "
    "no trained weights: none of them says what a real model does.",
    _ENTRY,
    values=ORIGINS,
)
_CELL: tuple[Column, ...] = (
    label(
        "query",
        "Whom the question names: `O0`, `O1` an object of the base by its role, `O0'` "
        "one of the source; `all`: those that the account of "
        "slots expects an answer of.",
        _TRIALS,
    ),
    label(
        "candidate",
        "The answer: `I0`, `I1` an item of the base by its role, `I0'` one of the "
        "source; `expected`: what the account of slots expects; `slot`, `color`, `content`, "
        "`order`: what this account predicts, over the rows for which it predicts an item; of "
        "`mixture` an account, what goes by none (`guess`), all together in turns (`mixture`), "
        "or with shares of their own wherever other accounts agree (`saturated`).",
        _TRIALS,
    ),
    count(
        "expected",
        "",
        "1 where the account of slots expects this answer to this question.",
        _TRIALS,
    ),
)
_ROWS = count(
    "n_rows", "rows", "Pairs of contexts that were asked about.", _TRIALS, reference="same"
)


def _interval(name: str, unit: str, meaning: str, how: str, **ends: float) -> tuple[Column, ...]:
    low, high = ends.get("low"), ends.get("high")
    middle = Column(
        name,
        "float64",
        unit,
        meaning,
        _METRICS,
        "allowed",
        low,
        high,
        reference="close" if name == "share" else "",
    )
    sides = (("low", "Lower"), ("high", "Upper"))
    return (
        middle,
        *(
            Column(
                f"{name}_{end}",
                "float64",
                unit,
                f"{side} end of its 95 % interval: {how}.",
                _METRICS,
                "allowed",
                low,
                high,
            )
            for end, side in sides
        ),
    )


_LOGS = _interval(
    "mean_logprob",
    "nats",
    "Mean log-probability over the whole vocabulary; of cells.",
    "bootstrap over rows",
    high=0.0,
)
_SHARE = _interval(
    "share",
    _ANSWERS,
    "Share of rows whose most probable candidate this is; "
    "candidates that tie share the row. Of `mixture`: share of the answers that go "
    "by the account, by maximum likelihood.",
    "Wilson's, a row counts once; of `mixture` bootstrap over rows",
    low=0.0,
    high=1.0,
)
_CHANGE = (
    *_interval(
        "change",
        _ANSWERS,
        "Share minus the control's share of the same answers to the same questions.",
        "Gaffke's limits, rows change by 1 at most",
        low=-1.0,
        high=1.0,
    ),
    share(
        "p_value",
        "probability",
        "Exact sign test that as many rows rise as fall.",
        _METRICS,
        null="allowed",
    ),
    share(
        "p_adjusted",
        "probability",
        "Adjusted by Holm's procedure over the model's rows of the experiment.",
        _METRICS,
        null="allowed",
    ),
    share(
        "p_within",
        "probability",
        f"Of the claim that the change is within {percent(NO_EFFECT)}, by Gaffke's limit; not "
        "adjusted.",
        _METRICS,
        null="allowed",
    ),
    share("p_beyond", "probability", "Of the opposite.", _METRICS, null="allowed"),
)


def _inside(name: str) -> RowRule:
    def rule(frame: pd.DataFrame) -> pd.Series[bool]:
        value, low, high = frame[name], frame[f"{name}_low"], frame[f"{name}_high"]
        return value.isna() | ((low <= value + 1e-9) & (value <= high + 1e-9))

    return f"{name} is inside its interval", rule


_DONE: tuple[Column, ...] = (
    label(
        "condition",
        "What was done, in words: `O`, `I`, `C` are objects, items, colors; `O0` of "
        "role 0, `O all` of all; `anew`: the context after the edit was computed again; `none`: "
        "the control. Of `mixture` all conditions together.",
        "`studies.binding_id.names`",
    ),
    label("how", "What was done, as the module of the experiment names it.", _TRIALS),
    label(
        "groups",
        "Token groups that were edited or hidden, joined by `+`; empty: none.",
        _TRIALS,
    ),
    label("roles", "Their roles, joined by `,`, or `all`; empty: none.", _TRIALS),
    label(
        "variant",
        "Of mean differences the kind of levels (`role`, `slot`), or the token group that a "
        "transferred one is of; of layers whether they are a `window`, all `up to` the last or "
        "all `from` the first; of what is hidden from whom; of `positions` `tokens` where the dose "
        "is a number of tokens.",
        _TRIALS,
    ),
    Column(
        "dose",
        "float64",
        "1",
        "Multiple of the mean difference, or the "
        "dimension of a subspace; of `positions` how far keys are moved, as a share of the "
        "distance of two objects (1: exchanged) or in `tokens`; of `tokens` the number of the view "
        "or cell, or cells of padding.",
        _TRIALS,
        "allowed",
    ),
    count("frozen", "", "0 where the context after the edit was computed again.", _TRIALS),
    count(
        "first_layer",
        "",
        "First layer whose input was edited, or whose heads are blind; empty: all layers.",
        _TRIALS,
        null="allowed",
    ),
    count("last_layer", "", "The last of them.", _TRIALS, null="allowed"),
    count("head", "", "Head that is blind, from 0; empty: all of them.", _TRIALS, null="allowed"),
)
_KEY = (
    *_NAMES,
    label("experiment", "What was done.", _TRIALS, values=(*EXPERIMENTS, RECORDS)),
    count("trial", "", "Number of the condition in its experiment; 0: the control.", _TRIALS),
    *_CELL[:2],
)


_COLUMNS: tuple[Column, ...] = (
    *_KEY,
    *_DONE,
    _ORIGIN,
    _CELL[2],
    *_LOGS,
    *_SHARE,
    *_interval(
        "lead",
        "nats",
        "How far the expected candidate is above the mean of the others; of `all`.",
        "bootstrap over rows",
    ),
    *_interval(
        "own",
        _ANSWERS,
        "Share of answers with the object's own item, as without intervention; of `all`.",
        "Wilson's, a row counts once",
        low=0.0,
        high=1.0,
    ),
    *_interval(
        "unpredicted",
        _ANSWERS,
        "Of an account: of the answers for which it predicts "
        "no item, the share that is what an account predicts from which its own "
        "predictions do not tell it; of the account with most.",
        "Wilson's, a row counts once",
        low=0.0,
        high=1.0,
    ),
    *_interval(
        "effect",
        "1",
        "How far the edit moves the lead of these answers: 0 as in the "
        "control (or no lead, where the control gives them already), 1 as clearly as "
        "the control leads with the objects' own items. Of some layers or heads: from "
        "the control (0) to the same edit at all of them (1). Of `mixture`: weight of "
        "the account in the log-probabilities (1: it decides alone). Empty where there "
        "is no such scale.",
        "bootstrap over rows",
    ),
    *_interval(
        "bits",
        "bits",
        "Of `mixture`: saved per answer against chance on rows that "
        "were not fitted to; of an account, by it and guesses alone.",
        "bootstrap over rows",
    ),
    Column(
        "length",
        "float64",
        "1",
        "Mean length of the vectors that are added, over rows, "
        "layers, tokens and roles; 0: nothing is added.",
        _TRIALS,
        "allowed",
        0.0,
    ),
    *_CHANGE,
    _ROWS,
    *KEYS,
)


BINDING_ID_SCHEMA = TableSchema(
    name="binding_id",
    version=11,
    description="Answers of models under interventions on a frozen context: a row per experiment "
    "and condition, and of some experiments per question and candidate.",
    columns=_COLUMNS,
    key=tuple(column.name for column in _KEY),
    rules=tuple(
        _inside(column.name.removesuffix("_low"))
        for column in _COLUMNS
        if column.name.endswith("_low")
    ),
)

_VECTOR = (
    *_NAMES,
    label("group", "Token group.", _VECTORS, values=("object", "item", "color")),
    label(
        "levels", "Difference of the first two roles, or slots.", _VECTORS, values=("role", "slot")
    ),
    count("layer", "", "Decoder layer whose input it is added to.", _VECTORS),
)


VECTORS_SCHEMA = TableSchema(
    name="binding_id_vectors",
    version=3,
    description="What mean differences are like, a row per token group, kind of levels and layer.",
    columns=(
        *_VECTOR,
        _ORIGIN,
        Column("length", "float64", "1", "Mean length over tokens.", _VECTORS, low=0.0),
        Column(
            "split_half",
            "float64",
            "1",
            "Cosine of the estimates from even and from odd rows.",
            _VECTORS,
            "allowed",
            -1.0001,
            1.0001,
        ),
        share(
            "explained",
            "share of squared length",
            "Of the rows' differences, the part that effects of levels have.",
            _VECTORS,
            null="never",
            high=1.0001,
        ),
        Column(
            "cosine_truth",
            "float64",
            "1",
            "Cosine with the planted difference; of oracles that have one.",
            _VECTORS,
            "allowed",
            -1.0001,
            1.0001,
        ),
        count(
            "n_rows", "differences", "Differences that were averaged.", _VECTORS, reference="same"
        ),
        *KEYS,
    ),
    key=tuple(column.name for column in _VECTOR),
)


class ConditionTable(RowTable):
    """The table of the jobs' rows, with conditions in words."""

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Build the table."""
        return table_of(labeled(rows_of(inputs.get(self.role))), self.schema)


def labeled(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with what was done in words, for people."""
    return [{**row, "condition": names.label(row)} for row in rows]


BINDING_ID = ConditionTable(BINDING_ID_SCHEMA, "rows")
BINDING_ID_VECTORS = RowTable(VECTORS_SCHEMA, "rows", "vectors")
