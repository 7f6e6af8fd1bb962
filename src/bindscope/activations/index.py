"""The index: one small JSON that names the shards of an array of activations, in order.

A fit reads the index instead of having hundreds of shards as inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bindscope.activations.parts import rows_of
from bindscope.core.errors import StoreError
from bindscope.core.files import canonical_json
from bindscope.core.store.listing import entry
from bindscope.core.store.manifest import Manifest, read_manifest, remedy

MAX_BYTES = 1_000_000
# What may differ between the shards of one index.
_OF_A_SHARD = ("split", "splits", "shard", "start", "stop")


def build_index(
    shards: Mapping[str, Sequence[Path | str]], n_scenes: Mapping[str, int], folder: Path | str
) -> dict[str, Any]:
    """Check that the shards of all splits belong together, and describe them.

    Returns ``arrays`` (dtype, sample axis and shape without the samples), ``attributes`` (common to
    all shards), ``shard_code``, and per split under ``splits``: ``n_scenes`` and the ``shards``
    with ``manifest`` (relative to `folder`, so that results can be moved), ``n_scenes``,
    ``spec_key`` and ``digest`` (of the manifest). StoreError if a shard is of another model, code
    or shape, a split does not have `n_scenes` scenes, or the index is larger than 1 MB (Snakemake
    compares no checksums of larger files).
    """
    first: tuple[Path, dict[str, Any]] | None = None
    splits: dict[str, Any] = {}
    for split, paths in shards.items():
        listed: list[dict[str, Any]] = []
        for path in paths:
            manifest = read_manifest(path)
            common = _common(manifest)
            first = first or (manifest.path, common)
            _compare(manifest.path, common, *first)
            first_row, last_row = rows_of(manifest, split)
            listed.append({**entry(manifest, folder), "n_scenes": last_row - first_row})
        n_stored = sum(shard["n_scenes"] for shard in listed)
        if n_stored != n_scenes[split]:
            raise StoreError(
                f"split {split}",
                f"its {len(listed)} shards hold {n_stored} scenes, not {n_scenes[split]}",
                "run snakemake again, which makes the shards that the configuration asks for",
            )
        splits[split] = {"n_scenes": n_stored, "shards": listed}
    if first is None:
        raise ValueError("an index of no shards")
    index = {**first[1], "splits": splits}
    size = len(canonical_json(index))
    if size > MAX_BYTES:
        raise StoreError(
            str(folder), f"the index would take {size} bytes", "raise shard_size of the dataset"
        )
    return index


def _common(manifest: Manifest) -> dict[str, Any]:
    """What all shards of an index share."""
    arrays = {}
    for name, layout in sorted(manifest.arrays.items()):
        shape = list(layout.shape)
        del shape[layout.sample_axis]
        arrays[name] = {"dtype": layout.dtype, "sample_axis": layout.sample_axis, "shape": shape}
    attributes = {k: v for k, v in manifest.attributes.items() if k not in _OF_A_SHARD}
    return {"arrays": arrays, "attributes": attributes, "shard_code": manifest.code}


def _compare(path: Path, common: dict[str, Any], first_path: Path, first: dict[str, Any]) -> None:
    for part in ("shard_code", "arrays", "attributes"):
        if common[part] == first[part]:
            continue
        names = part
        if part != "shard_code":
            differing = {
                name
                for name in {*common[part], *first[part]}
                if common[part].get(name) != first[part].get(name)
            }
            names = f"{part} {', '.join(sorted(differing))}"
        raise StoreError(str(path), f"differs from {first_path} in {names}", remedy(path))
