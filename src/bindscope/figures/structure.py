"""F8: test loss by probe family, which tells how the code of objects is built (spec 1, sec. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.style import (
    FAMILY_SHORT,
    GREY,
    TOKEN_NAMES,
    colours,
    handle,
    legend_below,
    markers,
    new_figure,
    reference_line,
    styled,
)
from bindscope.tables.published import slug
from bindscope.tables.views import (
    family_order,
    last_layers,
    measured,
    name_order,
    over_seeds,
    token_order,
)

INCREASE = "loss_object_increase_bits"


def _rows(table: pd.DataFrame) -> pd.DataFrame:
    rows = over_seeds(last_layers(measured(table, known_answer=False)))
    rows = rows[(rows["tokens"] != "patches") & rows["loss_object_bits"].notna()]
    count = rows.groupby(["dataset", "model", "tokens"])["family"].transform("nunique")
    return rows[count > 1] if len(rows) else rows


def available(table: pd.DataFrame) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if not len(_rows(table)):
        return "No model was probed with more than one family at its last layer."
    return None


@styled
def draw(
    table: pd.DataFrame, published: pd.DataFrame | None = None, models: Sequence[str] = ()
) -> Figure:
    """Draw the test loss of O by family, from linear to neural net.

    Parameters
    ----------
    table
        `binding_information`.
    published
        The paper's numbers: the cost of sharing is quoted in words, as a reference.
    models
        Order of the models, the configuration's.

    Returns
    -------
    Figure
        A panel per dataset and token input. Full markers: the probe; open grey ones: the same
        probe with z = 0; dashed line: H(O), the loss of knowing the prior alone.
    """
    rows = _rows(table)
    names = name_order(rows["model"], models)
    colour, marker = colours(names), markers(names)
    families = family_order(rows["family"])
    panels = [
        (dataset, token)
        for dataset in sorted(rows["dataset"].unique())
        for token in token_order(rows.loc[rows["dataset"] == dataset, "tokens"])
    ]
    n_columns = min(2, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure = new_figure(0.9 + 2.5 * n_rows)
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey="row", squeeze=False)
    several = rows["dataset"].nunique() > 1
    for axes, (dataset, token) in zip(grid.flat, panels, strict=False):
        part = rows[(rows["dataset"] == dataset) & (rows["tokens"] == token)]
        _panel(axes, part, names, families, colour, marker)
        axes.set_title(f"{dataset}, {TOKEN_NAMES[token]}" if several else TOKEN_NAMES[token])
        reference_line(axes, part["h_object_bits"].iloc[0], "H(O)")
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes in list(grid.flat)[: len(panels)][-n_columns:]:  # the lowest panel of each column
        axes.tick_params(labelbottom=True)
    for axes in grid[:, 0]:
        axes.set_ylabel("test loss of O, bits per scene")
    entries = [handle(n, color=colour[n], marker=marker[n]) for n in names]
    entries.append(
        handle("probe without input", marker="o", markerfacecolor="white",
               markeredgecolor=GREY, linestyle="none")
    )  # fmt: skip
    legend_below(figure, entries, 4)
    note = sharing_note(rows, published)
    if note:
        note = "\n".join(line for text in note.split("\n") for line in wrap(text, 110))
        figure.suptitle(note, fontsize=7.5, x=0.01, ha="left", color="#444444")
    return figure


def sharing_note(rows: pd.DataFrame, published: pd.DataFrame | None) -> str:
    """Say what sharing the quadratic probe's weights costs here ([CLS]), and in the paper."""
    cls = rows[rows["tokens"] == "cls"]
    wide = cls.pivot_table(
        index=["dataset", "model"], columns="family", values="loss_object_bits", sort=False
    )
    parts = []
    if {"quadratic", "quadratic_reuse"} <= set(wide):
        cost = (wide["quadratic_reuse"] - wide["quadratic"]).dropna()
        parts += [f"{row[1]} {value:+.1f}" for row, value in cost.items()]  # type: ignore[index]
    text = f"Cost of sharing the quadratic probe, [CLS], bits: {', '.join(parts)}" if parts else ""
    if published is not None and parts:
        quoted = published[published["quantity"] == INCREASE]
        text += "".join(
            f"\nThe paper, {slug(str(row.model))} on {row.dataset}: {row.value:+.1f}"
            for row in quoted.itertuples()
        )
    return text


def _panel(
    axes: Axes,
    part: pd.DataFrame,
    names: Sequence[str],
    families: Sequence[str],
    colour: dict[str, str],
    marker: dict[str, str],
) -> None:
    for name in names:
        curve = part[part["model"] == name].copy()
        curve["x"] = [families.index(family) for family in curve["family"]]
        curve = curve.sort_values(["x", "probe"], kind="stable")
        axes.plot(curve["x"], curve["loss_object_bits"], color=colour[name], marker=marker[name])
        axes.plot(
            curve["x"], curve["null_loss_object_bits"], "o", markerfacecolor="white",
            markeredgecolor=GREY, zorder=1,
        )  # fmt: skip
    axes.set_xticks(range(len(families)), [FAMILY_SHORT[family] for family in families])
    axes.set_xlim(-0.3, len(families) - 0.7)
    axes.margins(y=0.1)
