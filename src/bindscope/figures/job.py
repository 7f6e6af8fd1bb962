"""One figure job: read what a figure needs, draw it, or say in its place why there is nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from safetensors.numpy import load_file

from bindscope.figures import style
from bindscope.scenes.palette import COLOURS, SHAPES
from bindscope.sources.metadata import read_about
from bindscope.studies.binding_information.figures import (
    attention,
    breakdown,
    calibration,
    complexity,
    layers,
    natural,
    occlusion,
    resolution,
    structure,
    tokens,
    training,
)
from bindscope.studies.binding_information.figures.assumed import marked
from bindscope.studies.binding_information.rules import family_of
from bindscope.studies.binding_information.views import assumed_prior, name_order
from bindscope.studies.datasets.figures import scenes
from bindscope.tables.rows import PathLike
from bindscope.tables.schema import PRIORS, SCENE_STATISTICS
from bindscope.tables.write import read_table

log = logging.getLogger(__name__)

Files = Mapping[str, Sequence[PathLike]]
Groups = Sequence[breakdown.Group]

# Which fit stands for a model in the breakdown, most wanted first.
_FAMILIES = ("quadratic", "quadratic_reuse", "dnn", "multilinear_reuse", "linear")
_TOKENS = ("cls", "cls_mean", "mean")


def make_figure(
    name: str,
    table: pd.DataFrame | None,
    files: Files,
    png: PathLike,
    svg: PathLike,
    *,
    published: pd.DataFrame | None = None,
    trends: pd.DataFrame | None = None,
    models: Sequence[str] = (),
    families: Mapping[str, Sequence[str]] | None = None,
    groups: Mapping[str, Groups] | None = None,
    datasets: Collection[str] = (),
) -> None:
    """Draw a figure and write it as PNG and SVG.

    Parameters
    ----------
    name
        One of `config.root.FIGURES`.
    table
        `binding_information`; None for `scenes`, which needs none.
    files
        Paths by role: `fits` and `nulls` (row files) with `fits_history`, `fits_details` and
        `nulls_details` in the same order; `training_history`; `maps`; `indexes`; `scenes` (their
        manifests) with `records` of those that are read; `statistics` (the table
        `scene_statistics`); `priors` (the table). Only what the figure reads.
    png, svg
        Where to write.
    published, trends
        The papers' numbers, of tables and of studies.
    models
        The configuration's order of models.
    families
        Models that are one family at several input sizes.
    groups
        Per dataset its feature groups with the names of their values, see `value_names`.
    datasets
        The datasets that the figure is about, where it is not about all.

    Notes
    -----
    A figure whose data the run did not produce becomes one line that says so.
    """
    if table is None:
        named = {**(groups or {}), **read_values(files.get("records", ()))}
        figure = _scenes(files.get("scenes", ()), named)
    else:
        about = (families or {}, groups or {}, datasets)
        figure = _figure(name, table, files, (published, trends), models, *about)
    style.save(figure, Path(png), Path(svg))


def value_names(groups: Sequence[Mapping[str, Any]], rendered: bool) -> list[breakdown.Group]:
    """Name the values of feature groups.

    Parameters
    ----------
    groups
        `name` and `size` per group, and `values` where their names are known.
    rendered
        Whether the shapes renderer draws the scenes: the first group then is a colour, the second
        a shape. Otherwise values are numbered.
    """
    palettes = (tuple(COLOURS), SHAPES) if rendered else ()
    named: list[breakdown.Group] = []
    for i, group in enumerate(groups):
        size = int(group["size"])
        known = palettes[i] if i < len(palettes) and size <= len(palettes[i]) else None
        numbered = tuple(str(value) for value in range(size))
        values = tuple(group.get("values") or (known[:size] if known else numbered))
        named.append((str(group["name"]), values))
    return named


def _figure(
    name: str,
    table: pd.DataFrame,
    files: Files,
    quoted: tuple[pd.DataFrame | None, pd.DataFrame | None],
    models: Sequence[str],
    families: Mapping[str, Sequence[str]],
    groups: Mapping[str, Groups],
    datasets: Collection[str],
) -> Figure:
    published, trends = quoted
    if name in ("tokens", "structure"):
        module = {"tokens": tokens, "structure": structure}[name]
        reason = module.available(table)
        return style.placeholder(reason) if reason else module.draw(table, published, models)
    if name in ("layers", "calibration"):
        module = {"layers": layers, "calibration": calibration}[name]
        reason = module.available(table)
        return style.placeholder(reason) if reason else module.draw(table, models)
    cells = {dataset: _n_cells(given) for dataset, given in groups.items()}
    if name == "complexity":
        reason = complexity.available(table, cells)
        return (
            style.placeholder(reason) if reason else complexity.draw(table, cells, models, trends)
        )
    if name == "resolution":
        sides = read_input_px(files.get("indexes", ()))
        reason = resolution.available(table, families, sides)
        return (
            style.placeholder(reason)
            if reason
            else resolution.draw(table, families, sides, cells, trends)
        )
    if name == "occlusion":
        return _occlusion(table, files.get("statistics", ()), cells, models, trends)
    if name == "natural":
        return _natural(table, files.get("priors", ()), datasets, cells, models, trends)
    if name == "training":
        histories = read_model_histories(files.get("training_history", ()))
        probes = read_probe_histories(files.get("fits", ()), files.get("fits_history", ()))
        reason = training.available(histories, probes)
        return style.placeholder(reason) if reason else training.draw(histories, probes, models)
    if name == "attention":
        maps = read_maps(files.get("maps", ()))
        reason = attention.available(maps)
        return style.placeholder(reason) if reason else attention.draw(maps)
    if name == "breakdown":
        return _breakdown(files, models, groups, assumed_prior(table))
    raise ValueError(f"no figure is called {name!r}")


def _occlusion(
    table: pd.DataFrame,
    files: Sequence[PathLike],
    cells: Mapping[str, int],
    models: Sequence[str],
    trends: pd.DataFrame | None,
) -> Figure:
    if not files:
        return style.placeholder("No scenes of solids were drawn.")
    statistics = read_table(files[0], SCENE_STATISTICS)
    reason = occlusion.available(table, statistics)
    if reason:
        return style.placeholder(reason)
    return occlusion.draw(table, statistics, cells, models, trends)


def _natural(
    table: pd.DataFrame,
    files: Sequence[PathLike],
    datasets: Collection[str],
    cells: Mapping[str, int],
    models: Sequence[str],
    trends: pd.DataFrame | None,
) -> Figure:
    reason = natural.available(table, datasets)
    if reason:
        return style.placeholder(reason)
    priors = read_table(files[0], PRIORS)
    return natural.draw(table, priors, datasets, cells, models, trends)


def read_input_px(paths: Iterable[PathLike]) -> dict[tuple[str, str], int]:
    """Read the side of each model's input off indexes of its activations.

    Names of dataset and model are the folders'; the side is that of the grid of patches.
    """
    found = {}
    for path in map(Path, paths):
        tokens_ = json.loads(path.read_text())["attributes"]["token_map"]
        if tokens_:
            found[path.parts[-3], path.parts[-2]] = tokens_["grid"][0] * tokens_["patch_px"]
    return found


def read_model_histories(paths: Iterable[PathLike]) -> dict[str, Any]:
    """Read histories of controlled models; the model's name is the file's."""
    return {
        Path(path).name.removesuffix(".history.json").rpartition("-")[0]: json.loads(
            Path(path).read_text()
        )
        for path in paths
    }


def read_probe_histories(
    rows: Sequence[PathLike], histories: Sequence[PathLike]
) -> list[training.ProbeHistory]:
    """Read histories of fits; names stand in the row files."""
    found = []
    for row_file, history in zip(rows, histories, strict=True):
        row = _first_row(row_file)
        family = family_of(row["options"]) or row["probe"]
        lines = json.loads(Path(history).read_text())
        found.append(training.ProbeHistory(row["model"], row["tokens"], family, lines))
    return found


def read_maps(paths: Iterable[PathLike]) -> dict[str, attention.Maps]:
    """Read attention maps, the first file of each model; the model's name is the folder's."""
    found: dict[str, attention.Maps] = {}
    for path in paths:
        model = Path(path).parent.name
        if model in found:
            log.info("attention: only the first maps of %s are drawn, not %s", model, path)
        else:
            found[model] = load_file(path)
    return found


def read_values(records: Iterable[PathLike]) -> dict[str, list[breakdown.Group]]:
    """Read the names of the values of datasets that are read; a dataset's name is the folder's."""
    return {
        Path(path).parent.name: [
            (name, tuple(values)) for name, values in read_about(Path(path))["values"]
        ]
        for path in records
    }


def _scenes(manifests: Sequence[PathLike], groups: Mapping[str, Groups]) -> Figure:
    sheets = read_sheets(manifests)
    reason = scenes.available(sheets)
    return style.placeholder(reason) if reason else scenes.draw(sheets, groups)


def read_sheets(manifests: Iterable[PathLike]) -> dict[str, scenes.Sheet]:
    """Read the first scenes of shards, a sheet per dataset; its name is in the path."""
    found = {}
    rows = slice(0, scenes.COLUMNS)
    # Only this figure reads stores, and Zarr takes a fifth of the time to import the rest.
    from bindscope.core.store.reader import open_store

    for manifest in map(Path, manifests):
        store = open_store(manifest)
        split = str(store.attributes["split"])
        arrays = (store.read(name, rows) for name in ("images", "cells", "boxes"))
        *_, before, folder, _ = manifest.parts
        dataset = before if folder == "scenes" else folder  # where scenes are read or drawn
        found[dataset] = scenes.Sheet(split, *arrays)
    return found


def _breakdown(
    files: Files, models: Sequence[str], groups: Mapping[str, Groups], assumed: Collection[str]
) -> Figure:
    fits = _details(files.get("fits", ()), files.get("fits_details", ()))
    nulls = _details(files.get("nulls", ()), files.get("nulls_details", ()))
    chosen = choose_fits(fits, models)
    datasets = list(dict.fromkeys(dataset for dataset, *_ in chosen if dataset in groups))
    # Of spaces that differ the largest is shown, the first of several.
    shown = max((groups[d] for d in datasets), key=_n_cells, default=())
    found = {}
    for dataset, model, tokens_, probe in chosen:
        null = _merged(nulls, (dataset, "null", "null", probe))
        if not datasets or dataset not in groups or not null:
            continue
        if groups[dataset] != shown:
            log.info("breakdown: %s on %s is left out, its feature groups differ", model, dataset)
            continue
        sizes = [len(values) for _, values in groups[dataset]]
        label = f"{model} ({dataset})" if len(datasets) > 1 else model
        label = marked(label, dataset in assumed)
        details = _merged(fits, (dataset, model, tokens_, probe))
        found[label] = breakdown.gains(details, null, sizes)
    reason = breakdown.available(found)
    if reason:
        return style.placeholder(reason)
    return breakdown.draw(found, shown)


def _n_cells(groups: Groups) -> int:
    """Return the number of possible objects."""
    return prod(len(values) for _, values in groups)


Name = tuple[str, str, str, str]
Details = list[tuple[Name, str, dict[str, Any]]]


def choose_fits(fits: Details, models: Sequence[str]) -> list[Name]:
    """Choose one fit per dataset and model: quadratic on [CLS], or what comes nearest."""
    best: dict[tuple[str, str], tuple[int, int, Name]] = {}
    for name, family, _ in fits:
        dataset, model, tokens_, _ = name
        if tokens_ not in _TOKENS or family not in _FAMILIES:
            continue
        rank = (_TOKENS.index(tokens_), _FAMILIES.index(family), name)
        if (dataset, model) not in best or rank < best[dataset, model]:
            best[dataset, model] = rank
    order = name_order((model for _, model in best), models)
    return [best[key][2] for key in sorted(best, key=lambda key: (key[0], order.index(key[1])))]


def _details(rows: Sequence[PathLike], details: Sequence[PathLike]) -> Details:
    found = []
    for row_file, path in zip(rows, details, strict=True):
        row = _first_row(row_file)
        name = (row["dataset"], row["model"], row["tokens"], row["probe"])
        found.append((name, family_of(row["options"]) or "", load_file(path)))
    return found


def _merged(details: Details, name: Name) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for other, _, arrays in details:
        if other == name:
            merged |= arrays
    return merged


def _first_row(path: PathLike) -> dict[str, Any]:
    with Path(path).open() as lines:
        row: dict[str, Any] = json.loads(next(lines))
    return row
