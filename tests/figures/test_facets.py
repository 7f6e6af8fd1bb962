"""Panels over a tidy table: what is drawn where, and what is said where there is nothing."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawing import reason

from bindscope.core.interfaces import Inputs
from bindscope.figures.facets import broken, colored, crossed, facets, heat_map, stacked, wrapped
from bindscope.figures.figure import figure, some
from bindscope.figures.style import looks, new_figure, reference_line, save

ROWS = pd.DataFrame(
    [(panel, line, x, 0.1 * x, 0.0, 1.0) for panel in "pq" for line in "ab" for x in (3, 1, 2)],
    columns=["panel", "line", "x", "value", "value_low", "value_high"],
)


def test_each_panel_has_its_lines_in_the_order_of_x_and_their_intervals() -> None:
    rows = ROWS[(ROWS["panel"] == "p") | (ROWS["line"] == "a")]
    look = looks(["a", "b"])
    grid = facets(
        rows, look, wrapped("pq", 2, (0, 2)), "panel", scale=100, band=0.2, title=str, ylim=(0, 90)
    )
    both, single = grid.panels.values()
    assert [line.get_color() for line in both.lines] == [look[n]["color"] for n in "ab"]
    np.testing.assert_allclose(both.lines[1].get_xydata(), [[1, 10], [2, 20], [3, 30]])
    assert len(single.lines) == len(single.collections) == 1
    area = single.collections[0].get_paths()[0].get_extents()
    np.testing.assert_allclose(area.extents, [1, 0, 3, 100])
    assert [axes.get_title() for axes in (both, single)] == ["p", "q"]
    assert both.get_ylim() == (0, 90)


def test_lines_that_agree_are_moved_apart_around_their_place() -> None:
    grid = facets(ROWS, looks(["a", "b"]), wrapped("p", 1, (0, 2)), "panel", apart=0.2, bars=1.0)
    (axes,) = grid.panels.values()
    assert [line.get_xdata()[0] for line in axes.lines] == pytest.approx([0.9, 1.1])
    ends = axes.collections[1].get_segments()
    np.testing.assert_allclose(ends[0], [[1.1, 0], [1.1, 1]])


def test_a_column_of_panels_names_lines_at_their_ends_and_apart(tmp_path: Path) -> None:
    rows = pd.concat([ROWS, ROWS[ROWS["line"] == "a"].assign(line="high", value=0.9)])
    look = looks(["a", "b", "high", "none"])
    grid = facets(rows, look, wrapped("p", 1, (0, 3)), "panel", ylim=(0, 1))
    (axes,) = grid.panels.values()
    reference_line(axes, 0.9, "all")
    drawn = grid.legend(look)
    save(drawn, tmp_path / "a.png", tmp_path / "a.svg")
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    assert set(boxes) == {"a", "b", "high", "all"}
    assert not any(box.overlaps(rest) for box, rest in combinations(boxes.values(), 2))
    assert all(box.x0 > axes.get_window_extent().x1 for box in boxes.values())
    assert boxes["high"].y0 > boxes["a"].y1  # in the order of the lines
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["none"]
    assert not grid.legend({name: look[name] for name in ("a", "b")}).legends[1:]  # none is needed
    assert (
        "high" in (tmp_path / "a.svg").read_text()
    )  # the values of its points still have its name


def test_panels_side_by_side_have_one_legend() -> None:
    look = looks("ab")
    grid = facets(ROWS, look, wrapped("pq", 2, (0, 2)), "panel")
    assert [text.get_text() for text in grid.legend(look).legends[0].get_texts()] == ["a", "b"]


def test_panels_without_a_key_are_blank_and_the_outer_ones_are_named() -> None:
    grid = wrapped("abcde", 3, (0, 1))
    grid.label("below", "left")
    assert [axes.axison for axes in grid.figure.axes] == [True] * 5 + [False]
    assert [name for name, axes in grid.panels.items() if axes.get_xlabel()] == ["c", "d", "e"]
    assert [name for name, axes in grid.panels.items() if axes.get_ylabel()] == ["a", "d"]


def test_a_table_of_panels_is_keyed_by_row_and_column() -> None:
    rows = ROWS.assign(row="r")
    grid = crossed("rs", "pq", (0, 1))
    facets(rows, looks("ab"), grid, ("row", "panel"))
    assert [len(axes.lines) for axes in grid.panels.values()] == [2, 2, 0, 0]
    grid.label(y=("first", "second"))
    assert [axes.get_ylabel() for axes in grid.left] == ["first", "second"]


def test_a_wide_table_of_panels_is_broken() -> None:
    grid = broken("rs", "abc", 2, (0, 1))
    assert list(grid.panels) == [(r, n) for names in ("ab", "c") for r in "rs" for n in names]
    assert [axes.axison for axes in grid.figure.axes] == [True] * 5 + [False, True, False]


def test_columns_become_lines_with_their_own_intervals() -> None:
    rows = pd.DataFrame({"x": [1.0], "u": [2.0], "u_low": [1.5], "u_high": [2.5], "v": [3.0]})
    tidy = stacked(rows, {"U": "u", "V": "v"}).set_index("line")
    assert tidy.loc["U", ["value", "value_low", "value_high"]].tolist() == [2.0, 1.5, 2.5]
    assert tidy.loc["V", "value"] == 3.0
    assert np.isnan(tidy.loc["V", "value_low"])
    assert colored({"U": {"color": "red", "marker": "o"}}, lw=1) == {"U": {"color": "red", "lw": 1}}


def test_a_map_writes_numbers_and_frames_cells() -> None:
    axes = new_figure(1).subplots()
    heat_map(
        axes,
        np.array([[0.2, np.nan]]),
        rows=["r"],
        columns=["c", "d"],
        framed=[(0, 1)],
        numbers=lambda value: (f"{value:.1f}", "black"),
    )
    assert [(text.get_text(), text.get_position()) for text in axes.texts] == [("0.2", (0, 0))]
    assert axes.patches[0].get_xy() == (0.5, -0.5)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["c", "d"]


def test_a_figure_says_why_there_is_nothing_to_draw() -> None:
    @figure(lambda inputs: {"rows": inputs.content["rows"]})
    def lengths(rows: list[int]):
        return new_figure(len(some(rows, "Nothing was measured.")))

    assert reason(lengths, **lengths.read(Inputs({}, {"rows": []}))) == "Nothing was measured."
    assert reason(lengths, rows=[1]) is None
