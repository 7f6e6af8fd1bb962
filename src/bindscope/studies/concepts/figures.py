"""The study's figures: encoders that were trained, and embeddings that are taken apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colors import GREY, PALETTE
from bindscope.figures.facets import FacetGrid, Look, colored, crossed, facets, wrapped
from bindscope.figures.figure import NothingToDrawError, curves_of, figure, some, table_of
from bindscope.figures.style import (
    PAPER_MARK,
    handle,
    looks,
    reference_line,
    values_along_x,
)
from bindscope.studies.concepts.published import beside, read_with_published
from bindscope.studies.concepts.tables import CONCEPTS_SCHEMA
from bindscope.studies.concepts.views import (
    ESTIMATORS,
    OUTCOME,
    PARTS,
    PLANTED,
    approximated,
    correlated,
    edits_by_strength,
    encoder_models,
    measures,
    named,
    over_seeds,
    recognized,
)
from bindscope.tables.numbers import number
from bindscope.tables.rows import rows_with

_PERCENT = (-2, 102)
_RISE = PAPER_MARK["color"]
FEWEST_SEEDS = 3  # of an interval
_FLOOR: dict[str, Any] = {"linestyle": (0, (1, 1.5)), "linewidth": 1.0}
_CHANCE: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 0.8}
_COUNTING = "counting values"
# Unit of a published number -> how the legend calls it, its marker.
_PAPER: Final = {
    "share": ("published value, from a digest", "*"),
    "share, at least": ("published lower bound, from a digest", "^"),
    "share, at most": ("published upper bound, from a digest", "v"),
}

# --- Encoders -----------------------------------------------------------------------------------

POOLS = {
    "train_only": "queries: training objects only",
    "all": "queries: all objects, held-out ones as negatives",
}


@figure(read_with_published)
def concept_coverage(table: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """Held-out objects that dual encoders recognize, against the share of objects in training.

    A row of panels per query pool (objects, values), a line per encoder and space with its seeds.
    Of fewer than three seeds there is no interval: t intervals of two fill the panel.
    """
    some(recognized(table), "No pair of held-out objects was asked about.")
    targets = ("object", "concept")
    seeds = {target: recognized(table, measure=target) for target in targets}
    means = pd.concat([over_seeds(rows).assign(measure=name) for name, rows in seeds.items()])
    few = means["n"] < FEWEST_SEEDS
    means.loc[few, ["accuracy_low", "accuracy_high"]] = np.nan
    runs, means = (
        rows.assign(line=rows["encoder"] + ", " + rows["space"])
        for rows in (pd.concat(seeds.values()), means)
    )
    look = looks(list(dict.fromkeys(runs["line"])))
    pools = [pool for pool in POOLS if pool in set(runs["query_pool"])]
    grid = crossed(pools, targets, (0.9, 2.5), sharex=True, sharey=True)
    panel, x = ("query_pool", "measure"), "coverage"
    facets(
        means,
        look,
        grid,
        panel,
        x=x,
        y="accuracy",
        band=0.15,
        scale=100,
        xlim=(0, 1),
        ylim=_PERCENT,
        title=lambda key: f"{APPROXIMATED[key[1]]} of held-out pairs\n{POOLS[key[0]]}",
    )
    dots = colored(look, marker="o", linestyle="none", markersize=2, alpha=0.6)
    facets(runs, dots, grid, panel, x=x, y="accuracy", scale=100)
    facets(means, colored(look, **_FLOOR), grid, panel, x=x, y="floor", scale=100)
    facets(means, colored(look, **_CHANCE), grid, panel, x=x, y="chance", scale=100)
    grid.label("coverage: fraction of objects in training", "% of pairs recognized")
    rivals = [handle(_COUNTING, color=GREY, **_FLOOR), handle("chance", color=GREY, **_CHANCE)]
    rivals += _published_rise(grid, runs, published)
    return grid.legend(look, *rivals, per_row=4)


def _published_rise(
    grid: FacetGrid, runs: pd.DataFrame, published: pd.DataFrame | None
) -> list[Any]:
    """Shade the coverages between which object recognition rises in the paper; return its entry."""
    if published is None:
        return []
    spaces = set(runs.loc[runs["kind"] == "transformer", "space"])
    rises = rows_with(published, analysis_kind="generalization")
    rises = rises[rises["preset_dataset"].isin(spaces)]
    if rises.empty:
        return []
    for (_, measure), axes in grid.panels.items():
        if measure == "object":
            axes.axvspan(rises["value"].min(), rises["value"].max(), color=_RISE, alpha=0.3, lw=0)
    words = f"published rise, from a digest ({', '.join(rises['preset_dataset'].unique())})"
    return [handle(words, color=_RISE, linewidth=6, alpha=0.3)]


@figure(table_of(CONCEPTS_SCHEMA))
def concept_models(table: pd.DataFrame) -> Figure:
    """What goes with naming new combinations: a point per trained encoder, a panel per measure.

    More of the objects seen in training: darker.
    """
    models = some(encoder_models(table), "No trained encoder was measured.")
    look = looks(list(dict.fromkeys(models["encoder"])))
    measured = measures(models)
    grid = wrapped(measured, min(len(measured), 3), (0, 3.3), sharey=True)
    for (words, axes), rows in zip(grid.panels.items(), measured.values(), strict=True):
        for (name, coverage), group_rows in rows.groupby(["encoder", "coverage"], sort=False):
            shade = 0.25 + 0.75 * float(str(coverage))
            style: Look = {**look[str(name)], "linestyle": "none", "alpha": shade}
            axes.plot(100 * group_rows["measure"], 100 * group_rows[OUTCOME], **style)
        axes.set_title(_correlation(correlated(rows, "all")), fontsize=7.5)
        words = words.replace(", ", ",\n").replace(" in ", "\nin ")
        axes.set_xlabel(f"{words}, %", fontsize=7.5)
        axes.set_xlim(-3, 103)
        last = "counting\nvalues" if axes is grid.bottom[-1] else ""
        reference_line(axes, 100 * models["floor"].mean(), last)
    grid.label(y="% of held-out pairs recognized")
    grid.left[0].set_ylim(-3, 103)
    points = {name: {**color, "linestyle": "none"} for name, color in look.items()}
    return grid.legend(points, per_row=4)


def _correlation(correlations: pd.DataFrame) -> str:
    """Say the rank correlation over all models."""
    if not len(correlations):
        return "too few models"
    value, low, high = correlations.filter(like="correlation").iloc[0]
    if np.isnan(value):
        return "no rank correlation:\nall values are equal"
    ends = "" if np.isnan(low) else f"\n({number(low)} to {number(high)})"
    return f"rank correlation {number(value)}{ends}"


# --- Embeddings ---------------------------------------------------------------------------------

SUMS = {
    "r2": "R2 of embeddings",
    "retrieval_unordered": "scene retrieved\n(either order)",
    "object": "objects decoded\nfrom the sum",
}
_TICK: dict[str, Any] = {
    "marker": "|",
    "color": GREY,
    "markersize": 11,
    "linestyle": "none",
}


@figure(read_with_published)
def concept_geometry(table: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """How far embeddings of scenes are sums over objects, and whether the scene is found again.

    A panel per measure, a row per embedding, a mark per estimator and level.
    """
    rows = rows_with(table, analysis_kind="decomposition", stratum="all")
    some(rows, "No embedding was decomposed.")
    level_2 = {"marker": "o", "color": GREY, "markerfacecolor": "none", "linestyle": "none"}
    further = [handle("objects as sums over values", **level_2)]
    return _dots(rows, SUMS, ESTIMATORS, "% of scenes", published, further)


def _dots(
    rows: pd.DataFrame,
    panels: Mapping[str, str],
    variants: Mapping[str, str],
    unit: str,
    published: pd.DataFrame | None,
    further: Sequence[Any] = (),
) -> Figure:
    """Draw a panel per measure, a row per embedding, and a mark per variant, hollow at level 2.

    Panels and variants have the words for them; `unit` is that of shares. Published numbers are
    stars, in the middle of a row where the variant is not stated; the legend has `further` entries.
    """
    rows = named(rows)
    names = list(dict.fromkeys(rows["name"]))
    look = looks([name for name in variants if name in set(rows["variant"])])
    marks = {name: {**style, "linestyle": "none"} for name, style in look.items()}
    hollow = {name: {**style, "markerfacecolor": "none"} for name, style in marks.items()}
    moved = min(0.2, 0.7 / len(marks)) * (np.arange(len(marks)) - (len(marks) - 1) / 2)
    offsets = {**dict(zip(marks, moved, strict=True)), "": 0.0}
    stars = _in_percent(beside(rows, published))
    rows = _in_percent(rows)
    rows, stars = (
        part.assign(at=at, y=at + part["variant"].map(offsets).astype(float))
        for part in (rows, stars)
        for at in [part["name"].map(names.index).astype(float)]
    )
    stars = stars.dropna(subset="y")  # of estimators that were not measured
    second = rows["level"].eq(2) if "level" in rows else np.zeros(len(rows), bool)
    floors = rows.assign(y=rows["at"], line=_COUNTING, value=rows["bag_of_concepts_floor"])
    floors = floors.dropna(subset="value").drop_duplicates(["name", "measure"])
    height = 1.6 + max(0.42, 0.13 * len(marks)) * len(names)
    grid = wrapped(panels, len(panels), (height, 0), sharey=True)
    how: dict[str, Any] = {"panel": "measure", "x": "value", "y": "y"}
    facets(rows[~second], marks, grid, by="variant", **how)
    facets(rows[second], hollow, grid, by="variant", **how)
    facets(floors, {_COUNTING: _TICK}, grid, **how)
    published_entry = _stars(stars, grid, **how)
    for (measure, axes), title in zip(grid.panels.items(), panels.values(), strict=True):
        most = 1 if measure == "r2" else 100
        least = min(0, rows_with(rows, measure=measure)["value"].min())
        axes.set_xlim(least - 0.03 * most, 1.03 * most)
        axes.set_title(title, fontsize=8)
        axes.set_xlabel("R2" if measure == "r2" else unit)
        values_along_x(axes)
    grid.left[0].set_yticks(range(len(names)), names)
    grid.left[0].set_ylim(len(names) - 0.5, -0.5)
    entries = {variants[name]: style for name, style in marks.items()}
    further = [*further, handle(_COUNTING, **_TICK), *published_entry]
    return grid.legend(entries, *further, per_row=3)


def _in_percent(rows: pd.DataFrame, measure: str = "measure") -> pd.DataFrame:
    """Return rows with shares in percent; R2, by the column of measures, stays as it is."""
    scale = np.where(rows[measure].eq("r2"), 1.0, 100.0)
    shares = ("value", "value_low", "value_high", "floor", "bag_of_concepts_floor")
    return rows.assign(**{name: scale * rows[name] for name in shares if name in rows})


def _stars(stars: pd.DataFrame, grid: FacetGrid, **how: Any) -> list[Any]:
    """Draw published numbers; return the legend's entries for them, where there are any.

    A number that the paper gives as a bound has a triangle, which points to where the value is.
    """
    look = {line: {"linestyle": "none", **PAPER_MARK, "marker": m} for line, m in _PAPER.values()}
    lines = stars["unit"].map({unit: line for unit, (line, _) in _PAPER.items()})
    facets(stars.assign(line=lines), look, grid, **how)
    return [handle(line, **look[line]) for line in look if lines.eq(line).any()]


AT_STRENGTH_1 = {
    "retrieval_strict": "real scene retrieved",
    "concept": "values decoded",
    "object": "objects decoded",
}


@figure(read_with_published)
def concept_edits(table: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """What comes of exchanging an object in the embedding of a scene, by estimator of its vector.

    A panel per measure, a row per embedding, a mark per estimator; means over feature groups in
    proportion to their edits.
    """
    table = rows_with(table, analysis_kind="editing", strength=1.0, stratum="all")
    some(table[table["n_scenes"] > 0], "No scene was edited at strength 1.")
    means = edits_by_strength(table).rename(columns={"floor": "bag_of_concepts_floor"})
    return _dots(means, AT_STRENGTH_1, ESTIMATORS, "% of edits", published)


@figure(read_with_published)
def concept_removal(table: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """What probes decode that are fitted again after a part of the embedding was subtracted.

    A panel per measure, a row per embedding, a mark per part.
    """
    rows = rows_with(table, analysis_kind="removal", stratum="all")
    some(rows, "No part of an embedding was subtracted.")
    panels = {name: AT_STRENGTH_1[name] for name in ("concept", "object")}
    return _dots(rows, panels, PARTS, "% of scenes", published)


EDITS = {
    "retrieval_unordered": "real scene retrieved\n(either order)",
    "concept": "values decoded",
    "object": "objects decoded",
}


@figure(table_of(CONCEPTS_SCHEMA))
def concept_editing(table: pd.DataFrame) -> Figure:
    """What comes of exchanging an object in the embedding of a scene, by the strength of the edit.

    A row of panels per analysis, a panel per measure, a line per embedding; means by slot where
    they are there.
    """
    table = rows_with(table, analysis_kind="editing")
    some(table[table["n_scenes"] > 0], "No scene could be edited.")
    estimators = list(dict.fromkeys(table["variant"]))
    estimator = "avg_pos" if "avg_pos" in estimators else str(estimators[0])
    rows = named(edits_by_strength(rows_with(table, variant=estimator, stratum="all")))
    rows = curves_of(rows, ["name"], "strength", "No edit has three strengths or more.")
    look = looks(list(dict.fromkeys(rows["vectors_of"])))
    scenes = list(dict.fromkeys(rows["scenes"]))
    grid = crossed(scenes, EDITS, (1.0, 2.0), sharex=True, sharey=True)
    how: dict[str, Any] = {
        "panel": ("scenes", "measure"),
        "x": "strength",
        "by": "vectors_of",
        "scale": 100,
    }
    facets(rows, look, grid, title=lambda key: EDITS[key[1]], ylim=_PERCENT, **how)
    facets(rows, colored(look, **_FLOOR), grid, y="floor", **how)
    grid.label("strength of the edit", [f"{name}\n% of edits" for name in scenes])
    return grid.legend(look, handle(_COUNTING, color="k", **_FLOOR), per_row=4)


@figure(read_with_published)
def binding_complexity(table: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """What approximators predict of embeddings of scenes of objects that they never saw.

    A row of panels per embedding (objects, values), a line per approximator.
    """
    some(approximated(table, "object"), "No scene of unseen objects was there.")
    whats = ("object", "concept")
    rows = pd.concat([named(approximated(table, what)).assign(what=what) for what in whats])
    few = "No approximator was fitted at three coverages or more."
    rows = curves_of(rows, ["name", "variant"], "fitted_share", few)
    grid, look = _approximators(
        rows,
        whats,
        "fitted_share",
        lambda key: f"{key[0].replace(chr(10), ', ')}: {APPROXIMATED[key[1]]}",
    )
    grid.label("fraction of objects for fitting", "% of scenes")
    stars = _in_percent(beside(rows, published))
    entry = _stars(stars, grid, panel=("name", "measure"), x="coverage")
    return grid.legend(look, *entry, per_row=4)


APPROXIMATED = {"object": "objects", "concept": "values", "r2": "R2"}
_PREDICTED = {"object": "objects decoded, %", "concept": "values decoded, %", "r2": "R2"}


@figure(table_of(CONCEPTS_SCHEMA))
def dual_complexity(table: pd.DataFrame) -> Figure:
    """What approximators predict of dual encoders, against what these were trained on.

    A row of panels per encoder, pool and space, a line per approximator.
    """
    means = {what: approximated(table, what, dual=True) for what in APPROXIMATED}
    some(means["object"], "No dual encoder was approximated on scenes of unseen objects.")
    rows = pd.concat([mean.assign(what=what) for what, mean in means.items()])
    planted = table.loc[table["kind"].eq("product"), "embedding"]
    is_planted = rows["embedding"].isin(planted)
    mark = is_planted.map({True: PLANTED, False: ""})
    rows = rows.assign(name=rows["embedding"] + mark + "\n" + rows["dataset"])
    rows = pd.concat([rows[~is_planted], rows[is_planted]])
    grid, look = _approximators(
        rows, tuple(APPROXIMATED), "trained_coverage", lambda key: _PREDICTED[key[1]]
    )
    for (_, what), axes in grid.panels.items():
        axes.set_ylim((-1.02, 1.02) if what == "r2" else _PERCENT)
    grid.label("coverage of the encoder")
    grid.label(y=list(dict.fromkeys(name for name, _ in grid.panels)), fontsize=7)
    return grid.legend(look, per_row=4)


def _approximators(
    rows: pd.DataFrame, whats: tuple[str, ...], x: str, title: Callable[[Any], str]
) -> tuple[FacetGrid, dict[str, Look]]:
    """Draw a line per approximator, and what counting values reaches, by `name` and `what`."""
    look: dict[str, Look] = {**looks(list(dict.fromkeys(rows["variant"])))}
    look[_COUNTING] = {**_FLOOR, "color": GREY}
    names = list(dict.fromkeys(rows.loc[rows["what"] == "object", "name"]))
    grid = crossed(names, whats, (0.9, 1.6), sharex=True, sharey="r2" not in whats)
    rows = _in_percent(rows, "what")
    floors = rows.groupby(["name", "what", x])["floor"].mean().dropna().rename("value")
    rows = pd.concat([rows, floors.reset_index().assign(variant=_COUNTING)])
    facets(
        rows,
        look,
        grid,
        ("name", "what"),
        x=x,
        by="variant",
        band=0.15,
        xlim=(0, 1),
        ylim=_PERCENT,
        title=title,
    )
    return grid, look


MARKS: dict[str, dict[str, Any]] = {
    "value": {"marker": "^", "color": PALETTE[0], "markersize": 6},
    "object": {"marker": "s", "color": PALETTE[1], "markersize": 5},
    "scene": {"marker": "o", "color": PALETTE[2], "markersize": 4},
    "sum": {"marker": "x", "color": "k", "markersize": 5},
}
_POINTS = {"value": ("A1", "A2", "B1", "B2"), "object": ("A1B1", "A1B2", "A2B1", "A2B2")}
_WORDS = {
    "value": "a value",
    "object": "an object",
    "scene": "a scene of two objects",
    "sum": "sum of its objects' vectors",
}
_PICTURES = 9


def _read_pictures(inputs: Inputs) -> dict[str, Any]:
    """Read the pictures in the configuration's order."""
    files = [Path(product.files["picture"]) for product in inputs.get("pictures")]
    return {"pictures": [json.loads(file.read_text()) for file in files]}


@figure(_read_pictures)
def concept_picture(pictures: Sequence[Mapping[str, Any]]) -> Figure:
    """Values, objects, scenes and their sums in three dimensions, a picture per embedding.

    The first nine; a thin line joins a scene with the sum of its objects' vectors.
    """
    drawn = [content for content in pictures if "why" not in content]
    drawn = sorted(drawn, key=lambda content: content["vectors"] == "planted")[:_PICTURES]
    if not drawn:
        raise NothingToDrawError(f"There is no picture: {pictures[0]['why']}.")
    grid = wrapped(range(len(drawn)), 3, (0.7, 2.6), subplot_kw={"projection": "3d"})
    for content, axes in zip(drawn, grid.panels.values(), strict=True):
        three: Any = axes
        _picture(three, content["points"])
        vectors = PLANTED if content["vectors"] == "planted" else f", {content['vectors']}"
        stress = number(content["stress"])
        title = f"{content['embedding']}{vectors}\n{content['dataset']}, stress {stress}"
        three.set_title(title, fontsize=8, y=0.99)
        three.set_box_aspect((1, 1, 1), zoom=1.1)
        three.set(xticklabels=[], yticklabels=[], zticklabels=[])
        three.tick_params(length=0)
    marks = [handle(_WORDS[kind], linestyle="none", **mark) for kind, mark in MARKS.items()]
    return grid.legend({}, *marks, per_row=4)


def _picture(axes: Any, points: Sequence[Mapping[str, Any]]) -> None:
    sums = {tuple(point["objects"]): point["place"] for point in points if point["kind"] == "sum"}
    for kind, mark in MARKS.items():
        places = np.array([point["place"] for point in points if point["kind"] == kind])
        if len(places):
            axes.plot(*places.T, linestyle="none", **mark)
        for name, place in zip(_POINTS.get(kind, ()), places, strict=False):
            axes.text(*place, f"  {name}", fontsize=6)
    for point in points:
        if point["kind"] == "scene":
            ends = np.array([point["place"], sums[tuple(sorted(point["objects"]))]])
            axes.plot(*ends.T, color=GREY, linewidth=0.7)
