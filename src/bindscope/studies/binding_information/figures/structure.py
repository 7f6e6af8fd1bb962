"""Test loss by probe family, which says how objects are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from types import MappingProxyType
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from safetensors.numpy import load_file

from bindscope.core.interfaces import Inputs
from bindscope.figures.colors import GREY, INK
from bindscope.figures.facets import Look, colored, facets, wrapped
from bindscope.figures.figure import figure, some
from bindscope.figures.style import (
    handle,
    legend_below,
    looks,
    new_figure,
    note_above,
    reference_line,
    values_along_x,
    zero_line,
)
from bindscope.studies.binding_information.figures.shared import (
    assumed_entry,
    binding_and,
    draw_stars,
    family_of_fit,
    has_assumed_prior,
    marked,
    star_entries,
)
from bindscope.studies.binding_information.names import (
    PAPERS,
    label_family,
    label_tokens,
    show_model,
)
from bindscope.studies.binding_information.published import (
    NO_VALUES,
    beside,
    input_sides,
    read_papers_table,
    slug,
)
from bindscope.studies.binding_information.quantities import PAPER_WHOLE, WHOLE
from bindscope.studies.binding_information.sharing_cost import (
    SharingCost,
    from_arrays,
    sharing_costs,
)
from bindscope.studies.binding_information.views import (
    dataset_tokens,
    family_order,
    last_layers,
    measured,
    model_labels,
    named_groups,
    over_seeds,
)
from bindscope.tables.numbers import number

INCREASE = "loss_object_increase_bits"
_SPREAD = 0.24  # of the models around a family's place, so that their intervals do not overlap


def _seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Rows per seed of last layers that several families were fitted to; attention stands apart."""
    rows = last_layers(measured(table))
    rows = rows[(rows["tokens"] != "patches") & rows["loss_object_bits"].notna()]
    count = rows.groupby(["dataset", "model", "tokens"])["family"].transform("nunique")
    return rows[count > 1] if len(rows) else rows


def _costs(inputs: Inputs) -> list[SharingCost]:
    """Read the cost of sharing off the losses of scenes."""
    fits = []
    for product in inputs.get("fits"):
        names = (product.names["dataset"], product.names["model"], product.names["tokens"])
        fits.append(
            (names, family_of_fit(product), from_arrays(load_file(product.files["details"])))
        )
    about = inputs.content["information"]
    return sharing_costs(fits, about["bootstrap_samples"], about["bootstrap_seed"])


@figure(binding_and(published=read_papers_table, sides=input_sides, costs=_costs))
def structure(
    table: pd.DataFrame,
    published: pd.DataFrame = NO_VALUES,
    models: Sequence[str] = (),
    costs: Sequence[SharingCost] = (),
    sides: Mapping[str, int | None] = MappingProxyType({}),
) -> Figure:
    """Draw the test loss of O by family, a panel per dataset and token input.

    Below, where the shared quadratic probe was fitted too: how many bits more it loses than the
    quadratic one (`sharing_costs`).
    """
    seeds = some(_seeds(table), "No model was probed with more than one family at its last layer.")
    seeds = named_groups(seeds)
    rows = over_seeds(seeds)
    labels = model_labels(rows, models)
    rows = rows.assign(line=rows["model"].map(labels))
    marks = beside(table, published, sides)
    names = list(labels.values())
    cost = pd.DataFrame(costs, columns=SharingCost._fields)
    drawn = seeds["group"].where(seeds["group"].isin(list(labels)), seeds["model"])
    seeds = seeds.assign(line=drawn.map(labels))
    controls = dict(zip(seeds["model"], seeds["is_control"], strict=True))
    cost = cost.merge(seeds[["model", "line"]].drop_duplicates("model"), on="model")
    cost["label"] = [show_model(name, bool(controls[name])) for name in cost["model"]]
    cost = cost.sort_values("line", key=lambda c: c.map(names.index), kind="stable")
    look = looks(names)
    panels = dataset_tokens(rows)
    heights = [0.5 + 2.5 * -(-len(panels) // 2)]
    if len(cost):
        heights.append(0.8 + 0.22 * len(cost))
    canvas = new_figure(sum(heights) + 0.5)
    parts = canvas.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    _losses(parts[0], panels, rows, seeds, look, marks)
    if len(cost):
        published_cost = paper_cost(published)
        cost["paper"] = _beside(cost, published_cost, marks)
        _cost(parts[1], cost, look, several=rows["dataset"].nunique() > 1)
        note_above(canvas, paper_words(published_cost, bool(cost["paper"].notna().any())))
    without_input = handle(
        "probe without input",
        marker="o",
        markerfacecolor="white",
        markeredgecolor=GREY,
        linestyle="none",
    )
    model_entries = [handle(name, **look[name]) for name in names]
    entries = [*model_entries, without_input, *star_entries(marks), *assumed_entry(rows)]
    legend_below(canvas, entries, 4)
    return canvas


def paper_cost(published: pd.DataFrame) -> Mapping[Any, Any] | None:
    """Return the paper's number for the cost of sharing, a row of the file, or None."""
    rows = published[published["quantity"] == INCREASE].to_dict("records")
    return rows[0] if rows else None


def paper_words(published: Mapping[Any, Any] | None, comparable: bool) -> str:
    """Quote the paper's cost of sharing, and say whether it is comparable."""
    if published is None:
        return ""
    text = (
        f"Binding problem paper ({published['table']}), {slug(published['model'])} on "
        f"{published['dataset']}: the shared quadratic probe loses "
        f"{number(published['value'], '+.1f')} bits."
    )
    if comparable:
        return text
    return f"{text} Not comparable: other scenes, model, input or protocol here."


def _beside(
    cost: pd.DataFrame, published: Mapping[Any, Any] | None, marks: pd.DataFrame
) -> list[float]:
    """Return the paper's cost for each row that it is comparable with, NaN for the others.

    Probes of another protocol than the paper's hold a linear map per object, which is not shared.
    """
    if published is None:
        return [nan] * len(cost)
    place = slug(published["dataset"]), slug(published["model"]), published["tokens"]
    same = marks[marks["same"]]
    known = place in set(zip(same["our_dataset"], same["our_model"], same["tokens"], strict=True))
    ours = zip(cost["dataset"], cost["model"], cost["tokens"], cost["released"], strict=True)
    return [
        float(published["value"]) if known and names == (*place, True) else nan for names in ours
    ]


def _losses(
    part: SubFigure,
    panels: Sequence[tuple[str, str]],
    rows: pd.DataFrame,
    seeds: pd.DataFrame,
    looks: Mapping[str, Look],
    marks: pd.DataFrame,
) -> None:
    families = family_order(rows["family"])
    several = rows["dataset"].nunique() > 1
    grid = wrapped(panels, 2, (0, 0), part, sharex=True, sharey="row")
    # A higher bound on B_O is a lower loss.
    h_object = rows[WHOLE.entropy]
    ends = {
        "value_low": h_object - rows[PAPER_WHOLE.high],
        "value_high": h_object - rows[PAPER_WHOLE.low],
    }
    rows = rows.assign(value=rows["loss_object_bits"], x=rows["family"].map(families.index), **ends)
    rows = rows.sort_values("probe", kind="stable")
    how: dict[str, Any] = {"panel": ["dataset", "tokens"], "apart": _SPREAD / len(looks)}
    # Another protocol is no further family: no line leads to it.
    for _, joined in rows.groupby(rows["family"].str.endswith(PAPERS)):
        facets(joined, looks, grid, bars=1, **how)
    seeds = seeds.assign(
        value=seeds["loss_object_bits"], x=seeds["family"].map(families.index) + 0.05
    )
    dots = colored(looks, marker=".", linestyle="none", markersize=3, alpha=0.6)
    facets(_with_several(seeds), dots, grid, **how)
    for (dataset, token), axes in grid.panels.items():
        here = rows[(rows["dataset"] == dataset) & (rows["tokens"] == token)]
        nulls = here.drop_duplicates("probe")  # the same for every model
        axes.plot(
            nulls["x"],
            nulls["null_loss_object_bits"],
            "o",
            markerfacecolor="white",
            markeredgecolor=GREY,
            zorder=1,
        )
        axes.set_xticks(range(len(families)), [label_family(family).tick for family in families])
        axes.set_xlim(-0.3, len(families) - 0.7)
        axes.margins(y=0.1)
        losses = marks[marks["quantity"] == "loss_object_bits"]
        losses = losses[(losses["our_dataset"] == dataset) & (losses["tokens"] == token)]
        losses = losses[losses["our_family"].isin(families)]
        places = losses["our_family"].map(families.index)
        draw_stars(axes, places, losses["value"], losses["same"])
        name = label_tokens(token).name
        axes.set_title(f"{dataset}, {name}" if several else name)
        entropy = marked("H(O)", has_assumed_prior(here))
        reference_line(axes, here[WHOLE.entropy].iloc[0], entropy)
        _shade_worse(axes, float(here[WHOLE.entropy].iloc[0]))
    grid.label(y="test loss of O, bits per scene")


def _shade_worse(axes: Axes, entropy: float) -> None:
    """Shade losses above the entropy, where no more is decoded than the distribution gives."""
    high = axes.get_ylim()[1]
    if high > entropy:
        axes.axhspan(entropy, high, color="#F0F0F0", zorder=0, linewidth=0)
        axes.set_ylim(top=high)
        axes.annotate(
            "worse than the scene distribution alone",
            (1, high),
            xycoords=("axes fraction", "data"),
            xytext=(-4, -4),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=7,
            color=INK,
        )


def _with_several(seeds: pd.DataFrame) -> pd.DataFrame:
    """Keep rows of curves that are means over several models or seeds."""
    fit = seeds["model"] + " " + seeds["seed"].astype(str)
    n_fits = fit.groupby([seeds[name] for name in ("dataset", "tokens", "line")])
    return seeds[n_fits.transform("nunique") > 1]


def _cost(part: SubFigure, cost: pd.DataFrame, looks: Mapping[str, Look], several: bool) -> None:
    """Draw the cost of sharing as bars, with intervals, seeds and the paper's number."""
    axes = part.subplots()
    values_along_x(axes)
    zero_line(axes, vertical=True)
    labels = []
    for i, row in enumerate(cost.to_dict("records")):
        color = looks[row["line"]]["color"]
        axes.barh(i, row["cost_bits"], 0.6, color=color, alpha=0.6, linewidth=0)
        axes.hlines(i, row["low"], row["high"], color=color, linewidth=1.2)
        axes.plot(row["seed_costs"], [i] * len(row["seed_costs"]), ".", color=color, markersize=4)
        draw_stars(axes, [row["paper"]], [i], [True])
        text = number(row["cost_bits"], "+.1f")
        axes.annotate(
            text,
            (max(row["high"], *row["seed_costs"], 0), i),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
        )
        where = f", {row['dataset']}" if several else ""
        how = ", published protocol" if row["released"] else ""
        labels.append(f"{row['label']}, {label_tokens(row['tokens']).name}{where}{how}")
    axes.set_yticks(range(len(cost)), labels)
    axes.set_ylim(len(cost) - 0.4, -0.6)
    axes.set_xlabel("what sharing costs: loss of the shared quadratic minus the quadratic, bits")
