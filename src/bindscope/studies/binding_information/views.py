"""Parts of the binding table that figures and the report read: last layers, means over seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pandas as pd

from bindscope.models.baselines import BASELINES
from bindscope.statistics.means import half_width
from bindscope.studies.binding_information.best import BEST
from bindscope.studies.binding_information.columns import TOKENS
from bindscope.studies.binding_information.flags import flag_list
from bindscope.studies.binding_information.names import CONTROL, PAPERS
from bindscope.studies.binding_information.quantities import QUANTITIES
from bindscope.studies.binding_information.registry import known_families
from bindscope.studies.binding_information.schemas import family_of
from bindscope.tables.groups import Groups, complete_groups, group_names

GROUP = ["dataset", "model", "layer", "tokens", "probe", "control"]
LABELS = (
    "family", "fitted", "model_kind", "n_layers", "assumed_prior", "is_control", "group", "shown",
)  # fmt: skip


def measured(
    table: pd.DataFrame, *, known_answer: bool = False, baseline: bool = False, best: bool = False
) -> pd.DataFrame:
    """Return the rows of models that hold numbers and are no control.

    Of known-answer encoders or of baselines where that is asked for, else of all other models.
    `best`: the rows `probe = best`, or those of the fits that they are made of. Added are the
    probe's `family` and whether the row rests on an `assumed_prior`; of a table without them also
    the `group` of its model (`tables.groups`), and whether that is a positive control.
    """
    keep = (table["status"] != "failed") & (table["control"] == "none")
    keep &= (table["probe"] == BEST) == best
    for kind, requested in (("known-answer", known_answer), ("baseline", baseline)):
        keep &= (table["model_kind"] == kind) == requested
    rows = table[keep].copy()
    rows["family"] = [
        protocol_family(family_of(options), protocol)
        for options, protocol in zip(rows["options"], rows["protocol"], strict=True)
    ]
    rows["assumed_prior"] = rows["dataset"].isin(assumed_prior(table))
    if "group" not in rows:
        rows["group"], rows["group_size"] = rows["model"], 1
    if "is_control" not in rows:
        rows["is_control"] = False
    return rows.reset_index(drop=True)


def named_groups(rows: pd.DataFrame) -> pd.DataFrame:
    """Give rows of `measured` the names that are shown: of their `group`, and alone (`shown`).

    Models of a group that is not complete at a place are shown by themselves.
    """
    rows = complete_groups(rows, ["dataset", "tokens", "probe", "control"])
    mark = np.where(rows["is_control"].astype(bool), CONTROL, "")
    return rows.assign(group=rows["group"] + mark, shown=rows["model"] + mark)


def shown_names(models: Iterable[str], groups: Groups, controls: Collection[str]) -> list[str]:
    """Return the names that `named_groups` gives, as configured, positive controls last."""
    names = list(models)
    last = group_names((name for name in names if name in controls), groups)
    first = group_names((name for name in names if name not in controls), groups)
    return [*first, *(f"{name}{CONTROL}" for name in last)]


def strongest_baselines(table: pd.DataFrame, dataset: str, column: str) -> dict[str, float]:
    """Return a number of baselines by their words: the largest without places, and with them."""
    rows = measured(table, baseline=True, best=True)
    rows = rows[(rows["dataset"] == dataset) & rows[column].notna()]
    strongest = {}
    for discards_place in (True, False):
        names = [name for name, b in BASELINES.items() if b.discards_place == discards_place]
        means = rows[rows["model"].isin(names)].groupby("model")[column].mean()
        if len(means):
            strongest[BASELINES[str(means.idxmax())].words] = float(means.max())
    return strongest


def protocol_family(family: str | None, protocol: str) -> str:
    """Return a family's name; fits by the paper's protocol are shown as a family of their own."""
    return f"{family}{PAPERS}" if protocol == "paper" else str(family)


def assumed_prior(table: pd.DataFrame) -> set[str]:
    """Return the datasets whose entropies are estimates, so that no difference is a bound."""
    flagged = table["flags"].map(lambda flags: "assumed_prior" in flag_list(flags)).astype(bool)
    return set(table.loc[flagged, "dataset"])


def last_layers(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the deepest layer of each (dataset, model, tokens): the last block's, else `final`."""
    depth = pd.to_numeric(rows["layer"].replace("final", "-1")).astype(int)
    deepest = depth.groupby([rows["dataset"], rows["model"], rows["tokens"]]).transform("max")
    return rows[depth == deepest].reset_index(drop=True)


def layer_places(rows: pd.DataFrame) -> pd.Series[float]:
    """Return where each row's layer stands on an axis; `final` is a step after the last block."""
    final = rows["layer"] == "final"
    return pd.to_numeric(rows["layer"].where(~final, rows["n_layers"] + 1)).astype(float)


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Average rows over probe seeds, then over the models of a group.

    One row per (dataset, model, layer, tokens, probe, control), where `model` is the name that is
    shown (`named_groups`), with the means of the numbers, `n_seeds` (of probes), `n_models`, and
    `LABELS`. Ends of intervals are means too; of several models they are those of the t interval of
    the mean over training seeds, within 0 and the entropy where they are of a bound.
    """
    return over_models(each_model(named_groups(rows)))


def each_model(rows: pd.DataFrame) -> pd.DataFrame:
    """Average rows of `named_groups` over probe seeds; the columns of `over_seeds`."""
    groups = rows.groupby(GROUP, sort=False, observed=True)
    labels = [name for name in LABELS if name in rows]
    means = groups[_numbers(rows)].mean()
    means[labels] = groups[labels].first()
    means["n_seeds"] = groups.size()
    return means.reset_index()


def over_models(rows: pd.DataFrame) -> pd.DataFrame:
    """Average what `each_model` returned over the models of each group.

    No group's name stands for one model: where one is left it has its own.
    """
    groups = rows.assign(model=rows["group"]).groupby(GROUP, sort=False, observed=True)
    labels = [name for name in LABELS if name in rows]
    names = _numbers(rows)
    numbers = groups[names]
    means, deviations, counts = numbers.mean(), numbers.std(), numbers.count()
    centers = [name for name in names if f"{name}_low" in names]
    half = half_width(deviations[centers], counts[centers])
    for end, sign in (("low", -1), ("high", 1)):
        ends = [f"{name}_{end}" for name in centers]
        several = means[centers].to_numpy() + sign * half
        means[ends] = np.where(counts[centers] > 1, several, means[ends])
    for quantity in (q for q in QUANTITIES if q.bound in centers and q.entropy in names):
        ends = [f"{quantity.bound}_low", f"{quantity.bound}_high"]
        means[ends] = means[ends].clip(lower=0).clip(upper=means[quantity.entropy], axis=0)
    means[labels] = groups[labels].first()
    means["n_seeds"], means["n_models"] = groups["n_seeds"].sum(), groups.size()
    means = means.reset_index()
    return means.assign(model=means["group"].where(means["n_models"] > 1, means["shown"]))


def _numbers(rows: pd.DataFrame) -> list[str]:
    return [str(name) for name in rows.select_dtypes("float64").columns]


def family_order(families: Iterable[str]) -> list[str]:
    """Order families: linear, quadratic, ..., attention; new ones behind."""
    return name_order(families, known_families())


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
    known = set(names)
    return [n for n in preferred if n in known] + sorted(known - set(preferred))
