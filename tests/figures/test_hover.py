"""Figures carry their values: invisible marks in the SVG, where the value is drawn."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bindscope.figures.colors import LARGEST_SVG_BYTES
from bindscope.figures.hover import collect_marks, moved_right
from bindscope.figures.style import handle, legend_below, new_figure, placeholder, save

RECT = re.compile(
    r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" '
    r'data-of="([^"]+)" data-names="([^"]*)"><title>([^<]*)</title></rect>'
)


def test_lines_bars_intervals_and_cells_say_their_values() -> None:
    figure = new_figure(3)
    panel, middle, right = figure.subplots(1, 3)
    panel.plot([1, 2], [0.25, -0.5], marker="o", color="#0072B2")
    panel.axhline(0.1)
    panel.set(title="a panel", xlabel="layer", ylabel="bits")
    middle.barh([0, 1, 2], [3, 4, np.nan])  # NaN: nothing is drawn, and nothing said
    middle.plot([2.5, 3.5], [0, 0], color="#1A1A1A")
    middle.set_yticks([0, 1], ["first", "second"])
    middle.set_xlabel("count")
    right.imshow(np.array([[0.5, np.nan]]))
    right.set_xticks([0, 1], ["A", "B"])
    legend_below(figure, [handle("linear", marker="o", color="#0072B2")])
    texts = [mark.text for mark in collect_marks(figure)]
    assert texts == [
        "a panel, linear: layer 1; bits 0.25",
        "a panel, linear: layer 2; bits \u22120.5",
        "first: count 3",
        "second: count 4",
        "first: 2.5 to 3.5",
        "A: 0.5",
    ]
    names = [mark.names for mark in collect_marks(figure)]
    assert names[0] == ("a panel", "linear")
    assert names[2] == ("first",)


def test_a_line_that_counts_from_elsewhere_says_its_value_where_it_is_drawn() -> None:
    axes = new_figure(2).subplots()
    axes.set_yticks([0, 1], ["first", "second"])
    place = moved_right(axes, 10.0)
    axes.plot([2.5, 3.5], [0, 0], transform=place, label="interval")
    axes.plot([3], [1], "o", transform=place, label="seed")
    axes.plot([4, 4], [-0.5, 1.5], transform=place, label="a baseline, across rows")
    marks = collect_marks(axes.figure.figure)
    assert [mark.text for mark in marks] == [
        "first, interval: 2.5 to 3.5",
        "second, seed: 3",
        "a baseline, across rows: 4",
    ]
    assert [mark.box[0][0] for mark in marks] == [12.5, 13, 14]


def test_long_lines_have_few_marks_and_images_none() -> None:
    figure = new_figure(3)
    panel, right = figure.subplots(1, 2)
    panel.plot(np.arange(5000), np.arange(5000))
    right.imshow(np.zeros((20, 20, 3)))
    assert len(collect_marks(figure)) == 60


@pytest.mark.parametrize("where", [0.25, 0.75])
def test_a_mark_is_where_its_value_is_drawn(where: float, tmp_path: Path) -> None:
    figure = new_figure(2, 4)
    axes = figure.subplots()
    axes.plot([where], [where], "o")
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="a label that moves the panel")
    save(figure, tmp_path / "a.png", tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text()
    ((x, y, width, height, of, _, _),) = RECT.findall(svg)
    group = svg[svg.index(f'<g id="{of}">') :]
    drawn = re.search(r'<use xlink:href="[^"]*" x="([\d.]+)" y="([\d.]+)"', group)
    assert drawn is not None
    assert float(x) + float(width) / 2 == pytest.approx(float(drawn[1]), abs=0.2)
    assert float(y) + float(height) / 2 == pytest.approx(float(drawn[2]), abs=0.2)


def test_what_stands_for_a_figure_without_data_is_known_by_its_id(tmp_path: Path) -> None:
    save(placeholder("Nothing was measured."), tmp_path / "a.png", tmp_path / "a.svg")
    assert 'id="nothing-to-draw"' in (tmp_path / "a.svg").read_text()


def test_a_figure_of_thousands_of_values_has_none_and_stays_in_the_page(tmp_path: Path) -> None:
    figure = new_figure(2)
    for axes in figure.subplots(1, 4):
        axes.imshow(np.arange(900.0).reshape(30, 30))
    save(figure, tmp_path / "a.png", tmp_path / "a.svg")
    assert len(collect_marks(figure)) == 3600
    svg = (tmp_path / "a.svg").read_bytes()
    assert len(svg) <= LARGEST_SVG_BYTES
    assert b"data-names" not in svg
