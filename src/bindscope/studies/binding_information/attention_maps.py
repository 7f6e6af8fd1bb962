"""Which patches the queries of an attention probe read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.activations.reader import Activations
from bindscope.core.array_types import Array, Singles
from bindscope.core.errors import StoreError
from bindscope.core.store.reader import open_store
from bindscope.statistics.bootstrap import interval, resampled_means
from bindscope.studies.binding_information.probes.attention import AttentionQuadratic
from bindscope.studies.binding_information.probes.module import PatchInputs
from bindscope.studies.binding_information.probes.weights import LoadedProbe, load_probe

DRAWN = 8  # scenes whose maps are kept
MEASURED = 512  # scenes that the share is taken over


@torch.inference_mode()
def attention_maps(probe: LoadedProbe, tokens: Array, cls: Array | None, bits: Array) -> Singles:
    """Return where the heads of a plain object probe look, float32 (B, heads, T).

    It reads raw patch tokens (B, T, d), [CLS] (B, d) or None, and true object codes (B, heads); the
    weights of a head sum to 1.
    """
    inputs, family = probe.inputs(tokens, cls), probe.families["object"]
    if not isinstance(family, AttentionQuadratic) or not isinstance(inputs, PatchInputs):
        raise StoreError(
            probe.config.name,
            f"family {probe.config.family} has no attention maps",
            "choose a probe of family attention_quadratic",
        )
    return family.attention(inputs, torch.from_numpy(np.asarray(bits, np.float32)) - 0.5).numpy()


def read_maps(weights: str, index: str, scenes: str, codes: str) -> dict[str, NDArray[Any]]:
    """Attention of the query of every present object, over the first test scenes.

    Given are the weights of an attention fit, the index of its patch tokens, and manifests of the
    first test shard and of the test codes. Returned are ``images`` uint8 (S, H, W, 3), ``masks``
    uint8 (S, H, W), ``maps`` float32 (S, M, T) of the M objects in order of their cells, ``grid``
    (2,), ``patch_px`` (1,), and ``share`` and ``baseline`` float64 (N,) over the objects of up to
    `MEASURED` scenes (see `attention_share`) with ``scene`` int64 (N,), the scene that each is in.
    """
    activations = Activations(index)
    reader = activations.patches("test")
    shard = open_store(scenes)
    n = min(MEASURED, shard.layout("images").n_rows)
    first = slice(0, n)
    objects = open_store(codes).read("objects", first)
    cls = reader.cls()
    heads = attention_maps(
        load_probe(Path(weights)),
        reader.read(0, n),
        None if cls is None else cls.read(0, n),
        objects,
    )
    cells = shard.read("cells", first)
    masks = of_objects(shard.read("masks", first), cells)
    # The map of the j-th object is that of the head of its cell; -1 pads scenes with fewer.
    maps = np.take_along_axis(heads, np.maximum(cells, 0)[:, :, None].astype(np.int64), axis=1)
    token_map = activations.token_map
    assert token_map is not None
    share, baseline = attention_share(maps, masks, token_map.grid, token_map.patch_px)
    present = np.isfinite(share)
    return {
        "images": shard.read("images", slice(0, DRAWN)),
        "masks": masks[:DRAWN],
        "maps": np.ascontiguousarray(maps[:DRAWN]),
        "grid": np.asarray(token_map.grid, np.int64),
        "patch_px": np.asarray([token_map.patch_px], np.int64),
        "share": share[present],
        "baseline": baseline[present],
        "scene": np.nonzero(present)[0],
    }


def of_objects(masks: NDArray[Any], cells: NDArray[Any]) -> NDArray[Any]:
    """Set what is no object of the code (an occluder, stuff) to 0 in masks (S, H, W)."""
    numbers = np.where(cells >= 0, np.arange(1, cells.shape[1] + 1), 0).astype(masks.dtype)
    ids = np.concatenate([np.zeros((len(numbers), 1), masks.dtype), numbers], axis=1)
    cleared: NDArray[Any] = ids[np.arange(len(masks))[:, None, None], masks]
    return cleared


def fit_flags(rows: Path | str, seed: int) -> str:
    """Return the flags of a seed's fit, joined by `;`, from rows with a line of JSON per seed."""
    lines = Path(rows).read_text(encoding="utf-8").splitlines()
    (flags,) = (row["flags"] for row in map(json.loads, lines) if row["seed"] == seed)
    return str(flags)


def summary(
    arrays: Mapping[str, NDArray[Any]], information: Mapping[str, Any]
) -> dict[str, float | int]:
    """Average the share of attention on the right object's patches, of what `read_maps` returns.

    `attention_share` is the mean over objects, with its 95 % bootstrap interval over scenes;
    `uniform_share` is what a query without preference would have.
    """
    share, scene = arrays["share"], arrays["scene"]
    means = resampled_means(
        share[:, None], information["bootstrap_samples"], information["bootstrap_seed"], scene
    )
    low, high = interval(means[:, 0])
    return {
        "n_scenes": len(np.unique(scene)),
        "n_objects": len(share),
        "attention_share": float(share.mean()),
        "attention_share_low": low,
        "attention_share_high": high,
        "uniform_share": float(arrays["baseline"].mean()),
    }


def attention_share(
    maps: NDArray[Any], masks: NDArray[Any], grid: Sequence[int], patch_px: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the share of each query's attention on patches that its own object touches.

    Maps are (S, M, T), attention of the j-th object's query over T patches in rows; what stands for
    an absent object is not read. Masks are uint8 (S, H, W): 0 is background, j + 1 the j-th object.
    Where `grid` times `patch_px` is the masks' size the patches lie on the masks' pixels; where it
    is not, the model resized the image, and pixels are mapped to patches in proportion. Share, and
    baseline of a uniform query (patches that the object touches), are float64 (S, M), NaN for
    absent objects.
    """
    rows, columns = int(grid[0]), int(grid[1])
    n_scenes, n_objects, n_patches = maps.shape
    if rows * columns != n_patches or len(masks) != n_scenes:
        raise ValueError(
            f"maps {maps.shape} do not match masks {masks.shape} and a {rows} x {columns} grid"
        )
    vertical = _overlap(rows, masks.shape[1], patch_px)
    horizontal = _overlap(columns, masks.shape[2], patch_px)
    share = np.full((n_scenes, n_objects), np.nan)
    baseline = share.copy()
    for j in range(n_objects):
        object_mask = (masks == j + 1).astype(np.float32)
        touched = (vertical @ object_mask @ horizontal.T > 0).reshape(n_scenes, n_patches)
        present = touched.any(axis=1)
        weights = maps[:, j].astype(np.float64)
        inside = np.where(touched, weights, 0.0).sum(axis=1)
        share[present, j] = inside[present] / weights[present].sum(axis=1)
        baseline[present, j] = touched[present].mean(axis=1)
    return share, baseline


def _overlap(n_patches: int, n_pixels: int, patch_px: int) -> NDArray[np.float32]:
    """Say which pixels of one axis each patch touches: float32 (n_patches, n_pixels) of 0 and 1.

    A border that is narrower than a patch belongs to none (the model cuts it off).
    """
    covered = n_patches * patch_px
    extent = covered if covered <= n_pixels < covered + patch_px else n_pixels
    pixel = np.arange(n_pixels)
    patch = np.arange(n_patches)[:, None]
    # pixel [p, p + 1) meets patch [q e / n, (q + 1) e / n): compare in integers
    starts_before_end = pixel * n_patches < (patch + 1) * extent
    ends_after_start = (pixel + 1) * n_patches > patch * extent
    return (starts_before_end & ends_after_start).astype(np.float32)
