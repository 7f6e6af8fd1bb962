"""What the steps that all studies share take: a function for each, see `core.work`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from bindscope.core.graph import Product
from bindscope.core.splits import SPLITS
from bindscope.core.work import METADATA, Work, sides, stored
from bindscope.graph.towers import (
    Tower,
    grid_tokens,
    groups_of,
    known_width,
    text_weights,
    text_width,
    tower_of,
)

Content = Mapping[str, Any]

# Bytes of a pixel's colors and mask that are left of 4, by what draws them (default run and small
# presets). Photographs are noise to zstd; path-traced scenes are mostly a smooth background: 0.5 to
# 1.2 bytes at 336 px, by objects and height of the camera, and little less of more samples.
_COMPRESSED = {
    "clutter": 0.2,
    "sprites": 0.1,
    "clevr_2d": 0.02,
    "mitsuba": 0.9,
    "photos": 2.5,
}
# Of a solid's image what is not smooth, the contours, grows as its side: bytes of a pixel of that
# (55 at 48 px of `occlusion_small`, 53 at 224 px of `concepts`). An object has a description, and
# is placed, labeled and shaded in so many steps of the interpreter (4 ms in `occlusion_small`).
_CONTOUR, _DESCRIBED, _PLACED = 54, 100, 7.5e4
_OF_OBJECT = 0.245  # the same of a pixel of a flat shape, whose background is nothing (default run)
# Numbers that are computed for each pixel that is drawn, of solids for each ray (likewise).
_DRAWN = {
    "shapes": 5,
    "clutter": 12,
    "sprites": 8,
    "clevr_2d": 40,
    "solids": 700,
    "mitsuba": 31_000,  # of 64 samples, as in the table of `docs/three_d_scenes.md`
    "photos": 40,
}
# Steps that the start of Mitsuba and the compiling of its kernels take (`occlusion`), and those of
# an image besides its samples (the table of `docs/three_d_scenes.md`).
_MITSUBA, _MITSUBA_IMAGE = 3.4e7, 6.6e6
_MITSUBA_BYTES = 8e7  # of its libraries (`occlusion`)
# Bytes that a ray and its shading hold: nineteen vectors in float64 (`solids.raycast_backend`).
_RAY = 19 * 24
# Of a photograph, whose size is not known here, pixels (the largest of rehearsals have 4 million),
# and bytes of a pixel: its image and mask as they are decoded, in colors and numbers.
_PHOTO, _PHOTO_PIXEL = 4e6, 16
_RECORD = 110  # bytes of a scene's record (`natural`)
# Numbers, and steps of the interpreter, of one bit's prior log-odds (default run).
_ANCHOR_ELEMENTS = 20
_CHUNKS = 3 * 8 * 2**20  # of a store that is read or written: being filled, compressed, waiting
_VIT = 0.75  # share of the rate of large products that small transformers reach (zoo, default run)
# Of a library's model: passes over one image that check how it is read, and numbers that are made
# of each weight, which the library draws before the checkpoint replaces it.
_CHECKS, _DRAWN_WEIGHT = 2, 10
_FORWARD = 6e7  # bytes of what torch holds to run a model (default run)
_OBJECTS = 0.16  # bytes that a code of one byte takes compressed (default run)
_KEPT = {"self_distillation": 2, "masked": 1.3}  # weights beside the transformer, that a loss needs
_PROVABLE = 13  # of `models.known_answer`
_EVALUATIONS, _VAL_SCENES = 20, 512  # of `models.training`, besides the evaluation at the start
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


def codes(product: Product) -> Work:
    """Count the drawing of codes."""
    content = product.content
    cells, values = groups_of(content["dataset"]["space"])
    n = content["n_scenes"]
    return Work(
        bytes_disk=_OBJECTS * n * (cells + values) + 6 * METADATA,
        bytes_peak=16 * n * cells,
        elements=60 * n * cells,
        python=3e6,
    )


def record_codes(product: Product) -> Work:
    """Count the codes of scenes that are read."""
    cells, values = sides(product.content)
    n = product.content["n_scenes"]
    return Work(
        libraries="pandas",
        bytes_disk=_OBJECTS / 2 * n * (cells + values) + 6 * METADATA,
        bytes_peak=4 * n * cells,
        python=200 * n + 5e6,
    )


def priors(product: Product) -> Work:
    """Count the entropies of a space."""
    return Work(bytes_disk=1600, python=2e6, bytes_peak=2e7)


def counted_priors(product: Product) -> Work:
    """Count the entropies of scenes that are read."""
    cells, _ = groups_of(product.content["space"])
    n = n_of(product.inputs["codes"])
    return Work(bytes_disk=2000, python=1e7, bytes_peak=40 * n * cells, elements=50 * n * cells)


def n_of(products: Any) -> int:
    """Return how many scenes codes are of."""
    return sum(int(product.content["n_scenes"]) for product in products)


def anchors(product: Product) -> Work:
    """Count prior log-odds: three or five of every bit."""
    (coded,) = product.inputs["codes"]
    space, n = product.content["dataset"]["space"], coded.content["n_scenes"]
    return _anchors(groups_of(space), n_counts(space), n, n)


def _anchors(shape: tuple[int, int], counts: int, n: int, loaded: int) -> Work:
    (cells, values), more = shape, int(counts > 0)
    numbers = (2 + more) * cells + values + counts
    floats = stored(
        "float32",
        *[(n, cells)] * (2 + more),
        (n, values),
        *[(n, counts)] * more,
    )
    return Work(
        bytes_disk=floats + _OBJECTS * n * counts,
        bytes_peak=24 * loaded * numbers,
        elements=_ANCHOR_ELEMENTS * n * numbers,
        python=5e6,
    )


def counted_anchors(product: Product) -> Work:
    """Count prior log-odds that are estimated from the scenes of train."""
    by_split = {entry.wildcards["split"]: entry for entry in product.inputs["codes"]}
    n = by_split[product.content["split"]].content["n_scenes"]
    shape = groups_of(product.content["space"])
    return _anchors(shape, 0, n, max(n, by_split["train"].content["n_scenes"]))


def labels(product: Product) -> Work:
    """Count an index of codes, anchors and priors."""
    return Work(bytes_disk=4200, python=2e6)


def scenes(product: Product) -> Work:
    """Count the drawing of a shard."""
    content = product.content
    render = content["dataset"]["render"]
    backend = render.get("backend") or {}
    kind = "mitsuba" if backend.get("kind") == "mitsuba" else render["kind"]
    samples = backend.get("samples", 64) / 64 if kind == "mitsuba" else 1
    work = _drawn(content, kind, side_of(render), samples)
    if kind == "mitsuba":
        n = content["stop"] - content["start"]
        return replace(
            work,
            python=work.python + _MITSUBA + _MITSUBA_IMAGE * n,
            bytes_peak=work.bytes_peak + _MITSUBA_BYTES,
        )
    if kind not in ("shapes", "solids"):
        return work
    space = content["dataset"]["space"]
    most = space.get("max_objects") or space["n_objects"]
    n = content["stop"] - content["start"]
    objects = (most + (space.get("min_objects") or most)) / 2
    if kind == "solids":
        rays = backend.get("antialias", 2) ** 2
        return replace(
            work,
            bytes_disk=work.bytes_disk + n * objects * _DESCRIBED,
            bytes_peak=work.bytes_peak + _RAY * rays * side_of(render) ** 2,
            elements=rays * work.elements,
            python=work.python + n * objects * _PLACED,
        )
    return replace(
        work, bytes_disk=n * _OF_OBJECT * objects * render["object_px"] ** 2 + 9 * METADATA + n / 2
    )


def record_scenes(product: Product) -> Work:
    """Count the reading of a shard's photographs."""
    work = _drawn(product.content, "photos", side_of(product.content["render"]), 1)
    peak = work.bytes_peak + _PHOTO * _PHOTO_PIXEL
    return replace(work, libraries="pandas", bytes_peak=peak)


def side_of(render: Content) -> int:
    """Return the side of the images that a renderer gives; sprites have one size."""
    return int(render.get("size_px", 36))


def _drawn(content: Content, kind: str, side: int, samples: float) -> Work:
    n = content["stop"] - content["start"]
    image = _CONTOUR * side if kind == "solids" else _COMPRESSED.get(kind, 0) * side**2
    return Work(
        bytes_disk=n * (image + 16) + 9 * METADATA,
        bytes_peak=min(n, 256) * side**2 * 12 + _CHUNKS,
        elements=samples * _DRAWN[kind] * n * side**2,
        python=2000 * n + 3e6,
        key="datasets, render.size_px",
    )


def download(product: Product) -> Work:
    """Count what is brought from a network, where the size is known here."""
    name = str(product.content.get("url", "")).rpartition("/")[2]
    size = _RELEASES.get(name, 0)
    unknown = "" if size else f"the size of {name}"
    return Work(bytes_disk=size, bytes_peak=2e7, elsewhere=True, unknown=unknown)


def weights(product: Product) -> Work:
    """Count a checkpoint in the cache of the hub, four bytes a number."""
    source = str(product.content["model"]["source"])
    depth = 24 if "large" in source else 40 if "giant" in source else 12
    shape = tower_of({"source": source, "n_layers": depth}, 224)
    return Work(libraries="hub", bytes_disk=4 * shape.weights, bytes_peak=1e8, elsewhere=True)


def records(product: Product) -> Work:
    """Count the reading of a release's labels, whose number only some splits say."""
    sizes = product.content["dataset"]["split"].get("sizes") or {}
    return Work(
        libraries="pandas",
        bytes_disk=4500 + _RECORD * sum(sizes.values()),
        bytes_peak=2e8,
        python=2e7,
        unknown="" if sizes else f"how many scenes {product.wildcards['dataset']} has",
    )


def training(product: Product) -> Work:
    """Count the training of a controlled model."""
    content = product.content
    work = _trained(content, content["model"], content["dataset"]["render"], model_name(product))
    if product.inputs.get("scenes") or content["model"]["source"].endswith(":none"):
        return work
    return replace(work, elements=work.elements + _drawn_in_training(content))


def _drawn_in_training(content: Content) -> float:
    """Return the numbers that are made of scenes which a training and its evaluations draw."""
    recipe, render = content["model"]["training"], content["dataset"]["render"]
    n = recipe["steps"] * recipe["batch_size"] + _VAL_SCENES
    return float(_DRAWN[render["kind"]] * n * side_of(render) ** 2)


def _trained(content: Content, model: Content, render: Content, name: str) -> Work:
    """Count a training of a model: three passes' worth a step, and evaluations."""
    recipe = model["training"]
    side = side_of(render)
    shape = tower_of(model, side)
    objective = model["source"].partition(":")[2]
    if objective == "none":
        return Work("torch", bytes_disk=4 * shape.weights, python=1e7)
    views = 4 if objective == "self_distillation" else 1
    n = recipe["steps"] * recipe["batch_size"] * views
    evaluated = (1 + min(_EVALUATIONS, recipe["steps"])) * _VAL_SCENES * views
    return Work(
        "torch",
        passes=n + evaluated,
        flops=(3 * n + evaluated) * shape.flops() / _VIT,
        elements=40 * (n + evaluated) * shape.width,
        python=8000 * recipe["steps"],
        threads=content["threads"],
        device=content["device"],
        bytes_peak=16 * shape.weights + 3 * shape.batch_bytes(recipe["batch_size"] * views) + 1e8,
        bytes_disk=4.4 * shape.weights * _KEPT.get(objective, 1),
        key=f"models[{name}].training.batch_size",
    )


def model_name(product: Product) -> str:
    """Return the name of a product's model."""
    return product.wildcards.get("model", "")


def encoded(product: Product) -> Work:
    """Count the output of a known-answer encoder."""
    content = product.content
    cells, values = groups_of(content["dataset"]["space"])
    dim, n = known_width(content["model"], cells, values), _n_part(content)
    proof = _proof_bytes(content["model"], cells)
    shapes, patches = [(1, n, dim)], 0.0
    if "token_grid" in content["model"]["source"]:
        tokens = grid_tokens(content["dataset"]["space"])
        shapes, patches = 2 * shapes, stored("float32", (n, tokens, values))
    return Work(
        bytes_disk=stored("float32", *shapes, axis=1) + patches,
        bytes_peak=24 * n * (dim + cells) + 3 * patches + proof,
        elements=40 * n * (dim + cells) + proof,
        flops=2 * n * dim * cells,
        python=5e6,
    )


def _n_part(content: Content) -> int:
    return sum(int(piece["stop"]) - int(piece["start"]) for piece in content["part"])


def truth(product: Product) -> Work:
    """Count what a known-answer encoder holds, in closed form and of the test scenes."""
    content = product.content
    cells, _ = groups_of(content["dataset"]["space"])
    n, proof = content["n_scenes"], _proof_bytes(content["model"], cells)
    return Work(
        bytes_disk=600,
        bytes_peak=40 * n * cells + proof,
        elements=200 * n * cells + proof,
        python=1e7,
    )


def _proof_bytes(model: Content, cells: int) -> float:
    """Return the bytes of the differences of codes that `models.known_answer.injective` tries.

    They have -1, 0 or 1 for each direction too few, in float32 and, for a product, in float64.
    """
    free = cells - known_width(model, cells, 0)
    if not model["source"].endswith(":hadamard") or not 0 < free <= _PROVABLE:
        return 0.0
    return float(3**free * (12 * free + 24))


def image_px(product: Product) -> int:
    """Return the side of the scenes that a job reads."""
    return image_side(next(iter(product.inputs["scenes"])))


def image_side(scenes: Product) -> int:
    """Return the side of the images of a shard."""
    return side_of(scenes.content.get("render") or scenes.content["dataset"]["render"])


def extraction(product: Product, deepest: int | str, written: int, memory: float) -> Work:
    """Count a frozen model over the scenes of a part.

    Parameters
    ----------
    product
        The job.
    deepest
        Layer where the forward pass stops.
    written
        Bytes of its store.
    memory
        Bytes of a batch's results before they are written.
    """
    content = product.content
    shape, how = tower_of(content["model"], image_px(product)), content["model"]["extraction"]
    n = _n_part(content)
    batch = min(how["batch_size"], n)
    on_gpu = content["device"] == "cuda"
    checks = _CHECKS * shape.network
    read = n + checks
    forward = 4 * shape.weights + shape.batch_bytes(batch)
    images = 4 * batch * 3 * image_px(product) ** 2
    return Work(
        "hub" if shape.network or content["model"]["source"].startswith("toy:") else "torch",
        passes=n,
        flops=(n * shape.flops(deepest) + checks * shape.flops()) / _VIT,
        elements=read * (4 * shape.n_layers * shape.tokens * shape.width + 12 * shape.input_px**2)
        + _DRAWN_WEIGHT * shape.weights * shape.network,
        python=2e5 * (n / batch) + 5e6,
        bytes_disk=written,
        bytes_peak=(shape.weights * 4 if on_gpu else forward)
        + 3 * memory
        + images
        + min(_CHUNKS, 9 * n * image_px(product) ** 2)
        + _FORWARD,
        bytes_device=forward + 2 * memory if on_gpu else 0,
        threads=content["threads"],
        device=content["device"],
        unknown=shape.unknown,
        key=f"models[{model_name(product)}].extraction.batch_size",
    )


def pooled(product: Product) -> Work:
    """Count pooled tokens of all layers."""
    content = product.content
    shape, n = tower_of(content["model"], image_px(product)), _n_part(content)
    scheme = content["model"]["source"].partition(":")[0]
    is_custom = scheme == "toy" or content["model"].get("modules")
    layers = shape.n_layers + (0 if is_custom else 1 if scheme == "baseline" else 2)
    widths = [shape.width] * (scheme != "baseline") + [shape.width] * (shape.vectors > 0)
    widths += [(shape.vectors - 1) * shape.width] * (shape.vectors > 1)
    kind = content["model"]["extraction"]["dtype"]
    written = stored(kind, *((layers, n, width) for width in widths), axis=1)
    # A chunk of every layer is filled at a time.
    chunks = 2 * min(written, layers * len(widths) * 8 * 2**20)
    batch = content["model"]["extraction"]["batch_size"]
    return extraction(product, "final", written, 4 * batch * layers * sum(widths) + chunks / 3)


def patches(product: Product) -> Work:
    """Count the patch tokens of one layer."""
    content, layer = product.content, product.content["layer"]
    shape, n = tower_of(content["model"], image_px(product)), _n_part(content)
    how, width = content["model"]["extraction"], shape.width_of(layer)
    written = stored(how["dtype"], (n, shape.patches, width), (n, width * (shape.vectors > 0)))
    return extraction(product, layer, written, 4 * how["batch_size"] * shape.tokens * width)


def patches_temporary(product: Product) -> Work:
    """Count patch tokens that go when they have been read."""
    return replace(patches(product), temporary=True)


def index(product: Product) -> Work:
    """Count an index of activations."""
    parts = sum(map(len, product.inputs.values()))
    return Work(bytes_disk=1500 + 200 * parts, python=1e6 + 2e5 * parts)


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
    return Work("pandas", bytes_disk=40 * n + 2e4, bytes_peak=2000 * n, python=600 * n + 1e7)


def text_embeddings(product: Product) -> Work:
    """Count the vectors of captions, and of queries for objects and values."""
    (texts,) = product.inputs["captions"]
    n = n_of(source for sources in texts.inputs.values() for source in sources)
    content = product.content
    shape = tower_of(content["model"], 224)
    width, length = text_width(content["model"]) or shape.width, 77 if shape.network else 24
    flops = 24 * min(shape.n_layers, 12) * width**2 * length
    return Work(
        "hub" if shape.network else "torch",
        passes=n,
        flops=n * flops / _VIT,
        elements=n * 40 * width,
        python=2000 * n,
        bytes_disk=stored("float32", (n, width)),
        bytes_peak=4 * (shape.weights + text_weights(content["model"])) + 12 * n * width + 2e8,
        threads=content["threads"],
        device=content["device"],
        key=f"models[{model_name(product)}].extraction.batch_size",
    )


def joint(product: Product) -> Work:
    """Count the projection of pooled tokens into the space of texts."""
    (indexed,) = product.inputs["index"]
    n = sum(indexed.content["n_scenes"].values())
    model = product.content["model"]
    shape = tower_of(model, 224)
    width = text_width(model) or shape.width
    return Work(
        "hub" if shape.network else "torch",
        flops=2 * n * shape.width**2,
        python=1e7,
        bytes_disk=stored("float32", (n, width)),
        bytes_peak=4 * (shape.weights + text_weights(model)) + 12 * n * shape.width + 1e8,
        threads=product.content["threads"],
        device=product.content["device"],
    )
