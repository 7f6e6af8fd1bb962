"""Curves of training, and how far a bound is a matter of the number of training scenes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from bindscope.core.interfaces import Inputs
from bindscope.figures.colors import GREY, INK
from bindscope.figures.facets import Look, crossed, facets, lines
from bindscope.figures.figure import NothingToDrawError, figure, some, table_of
from bindscope.figures.style import handle, legend_below, looks, new_figure, zero_line
from bindscope.studies.binding_information.figures.shared import family_of_fit
from bindscope.studies.binding_information.names import (
    WORDS,
    label_family,
    label_tokens,
    show_model,
)
from bindscope.studies.binding_information.quantities import (
    ASYMPTOTE,
    BEYOND,
    CURVE_BOUND,
    PAIRING,
    PARTS,
)
from bindscope.studies.binding_information.schemas import CURVE_SCHEMA
from bindscope.studies.binding_information.views import (
    family_order,
    order_models,
    token_order,
)
from bindscope.tables.groups import GroupMappings, home_of
from bindscope.tables.quoted import name_order

TARGETS = {
    "object": "O, plain probe",
    "chained": "F, counts, O: chained, anchored",
}
_ROLES = ("training", "fits")
_OF_TOKENS = {"mean": (0, (4, 1.5)), "cls_mean": (0, (1, 1))}  # others are solid
_LOSS: Final[dict[str, Any]] = {"x": "step", "y": "loss_bits"}


def histories(rows: Iterable[tuple[Sequence[Mapping[str, Any]], dict[str, str]]]) -> pd.DataFrame:
    """Return the rows `{seed, target, step, split, loss_bits}` of histories, and their names.

    `curve` numbers what is one line: a history, of probes a seed of one.
    """
    tables = [
        pd.DataFrame(list(losses)).assign(curve=str(i), **names)
        for i, (losses, names) in enumerate(rows)
        if losses
    ]
    if not tables:
        return pd.DataFrame({"split": []})
    table = pd.concat(tables, ignore_index=True)
    return (
        table.assign(curve=table["curve"] + table["seed"].astype(str)) if "seed" in table else table
    )


def _read_histories(inputs: Inputs) -> dict[str, Any]:
    """Read the histories of models and of fits; a group has one name, if all of it was read."""
    groups, controls = inputs.content["model_groups"], inputs.content["positive_controls"]
    read = {product.names["model"] for role in _ROLES for product in inputs.get(role)}
    home = home_of(group for group in groups if read.issuperset(group["models"]))
    by_role: dict[str, pd.DataFrame] = {}
    for role in _ROLES:
        rows = []
        for product in inputs.get(role):
            model = product.names["model"]
            names = {"model": show_model(home.get(model, model), model in controls)}
            if role == "fits":
                names |= {"tokens": product.names["tokens"], "family": family_of_fit(product)}
            rows.append((json.loads(Path(product.files["history"]).read_text()), names))
        by_role[role] = histories(rows)
    order = _shown_order(inputs.content["models"], groups, controls)
    return {"models": by_role["training"], "probes": by_role["fits"], "order": order}


def _shown_order(
    models: Sequence[str], groups: GroupMappings, controls: Collection[str]
) -> list[str]:
    """Return how models and groups are shown, in order; a group of controls is one too."""
    home = home_of(groups)
    of_controls = {*controls, *(home[name] for name in controls if name in home)}
    names = order_models(models, groups, controls)
    return [show_model(name, name in of_controls) for name in names]


@figure(_read_histories)
def training(models: pd.DataFrame, probes: pd.DataFrame, order: Sequence[str] = ()) -> Figure:
    """Draw `histories` of models in a row, and of probes in a row of panels per target."""
    probes = probes[probes["split"] == "val"]
    if not len(models) and not len(probes):
        raise NothingToDrawError("No training history was given.")
    names = name_order([name for rows in (models, probes) for name in rows.get("model", ())], order)
    color = {name: look["color"] for name, look in looks(names).items()}
    targets = [target for target in TARGETS if target in set(probes.get("target", ()))]
    n_rows = bool(len(models)) + len(targets)
    canvas = new_figure(0.9 + 1.75 * n_rows)
    parts = canvas.subfigures(n_rows, 1, squeeze=False)[:, 0]
    if len(models):
        _models(parts[0].subplots(), models, color)
    if targets:
        _probes(list(parts[bool(len(models)) :]), probes, targets, color)
    entries = [handle(name, color=color[name]) for name in names]
    for token in token_order(set(probes.get("tokens", ())) - {"patches"}):
        dashes = _OF_TOKENS.get(token, "-")
        entries.append(handle(label_tokens(token).name, color=INK, linestyle=dashes, linewidth=1))
    legend_below(canvas, entries, 4)
    return canvas


def _models(axes: Axes, models: pd.DataFrame, color: Mapping[str, str]) -> None:
    colors = models.drop_duplicates("curve").set_index("curve")["model"].map(color)
    look: dict[str, Look] = {str(curve): {"color": name} for curve, name in colors.items()}
    for split, width, alpha in (("train", 0.7, 0.6), ("val", 1.7, 1.0)):
        rows = models[models["split"] == split]
        lines(axes, rows, look, by="curve", **_LOSS, linewidth=width, alpha=alpha)
    axes.set_title("models: training loss (thin) and validation loss (thick)")
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_ylabel("loss of the objective,\nbits per scene", fontsize=7.5)
    axes.set_ylim(bottom=0)


def _probes(
    parts: Sequence[SubFigure],
    probes: pd.DataFrame,
    targets: Sequence[str],
    color: Mapping[str, str],
) -> None:
    """Draw a row of panels per target; a family's first panel has its name."""
    families = family_order(probes["family"])
    untitled = set(families)
    look: dict[str, Look] = {
        str(curve): {
            "color": color[rows["model"].iloc[0]],
            "linewidth": 1.0,
            "linestyle": _OF_TOKENS.get(rows["tokens"].iloc[0], "-"),
        }
        for curve, rows in probes.groupby("curve")
    }
    for part, target in zip(parts, targets, strict=True):
        grid = crossed((target,), families, (0, 0), part, sharey=True)
        facets(probes, look, grid, ("target", "family"), by="curve", **_LOSS)
        drawn = [family for (_, family), axes in grid.panels.items() if axes.lines]
        for (_, family), axes in grid.panels.items():
            if family not in drawn:  # a panel without lines is not shown
                axes.set_axis_off()
                continue
            axes.set_title(label_family(family).tick if family in untitled else "", fontsize=8)
            axes.set_xlabel("step")
            axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        untitled -= set(drawn)
        first = grid.panels[target, drawn[0]]
        first.tick_params(labelleft=True)
        first.set_ylabel(f"{TARGETS[target]}\nloss, bits per scene", fontsize=7.5)


_DASHES: Final = (0, (4, 2))
_CURVE = ["dataset", "model", "layer", "tokens", "probe"]
# The chain's parts; their sum replaces the last two where these are not separated.
_PARTS: Final = {quantity.name: WORDS[quantity] for quantity in (*PARTS, BEYOND)}


@figure(table_of(CURVE_SCHEMA, "models", "positive_controls"))
def learning_curve(
    table: pd.DataFrame, models: Sequence[str] = (), positive_controls: Collection[str] = ()
) -> Figure:
    """Draw bits against training scenes, a row of panels per dataset, a column per part."""
    rows = some(_parts(table), "No probe was fitted on several numbers of scenes.")
    rows["model"] = [show_model(name, name in positive_controls) for name in rows["model"]]
    rows["line"] = _line_names(rows)
    order = name_order(rows["model"], _shown_order(models, (), positive_controls))
    lines = [line for model in order for line in rows.loc[rows["model"] == model, "line"].unique()]
    look = looks(lines)
    datasets = sorted(rows["dataset"].unique())
    quantities = [name for name in _PARTS if name in set(rows["quantity"])]
    grid = crossed(datasets, quantities, (1.1 + 0.12 * len(lines), 2.1), sharex=True)
    facets(
        rows, look, grid, ("dataset", "quantity"), x="n_train_scenes", y=CURVE_BOUND.value, band=0.2
    )
    for (dataset, quantity), axes in grid.panels.items():
        part = rows[(rows["dataset"] == dataset) & (rows["quantity"] == quantity)]
        if len(part):
            _ends(axes, part, look)
            axes.set_title(_PARTS[quantity], fontsize=8.5)
        else:
            axes.set_axis_off()
    several = len(datasets) > 1
    of_rows = [
        f"{dataset}\nbits per scene" if several else "bits per scene" for dataset in datasets
    ]
    grid.label("training scenes", of_rows)
    marks = [
        handle("lower bound, 95 % interval", color=INK),
        handle("extrapolated asymptote", color=INK, linestyle=_DASHES, linewidth=1),
        handle("entropy", color=GREY, linestyle=":"),
    ]
    return grid.legend(look, *marks, per_row=3)


def _parts(table: pd.DataFrame) -> pd.DataFrame:
    """Return the chain's parts, means over seeds; an end only where every seed has one."""
    rows = table[table["quantity"].isin(list(_PARTS)) & (table["control"] == "none")]
    rows = rows[rows[CURVE_BOUND.value].notna()]
    apart = set(rows.loc[rows["quantity"] == PAIRING.name, "dataset"])
    rows = rows[(rows["quantity"] != BEYOND.name) | ~rows["dataset"].isin(apart)]
    numbers = [c.name for c in CURVE_SCHEMA.columns if c.kind == "float64"]
    groups = rows.groupby([*_CURVE, "quantity", "n_train_scenes"], sort=False, observed=True)
    means = groups[numbers].mean()
    ends = list(ASYMPTOTE.interval)
    means[ends] = means[ends].where(groups[ASYMPTOTE.value].count() == groups.size())
    return means.reset_index()


def _line_names(rows: pd.DataFrame) -> pd.Series[str]:
    """Name each curve by its model and token input, and by what else tells curves apart."""
    tokens = rows["tokens"].map(lambda token: label_tokens(token).name)
    names = rows["model"] + ", " + tokens
    for column in ("layer", "probe"):
        differs = rows.groupby(["model", "tokens"])[column].transform("nunique") > 1
        if differs.any() or (column == "probe" and rows["probe"].nunique() > 1):
            names = names + ", " + ("layer " if column == "layer" else "") + rows[column]
    return names


def _ends(axes: Axes, part: pd.DataFrame, look: Mapping[str, Look]) -> None:
    """Draw where each curve would end, and the entropy."""
    counts = sorted(part["n_train_scenes"].unique())
    right = counts[-1] * (counts[-1] / counts[0]) ** 0.22
    n_lines = max(part["line"].nunique(), 2)
    for i, (line, curve) in enumerate(part.groupby("line", sort=False)):
        last, color = curve.sort_values("n_train_scenes").iloc[-1], look[str(line)]["color"]
        end, low, high = (last[name] for name in ASYMPTOTE.interval)
        if pd.notna(end):
            place = right * (right / counts[-1]) ** (0.5 * i / (n_lines - 1))
            way = [last["n_train_scenes"], place], [last[CURVE_BOUND.value], end]
            axes.plot(*way, color=color, linestyle=_DASHES, linewidth=1)
            axes.errorbar(
                [place], [end], [[end - low], [high - end]], color=color, fmt="_", capsize=2, lw=1
            )
    axes.axhline(part["entropy_bits"].iloc[0], color=GREY, linestyle=":")
    zero_line(axes)
    axes.set_xscale("log")
    axes.set_xticks(counts, [f"{n:,.0f}" for n in counts], rotation=30)
    axes.minorticks_off()
