"""The study's claims, and what its tables say for or against them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from bindscope.statistics.claims import SCENES, Claim, Effect, Judgment, judge
from bindscope.statistics.rank_correlation import FEWEST_GROUPS, rank_correlation
from bindscope.studies.together.names import MEASURED
from bindscope.studies.together.views import BITS, LEAD
from bindscope.tables.numbers import with_interval
from bindscope.tables.rows import ENDS

CORRELATED: Final = "bits-follow-leads"
READ: Final = "image-tokens-decoded"
USED: Final = "image-tokens-used"
READABLE: Final = 0.5  # of H(O|M)
CHANGED: Final = 0.05  # share of rows whose answer must change
# Where depths differ the correlation is partial: with 8 and 10 groups that depend on depth alone
# its interval was above 0 in 11 and 7.5 % of 200 draws, with 12 in 3.5 %.
FEWEST_WITH_DEPTH: Final = 12
ANSWERS: Final = 0.75  # share of right answers without which unused says nothing
AFTER_ALL = "nothing reads it"
NO_ANSWERS = "does not answer"
NOT_REPLACED = "not replaced here"
CLAIMS: Final = (
    Claim(
        CORRELATED,
        "Model groups whose patches separate objects better than positions do are also those "
        "from whose [CLS] a probe decodes more of the pairing.",
        unit="r",
    ),
    Claim(
        READ,
        "A probe decodes more than half of the pairing from the image tokens.",
        threshold=READABLE,
        unit="fraction",
    ),
    Claim(
        USED,
        "Exchanging the colors of the objects in the image tokens, from this layer on, changes "
        "more than 5 % of the answers.",
        threshold=CHANGED,
        unit="fraction",
    ),
)


def judged(model_points: pd.DataFrame) -> list[Judgment]:
    """Judge of every dataset whether bits in [CLS] follow the leads of patches.

    Points are those of `views.points`; the place of an effect is its dataset.
    """
    parts = [(str(name), part) for name, part in model_points.groupby("dataset", sort=False)]
    return judge(CLAIMS, [correlation_effect(*part) for part in parts])


def correlation_effect(
    dataset: str, part: pd.DataFrame, n_samples: int = 1000, seed: int = 0
) -> Effect:
    """Return the rank correlation of the groups' means, at equal depth where depths differ.

    Ahead of positions by more is right more often, as positions are the same for all models.
    """
    depth = pd.to_numeric(part["cls_layer"], errors="coerce")
    names = [BITS, LEAD, *(["depth"] if depth.notna().all() and depth.nunique() > 1 else [])]
    table = part.assign(depth=depth)
    groups = [rows[names].to_numpy(float) for _, rows in table.groupby("group")]
    value, low, high = rank_correlation(groups, n_samples, seed)
    least = FEWEST_WITH_DEPTH if "depth" in names else FEWEST_GROUPS
    return Effect(
        CORRELATED,
        dataset,
        value,
        min(low, value),
        max(high, value),
        len(groups),
        "model groups",
        f"fewer than {least} groups" if len(groups) < least else "",
    )


def use_effects(table: pd.DataFrame) -> list[Effect]:
    """Return of each row of `pairing_use` what is decoded and what is used, in this order."""
    return [effect for row in table.to_dict("records") for effect in (_read(row), _used(row))]


def _read(row: Mapping[Any, Any]) -> Effect:
    ends = [row[f"patches_pairing_bits{end}"] / row["pairing_entropy_bits"] for end in ENDS]
    measured = row["patches_status"] == MEASURED
    reason = "" if measured else str(row["patches_status"])
    effect = _effect(READ, row, ends, row["n_scenes"], SCENES, reason)
    return replace(effect, is_bound=True)


def _used(row: Mapping[Any, Any]) -> Effect:
    name = next((column for column in ("anew_from", "frozen_from") if pd.notna(row[column])), None)
    reason = "" if name else NOT_REPLACED
    reason = AFTER_ALL if row["layer"] == row["depth"] else reason
    reason = reason if row["answered"] > ANSWERS else NO_ANSWERS  # also where it is not known
    ends = [row[f"{name}{end}"] if name else np.nan for end in ENDS]
    return _effect(USED, row, ends, row["n_rows"], "pairs of contexts", reason)


def _effect(
    claim: str, row: Mapping[Any, Any], ends: list[float], n: float, unit: str, reason: str
) -> Effect:
    value, low, high = map(float, ends)
    where = f"{row['model']} ({row['suite']}, {row['task']}), {row['place']}"
    return Effect(
        claim,
        where,
        value,
        min(low, value),
        max(high, value),
        int(n) if pd.notna(n) else 0,
        unit,
        reason,
        model=str(row["model"]),
        condition=str(row["place"]),
    )


def correlation(judgment: Judgment) -> str:
    """Write the rank correlation with its interval, where it has them."""
    effect = judgment.effect
    return with_interval((effect.value, effect.low, effect.high)) or "none"


def groups_of(judgment: Judgment) -> str:
    """Write how many model groups a correlation is over."""
    n = judgment.effect.n
    return f"{n} model group{'' if n == 1 else 's'}"
