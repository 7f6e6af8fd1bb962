"""What the study's steps take: patches, pairs of them, and passes of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from bindscope.core.graph import Product
from bindscope.core.work import Content, Work, n_scenes, stored
from bindscope.graph.cost import extraction, image_px, render_of, shape_of, side_of
from bindscope.graph.towers import tower_of
from bindscope.studies.same_object.config import PatchSampling
from bindscope.studies.same_object.quantities import patches_of

DECIDES_NOTHING = True

PAIR_BYTES, BLOCK = 48, 2**21  # `data.PAIR_BYTES` and `data.BLOCK`, which are beside torch
_COPIES, _IMAGE_DIMS = 32, 64  # `scorers.convex.COPIES`, `scorers.classes.IMAGE_DIMS`
# Bytes of a pair of validation while Platt's map is fitted, and of a test image while its pairs are
# resampled; those of a descent and of boosted trees; and those of a fit's rows.
_SORTED, _RESAMPLED, _BESIDE, _ROWS = 30, 15_000, 2e8, 16_000
_BATCH, _ATTENDED = 64, 2**24  # `effects.passes.BATCH` and `WEIGHTS`
_EDITS, _REFITS = 26, 15  # of `effects` at most: edits, and of them those with new probes


def _images(product: Product) -> dict[str, int]:
    """Return the number of images by split."""
    return {each.content["split"]: n_scenes(each) for each in product.inputs["samples"]}


def _width(sample: Product) -> int:
    """Return the most patches of an image."""
    sampling = PatchSampling.model_validate(sample.content["sampling"])
    return min(patches_of(sampling, sample.content["split"]), int(prod(sample.content["grid"])))


def _dim(product: Product) -> int:
    """Return the width of the tokens that a job reads; 0 of labels and positions alone."""
    tokens = product.inputs.get("test", ())
    return shape_of(tokens[0]).width if tokens else 0


def patch_samples(product: Product) -> Work:
    """Count the labels of patches, and which are drawn."""
    n, cells = n_scenes(product), prod(product.content["grid"])
    return Work(
        units=n * image_px(product) ** 2,
        bytes_disk=8 * n * _width(product),
        bytes_host=1.2e8 + 20 * n * cells,
    )


def sampled(product: Product) -> Work:
    """Count the tokens of the sampled patches in several layers; a model reads each crop."""
    layers, how = len(product.content["layers"]), product.content["model"]["extraction"]
    n, shape, width = n_scenes(product), shape_of(product), _width(product.inputs["samples"][0])
    crops = prod(render_of(product.inputs["scenes"][0]).get("crops") or (1, 1))
    written = stored(how["dtype"], (layers, n, width, shape.width), axis=1)
    batch = 4 * how["batch_size"] * layers * width * shape.width
    work = extraction(product, written, batch + min(written, layers * 8 * 2**20) / 3)
    return replace(work, units=crops * work.units, bytes_computed=crops * work.bytes_computed)


def fit(product: Product) -> Work:
    """Count the fits of all layers and seeds of a job."""
    content, sample = product.content, product.inputs["samples"][0]
    fits = max(1, len(content["layers"])) * len(content["seeds"])
    work = _of_pairs(content["probe"], _images(product), sample, _dim(product), fits)
    key = f"studies.same_object.probes[{product.wildcards['probe']}].memory_mb"
    return replace(work, key=key)


def _of_pairs(probe: Content, n: Mapping[str, int], sample: Product, dim: int, fits: int) -> Work:
    """Count fits of a probe to pairs of patches, and their measurement on test.

    `n` are images by split, of whose patches there is a `sample`; `fits` are made one after the
    other.
    """
    family, limit = probe["family"], probe["memory_mb"] * 2.0**20
    width, cells = _width(sample), int(prod(sample.content["grid"]))
    couples, pairs = cells * (cells - 1) / 2, width * (width - 1) / 2
    # Of tokens and pairs what the probe may hold, and of a block a few copies.
    memory = 4.0 * (n["train"] + n["val"]) * width * dim + 2 * PAIR_BYTES * n["train"] * pairs
    memory = min(memory, limit)
    memory += 10 * 4.0 * max(BLOCK, width * max(dim, 4 * width))
    weights = dim * (2 * dim if "quadratic" in family else 6 + probe.get("queries", 0))
    host = _SORTED * n["val"] * pairs + _RESAMPLED * n["test"] + _BESIDE + 24.0 * weights
    if "position" in family:
        weights += int(2 * cells + couples)
    if family == "class_position":  # a number of each couple, for each component of the image
        each = 4.0 * _COPIES * couples
        host += max(min(each * _IMAGE_DIMS, limit), each)
    measured = fits * (1 + len(probe.get("ranks", ())))  # of lower ranks with the same weights
    return Work(
        units=fits * n["train"] * pairs * max(dim, 1),
        bytes_disk=4.0 * fits * weights + measured * 20 * n["test"],
        bytes_rows=measured * _ROWS,
        bytes_host=host,
        bytes_loaded=memory,
    )


def maps(product: Product) -> Work:
    """Count the score maps of a few scenes."""
    n, shape, layers = n_scenes(product), shape_of(product), len(product.content["layers"])
    return Work(
        units=n * shape.tokens * shape.weights,
        bytes_loaded=4 * shape.weights,
        bytes_computed=shape.batch_bytes(n) + 4 * layers * n * shape.tokens * shape.width,
        bytes_disk=n * (4 * image_px(product) ** 2 + 2 * 4 * layers * shape.patches),
        key=f"models[{product.wildcards['model']}].extraction.batch_size",
    )


def geometry(product: Product) -> Work:
    """Count what is measured of scores and tokens, layer by layer."""
    n, dim, width = _images(product), _dim(product), _width(product.inputs["samples"][0])
    layers, tokens = len(product.content["layers"]), sum(n.values()) * width
    return Work(
        units=layers * tokens * dim**2,
        bytes_host=8.0 * layers * n["test"] * width**2 + 12.0 * tokens * dim + 2e8,
        bytes_disk=layers * 3e5,
        key="studies.same_object.geometry.models",
    )


def effects(product: Product) -> Work:
    """Count passes under every edit, and the probes that are fitted again under some."""
    content, n = product.content, product.content["n_scenes"]
    side, sample = (
        side_of(render_of(product.inputs["test_scenes"][0])),
        product.inputs["test_samples"][0],
    )
    shape, width = tower_of(content["model"], side), _width(sample)
    probes = [_of_pairs(p, n, sample, shape.width, 1) for p in content["retrained"]]
    batch = min(_BATCH, n["test"], max(1, _ATTENDED // shape.tokens**2))
    # Of the patches' rows, and of a head: scores, weights, and the sum over heads.
    attended = 4.0 * batch * (4 * width * shape.tokens + 3 * shape.tokens**2)
    # Of test images pairs under each edit in two layers, pixels and labels, and of a few also
    # masks; of all images tokens.
    results = n["test"] * (4.0 * _EDITS * width**2 + 3 * side**2 + 8 * shape.patches)
    results += 16 * (24.0 * side**2 + 8 * 255 * shape.patches)
    results += 8.0 * sum(n.values()) * width * shape.width
    passes = n["test"] * _EDITS + _REFITS * n.get("train", 0)
    return Work(
        units=passes * shape.tokens * shape.weights,
        bytes_host=results + max((work.bytes_host for work in probes), default=_BESIDE),
        bytes_loaded=4 * shape.weights + max((work.bytes_loaded for work in probes), default=0.0),
        bytes_computed=shape.batch_bytes(batch) + attended,
        key="studies.same_object.effects.scenes",
    )
