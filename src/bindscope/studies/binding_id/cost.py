"""What the study's steps take: contexts that a vision-language model reads, and questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from bindscope.config.zoo import TOY, read_manifest
from bindscope.core.graph import Product
from bindscope.core.work import Libraries, Work
from bindscope.graph.towers import settings

Content = Mapping[str, Any]

_GROUPS = 3  # things, colors, items
# Width and layers of language models by the number of their parameters in a name.
_SIZES = {"0.5b": (896, 24), "2b": (1536, 28), "7b": (3584, 28), "72b": (8192, 80)}
_IMAGE_TOKENS = 2900  # of the views of one image
_IMAGE_PX, _SLOT_PX, _SPRITE_PX = 384, 66, 12  # `tasks.scenes`: sides of images and regions
_SLOTS = {"pair": 2, "level": 2}  # of a layout; the others have nine
_DESCRIBED = 9  # tokens of an object in words, of a suite without images
_ORACLE_WIDTH = 152  # `oracles.oracle.WIDTH`
_ORACLE = 20_000  # numbers that an oracle makes for one answer (default run)
# Bytes of the rows of a condition and question (default run, binding_id_small).
_ROW, _ROWS = (
    450,
    {"factorizability": 2600, "signatures": 1820, "mean": 1200, "positions": 1200, "layers": 225},
)


@dataclass(frozen=True)
class _Engine:
    """Layers, width, tokens of contexts and questions, and weights of a model that answers."""

    layers: int
    width: int
    tokens: int
    weights: float
    bytes_each: int = 4
    kind: str = "published"
    question: int = 90
    object_tokens: int = 2
    word_tokens: int = 1  # of a color, and of an item


def _engine(model: Content, product: Product) -> _Engine:
    if model["kind"] in ("oracle", "mixed_oracle"):
        return _Engine(4, _ORACLE_WIDTH, 12, 0, kind="oracle")
    if model["kind"] == "toy":
        toy: Content = {}
        if "source" in model:
            toy = read_manifest(model["source"], TOY)["recipe"]["model"]
        for weights_key in product.inputs.get("weights", ()):
            toy = weights_key.content.get("toy", toy)
        width, layers = int(toy.get("width", 96)), int(toy.get("n_layers", 3))
        sprite_tokens = (_SPRITE_PX // int(toy.get("patch_px", _SPRITE_PX))) ** 2
        return _Engine(
            layers,
            width,
            60,
            14.0 * layers * width**2,
            kind="toy",
            question=8,
            object_tokens=sprite_tokens,
        )
    known = settings(str(model["source"]))
    text = {**known, **known.get("text_config", {})}
    word = re.search(r"(\d+(?:\.\d+)?b)\b", str(model["source"]).lower())
    width, layers = _SIZES.get(word[1] if word else "7b", _SIZES["7b"])
    width = int(text.get("hidden_size", width))
    layers = int(text.get("num_hidden_layers", layers))
    weights = (
        12.0 * layers * width**2
        + 2.0 * int(text.get("vocab_size", 152_000)) * width
        + 4e8 * (not known)
    )
    size = 2 if model.get("precision") == "bfloat16" else 4
    object_tokens = _object_tokens(model, known.get("vision_config", {}))
    if product.content.get("text_only"):
        object_tokens = _DESCRIBED
    return _Engine(
        layers, width, _IMAGE_TOKENS, weights, size, object_tokens=object_tokens, word_tokens=2
    )


def _object_tokens(model: Content, vision: Content) -> int:
    """Return how many cells cover a slot's region and its padding, in all views of an image."""
    patch = int(vision.get("patch_size", 14))
    # Names of LLaVA-OneVision have "qwen2" in them, too.
    if "qwen2-vl" in str(model["source"]).lower() or "spatial_merge_size" in vision:
        views, cells = 1, round(_IMAGE_PX / (patch * int(vision.get("spatial_merge_size", 2))))
    else:  # the whole image, and a crop of it that is as large
        views, cells = 2, int(vision.get("image_size", 384)) // patch
    pad = 3 if model.get("compat") == "paper" else int(model.get("pad", 0))
    return int(views * (ceil(_SLOT_PX * cells / _IMAGE_PX) + 2 * pad) ** 2)


def _trials(content: Content, layers: int) -> tuple[int, int]:
    """Return how many conditions an experiment answers under, and questions of each."""
    things, experiment = content["task"]["things"], content["experiment"]
    lengths = [len(option) if isinstance(option, list) else 1 for option in content["options"]]
    first, second, third = (*lengths, 1, 1, 1)[:3]
    trials = {
        "factorizability": 1 + _GROUPS * (things + 1), "positions": 1 + 3 * first,
        "mean": 7 + 6 * first, "nulls": 1 + _GROUPS * 4, "doses": 1 + 2 * second,
        "transfer": 9, "signatures": 8, "layers": 1 + _GROUPS * (5 * layers - 2),
        "pairing": 5 * layers, "tokens": 16, "knockout": 7,
        "heads": 1 + _GROUPS * 5 * layers, "mixture": 9,
        "subspaces": 1 + 4 * (second if things > 2 else 1) * third,  # dimensions that two lack
    }.get(experiment, 12)  # fmt: skip
    every = experiment in ("factorizability", "signatures", "layers")
    return trials, things * (1 + every) + bool(content.get("null_query"))


def _asked(product: Product, contexts: float, answers: float, arrays: float, rows: float) -> Work:
    """Count contexts that are read, and answers to questions about them."""
    content = product.content
    device = content.get("device", "cpu")
    flops = elements = weights = state = 0.0
    kinds = set()
    for model in content["models"]:
        engine = _engine(model, product)
        kinds.add(engine.kind)
        flops += 2.0 * engine.weights * (contexts * engine.tokens + answers * engine.question)
        elements += answers * (
            _ORACLE if engine.kind == "oracle" else engine.layers * engine.width * 200.0
        )
        weights = max(weights, engine.weights * engine.bytes_each)
        at_once = int(model.get("batch_size", content.get("batch_size", 100)))
        batch = min(
            int(content.get("batch_size", 100)), int(content.get("task", {}).get("rows", 100))
        )
        # Keys and values of the contexts of a batch, twice (base and source), and hidden states.
        per_token = (
            engine.bytes_each
            * engine.width
            * (engine.layers / 2 if engine.kind == "published" else 2.0 * engine.layers)
        )
        state = max(
            state,
            2 * batch * engine.tokens * per_token + 8.0 * at_once * engine.tokens * engine.width,
        )
    on_gpu = device == "cuda"
    libraries: Libraries = "plain" if kinds == {"oracle"} else "hub"
    return Work(
        libraries,
        passes=contexts + answers,
        flops=flops / 0.5,
        elements=elements,
        python=2e7 + 500.0 * answers if kinds == {"oracle"} else 2e7 + 2000.0 * answers,
        bytes_peak=(weights if on_gpu else weights + state) + 6e7,
        bytes_device=(weights + state) * on_gpu,
        bytes_disk=(arrays + rows) * len(content["models"]),
        bytes_rows=rows * len(content["models"]),
        threads=content.get("threads", 1),
        device=device,
        key=f"studies.binding_id.suites[{product.wildcards['suite']}].batch_size",
    )


def numbers_of_effects(engine: _Engine, task: Content) -> int:
    """Return how many numbers `Estimates.stored` has.

    These are effects of roles and slots on objects, colors and items, and one of content.
    """
    levels = task["things"] + _SLOTS.get(task["layout"], 9)
    tokens = engine.object_tokens + levels * (engine.object_tokens + 2 * engine.word_tokens)
    return int(engine.layers * engine.width * tokens)


def binding_id_estimates(product: Product) -> Work:
    """Count contexts of the estimation split under every exchange, and mean differences."""
    content = product.content
    task = content["task"]
    contexts = (1.0 + _GROUPS) * task["estimation_rows"] + task["rows"]
    engines = [_engine(model, product) for model in content["models"]]
    numbers = sum(numbers_of_effects(engine, task) for engine in engines)
    return _asked(product, contexts, 0, 4.0 * numbers / len(engines), 9400)


def binding_id_interventions(product: Product) -> Work:
    """Count contexts of tested rows, and answers under every condition of an experiment."""
    content = product.content
    if "records" in content:
        return _asked(product, 500, 2000, 1e6, 1e5)
    rows, things = content["task"]["rows"], content["task"]["things"]
    deepest = max(_engine(model, product).layers for model in content["models"])
    trials, queries = _trials(content, deepest)
    name = content["experiment"]
    candidates = things * (1 + (name in ("factorizability", "layers")))  # of one scene, or both
    return _asked(
        product,
        2.0 * rows * (1 + (name == "signatures")),
        float(rows * trials * queries),
        4.0 * rows * trials * queries * candidates,
        1.0 * _ROWS.get(name, _ROW) * trials * queries,
    )


def toy_vlm(product: Product) -> Work:
    """Count the training of a toy: a scene has about 140 tokens, interchange reads three times."""
    content = product.content
    toy = content["toy"]
    training, width, layers = toy["training"], toy["width"], toy["n_layers"]
    weights = 14.0 * layers * width**2 + 24.0 * toy["tower_width"] ** 2 + 300.0 * width
    times = 3 if toy["objective"] == "interchange" else 1
    n = training["steps"] * training["batch_size"] * times
    return Work(
        "hub",
        passes=n,
        flops=6.0 * n * 140 * weights / 0.5,
        elements=n * 140.0 * width * layers * 40,
        python=2e4 * training["steps"] * times,
        bytes_disk=4.2 * weights,
        bytes_peak=16 * weights
        + 4.0 * training["batch_size"] * times * 140 * width * layers * 40
        + 1e8,
        threads=content["threads"],
        device=content["device"],
        key=f"studies.binding_id.toys[{product.wildcards['toy']}].training.batch_size",
    )
