"""What the study's steps take: patches, pairs of them, and passes of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from bindscope.core.graph import Product
from bindscope.core.work import METADATA, Work, stored
from bindscope.graph.cost import extraction, image_px, image_side
from bindscope.graph.towers import tower_of

DECIDES_NOTHING = True

Content = Mapping[str, Any]

# `data.PAIR_BYTES` and `data.BLOCK`, which are beside torch.
PAIR_BYTES, BLOCK = 48, 2**21
BATCH_IMAGES = 8  # as of `scorers.identity`
# Passes over all pairs of train that a form takes: of its path, and of those it contains (default
# run: many more iterations, which read only pairs that count).
_PASSES = {
    "linear": 40,
    "diagonal": 70,
    "quadratic": 100,
    "quadratic_position": 140,
    "class_pointwise": 100,
    "class_position": 400,
    "position": 100,
}
_COPIES, _IMAGE_DIMS = 32, 64  # `scorers.convex.COPIES`, `scorers.classes.IMAGE_DIMS`
# Numbers of a pair that a pass makes, and those of counting, sorting and resampling at the end.
_OF_PAIR, _MEASURED = 6, 150
_SORTED = 30  # bytes of a pair of validation while Platt's map is fitted
_VALID = 0.5  # share of the sampled patches whose pairs count (a tenth to all in small presets)
_BOOSTED = 2e9  # numbers that boosted trees make of 100,000 pairs and 100 trees (default run)
_COMPRESSED = 0.2  # of the sample's arrays of integers (default run)
_ROW, _STRATA = 1400, 18 * 820  # bytes of a fit's row, and of its strata's (`same_object`)
_BESIDE = 8e7  # bytes of what a descent and the counts of pairs hold (default run)
_BATCH, _ATTENDED, _MASKS = 64, 2**24, 16  # `effects.passes.BATCH`, `WEIGHTS` and `MASKS`
_EDITS = 5  # subspaces that are edited
_STRENGTHS = 4  # of shuffles and injections
_REFITTED = 3  # edits of each under which probes are fitted again
_SMALL = 0.5  # share of the rate of large products that blocks of images reach


def _images(product: Product) -> dict[str, int]:
    """Return the number of images by split."""
    return {
        sample.content["split"]: int(sample.content["n_scenes"])
        for sample in product.inputs["samples"]
    }


def _width(sample: Product) -> int:
    """Return the most patches of an image."""
    content = sample.content
    return min(int(content["sampling"]["n_patches"]), int(prod(content["grid"])))


def _cells(sample: Product) -> int:
    """Return the number of patches of the grid."""
    return int(prod(sample.content["grid"]))


def patch_samples(product: Product) -> Work:
    """Count the labels of patches, and which are drawn."""
    content = product.content
    n, patches = content["n_scenes"], _width(product)
    px = image_px(product) ** 2
    return Work(
        bytes_disk=n * patches * (4 + 7 * 2 * _COMPRESSED) + 10 * METADATA,
        bytes_peak=1.2e8 + n * prod(content["grid"]) * 20,
        elements=n * px * 6,
        python=500 * n + 5e6,
    )


def _dim(product: Product) -> int:
    """Return the width of the tokens that a job reads; 0 of labels and positions alone."""
    tokens = next(iter(product.inputs.get("test", ())), None)
    if tokens is None:
        return 0
    return tower_of(tokens.content["model"], image_px(tokens)).width


def sampled(product: Product) -> Work:
    """Count the tokens of the sampled patches in several layers."""
    content = product.content
    layers, shape = content["layers"], tower_of(content["model"], image_px(product))
    n = sum(piece["stop"] - piece["start"] for piece in content["part"])
    width = _width(product.inputs["samples"][0])
    kind = content["model"]["extraction"]["dtype"]
    written = stored(kind, (len(layers), n, width, shape.width), axis=1)
    deepest = "final" if "final" in layers else max(int(layer) for layer in layers)
    batch = content["model"]["extraction"]["batch_size"]
    memory = 4 * batch * len(layers) * width * shape.width
    chunks = min(written, len(layers) * 8 * 2**20)
    return extraction(product, deepest, written, memory + chunks / 3)


def sampled_temporary(product: Product) -> Work:
    """Count tokens that go when they have been read."""
    return replace(sampled(product), temporary=True)


def same_object_fit(product: Product) -> Work:
    """Count the fits of all layers and seeds of a job."""
    content, dim = product.content, _dim(product)
    sample = product.inputs["samples"][0]
    layers, width, cells = max(1, len(content["layers"])), _width(sample), _cells(sample)
    seeds = content["seeds"]
    work = pairs_work(content["probe"], _images(product), width, cells, dim, layers, seeds)
    name = product.wildcards["probe"]
    return replace(work, key=f"studies.same_object.probes[{name}].memory_mb")


def pairs_work(
    probe: Content,
    n: Mapping[str, int],
    width: int,
    cells: int,
    dim: int,
    fits: int,
    seeds: Sequence[int] = (0,),
) -> Work:
    """Count fits of a probe to pairs of patches, and their measurement on test.

    `n` are images by split, `width` patches of an image, of `cells` of the grid; `fits` are made
    one after the other.
    """
    family, n_fits = probe["family"], len(seeds) if probe["family"] == "identity_pointwise" else 1
    read = dim if family != "class_position" else _IMAGE_DIMS
    couples, components = cells * (cells - 1) / 2, 0.0
    if family == "class_position":  # a number of each couple, for each component of the image
        most = probe["memory_mb"] * 2.0**20 / (4 * _COPIES * couples)
        components = max(1.0, min(_IMAGE_DIMS, most))
    image = 2.0 * 2 * (width * read * read + width * width * read)
    image += 2.0 * 2 * components * couples
    pairs = width * (width - 1) / 2 * _VALID
    if family == "identity_pointwise":
        passes = n_fits * probe["steps"] * BATCH_IMAGES / max(n["train"], 1) * 2
        image, python = 6.0 * width * dim * probe["queries"], 8000.0 * n_fits * probe["steps"]
    else:
        passes, python = _PASSES.get(family, 20), 2e6 + 3000.0 * _PASSES.get(family, 20)
    elements = passes * n["train"] * pairs * _OF_PAIR + 3e5 * n["test"]
    elements += n_fits * (n["test"] + n["val"]) * (pairs + 4000) * _MEASURED
    elements += _BOOSTED * (family == "class_position")
    memory = 4.0 * (n["train"] + n["val"]) * width * dim
    memory += 2 * PAIR_BYTES * n["train"] * pairs / _VALID
    memory = min(memory, probe["memory_mb"] * 2.0**20)
    memory += 10 * 4.0 * max(BLOCK, width * max(dim, 4 * width))
    weights = _weights(probe, cells, dim)
    written = fits * n_fits  # of lower ranks, the leading part of the same weights is read
    measured = written * (1 + len(probe.get("ranks", ())))
    return Work(
        "torch",
        flops=fits * passes * n["train"] * image / _SMALL,
        elements=fits * elements,
        python=fits * python,
        bytes_disk=4.0 * written * (weights + 4 * dim)
        + measured * (_ROW + _STRATA + 20 * n["test"])
        + 4000,
        bytes_rows=1.0 * measured * _ROW,
        rows_of={"strata": 1.0 * measured * _STRATA},
        bytes_peak=memory
        + _SORTED * n["val"] * pairs / _VALID
        + 12e4 * n["test"] / 8
        + _BESIDE
        + (1.2e8 if family == "class_position" else 0)
        + 24.0 * weights
        + 4.0 * _COPIES * components * couples,
        threads=probe["threads"],
        device=probe["device"],
        bytes_device=memory * (probe["device"] == "cuda"),
    )


def _weights(probe: Content, cells: int, dim: int) -> int:
    """Return how many numbers a fit writes."""
    positions = 2 * cells + cells * (cells - 1) // 2
    sizes = {
        "quadratic": 2 * dim * dim, "identity_pointwise": dim * probe.get("queries", 0),
        "quadratic_position": dim * dim + positions, "class_position": 0, "position": positions,
    }  # fmt: skip
    return int(sizes.get(probe["family"], 2 * dim))


def same_object_maps(product: Product) -> Work:
    """Count the score maps of a few scenes."""
    content = product.content
    side, n, layers = image_px(product), content["n_scenes"], len(content["layers"])
    shape = tower_of(content["model"], side)
    return Work(
        "hub" if shape.network else "torch",
        passes=n,
        flops=n * shape.flops(),
        python=5e6,
        bytes_peak=4 * shape.weights
        + shape.batch_bytes(n)
        + 4 * layers * n * shape.tokens * shape.width,
        bytes_disk=n * (4 * side**2 + 2 * 4 * layers * shape.patches) + 600,
        threads=content["threads"],
        device=content["device"],
        key=f"models[{product.wildcards['model']}].extraction.batch_size",
    )


def same_object_geometry(product: Product) -> Work:
    """Count what is measured of scores and tokens, layer by layer."""
    content = product.content
    n, dim, width = _images(product), _dim(product), _width(product.inputs["samples"][0])
    layers, tokens = len(content["layers"]), sum(n.values()) * width
    moved = layers * n["test"] * 4.0 * width * dim * (dim + width)
    return Work(
        "torch",
        threads=content["threads"],
        python=layers * 5e7,
        flops=layers * (60.0 * tokens * dim**2 + moved),
        elements=layers * n["test"] * (width**2 * 200 + 4e6),
        bytes_peak=8.0 * layers * n["test"] * width**2 + 12.0 * tokens * dim + 2e8,
        bytes_disk=layers * 3e5,
        key="studies.same_object.geometry.models",
    )


def same_object_effects(product: Product) -> Work:
    """Count passes under every edit, and the probes that are fitted again under some."""
    content, n = product.content, product.content["n_scenes"]
    side = image_side(product.inputs["test_scenes"][0])
    sample = product.inputs["test_samples"][0]
    shape, width, cells = tower_of(content["model"], side), _width(sample), _cells(sample)
    edits, refits = 1 + _EDITS * (_STRENGTHS + 1), 1 + _EDITS * _REFITTED
    # Under an edit tokens are read up to the last layer with a probe, and attention in the next
    # block; models of the zoo have a loss of their own, at their end.
    read, looked = int(content["later"] or content["layer"]), int(content["layer"]) + 1
    losses = str(content["model"]["source"]).startswith(("zoo:", "controlled:"))
    again, readers = n["train"] + n["val"], 1 + (content["later"] is not None)
    depths = n["test"] * edits * (read + looked + shape.n_layers * losses) + refits * again * read
    counted = [
        pairs_work(probe, n, width, cells, shape.width, refits * readers)
        for probe in content["retrained"]
    ]
    batch = min(_BATCH, n["test"], max(1, _ATTENDED // shape.tokens**2))
    # Of the patches' rows, and of a head: scores, weights, and the sum over heads.
    attended = 4.0 * batch * (4 * width * shape.tokens + 3 * shape.tokens**2)
    # Of each pixel an object and where it counts; of each patch counts of 255 objects.
    masks = min(_MASKS, n["test"]) * (24.0 * side**2 + 8 * 255.0 * shape.patches)
    stored_bytes = 4.0 * edits * readers * n["test"] * width**2 / 2
    stored_bytes += n["test"] * (side**2 * 3 + 8.0 * shape.patches)
    stored_bytes += 4.0 * sum(n.values()) * width * shape.width * readers
    return Work(
        "hub" if shape.network else "torch",
        passes=n["test"] * edits * (2 + losses) + refits * again,
        flops=depths / shape.n_layers * shape.flops() / _SMALL
        + sum(work.flops for work in counted),
        elements=depths * 8.0 * shape.tokens * shape.width
        + edits * n["test"] * width**2 * 200.0
        + sum(work.elements for work in counted),
        python=2e7 + sum(work.python for work in counted),
        bytes_peak=4 * shape.weights
        + shape.batch_bytes(batch)
        + attended
        + stored_bytes
        + masks
        + max(work.bytes_peak for work in counted),
        bytes_disk=edits * 3000.0 + refits * readers * 1500.0 * len(counted),
        threads=content["threads"],
        device=content["device"],
        key="studies.same_object.effects.scenes",
    )
