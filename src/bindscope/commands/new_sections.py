"""Text of the configurations that `bindscope new` writes: datasets, models, a study's section."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd
import yaml

from bindscope.config.base import SLUG
from bindscope.core.errors import InputError, first_line

STUDIES: Final = ("binding_information", "same_object", "concepts", "binding_id")
OF_IMAGES: Final = ("binding_information", "same_object")
RESERVED: Final = (
    "objects",
    "features",
    "untrained",
    "toy-free",
    "toy-interchange",
    "color-histogram",
    "color-areas",
    "pixels",
)
ZOO_PX: Final = 96
MOST_VALUES: Final = 64  # of a column that is taken for a feature group
_BOXES: Final = {
    "xywh": ("x", "y", "width", "height"),
    "xyxy": ("left", "top", "right", "bottom"),
}
_OTHER_COLUMNS: Final = {"image", "mask", "id", "split", *_BOXES["xywh"], *_BOXES["xyxy"]}

_HEAD = """\
# Written by `bindscope new`; every key: config/README.md. Show what would run: `bindscope plan
# --configfile {file}`; run it: `make run CONFIG={file}`.
"""
_DATASETS = {
    "matching": """\
datasets:
  # Colored shapes, 6 of 8 colors with 6 of 8 shapes, each once. The features determine
  # the counts, so binding information is pairing alone.
  - name: matching
    space: {kind: balanced, chosen: [6, 6], n_objects: 6,
            groups: [{name: color, size: 8}, {name: shape, size: 8}]}
    split: {rule: random}
    n_scenes: &counts {train: 4000, val: 500, test: 1000}
    shard_size: *counts
    render: {kind: shapes, size_px: 96, object_px: 28, margin_px: 1, placement: grid}
""",
    "pairs": """\
datasets:
  # All ordered pairs of 24 objects (8 colors, 3 shapes), a picture of each.
  - name: pairs
    space: {kind: draws, n_objects: 2,
            groups: [{name: color, size: 8}, {name: shape, size: 3}]}
    split: {rule: enumerated, sizes: &counts {train: 460, val: 58, test: 58}}
    slots: 2
    n_scenes: *counts
    shard_size: *counts
    render: {kind: clevr_2d, size_px: 96}
""",
}
_ZOO = """\
  # The zoo: small models that differ in their training objective, three training seeds of each.
  - {name: objects, source: "zoo:matching-objects-{seed}", seeds: [0, 1, 2]}
  - {name: features, source: "zoo:matching-features-{seed}", seeds: [0, 1, 2]}
  - {name: untrained, source: "zoo:matching-none-{seed}", seeds: [0, 1, 2]}
"""
# Numbers of an image that bind nothing; of photos no palette is known.
_BASELINES = {
    "color-histogram": "baseline:color_histogram",
    "color-areas": "baseline:color_areas",
    "pixels": "baseline:pixels",
}
_SECTIONS = {
    "binding_information": """\
  binding_information:
    probes:
      - {{name: linear, family: linear, targets: [chained]}}
    fits:
      - {{name: last-layers, datasets: [{dataset}], models: [{names}, objects, features, untrained],
         layers: last, tokens: {tokens}, probes: [linear]}}
      - {{name: baselines, datasets: [{dataset}], models: [{baselines}], probes: [linear]}}
""",
    "same_object": """\
  same_object:
    sampling: {{class_groups: {groups}}}
{scenes}    probes:
      - {{name: quadratic, family: quadratic, l2: [0.1, 0.01]}}
      # Rivals, which need no binding: classes with positions, and positions alone.
      - {{name: class-position, family: class_position, pairs: 5000, iterations: 50}}
      - {{name: position, family: position}}
    fits:
      - {{name: zoo, datasets: [{dataset}], models: [objects, features, untrained], layers: last,
         probes: [quadratic, class-position, position]}}
{fits}""",
    "concepts": """\
  concepts:
    analyses:
      # Are embeddings (means of patches) sums over values? Learned from half of the objects;
      # editing exchanges an object's vector.
      - name: next-to-the-zoo
        datasets: [pairs]
        models: [{names}, objects, features, untrained]
        vectors: [mean]
        complexity: &sums {{approximators: [{{name: sums, kind: additive}}], coverages: [0.5]}}
      - {{name: baselines, datasets: [pairs], models: [{baselines}], vectors: [cls],
         complexity: *sums}}
""",
    "binding_id": """\
  binding_id:
    tasks:
      - {{name: two-things, rows: 100, estimation_rows: 100}}
      - {{name: sprites, layout: sprites, order: independent, rows: 100, estimation_rows: 100}}
    models:
{models}
    # Planted models of a known mechanism, and small models of the zoo that were trained for this.
    oracles: [{{name: by-slot, mechanism: slot}}, {{name: by-color, mechanism: color}}]
    toys:
      - {{name: toy-free, source: "zoo:toy-free-0"}}
      - {{name: toy-interchange, source: "zoo:toy-interchange-0"}}
    suites:
      # On a GPU: `device: cuda`; `batch_size` of a model is what fits into its memory.
      - {{name: pictures, tasks: [two-things], models: [{names}], oracles: [by-slot, by-color],
         experiments: [factorizability, positions, mean], device: cpu}}
      - {{name: small, tasks: [sprites], toys: [toy-free, toy-interchange],
         experiments: [factorizability, positions, mean]}}
""",
}


class Entry(NamedTuple):
    """A model of the configuration: its keys, and what is known of it, in a line."""

    keys: dict[str, Any]
    comment: str
    grid: tuple[int, int] = (1, 1)
    input_px: int = 224
    has_cls: bool = False


class UserImages(NamedTuple):
    """A user's images: the dataset's keys from `source` to `split`, and what is said of them."""

    keys: dict[str, Any]
    groups: list[str]
    comment: str


def configuration(
    file: Path, study: str, entries: Sequence[Entry], images: UserImages | None
) -> str:
    """Return the whole text, at most 40 lines."""
    names = ", ".join(entry.keys["name"] for entry in entries)
    dataset = "images" if images else "matching"
    # Rows and columns of patches are the model's own, which pairs of patches have to fit.
    fits = "".join(
        f"      - {{name: {e.keys['name']}, datasets: [{dataset}], models: [{e.keys['name']}], "
        f"layers: last, patch_grid: {list(e.grid)}, "
        "probes: [quadratic, class-position, position]}\n"
        for e in entries
    )
    indent = "      " if study == "binding_id" else "  "
    models = "\n".join(f"{indent}# {e.comment}\n{indent}- {flow(e.keys)}" for e in entries)
    flat = study == "binding_information" and not images
    baselines = [name for name in _BASELINES if flat or name != "color-areas"]
    section = _SECTIONS[study].format(
        dataset=dataset,
        names=names,
        fits=fits,
        models=models,
        baselines=", ".join(baselines),
        tokens="[cls, mean]" if all(entry.has_cls for entry in entries) else "[mean]",
        groups=flow(images.groups if images else ["color", "shape"]),
        scenes="" if images else "    scenes: {train: 600, val: 300, test: 600}\n",
    )
    parts = [_HEAD.format(file=file)]
    if study == "binding_id":
        parts.append("datasets: []\n")
    else:
        side = max(ZOO_PX, *(entry.input_px for entry in entries))
        known = _DATASETS["pairs" if study == "concepts" else "matching"]
        parts += [_dataset_of(images, side) if images else known, "\nmodels:\n", models, "\n", _ZOO]
        if study != "same_object":
            parts.append("  # Rivals: numbers of an image that bind nothing.\n")
            rendered = ZOO_PX if not images else side
            parts += [_baseline(name, entries, rendered) for name in baselines]
    title = f"{names} next to {'known models' if study == 'binding_id' else 'the zoo'}"
    return "".join([*parts, "\nstudies:\n", section, f'\nreport: {{title: "{title}"}}\n'])


def _baseline(name: str, entries: Sequence[Entry], scene_px: int) -> str:
    """Return the line of a baseline; the histogram's images are those that the models receive."""
    keys: dict[str, Any] = {"name": name, "source": _BASELINES[name]}
    largest = max(entry.input_px for entry in entries)
    if name == "color-histogram" and largest != scene_px:
        keys["input_px"] = largest
    return f"  - {flow(keys)}\n"


def flow(value: Any) -> str:
    """Write a value in a line of YAML; the keys of a mapping without quotes."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9_-]*", value):
        return value if yaml.safe_load(value) == value else f'"{value}"'  # no, on, null
    return json.dumps(value, ensure_ascii=False)


def _dataset_of(images: UserImages, side: int) -> str:
    keys = images.keys | {"n_scenes": "all", "render": {"kind": "photos", "size_px": side}}
    lines = [f"  # {images.comment}", "  - name: images", "    source:"]
    lines += [f"      {key}: {flow(value)}" for key, value in keys.pop("source").items()]
    lines += [f"    {key}: {flow(value)}" for key, value in keys.items()]
    return "\n".join(["datasets:", *lines, ""])


def _read_table(labels: Path) -> pd.DataFrame:
    """Read a table of texts, which stand there without spaces around them."""
    where = str(labels)
    try:
        if labels.suffix.lower() == ".parquet":
            table = pd.read_parquet(labels).astype("string").fillna("")
        else:  # "None" and "NA" are values too
            table = pd.read_csv(labels, dtype="string", encoding="utf-8-sig", keep_default_na=False)
    except (OSError, ValueError) as error:
        raise InputError(
            where, f"cannot be read ({first_line(error)})", "give a CSV in UTF-8, or Parquet"
        ) from error
    stripped: pd.DataFrame = table.apply(lambda column: column.str.strip())
    return stripped


def read_labels(labels: Path, images: Path | None) -> UserImages:
    """Say what the columns of a table with a row per object are, and return the dataset of it.

    Raises
    ------
    InputError
        If the table cannot be read, or has no column of images or none of values.
    """
    where, table = str(labels), _read_table(labels)
    columns = [str(name) for name in table.columns]
    if "image" not in columns:
        raise InputError(
            where,
            f"has no column `image` (it has {', '.join(columns[:8])})",
            "give a row per object: the file name of its image, then a column per feature group",
        )
    values: dict[str, list[str]] = {}
    for name in columns:
        distinct = sorted({*table[name]} - {""})
        if name not in _OTHER_COLUMNS and 2 <= len(distinct) <= MOST_VALUES:
            values[name] = distinct
    if not values:
        raise InputError(
            where,
            f"has no column of values, of 2 to {MOST_VALUES} different ones",
            "give each object its color, shape or class in a column",
        )
    if wrong := [name for name in values if not re.fullmatch(SLUG, name)]:
        raise InputError(
            f"{where}, column {wrong[0]!r}",
            "is no name of a feature group",
            "rename it: small letters, digits and hyphens",
        )
    rows = table.groupby("image").size()
    repeats = bool(table.duplicated(["image", *values]).any())
    source: dict[str, Any] = {"kind": "table", "path": where}
    source |= {"images": str(images)} if images else {}
    source |= {"values": values} | ({"repeats": True} if repeats else {})
    for form, names in _BOXES.items():
        if set(names) <= set(columns):
            source["boxes"] = {"format": form, "columns": list(names)}
    has_masks = {"mask", "id"} <= set(columns)
    source |= {"masks": {"file": "mask", "id": "id"}} if has_masks else {}
    groups = [{"name": name, "size": len(each)} for name, each in values.items()]
    space = {"kind": "counted", "groups": groups, "max_objects": int(rows.max())}
    split = {"rule": "column"} if "split" in columns else {"rule": "hashed_images"}
    unused = [name for name in columns if name not in _OTHER_COLUMNS and name not in values]
    rare = [
        f"{name} {value!r}"
        for name in values
        for value, n in table[name].value_counts().items()
        if n == 1 and value
    ]
    comment = f"{len(rows):,} images of {len(table):,} objects"
    for text, listed in (("not used", unused), ("in one row only (misspelled?)", rare[:5])):
        comment += f"; {text}: {', '.join(listed)}" if listed else ""
    return UserImages({"source": source, "space": space, "split": split}, [*values], comment)
