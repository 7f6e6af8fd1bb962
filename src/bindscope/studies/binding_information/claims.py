"""The study's claims, and what a table of binding information says for or against them.

A bound says what a probe decodes. So a claim about one representation is that its bound is above 0
(of a single network by an e-value, which holds for any number of scenes), and a claim about two
model groups names the probe that both were read with: a difference of lower bounds is no
difference of information.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final, NamedTuple

import pandas as pd

from bindscope.core.array_types import Doubles
from bindscope.models.baselines import BASELINES
from bindscope.statistics.claims import SCENES, TRAINING_SEEDS, Claim, Effect
from bindscope.statistics.means import welch_freedom, welch_interval
from bindscope.studies.binding_information.names import (
    ARRAYS,
    label_family,
    label_tokens,
    show_model,
)
from bindscope.studies.binding_information.quantities import EVIDENCE, PAIRING
from bindscope.studies.binding_information.views import (
    SMALLEST_BITS,
    each_model,
    last_layers,
    measured,
    named_groups,
)
from bindscope.tables.flags import unusable
from bindscope.tables.numbers import at_least
from bindscope.tables.quoted import AT_LEAST, Quoted, TableRow, name_order

DECODED: Final = "pairing-decoded"
BINDS: Final = "pairing-beyond-colors"
MORE: Final = "more-pairing-decoded"
CLAIMS: Final = (
    Claim(
        DECODED,
        "In new scenes of the same distribution, a probe decodes from the representation which "
        "feature belongs to which, beyond which features occur and how often.",
        unit="bits",
    ),
    Claim(
        BINDS,
        "A probe decodes more of the pairing from the representation than probes decode from the "
        "colors of the pixels alone, without their places.",
        unit="bits",
    ),
    Claim(
        MORE,
        "The same probe decodes more of the pairing (which feature belongs to which) from models "
        "of the first model group than of the second. This compares what the probe decodes, not "
        "what the models hold.",
        unit="bits",
    ),
)
_ASSUMED: Final = "the scene distribution is estimated, so that the number is no bound"
_PRIOR: Final = "validation prefers the prior"


class Compared(NamedTuple):
    """Two groups that one probe was fitted to; more is decoded from the first one (`MORE`)."""

    dataset: str
    tokens: str
    probe: str
    more: str
    less: str


def effects(table: pd.DataFrame, quoted: Quoted, models: Sequence[str] = ()) -> list[Effect]:
    """Return what a table says of `CLAIMS`, at last layers that may be quoted.

    One effect per quoted pairing bound, over training seeds where a group has several, else over
    the test scenes of the one network, by their evidence; the same against what the colors of the
    images give away, where a baseline was measured; and one per two groups that the same probe was
    fitted to. Names of `models` are in the configuration's order.
    """
    decoded = list(_decoded(table, quoted))
    return [
        *(effect for _, effect in decoded),
        *_beyond_colors(table, decoded),
        *compared(table, models),
    ]


def _decoded(table: pd.DataFrame, quoted: Quoted) -> Iterator[tuple[str, Effect]]:
    """Yield the dataset and the effect of every pairing bound that may be quoted."""
    scenes = table.groupby("dataset")["n_test"].first()
    for estimate in quoted.estimates(PAIRING):
        row, several = estimate.row, estimate.n_models > 1
        if not row[PAIRING.entropy] > SMALLEST_BITS or pd.isna(estimate.value):
            continue
        name = show_model(row["model"], bool(row["is_control"]))
        effect = Effect(
            DECODED,
            f"{_place(row)}, {name}, {label_family(row['family']).words}",
            estimate.value,
            estimate.low,
            estimate.high,
            estimate.n_models if several else int(scenes[row["dataset"]]),
            TRAINING_SEEDS if several else SCENES,
            _ASSUMED if row["assumed_prior"] else _PRIOR if row[EVIDENCE] == 0 else "",
            p_value=None if several else 2.0 ** -max(0.0, row[EVIDENCE]),
            is_bound=True,
            model=name,
            condition=_place(row),
        )
        yield str(row["dataset"]), effect


def _beyond_colors(table: pd.DataFrame, decoded: Sequence[tuple[str, Effect]]) -> Iterator[Effect]:
    """Subtract what the strongest baseline that discards places decodes on the same dataset.

    The best of its probes on the test scenes, so that a difference is not one of probes. Intervals
    have the worst of both ends: as if the two erred in opposite directions.
    """
    rivals = strongest_rivals(table)
    for dataset, effect in decoded:
        if dataset not in rivals:
            continue
        rival = rivals[dataset]
        value, low, high = (float(rival[name]) for name in PAIRING.interval)
        flags = ", ".join(unusable(rival["flags"]))
        reason = _ASSUMED if effect.reason == _ASSUMED else ""
        words = f"{BASELINES[rival['model']].words} ({AT_LEAST}{at_least(value)})"
        yield Effect(
            BINDS,
            f"{effect.where}, against {words}",
            effect.value - value,
            effect.low - high,
            effect.high - low,
            effect.n,
            effect.resampled,
            f"{rival['model']} is flagged {flags}" if flags else reason,
            # Against a rival of nothing, the exact test against 0 stands.
            p_value=None if high else effect.p_value,
            is_bound=not high,
            model=effect.model,
            condition=effect.condition,
        )


def strongest_rivals(table: pd.DataFrame) -> dict[str, TableRow]:
    """Return by dataset the row of the largest pairing bound of baselines that discard places."""
    rows = measured(table, "baseline")
    placeless = [name for name, baseline in BASELINES.items() if baseline.discards_place]
    rows = rows[rows["model"].isin(placeless) & rows[PAIRING.value].notna()]
    strongest = rows.sort_values(PAIRING.value, kind="stable").groupby("dataset").tail(1)
    return {str(row["dataset"]): row for row in strongest.to_dict("records")}


def compared(table: pd.DataFrame, models: Sequence[str] = ()) -> list[Effect]:
    """Compare every two groups that one probe was fitted to, if one has several training seeds.

    The group with the larger mean comes first; the interval is Welch's, over training seeds.
    Positive controls are compared with none: what they were trained for needs no measurement.
    """
    rows = measured(table)
    rows = rows[~rows["is_control"].astype(bool)]
    rows = rows[(rows["protocol"] != "paper") & ~rows["assumed_prior"].astype(bool)]
    rows = rows[rows[PAIRING.value].notna() & (rows[PAIRING.entropy] > SMALLEST_BITS)]
    rows = rows[~rows["flags"].map(unusable).astype(bool)]
    single = each_model(named_groups(last_layers(rows))) if len(rows) else rows
    effects = []
    for (dataset, tokens, probe), here in single.groupby(
        ["dataset", "tokens", "probe"], sort=False
    ):
        values = {
            str(name): part[PAIRING.value].to_numpy(float)
            for name, part in here.groupby("group", sort=False)
        }
        names = sorted(name_order(values, models), key=lambda name: -values[name].mean())
        row = here.iloc[0].to_dict()
        where = f"{_place(row)}, {label_family(row['family']).words}"
        for more, less in combinations(names, 2):
            if max(len(values[more]), len(values[less])) > 1:
                about = f"{where}: {_bound(more, values)} against {_bound(less, values)}"
                effect = _difference(about, more, less, values)
                compared = Compared(str(dataset), str(tokens), str(probe), more, less)
                condition = f"{where}, over {less}"
                effects.append(replace(effect, about=compared, model=more, condition=condition))
    return effects


def _difference(where: str, more: str, less: str, values: Mapping[str, Doubles]) -> Effect:
    first, second = values[more], values[less]
    ends = welch_interval(first, second)
    alone = [name for name in (more, less) if len(values[name]) < 2]
    constant = first.std() + second.std() == 0
    return Effect(
        MORE,
        where,
        *ends,
        len(first) + len(second),
        TRAINING_SEEDS,
        f"one training seed of {alone[0]}" if alone else "",
        None if alone or constant else welch_freedom(first, second),
        directions=2,
    )


def _bound(name: str, values: Mapping[str, Doubles]) -> str:
    return f"{name} ({AT_LEAST}{at_least(values[name].mean())})"


def _place(row: TableRow) -> str:
    """Name a token input, in a run with its dataset."""
    tokens = label_tokens(row["tokens"]).name
    return tokens if row["model_kind"] == ARRAYS else f"{row['dataset']}, {tokens}"
