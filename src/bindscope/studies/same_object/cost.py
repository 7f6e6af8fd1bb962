"""What the study's steps take: patches, pairs of them, and passes of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from bindscope.core.graph import Product
from bindscope.core.work import METADATA, Content, Work, stored
from bindscope.graph.cost import extraction, image_px, image_side
from bindscope.graph.towers import tower_of
from bindscope.studies.same_object.config import PatchSampling
from bindscope.studies.same_object.quantities import patches_of

DECIDES_NOTHING = True

PAIR_BYTES, BLOCK = 48, 2**21  # `data.PAIR_BYTES` and `data.BLOCK`, which are beside torch
_COPIES, _IMAGE_DIMS = 32, 64  # `scorers.convex.COPIES`, `scorers.classes.IMAGE_DIMS`
# Bytes of a pair of validation while Platt's map is fitted, and of a test image while its pairs are
# resampled; those of a descent, and of boosted trees.
_SORTED, _RESAMPLED, _BESIDE, _TREES = 30, 15_000, 8e7, 1.2e8
_COMPRESSED = 0.2  # of the sample's arrays of integers
_ROW, _STRATA = 1400, 18 * 820  # bytes of a fit's row, and of its strata's
_BATCH, _ATTENDED, _MASKS = 64, 2**24, 16  # `effects.passes.BATCH`, `WEIGHTS` and `MASKS`
_EDITS, _STRENGTHS, _REFITTED = 5, 4, 3  # subspaces, and edits of each; those with new probes
_HALVES = 2  # edits of half strength with new probes


def _images(product: Product) -> dict[str, int]:
    """Return the number of images by split."""
    samples = product.inputs["samples"]
    return {sample.content["split"]: int(sample.content["n_scenes"]) for sample in samples}


def _width(sample: Product) -> int:
    """Return the most patches of an image."""
    sampling = PatchSampling.model_validate(sample.content["sampling"])
    return min(patches_of(sampling, sample.content["split"]), int(prod(sample.content["grid"])))


def patch_samples(product: Product) -> Work:
    """Count the labels of patches, and which are drawn."""
    content = product.content
    n = content["n_scenes"]
    return Work(
        units=n * image_px(product) ** 2,
        bytes_disk=n * _width(product) * (4 + 7 * 2 * _COMPRESSED) + 10 * METADATA,
        bytes_host=1.2e8 + n * prod(content["grid"]) * 20,
    )


def _dim(product: Product) -> int:
    """Return the width of the tokens that a job reads; 0 of labels and positions alone."""
    tokens = next(iter(product.inputs.get("test", ())), None)
    return tower_of(tokens.content["model"], image_px(tokens)).width if tokens else 0


def sampled(product: Product) -> Work:
    """Count the tokens of the sampled patches in several layers."""
    content, layers = product.content, len(product.content["layers"])
    how, shape = content["model"]["extraction"], tower_of(content["model"], image_px(product))
    n = sum(piece["stop"] - piece["start"] for piece in content["part"])
    scenes = product.inputs["scenes"][0].content
    crops = prod((scenes.get("render") or scenes["dataset"]["render"]).get("crops") or (1, 1))
    width = _width(product.inputs["samples"][0])
    written = stored(how["dtype"], (layers, n, width, shape.width), axis=1)
    batch = 4 * how["batch_size"] * layers * width * shape.width
    work = extraction(product, written, batch + min(written, layers * 8 * 2**20) / 3)
    # A model reads each crop of an image.
    return replace(work, units=crops * work.units, bytes_computed=crops * work.bytes_computed)


def sampled_temporary(product: Product) -> Work:
    """Count tokens that go when they have been read."""
    return replace(sampled(product), temporary=True)


def same_object_fit(product: Product) -> Work:
    """Count the fits of all layers and seeds of a job."""
    content, sample = product.content, product.inputs["samples"][0]
    fits = max(1, len(content["layers"]))
    work = pairs_work(
        content["probe"], _images(product), sample, _dim(product), fits, len(content["seeds"])
    )
    key = f"studies.same_object.probes[{product.wildcards['probe']}].memory_mb"
    return replace(work, key=key)


def pairs_work(
    probe: Content, n: Mapping[str, int], sample: Product, dim: int, fits: int, n_seeds: int = 1
) -> Work:
    """Count fits of a probe to pairs of patches, and their measurement on test.

    `n` are images by split, of whose patches there is a `sample`; `fits` are made one after the
    other.
    """
    family, width, cells = probe["family"], _width(sample), int(prod(sample.content["grid"]))
    seeds = n_seeds if family == "identity_pointwise" else 1
    couples, pairs, limit = cells * (cells - 1) / 2, width * (width - 1) / 2, probe["memory_mb"]
    # Of tokens and pairs what the probe may hold, and of a block a few copies.
    memory = 4.0 * (n["train"] + n["val"]) * width * dim + 2 * PAIR_BYTES * n["train"] * pairs
    memory = min(memory, limit * 2.0**20)
    memory += 10 * 4.0 * max(BLOCK, width * max(dim, 4 * width))
    positions = 2 * cells + couples
    weights = {
        "quadratic": 2 * dim * dim,
        "identity_pointwise": dim * probe.get("queries", 0),
        "quadratic_position": dim * dim + positions,
        "position": positions,
    }.get(family, 2 * dim)
    host = _SORTED * n["val"] * pairs + _RESAMPLED * n["test"] + _BESIDE + 24.0 * weights
    if family == "class_position":  # a number of each couple, for each component of the image
        each = 4.0 * _COPIES * couples
        host += max(min(each * _IMAGE_DIMS, limit * 2.0**20), each) + _TREES
    written = fits * seeds  # of lower ranks, the leading part of the same weights is read
    measured = written * (1 + len(probe.get("ranks", ())))
    rows = measured * (_ROW + _STRATA)
    return Work(
        "torch",
        units=written * n["train"] * pairs * max(dim, 1),
        bytes_disk=4.0 * written * (weights + 4 * dim) + rows + measured * 20 * n["test"] + 4000,
        bytes_rows=rows,
        bytes_host=host,
        bytes_loaded=memory,
    )


def same_object_maps(product: Product) -> Work:
    """Count the score maps of a few scenes."""
    content, side = product.content, image_px(product)
    n, layers, shape = content["n_scenes"], len(content["layers"]), tower_of(content["model"], side)
    return Work(
        "hub" if shape.network else "torch",
        units=n * shape.tokens * shape.weights,
        bytes_loaded=4 * shape.weights,
        bytes_computed=shape.batch_bytes(n) + 4 * layers * n * shape.tokens * shape.width,
        bytes_disk=n * (4 * side**2 + 2 * 4 * layers * shape.patches) + 600,
        key=f"models[{product.wildcards['model']}].extraction.batch_size",
    )


def same_object_geometry(product: Product) -> Work:
    """Count what is measured of scores and tokens, layer by layer."""
    n, dim, width = _images(product), _dim(product), _width(product.inputs["samples"][0])
    layers, tokens = len(product.content["layers"]), sum(n.values()) * width
    return Work(
        "torch",
        units=layers * tokens * dim**2,
        bytes_host=8.0 * layers * n["test"] * width**2 + 12.0 * tokens * dim + 2e8,
        bytes_disk=layers * 3e5,
        key="studies.same_object.geometry.models",
    )


def same_object_effects(product: Product) -> Work:
    """Count passes under every edit, and the probes that are fitted again under some."""
    content, n = product.content, product.content["n_scenes"]
    side, sample = image_side(product.inputs["test_scenes"][0]), product.inputs["test_samples"][0]
    shape, width = tower_of(content["model"], side), _width(sample)
    edits, refits = (
        (1 + _EDITS * (_STRENGTHS + 1), 1 + _EDITS * _REFITTED + _HALVES)
        if content["edits"]
        else (1, 0)
    )
    readers = 1 + (content["later"] is not None)
    probes = [pairs_work(p, n, sample, shape.width, refits * readers) for p in content["retrained"]]
    batch = min(_BATCH, n["test"], max(1, _ATTENDED // shape.tokens**2))
    # Of the patches' rows, and of a head: scores, weights, and the sum over heads.
    attended = 4.0 * batch * (4 * width * shape.tokens + 3 * shape.tokens**2)
    # Of test images pairs under each edit, pixels and labels, and those of a batch with objects; of
    # all images tokens.
    results = n["test"] * (2.0 * edits * readers * width**2 + 3 * side**2 + 8 * shape.patches)
    results += min(_MASKS, n["test"]) * (24.0 * side**2 + 8 * 255 * shape.patches)
    results += 4.0 * sum(n.values()) * width * shape.width * readers
    return Work(
        "hub" if shape.network else "torch",
        units=(n["test"] * edits + refits * n.get("train", 0)) * shape.tokens * shape.weights,
        bytes_host=results + max((work.bytes_host for work in probes), default=_BESIDE),
        bytes_loaded=4 * shape.weights + max((work.bytes_loaded for work in probes), default=0.0),
        bytes_computed=shape.batch_bytes(batch) + attended,
        bytes_disk=edits * 3000.0 + refits * readers * 1500.0 * len(probes),
        key="studies.same_object.effects.scenes",
    )
