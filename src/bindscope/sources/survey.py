"""What a plan learns of tables of scenes: their problems, and how many scenes each split has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bindscope.config.codes import ALL, Dataset, SceneDistribution
from bindscope.config.observed import TableSource
from bindscope.core.errors import ConfigError
from bindscope.core.graph import Graph
from bindscope.core.splits import SPLITS

_ONE_EACH = dict.fromkeys(SPLITS, 1)


def with_counts(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with numbers where a table's dataset has ``n_scenes: all``.

    Its images are decoded for that, once: those that `source.bad_images` leaves out do not count.
    What is no valid dataset has some numbers; all that is wrong with a table is an error.
    """
    datasets = raw.get("datasets")
    if not isinstance(datasets, list):
        return dict(raw)
    return {**raw, "datasets": [_counted(dataset) for dataset in datasets]}


def _counted(raw: Any) -> Any:
    if not isinstance(raw, Mapping) or raw.get("n_scenes") != ALL:
        return raw
    source = raw.get("source")
    if not isinstance(source, Mapping) or source.get("kind") != "table":
        return raw
    try:
        dataset = Dataset.model_validate({**raw, "n_scenes": _ONE_EACH})
    except ValidationError:
        # The check of the whole configuration says what is wrong, and `all` is not.
        return {**raw, "n_scenes": _ONE_EACH}
    return {**raw, "n_scenes": _survey(dataset, decode=True)[0]}


def check_tables(
    graph: Graph, datasets: Mapping[str, Dataset], raw: Mapping[str, Any]
) -> list[str]:
    """Check the tables of records that remain to be made; `raw` is the configuration as it is read.

    Images are only looked for, unless `with_counts` has decoded them.

    A line for each table says how many scenes its splits have. InputError or ConfigError for
    everything that is wrong with a table, or splits with too few scenes.
    """
    lines = []
    decoded = [entry["name"] for entry in raw["datasets"] if entry.get("n_scenes") == ALL]
    for product in graph.select("records"):
        dataset = datasets[product.wildcards["dataset"]]
        if isinstance(dataset.source, TableSource) and not Path(product.path()).exists():
            counts, n_skipped = _survey(dataset, decode=dataset.name in decoded)
            lacking = [
                f"{name} {getattr(dataset.n_scenes, name)} of {counts[name]}"
                for name in SPLITS
                if getattr(dataset.n_scenes, name) > counts[name]
            ]
            if lacking:
                raise ConfigError(
                    f"datasets.{dataset.name}.n_scenes",
                    f"asks for {', '.join(lacking)} scenes",
                    f"lower it, change the split, or set `n_scenes: {ALL}`",
                )
            listed = ", ".join(
                f"{counts[name]} {name} ({getattr(dataset.n_scenes, name)} used)" for name in SPLITS
            )
            left_out = f", {n_skipped} images left out" if n_skipped else ""
            lines.append(f"{dataset.name}: {sum(counts.values())} scenes: {listed}{left_out}")
    return lines


def _survey(dataset: SceneDistribution, *, decode: bool) -> tuple[dict[str, int], int]:
    """Return scenes per split, and the number of images left out."""
    from bindscope.sources.reading import read_source  # imports PyArrow and Pillow

    _, splits, _, skipped = read_source(dataset, decode=decode)
    return {name: len(splits[name]) for name in SPLITS}, len(skipped)
