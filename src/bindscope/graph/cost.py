"""What the steps that all studies share take: a function for each, see `core.work`."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from math import prod
from typing import Any

from bindscope.core.graph import Product
from bindscope.core.splits import SPLITS
from bindscope.core.work import METADATA, Content, Work, sides, stored
from bindscope.graph.language import language_model, names_language_model, unknown_size
from bindscope.graph.towers import (
    Tower,
    grid_tokens,
    groups_of,
    known_width,
    stored_weights,
    text_weights,
    text_width,
    tower_of,
)

# Bytes that a code of one byte takes compressed, and a pixel's colors and mask, by what draws them.
_CODE = 0.16
_PIXEL = {
    "shapes": 0.05,
    "clutter": 0.2,
    "sprites": 0.1,
    "clevr_2d": 0.02,
    "solids": 0.5,
    "mitsuba": 0.9,
    "photos": 2.5,
}
# Bytes of a ray and its shading (`solids.raycast_backend`), of Mitsuba's libraries, and of a
# photograph of 4 million pixels while it is decoded.
_RAY, _MITSUBA, _PHOTO = 456, 8e7, 6.4e7
_CHUNKS = 3 * 8 * 2**20  # of a store that is read or written: being filled, compressed, waiting
_FORWARD = 6e7  # bytes of what torch holds to run a model
_KEPT = {"self_distillation": 2, "masked": 1.3}  # weights beside the transformer, that a loss needs
_PROVABLE = 13  # of `models.known_answer`
# Bytes of releases that are downloaded, by their files' names.
_RELEASES = {"CLEVR_v1.0.zip": 19.0e9, "images.zip": 9.7e9, "images2.zip": 5.5e9}


def n_counts(space: Content) -> int:
    """Return about how many count bits a space has (`priors.counts`)."""
    sizes = [group["size"] for group in space["groups"]]
    most = int(space.get("max_objects") or space.get("n_objects", 1))
    used = list(space.get("chosen") or sizes)
    if len(sizes) != 2 or space["kind"] in ("draws", "counted"):
        return 0
    cells, bits = prod(used), 0
    for size, n in zip(sizes, used, strict=True):
        across, least, largest = cells // n, 1, most - 1
        if space["kind"] == "balanced":  # every chosen value occurs
            least, largest = max(1, most - (n - 1) * across), most - n + 1
        bits += size * max(0, min(largest, across) - least)
    return bits


def n_of(products: Any) -> int:
    """Return how many scenes codes are of."""
    return sum(int(product.content["n_scenes"]) for product in products)


def _n_part(content: Content) -> int:
    return sum(int(piece["stop"]) - int(piece["start"]) for piece in content["part"])


def codes(product: Product) -> Work:
    """Count the drawing of codes."""
    cells, values = groups_of(product.content["dataset"]["space"])
    return _codes(product, cells, values)


def record_codes(product: Product) -> Work:
    """Count the codes of scenes that are read."""
    return replace(_codes(product, *sides(product.content)), libraries="pandas")


def _codes(product: Product, cells: int, values: int) -> Work:
    n = product.content["n_scenes"]
    disk = _CODE * n * (cells + values) + 6 * METADATA
    return Work(units=n * cells, bytes_disk=disk, bytes_host=16 * n * cells)


def priors(product: Product) -> Work:
    """Count the entropies of a space."""
    return Work(bytes_disk=1600, bytes_host=2e7)


def counted_priors(product: Product) -> Work:
    """Count the entropies of scenes that are read."""
    n = n_of(product.inputs["codes"]) * groups_of(product.content["space"])[0]
    return Work(units=n, bytes_disk=2000, bytes_host=40 * n)


def anchors(product: Product) -> Work:
    """Count prior log-odds: three or five of every bit."""
    (coded,) = product.inputs["codes"]
    space, n = product.content["dataset"]["space"], coded.content["n_scenes"]
    return _anchors(groups_of(space), n_counts(space), n, n)


def counted_anchors(product: Product) -> Work:
    """Count prior log-odds that are estimated from the scenes of train."""
    n = {item.wildcards["split"]: item.content["n_scenes"] for item in product.inputs["codes"]}
    n_own = n[product.content["split"]]
    return _anchors(groups_of(product.content["space"]), 0, n_own, max(n_own, n["train"]))


def _anchors(shape: tuple[int, int], counts: int, n: int, loaded: int) -> Work:
    (cells, values), more = shape, int(counts > 0)
    floats = [(n, cells)] * (2 + more) + [(n, values)] + [(n, counts)] * more
    numbers = sum(width for _, width in floats)
    disk = stored("float32", *floats) + _CODE * n * counts
    return Work(units=n * numbers, bytes_disk=disk, bytes_host=24 * loaded * numbers)


def labels(product: Product) -> Work:
    """Count an index of codes, anchors and priors."""
    return Work(bytes_disk=4200)


def side_of(render: Content) -> int:
    """Return the side of the images that a renderer gives; sprites have one size.

    Of sheets of crops it is the side of a square of as many pixels.
    """
    side, crops = int(render.get("size_px", 36)), prod(render.get("crops") or (1, 1))
    return round(side * math.sqrt(crops))


def image_side(scenes: Product) -> int:
    """Return the side of the images of a shard."""
    return side_of(scenes.content.get("render") or scenes.content["dataset"]["render"])


def image_px(product: Product) -> int:
    """Return the side of the scenes that a job reads."""
    return image_side(next(iter(product.inputs["scenes"])))


def scenes(product: Product) -> Work:
    """Count the drawing of a shard."""
    render = product.content["dataset"]["render"]
    backend = render.get("backend") or {}
    rays = backend.get("antialias", 2) ** 2 * side_of(render) ** 2
    if backend.get("kind") == "mitsuba":
        return _drawn(product, "mitsuba", _MITSUBA)
    return _drawn(product, render["kind"], _RAY * rays * (render["kind"] == "solids"))


def record_scenes(product: Product) -> Work:
    """Count the reading of a shard's photographs."""
    return replace(_drawn(product, "photos", _PHOTO), libraries="pandas")


def _drawn(product: Product, kind: str, memory: float) -> Work:
    n, pixels = product.content["stop"] - product.content["start"], image_side(product) ** 2
    return Work(
        units=n * pixels,
        bytes_disk=n * (_PIXEL[kind] * pixels + 16) + 9 * METADATA,
        bytes_host=min(n, 256) * pixels * 12 + _CHUNKS + memory,
        key="datasets, render.size_px",
    )


def download(product: Product) -> Work:
    """Count what is brought from a network, where the size is known here."""
    name = str(product.content.get("url", "")).rpartition("/")[2]
    size = _RELEASES.get(name, 0)
    unknown = "" if size else f"the size of {name}"
    return Work(bytes_disk=size, bytes_host=2e7, elsewhere=True, unknown=unknown)


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
    return Work("hub", bytes_disk=size, bytes_host=1e8, elsewhere=True, unknown=unknown)


def records(product: Product) -> Work:
    """Count the reading of a release's labels, whose number only some splits say."""
    sizes = product.content["dataset"]["split"].get("sizes") or {}
    n = sum(sizes.values())
    unknown = "" if sizes else f"how many scenes {product.wildcards['dataset']} has"
    return Work("pandas", max(n, 1), bytes_host=2e8, bytes_disk=4500 + 110 * n, unknown=unknown)


def training(product: Product) -> Work:
    """Count the training of a controlled model: weights, gradients and moments, and a batch."""
    model, render = product.content["model"], product.content["dataset"]["render"]
    recipe, shape = model["training"], tower_of(model, side_of(render))
    objective = model["source"].partition(":")[2]
    if objective == "none":
        return Work("torch", bytes_disk=4 * shape.weights)
    batch = recipe["batch_size"] * (4 if objective == "self_distillation" else 1)  # views
    return Work(
        "torch",
        units=recipe["steps"] * batch * shape.tokens * shape.weights,
        bytes_computed=16 * shape.weights + 3 * shape.batch_bytes(batch) + 1e8,
        bytes_disk=4.4 * shape.weights * _KEPT.get(objective, 1),
        key=f"models[{product.wildcards['model']}].training.batch_size",
    )


def encoded(product: Product) -> Work:
    """Count the output of a known-answer encoder."""
    content, space = product.content, product.content["dataset"]["space"]
    cells, values = groups_of(space)
    dim, n = known_width(content["model"], cells, values), _n_part(content)
    shapes, patch_bytes = [(1, n, dim)], 0.0
    if "token_grid" in content["model"]["source"]:
        shapes, patch_bytes = 2 * shapes, stored("float32", (n, grid_tokens(space), values))
    return Work(
        units=n * (dim + cells),
        bytes_disk=stored("float32", *shapes, axis=1) + patch_bytes,
        bytes_host=24 * n * (dim + cells) + 3 * patch_bytes + _proof_bytes(content["model"], cells),
    )


def truth(product: Product) -> Work:
    """Count what a known-answer encoder holds, in closed form and of the test scenes."""
    content = product.content
    cells, _ = groups_of(content["dataset"]["space"])
    size, proof = content["n_scenes"] * cells, _proof_bytes(content["model"], cells)
    return Work(units=size + proof, bytes_disk=600, bytes_host=40 * size + proof)


def _proof_bytes(model: Content, cells: int) -> float:
    """Return the bytes of the differences of codes that `models.known_answer.injective` tries.

    They have -1, 0 or 1 for each direction too few, in float32 and, for a product, in float64.
    """
    free = cells - known_width(model, cells, 0)
    if not model["source"].endswith(":hadamard") or not 0 < free <= _PROVABLE:
        return 0.0
    return float(3**free * (12 * free + 24))


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
    content, side = product.content, image_px(product)
    shape, n = tower_of(content["model"], side), _n_part(content)
    batch = min(content["model"]["extraction"]["batch_size"], n)
    is_library = shape.network or content["model"]["source"].startswith("toy:")
    images = 12 * batch * side**2 + min(_CHUNKS, 9 * n * side**2)
    return Work(
        "hub" if is_library else "torch",
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
    model, n = product.content["model"], _n_part(product.content)
    shape, scheme = tower_of(model, image_px(product)), model["source"].partition(":")[0]
    is_custom = scheme == "toy" or model.get("modules")
    layers = shape.n_layers + (0 if is_custom else 1 if scheme == "baseline" else 2)
    vectors = shape.vectors + (scheme != "baseline")  # the mean of patches is one
    written = stored(model["extraction"]["dtype"], *[(layers, n, shape.width)] * vectors, axis=1)
    chunks = 2 * min(written, layers * vectors * 8 * 2**20)
    batch = 4 * model["extraction"]["batch_size"] * layers * vectors * shape.width
    return extraction(product, written, batch + chunks / 3)


def patches(product: Product) -> Work:
    """Count the patch tokens of one layer."""
    model, n = product.content["model"], _n_part(product.content)
    shape = tower_of(model, image_px(product))
    width = shape.width_of(product.content["layer"])
    shapes = (n, shape.patches, width), (n, width * (shape.vectors > 0))
    memory = 4 * model["extraction"]["batch_size"] * shape.tokens * width
    return extraction(product, stored(model["extraction"]["dtype"], *shapes), memory)


def patches_temporary(product: Product) -> Work:
    """Count patch tokens that go when they have been read."""
    return replace(patches(product), temporary=True)


def index(product: Product) -> Work:
    """Count an index of activations."""
    return Work(bytes_disk=1500 + 200 * sum(map(len, product.inputs.values())))


def shape_of(product: Product) -> tuple[Tower | None, int]:
    """Return the model behind an index of activations, and the width of its vectors."""
    part = next(entry for split in SPLITS for entry in product.inputs[split])
    content = part.content
    if part.rule == "encoded":
        cells, values = groups_of(content["dataset"]["space"])
        return None, known_width(content["model"], cells, values)
    shape = tower_of(content["model"], image_px(part))
    return shape, shape.width


def captions(product: Product) -> Work:
    """Count captions of all scenes."""
    n = n_of(source for sources in product.inputs.values() for source in sources)
    return Work("pandas", n, bytes_disk=40 * n + 2e4, bytes_host=2000 * n)


def text_embeddings(product: Product) -> Work:
    """Count the vectors of captions, and of queries for objects and values."""
    (texts,) = product.inputs["captions"]
    n = n_of(source for sources in texts.inputs.values() for source in sources)
    return _texts(product, n, 2e8)


def joint(product: Product) -> Work:
    """Count the projection of pooled tokens into the space of texts."""
    (indexed,) = product.inputs["index"]
    return _texts(product, sum(indexed.content["n_scenes"].values()), 1e8)


def _texts(product: Product, n: int, memory: float) -> Work:
    """Count vectors where images and texts meet; both towers are loaded."""
    model = product.content["model"]
    shape, loaded = tower_of(model, 224), text_weights(model)
    width = text_width(model) or shape.width
    return Work(
        "hub" if shape.network else "torch",
        units=n * shape.weights,
        bytes_disk=stored("float32", (n, width)),
        bytes_host=12 * n * max(width, shape.width) + memory,
        bytes_loaded=4 * (shape.weights + loaded),
        key=f"models[{product.wildcards['model']}].extraction.batch_size",
    )


def rows_read(product: Product) -> float:
    """Return the bytes of the rows that a table, a figure or the report is made of."""
    items = (item for role in product.inputs.values() for item in role)
    return sum(item.work.bytes_rows for item in items)


def table(product: Product) -> Work:
    """Count a table by the rows that its jobs leave; a page has the first ones."""
    read = rows_read(product)
    disk = 1.2e4 + 0.55 * read + min(0.7 * read, 8e5)
    return Work("pandas", bytes_disk=disk, bytes_rows=read, bytes_host=2e7 + 8 * read)


def figure(product: Product) -> Work:
    """Count a figure: pyplot with its fonts, a canvas of 5 million pixels, and its rows."""
    return Work("pandas", bytes_disk=5e5, bytes_host=1.2e8 + 6 * rows_read(product))


def report(product: Product) -> Work:
    """Count the page, which holds all figures and tables."""
    n = len(product.inputs.get("figures", ()))
    host = 5e7 + 5e6 * n + 3 * rows_read(product)
    return Work("pandas", bytes_disk=2e5 + 3e5 * n, bytes_host=host)
