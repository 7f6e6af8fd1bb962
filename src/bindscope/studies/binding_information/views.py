"""Parts of the binding table that figures and the report read: last layers, means over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from bindscope.studies.binding_information.columns import BINDING_COLUMNS, TOKENS
from bindscope.studies.binding_information.names import FAMILY_ORDER
from bindscope.studies.binding_information.rules import family_of, flag_list

GROUP = ["dataset", "model", "layer", "tokens", "probe", "control"]
NUMBERS = [column.name for column in BINDING_COLUMNS if column.kind == "float64"]


def measured(table: pd.DataFrame, *, known_answer: bool) -> pd.DataFrame:
    """Return the rows that hold numbers and are no control.

    Added are the probe's `family` and whether the row rests on an `assumed_prior`.

    Parameters
    ----------
    table
        A `binding_information` table.
    known_answer
        Whether known-answer encoders are wanted, or all other models.
    """
    keep = (table["status"] != "failed") & (table["control"] == "none")
    rows = table[keep & ((table["model_kind"] == "known-answer") == known_answer)].copy()
    rows["family"] = rows["options"].map(family_of)
    rows["assumed_prior"] = rows["dataset"].isin(assumed_prior(table))
    return rows.reset_index(drop=True)


def assumed_prior(table: pd.DataFrame) -> set[str]:
    """Return the datasets whose entropies are estimates, so that no difference is a bound."""
    flagged = table["flags"].map(lambda flags: "assumed_prior" in flag_list(flags)).astype(bool)
    return set(table.loc[flagged, "dataset"])


def last_layers(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the deepest layer of each (dataset, model, tokens): the last block's, else `final`."""
    depth = pd.to_numeric(rows["layer"].replace("final", "-1")).astype(int)
    deepest = depth.groupby([rows["dataset"], rows["model"], rows["tokens"]]).transform("max")
    return rows[depth == deepest].reset_index(drop=True)


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Average rows over probe seeds.

    Returns
    -------
    DataFrame
        One row per (dataset, model, layer, tokens, probe, control) with the means of the numbers
        (ends of intervals included), `n_seeds`, and the `family`, `model_kind`, `n_layers` and
        `assumed_prior`.
    """
    groups = rows.groupby(GROUP, sort=False, observed=True)
    labels = [
        name for name in ("family", "model_kind", "n_layers", "assumed_prior") if name in rows
    ]
    means = groups[NUMBERS].mean()
    means[labels] = groups[labels].first()
    means["n_seeds"] = groups.size()
    return means.reset_index()


def family_order(families: Iterable[str]) -> list[str]:
    """Order families: linear, quadratic, ..., attention; new ones behind."""
    return name_order(families, FAMILY_ORDER)


def token_order(tokens: Iterable[str]) -> list[str]:
    """Order token inputs: cls, mean, cls_mean, patches."""
    return name_order(tokens, TOKENS)


def dataset_tokens(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Return the dataset and token input of each panel, or row of panels, in order."""
    return [
        (dataset, token)
        for dataset in sorted(rows["dataset"].unique())
        for token in token_order(rows.loc[rows["dataset"] == dataset, "tokens"])
    ]


def name_order(names: Iterable[str], preferred: Sequence[str] = ()) -> list[str]:
    """Order names as `preferred` (the configuration's order) lists them, others behind, sorted."""
    found = set(names)
    return [n for n in preferred if n in found] + sorted(found - set(preferred))
