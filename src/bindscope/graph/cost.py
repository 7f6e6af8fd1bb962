"""What the steps that all studies share take, of those that can take much (`core.work`)."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from math import prod
from typing import Any

from pydantic import TypeAdapter

from bindscope.codes.space import build_space
from bindscope.config.codes import Space
from bindscope.core.graph import Product
from bindscope.core.work import Content, Work, n_scenes, sides, stored
from bindscope.graph.language import language_model, names_language_model, unknown_size
from bindscope.graph.towers import (
    Tower,
    known_answer,
    stored_weights,
    text_weights,
    text_width,
    tower_of,
)
from bindscope.priors.counts import count_levels, not_counted

_CHUNKS = 3 * 8 * 2**20  # of a store that is read or written: being filled, compressed, waiting
_PIXEL = {"photos": 3.0, "solids": 1.0}  # bytes of a compressed pixel, at most; of others 1/4
_RAY = 456  # bytes of a ray and its shading, of solids
_FORWARD = 6e7  # bytes of what torch holds to run a model
# Bytes of releases that are downloaded, by their files' names.
_RELEASES = {"CLEVR_v1.0.zip": 19.0e9, "images.zip": 9.7e9, "images2.zip": 5.5e9}


def n_counts(space: Content) -> int:
    """Return how many count bits a space has; those of counted scenes have none."""
    return 0 if space["kind"] == "counted" else _count_bits(json.dumps(space))


@cache
def _count_bits(space: str) -> int:
    built = build_space(TypeAdapter[Any](Space).validate_json(space))
    if not_counted(built):
        return 0
    return sum(n * len(bits) for n, bits in zip(built.sizes, count_levels(built), strict=True))


def objects(product: Product) -> Work:
    """Count codes and entropies, of each scene and possible object a few numbers at most."""
    n, (cells, _) = n_scenes(product), sides(product.content)
    return Work(units=n * cells, bytes_host=40 * n * cells)


def anchors(product: Product) -> Work:
    """Count prior log-odds: three or five of every bit; some are estimated from train."""
    cells, values = sides(product.content)
    space = product.content.get("space") or product.content["dataset"]["space"]
    n = {item.wildcards["split"]: n_scenes(item) for item in product.inputs["codes"]}
    n_own, counts = n[product.wildcards["split"]], n_counts(space)
    more = int(counts > 0)
    floats = [(n_own, cells)] * (2 + more) + [(n_own, values)] + [(n_own, counts)] * more
    numbers = sum(width for _, width in floats)
    return Work(
        units=n_own * numbers,
        bytes_disk=stored("float32", *floats),
        bytes_host=24 * max(n.values()) * numbers,
    )


def render_of(scenes: Product) -> Content:
    """Return how the images of a shard are drawn or read."""
    render: Content = scenes.content.get("render") or scenes.content["dataset"]["render"]
    return render


def side_of(render: Content) -> int:
    """Return the side of the images that a renderer gives; sprites have one size.

    Of sheets of crops it is the side of a square of as many pixels.
    """
    side, crops = int(render.get("size_px", 36)), prod(render.get("crops") or (1, 1))
    return round(side * math.sqrt(crops))


def image_px(product: Product) -> int:
    """Return the side of the scenes that a job reads."""
    return side_of(render_of(product.inputs["scenes"][0]))


def scenes(product: Product) -> Work:
    """Count a shard of images."""
    render = render_of(product)
    n, pixels = n_scenes(product), side_of(render) ** 2
    rays = (render.get("backend") or {}).get("antialias", 2) ** 2 * (render["kind"] == "solids")
    return Work(
        units=n * pixels,
        bytes_disk=n * pixels * _PIXEL.get(render["kind"], 0.25),
        bytes_host=pixels * (12 * min(n, 256) + _RAY * rays) + _CHUNKS,
        key="datasets, render.size_px",
    )


def download(product: Product) -> Work:
    """Count what is brought from a network, where the size is known here."""
    name = str(product.content.get("url", "")).rpartition("/")[2]
    size = _RELEASES.get(name, 0)
    return Work(bytes_disk=size, elsewhere=True, unknown="" if size else f"the size of {name}")


def weights(product: Product) -> Work:
    """Count a checkpoint in the cache of the hub: as it is there, or by its shape."""
    source, unknown = str(product.content["model"]["source"]), ""
    size, _ = stored_weights(source)
    if not size and names_language_model(source):
        size, unknown = 2 * int(language_model(source).weights), unknown_size(source)
    elif not size:
        depth = 24 if "large" in source else 40 if "giant" in source else 12
        tower = tower_of({"source": source, "n_layers": depth}, 224)
        texts = text_weights({"source": source}) * bool(re.match("hf:.*(clip|siglip)", source))
        size = 4 * int(tower.weights + texts)
    return Work(bytes_disk=size, bytes_host=1e8, elsewhere=True, unknown=unknown)


def training(product: Product) -> Work:
    """Count the training of a controlled model: weights, gradients and moments, and a batch."""
    model = product.content["model"]
    recipe, shape = model["training"], tower_of(model, side_of(render_of(product)))
    is_distilled = model["source"].endswith(":self_distillation")
    batch = recipe["batch_size"] * (4 if is_distilled else 1)  # views
    return Work(
        units=recipe["steps"] * batch * shape.tokens * shape.weights,
        bytes_computed=16 * shape.weights + 3 * shape.batch_bytes(batch) + 1e8,
        bytes_disk=9 * shape.weights,  # with those that a loss needs
        key=f"models[{product.wildcards['model']}].training.batch_size",
    )


def shape_of(product: Product) -> Tower:
    """Return the model behind activations, or an index of them."""
    part = product.sources[0] if product.rule == "index" else product
    model = part.content["model"]
    if part.rule == "encoded":
        return known_answer(model, part.content["dataset"]["space"])
    return tower_of(model, image_px(part))


def encoded(product: Product) -> Work:
    """Count the output of a known-answer encoder, and tokens of the one that has some."""
    n, shape, (cells, _) = n_scenes(product), shape_of(product), sides(product.content)
    vectors = [(1, n, shape.width)] * (1 + (shape.patches > 1))
    tokens = stored("float32", (n, shape.patches, shape.width)) if shape.patches > 1 else 0
    return Work(
        units=n * (shape.width + cells),
        bytes_disk=stored("float32", *vectors, axis=1) + tokens,
        bytes_host=24 * n * (shape.width + cells) + 3 * tokens,
    )


def extraction(product: Product, written: int, memory: float) -> Work:
    """Count a frozen model over the scenes of a part.

    Parameters
    ----------
    product
        The job.
    written
        Bytes of its store.
    memory
        Bytes of a batch's results before they are written.
    """
    model, side, n = product.content["model"], image_px(product), n_scenes(product)
    shape, batch = tower_of(model, side), min(model["extraction"]["batch_size"], n)
    images = 12 * batch * side**2 + min(_CHUNKS, 9 * n * side**2)
    return Work(
        units=n * shape.tokens * shape.weights,
        bytes_disk=written,
        bytes_host=memory + images + _FORWARD,
        bytes_loaded=4 * shape.weights,
        bytes_computed=shape.batch_bytes(batch) + 2 * memory,
        unknown=shape.unknown,
        key=f"models[{product.wildcards['model']}].extraction.batch_size",
    )


def pooled(product: Product) -> Work:
    """Count pooled tokens of all layers; a chunk of every layer is filled at a time."""
    model, n, shape = product.content["model"], n_scenes(product), shape_of(product)
    scheme, how = model["source"].partition(":")[0], model["extraction"]
    is_custom = scheme == "toy" or model.get("modules")
    layers = shape.n_layers + (0 if is_custom else 1 if scheme == "baseline" else 2)
    vectors = shape.vectors + (scheme != "baseline")  # the mean of patches is one
    written = stored(how["dtype"], *[(layers, n, shape.width)] * vectors, axis=1)
    chunks = 2 * min(written, layers * vectors * 8 * 2**20)
    batch = 4 * how["batch_size"] * layers * vectors * shape.width
    return extraction(product, written, batch + chunks / 3)


def patches(product: Product) -> Work:
    """Count the patch tokens of one layer."""
    how, n, shape = product.content["model"]["extraction"], n_scenes(product), shape_of(product)
    width = shape.width_of(product.content["layer"])
    written = stored(how["dtype"], (n, shape.patches, width), (n, width * (shape.vectors > 0)))
    return extraction(product, written, 4 * how["batch_size"] * shape.tokens * width)


def texts(product: Product) -> Work:
    """Count vectors where images and texts meet; both towers are loaded."""
    (source,) = product.inputs.get("captions") or product.inputs["index"]
    n, model = n_scenes(source), product.content["model"]
    shape = tower_of(model, 224)
    width = text_width(model) or shape.width
    return Work(
        units=n * shape.weights,
        bytes_disk=stored("float32", (n, width)),
        bytes_host=12 * n * max(width, shape.width) + 2e8,
        bytes_loaded=4 * (shape.weights + text_weights(model)),
        key=f"models[{product.wildcards['model']}].extraction.batch_size",
    )


def page(product: Product) -> Work:
    """Count a table, a figure or the report, by the rows of all that it is made of."""
    rows = sum(source.work.bytes_rows for source in product.sources)
    images = 5e6 * len(product.inputs.get("figures", ()))
    return Work(bytes_rows=rows * (product.rule == "table"), bytes_host=8 * rows + images)
