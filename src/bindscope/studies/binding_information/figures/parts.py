"""The headline: features, counts and pairing, by model and by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bindscope.figures.colors import GREY, INK
from bindscope.figures.facets import Look, broken, facets, wrapped
from bindscope.figures.figure import curves_of, figure, some
from bindscope.figures.hover import moved_right
from bindscope.figures.style import handle, legend_below, new_figure, zero_line
from bindscope.studies.binding_information.figures.shared import (
    LABEL_ROWS,
    assumed_entry,
    baseline_lines,
    binding_and,
    has_assumed_prior,
    hatched,
    marked,
)
from bindscope.studies.binding_information.names import COLORS, WORDS, label_tokens, show_model
from bindscope.studies.binding_information.quantities import COUNTS, FEATURES, WHOLE
from bindscope.studies.binding_information.views import (
    SMALLEST_BITS,
    layer_places,
    model_labels,
    parts_of,
    quote,
    strongest_baselines,
    token_order,
)
from bindscope.tables.numbers import at_least, number
from bindscope.tables.quantities import Quantity
from bindscope.tables.quoted import AT_LEAST, Quoted, TableRow, name_order

_GAP = 0.035  # between two parts, of the sum of their entropies
_BAR = 0.74
_ROW_IN, _HEAD_IN = 0.19, 0.75
_BOLD: dict[str, Any] = {"fontsize": 8, "fontweight": "bold"}
_NARROW_LABEL = 22  # characters of a row's name in a line
_NARROW_IN = 3.2  # of a figure for a narrow screen, where 7.5 points are 12 pixels
_WIDE = 0.5  # of a box: a bar so long has its number inside
_OUTLINE: dict[str, Any] = {"facecolor": "#F3F3F3", "edgecolor": "#A8A8A8", "linewidth": 0.7}
_SEED: dict[str, Any] = {
    "marker": "o",
    "color": INK,
    "markersize": 2.2,
    "linestyle": "none",
    "zorder": 5,
}


class Box(NamedTuple):
    """Where a part is drawn: its left end and its width, bits."""

    part: Quantity
    start: float
    bits: float


@figure(binding_and("datasets"))
def parts(table: pd.DataFrame, models: Sequence[str] = (), datasets: Sequence[str] = ()) -> Figure:
    """Draw the parts of what best probes decode as bars in boxes, which are their entropies.

    A panel per dataset, a block of rows per token input, a row per model or model group. A row
    whose fits may not be quoted is an empty box with the flag.
    """
    quoted = quote(table, models)
    names = some(
        name_order(quoted.names("dataset"), datasets),
        "No model other than the known-answer encoders has a best row (chained probes).",
    )
    n_baselines = {name: len(strongest_baselines(table, name, WHOLE)) for name in names}
    n_rows = {name: _n_lines(quoted[name]) + LABEL_ROWS * n_baselines[name] for name in names}
    heights = [_HEAD_IN + _ROW_IN * n for n in n_rows.values()]
    grid = wrapped(names, 1, (sum(heights) + 0.45, 0), gridspec_kw={"height_ratios": heights})
    for name, axes in grid.panels.items():
        _panel(axes, name, quoted[name], table, models)
    legend_below(grid.figure, _entries(quoted), 4)
    return grid.figure


@figure(binding_and("datasets"))
def parts_narrow(
    table: pd.DataFrame, models: Sequence[str] = (), datasets: Sequence[str] = ()
) -> Figure:
    """Draw `parts` of the first dataset for a narrow screen: a panel per part, in a column."""
    quoted = quote(table, models)
    names = some(name_order(quoted.names("dataset"), datasets), "There is no figure of parts.")
    name, *others = names
    here = quoted[name]
    boxes = part_boxes(_some_row(name, here, table))
    n_rows = _n_lines(here) + LABEL_ROWS * len(strongest_baselines(table, name, WHOLE))
    height = _HEAD_IN + 1.3 * _ROW_IN * n_rows
    canvas = new_figure(height * len(boxes) + 1.0, _NARROW_IN)
    note = f" (first of {len(names)} datasets)" if others else ""
    canvas.suptitle(
        f"{_marked(name, here)}{note}", fontsize=9, fontweight="bold", x=0.01, ha="left"
    )
    grid = wrapped([box.part for box in boxes], 1, (0, 0), on=canvas)
    for box in boxes:
        _panel(grid.panels[box.part], name, here, table, models, [box._replace(start=0.0)])
    legend_below(canvas, _entries(here), 1)
    return canvas


def _entries(quoted: Quoted) -> list[Any]:
    """Return the legend's entries."""
    entries: list[Any] = [
        Patch(label="entropy", **_OUTLINE),
        Patch(color=GREY, label="decoded, at least (≥)"),
    ]
    if (quoted.rows["n_models"] > 1).any():
        entries.append(handle("training seed", **_SEED))
        entries.append(handle("95 % interval over training seeds", color=INK, linewidth=1.2))
    return entries + (assumed_entry(quoted.rows) if len(quoted) else [])


def _marked(dataset: str, quoted: Quoted) -> str:
    """Return a dataset's name, with a dagger if its prior is estimated."""
    return marked(dataset, len(quoted) > 0 and has_assumed_prior(quoted.rows))


def _some_row(dataset: str, quoted: Quoted, table: pd.DataFrame) -> TableRow:
    """Return a row of a dataset, for what all its rows share."""
    rows = quoted.rows if len(quoted) else table[table["dataset"] == dataset]
    return dict(rows.iloc[0])


def _n_lines(quoted: Quoted) -> int:
    """Return the number of rows of a panel, headings of token inputs included."""
    places = pd.concat([rows[["tokens", "model"]] for rows in (quoted.rows, quoted.refused)])
    return len(places.drop_duplicates()) + places["tokens"].nunique()


def _panel(
    axes: Axes,
    dataset: str,
    quoted: Quoted,
    table: pd.DataFrame,
    models: Sequence[str],
    only: Sequence[Box] = (),
) -> None:
    """Draw a dataset's boxes, or `only` some of them."""
    like = _some_row(dataset, quoted, table)
    boxes = only or part_boxes(like)
    if not only:
        _title(axes, _marked(dataset, quoted), like, boxes)
    name_boxes(axes, boxes)
    place: dict[str, Any] = {"xycoords": ("figure fraction", "data")} if only else {}
    y, ticks = 0, []
    for token in token_order(quoted.names("tokens")):
        words = f"decoded from {label_tokens(token).words}"
        heading = axes.annotate(words, (0, y + 0.12), va="center", **_BOLD, **place)
        heading.set_in_layout(False)
        of_token = quoted.where(tokens=token)
        for name in name_order(of_token.names("model"), models):
            y += 1
            here = of_token.where(model=name)
            if len(here):
                _bars(axes, y, here, boxes)
                _seeds(axes, y, here, boxes[-1])
            else:
                _empty(axes, y, here.refused["flags"].iloc[0], boxes)
            label = _label(name, here)
            ticks.append((y, fill(label, _NARROW_LABEL) if only else label))
        y += 1
    axes.set_yticks([at for at, _ in ticks], [text for _, text in ticks])
    last = y - 0.4
    for part, start, bits in boxes:
        values = strongest_baselines(table, dataset, part)
        baseline_lines(axes, values, (0.5, last), start, bits / 2, WORDS[part])
    axes.set_ylim(last + LABEL_ROWS * len(strongest_baselines(table, dataset, WHOLE)), -0.55)
    axes.set_xlim(-0.005 * boxes[-1].start, boxes[-1].start + 1.005 * boxes[-1].bits)
    hide_frame(axes)


def part_boxes(like: TableRow) -> list[Box]:
    """Place the parts side by side; one of which there is none has no box."""
    all_parts = [(part, float(like[part.entropy])) for part in parts_of(like)]
    gap = _GAP * sum(bits for _, bits in all_parts)
    boxes, start = [], 0.0
    for part, bits in all_parts:
        if bits > SMALLEST_BITS:
            boxes.append(Box(part, start, bits))
            start += bits + gap
    return boxes or [Box(all_parts[-1][0], 0.0, 1.0)]


def _title(axes: Axes, dataset: str, like: TableRow, boxes: Sequence[Box]) -> None:
    """Name the dataset, with the bits that there are, and parts without a box."""
    whole = number(like[WHOLE.entropy])
    axes.set_title(f"{dataset}: {whole} bits of entropy per scene", pad=29)
    drawn = [box.part for box in boxes]
    without = [WORDS[part] for part in parts_of(like) if part not in drawn]
    note = "".join(f"{words}: 0 bits, implied by the features" for words in without)
    axes.annotate(
        note,
        (1, 1),
        textcoords="offset points",
        xycoords="axes fraction",
        xytext=(0, 30),
        ha="right",
        fontsize=7.5,
        color="#444444",
    )


def name_boxes(axes: Axes, boxes: Sequence[Box]) -> None:
    """Name the parts above their boxes, with the bits that there are."""
    above = partial(axes.annotate, textcoords="offset points")
    for part, start, bits in boxes:
        place: dict[str, Any] = {
            "xy": (start, 1),
            "xycoords": ("data", "axes fraction"),
            "xytext": (0, 3),
        }
        head = f"{WORDS[part]}\n"
        above(head, **place, **_BOLD, color=COLORS[part])
        words = f"{part.entropy_symbol} = {number(bits)} bits"
        above(words, **place, fontsize=7.5, color="#444444")


def _bars(axes: Axes, y: float, here: Quoted, boxes: Sequence[Box]) -> None:
    look = hatched(has_assumed_prior(here.rows))
    for box in boxes:
        estimate = here.best(box.part)
        words = f"{estimate.words} ({at_least(100 * estimate.value / box.bits, 0)} %)"
        part_bar(axes, y, box, estimate.value, words, **look)


def part_bar(axes: Axes, y: float, box: Box, value: float, words: str, **look: Any) -> None:
    """Draw what is decoded of a part, bits, in its box, and say it in words."""
    name, color = WORDS[box.part], COLORS[box.part]
    bar_in_box(axes, y, box.start, box.bits, value, words, name=name, color=color, **look)


def bar_in_box(
    axes: Axes,
    y: float,
    start: float,
    bits: float,
    value: float,
    words: str,
    *,
    name: str,
    **look: Any,
) -> None:
    """Draw a bar in a box `bits` wide, with words in the longer of its two parts.

    `name` is that of both: what is decoded, and all there is.
    """
    axes.barh(y, bits, _BAR, left=start, **_OUTLINE)[0].set_label(f"entropy of {name}")
    bar = axes.barh(y, value, _BAR, left=start, linewidth=0, **look)
    bar[0].set_label(f"{name} decoded{', at least' if words.startswith(AT_LEAST) else ''}")
    inside = value > _WIDE * bits
    axes.annotate(
        words,
        (start if inside else start + bits, y),
        xytext=(4 if inside else -4, -0.5),
        textcoords="offset points",
        va="center",
        ha="left" if inside else "right",
        fontsize=7,
        color="white" if inside else INK,
    )


def hide_frame(axes: Axes) -> None:
    """Leave only names of rows around boxes."""
    axes.tick_params(left=False, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)


def _seeds(axes: Axes, y: float, here: Quoted, box: Box) -> None:
    """Draw the training seeds of the last part, and the interval over them."""
    if len(here.single) < 2:
        return
    estimate, values = here.best(box.part), here.single[box.part.value].to_numpy(float)
    ends = np.minimum([estimate.low, estimate.high], box.bits)
    line: dict[str, Any] = {"transform": moved_right(axes, box.start)}
    name = f"{WORDS[box.part]}, 95 % interval over training seeds"
    axes.plot(ends, [y, y], color=INK, linewidth=1.2, zorder=4, label=name, **line)
    name = f"{WORDS[box.part]}, training seed"
    axes.plot(values, [y] * len(values), **_SEED, label=name, **line)


def _empty(axes: Axes, y: float, flags: str, boxes: Sequence[Box]) -> None:
    for _, start, bits in boxes:
        axes.barh(y, bits, _BAR, left=start, **_OUTLINE)
    axes.annotate(
        f"not quoted: {flags}",
        (boxes[0].start, y),
        xytext=(4, -0.5),
        textcoords="offset points",
        va="center",
        fontsize=7,
        fontstyle="italic",
    )


def _label(name: str, here: Quoted) -> str:
    """Return a row's name; of a group with some models left out, how many there are."""
    n, out = (int(rows["n_models"].sum()) for rows in (here.rows, here.refused))
    some_row = (here.rows if n else here.refused).iloc[0]
    label = show_model(name, bool(some_row["is_control"]))
    return f"{label} ({n} of {n + out} seeds)" if n and out else label


# --- Layer by layer -----------------------------------------------------------------------------

_COLUMNS = 7
_NAME_WIDTH = 15  # characters of a panel's name in a line
_DASHES = {FEATURES: "-", COUNTS: (0, (4, 1.5))}  # others are wide and solid


def _shares(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Look]]:
    """Return the share of each part that was read, in percent, and how the parts are shown.

    The last part, which the study is about, has the widest line.
    """
    tidy, look = [], dict[str, Look]()
    for _, curve in rows.groupby(["dataset", "model", "tokens"], sort=False):
        first = curve.iloc[0].to_dict()
        for part in parts_of(first):
            name, bits = WORDS[part], float(first[part.entropy])
            if bits <= SMALLEST_BITS:
                continue
            look[name] = {
                "color": COLORS[part],
                "linewidth": 1.1 if part in _DASHES else 2.0,
                "linestyle": _DASHES.get(part, "-"),
            }
            several = curve["n_models"] > 1
            value, low, high = (100.0 / bits * curve[column] for column in part.interval)
            ends = {"value_low": low.where(several), "value_high": high.where(several)}
            tidy.append(curve.assign(line=name, value=value, bound=part.value, bits=bits, **ends))
    return pd.concat(tidy), look


@figure(binding_and("datasets"))
def parts_layers(
    table: pd.DataFrame, models: Sequence[str] = (), datasets: Sequence[str] = ()
) -> Figure:
    """Draw the share of each part by layer: a column per model, a row per dataset and tokens.

    A layer whose fits may not be quoted has no point.
    """
    quoted = quote(table, models, last=False)
    rows = curves_of(
        quoted.rows,
        ["dataset", "model", "tokens"],
        "layer",
        "No model has best rows (chained probes) at three layers or more.",
    )
    rows = rows.assign(x=layer_places(rows), line_of=rows["dataset"] + "\n" + rows["tokens"])
    lines = {
        f"{dataset}\n{token}": (dataset, token)
        for dataset in name_order(rows["dataset"], datasets)
        for token in token_order(rows.loc[rows["dataset"] == dataset, "tokens"])
    }
    places = {line: i for i, line in enumerate(lines)}
    tidy, look = _shares(rows.sort_values("line_of", key=lambda c: c.map(places), kind="stable"))
    labels = model_labels(rows, models)
    grid = broken(lines, labels, _COLUMNS, (0.75, 1.45), sharex=True, sharey=True)
    facets(tidy, look, grid, ("line_of", "model"), band=0.18)
    for (line, name), axes in grid.panels.items():
        model_rows = tidy[(tidy["line_of"] == line) & (tidy["model"] == name)]
        if len(model_rows):
            _dots(axes, model_rows, quoted.single, look)
        if line == next(iter(lines)):
            axes.set_title(fill(labels[name], _NAME_WIDTH, break_long_words=False), fontsize=8)
    heads = [
        f"{marked(dataset, has_assumed_prior(tidy[tidy['line_of'] == line]))}\n"
        f"{label_tokens(token).name}\ndecoded, at least, %"
        for line, (dataset, token) in lines.items()
    ]
    grid.label(y=heads * len(grid.left), fontsize=7.5)
    first, deepest = int(rows["x"].min()), int(rows["x"].max())
    for axes in grid.bottom:
        axes.set_xticks(range(first, deepest + 1, max(1, -(-deepest // 4))))
    grid.label("layer")
    seeds = handle("training seeds; band: 95 % interval", marker=".", color=INK, linestyle="")
    return grid.legend(look, *([seeds] if (rows["n_models"] > 1).any() else []), per_row=4)


def _dots(axes: Axes, tidy: pd.DataFrame, single: pd.DataFrame, look: Mapping[str, Look]) -> None:
    """Draw the training seeds of a panel's lines, where a model has several, and 0 and 100 %."""
    first = tidy.iloc[0]
    same = (single["dataset"] == first["dataset"]) & (single["tokens"] == first["tokens"])
    for line, curve in tidy.groupby("line", sort=False):
        each = single[same & (single["group"] == first["model"])]
        each = each.merge(curve[["layer", "x"]], on="layer")
        if len(each) > len(curve):
            share, bound = 100.0 / curve["bits"].iloc[0], str(curve["bound"].iloc[0])
            color = look[str(line)]["color"]
            axes.plot(each["x"], share * each[bound], ".", color=color, markersize=2)
    zero_line(axes)
    axes.axhline(100, color=INK, linewidth=0.7, linestyle=(0, (4, 2)))
