"""What the study's steps take: contexts that a vision-language model reads, and questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from bindscope.core.graph import Product
from bindscope.core.work import Libraries, Work
from bindscope.graph.towers import settings
from bindscope.studies.binding_id.toys import LAYERS, PATCH_PX, TOWER_WIDTH, WIDTH

DECIDES_NOTHING = True

Content = Mapping[str, Any]

_GROUPS = 3  # things, colors, items
# Of Qwen2 by the number of parameters in a name: width, layers, heads, numbers of a token's keys
# and values in a layer, and hidden units of a block.
_SIZES = {
    "0.5b": (896, 24, 14, 256, 4864), "2b": (1536, 28, 12, 512, 8960),
    "7b": (3584, 28, 28, 1024, 18944), "72b": (8192, 80, 64, 2048, 29568),
}  # fmt: skip
_TEXT = 50  # tokens of a context besides those of its image (stand-ins with released templates)
_IMAGE_PX, _SLOT_PX, _SPRITE_PX = 384, 66, 12  # `tasks.scenes`: sides of images and regions
_SLOTS = {"pair": 2, "level": 2}  # of a layout; the others have nine
_ORACLE_WIDTH = 152  # `oracle.WIDTH`
_ORACLE = 20_000  # numbers that an oracle makes for one answer (default run)
# Bytes of the rows of a condition and question (default run).
_ROW = 450
_ROWS = {"factorizability": 2600, "positions": 1300, "signatures": 600}
# Contexts of a row that are in memory at a time: the base, and those that replacements are taken
# from. Of estimates the base, and two runs that it is compared with.
_CONTEXTS = {"estimates": 3, "positions": 1, "knockout": 1, "heads": 1, "records": 1}  # others: 2


@dataclass(frozen=True)
class _Engine:
    """Layers, width, tokens of contexts and questions, and weights of a model that answers.

    `cached` are numbers of a token's keys and values in a layer, `hidden` those of a block's inner
    layer, `vocabulary` answers that are told apart, `pixels` numbers of an image as the model reads
    it, `vision` the operations of its tower.
    """

    layers: int
    width: int
    tokens: int
    weights: float
    heads: int = 4
    bytes_each: int = 4
    kind: str = "published"
    question: int = 90
    object_tokens: int = 2
    word_tokens: int = 1  # of a color, and of an item
    cached: int = 0
    hidden: int = 0
    vocabulary: int = 0
    pixels: int = 0
    vision: float = 0.0

    def flops(self, contexts: float, answers: float) -> float:
        """Return the operations of contexts that are read, and of answers to questions behind them.

        A token takes part in two operations of each weight, and in four of a layer's width with
        each token that it may see.
        """
        attention = 4.0 * self.layers * self.width * self.tokens
        context = self.tokens * (2.0 * self.weights + attention) + self.vision
        return contexts * context + answers * self.question * (2.0 * self.weights + attention)

    def memory(self, contexts: int, batch: int, at_once: int, n_tokens: int, queries: int) -> float:
        """Return the bytes of what is held of a batch of rows beside the weights.

        Of each context keys and values, embeddings, the residual of `n_tokens`, pixels and a
        mask; and either what a block makes of a context, or edited keys and values, which are put
        side by side, and logits of all questions, turned into float64 and probabilities.
        """
        cache = self.tokens * self.cached * self.layers
        context = cache + self.tokens * self.width + n_tokens * self.layers * self.width
        each = batch * (self.bytes_each * context + 4 * self.pixels)
        each += self.bytes_each * self.tokens**2
        read = self.bytes_each * batch * self.tokens * (3 * self.hidden + 4 * self.width)
        answered = at_once * (2 * self.bytes_each * cache + 20 * queries * self.vocabulary)
        return float(contexts * each + max(read, answered))


def _engine(model: Content) -> _Engine:
    if model["kind"] == "oracle":
        return _Engine(4, _ORACLE_WIDTH, 12, 0, heads=1, kind="oracle")
    if model["kind"] == "toy":
        return _Engine(LAYERS, WIDTH, 60, 14.0 * LAYERS * WIDTH**2, kind="toy", question=8,
                       object_tokens=(_SPRITE_PX // PATCH_PX) ** 2, cached=2 * WIDTH,
                       hidden=4 * WIDTH)  # fmt: skip
    if str(model["source"]).startswith("engine:"):  # whose size nobody here knows
        return _Engine(4, _ORACLE_WIDTH, 12, 0, kind=model["source"])
    return _published(model)


def _published(model: Content) -> _Engine:
    """Return a released model, as its configuration and its name say it."""
    known = settings(str(model["source"]))
    text = {**known, **known.get("text_config", {})}
    word = re.search(r"(\d+(?:\.\d+)?b)\b", str(model["source"]).lower())
    width, layers, heads, cached, hidden = _SIZES.get(word[1] if word else "7b", _SIZES["7b"])
    if known:
        width, layers = int(text["hidden_size"]), int(text["num_hidden_layers"])
        heads = int(text["num_attention_heads"])
        cached = 2 * int(text.get("num_key_value_heads", heads)) * width // heads
        hidden = int(text["intermediate_size"])
    vocabulary = int(text.get("vocab_size", 152_000))
    vision = known.get("vision_config", {})
    views, cells = _views(model, vision)
    return _Engine(
        layers,
        width,
        _TEXT + cells**2 + (views > 1) * cells * (cells + 1),  # of a crop rows have an end
        12.0 * layers * width**2 + 2.0 * vocabulary * width + 4e8 * (not known),
        heads,
        2 if model.get("precision") == "bfloat16" else 4,
        object_tokens=_object_tokens(model, vision),
        word_tokens=2,
        cached=cached,
        hidden=hidden,
        vocabulary=vocabulary,
        pixels=2 * 3 * _IMAGE_PX**2,  # of two views, or of an image that is read as two frames
        vision=views * _tower(vision),
    )


def _tower(vision: Content) -> float:
    """Return the operations of a vision tower that reads a view: 400 million weights, or known."""
    width = int(vision.get("embed_dim", vision.get("hidden_size", 1152)))
    layers = int(vision.get("depth", vision.get("num_hidden_layers", 27)))
    patches = (_IMAGE_PX // int(vision.get("patch_size", 14))) ** 2
    return float(layers * patches * width * (24 * width + 4 * patches))


def _views(model: Content, vision: Content) -> tuple[int, int]:
    """Return how often a model sees an image, and cells of a side."""
    patch = int(vision.get("patch_size", 14))
    # Names of LLaVA-OneVision have "qwen2" in them, too.
    if "qwen2-vl" in str(model["source"]).lower() or "spatial_merge_size" in vision:
        return 1, round(_IMAGE_PX / (patch * int(vision.get("spatial_merge_size", 2))))
    return 2, int(vision.get("image_size", 384)) // patch  # whole, and a crop that is as large


def _object_tokens(model: Content, vision: Content) -> int:
    """Return how many cells cover a slot's region and its padding, in all views of an image."""
    views, cells = _views(model, vision)
    pad = 3 if model.get("compat") == "paper" else 0
    return int(views * (ceil(_SLOT_PX * cells / _IMAGE_PX) + 2 * pad) ** 2)


def _trials(content: Content, engine: _Engine) -> tuple[int, int]:
    """Return how many conditions an experiment answers under, and questions of each."""
    task, experiment = content["task"], content["experiment"]
    things, layers = task["things"], engine.layers
    blinded = next((len(some) for some in content["options"] if experiment == "heads" and some), 0)
    sizes = len({min(size, _SLOTS.get(task["layout"], 9) - 1) for size in (1, 2, 4, 8)})
    trials = {
        "factorizability": 1 + _GROUPS * (things + 1), "positions": 1 + _GROUPS * 7, "mean": 46,
        "signatures": 8,
        "layers": 1 + _GROUPS * (5 * layers - 2), "pairing": 5 * layers, "tokens": 16,
        "knockout": 7, "heads": 4 + _GROUPS * (blinded or layers) * (engine.heads + 1),
        "mixture": 9, "subspaces": 3 + 7 * sizes,
    }[experiment]  # fmt: skip
    every = experiment in ("factorizability", "signatures", "layers", "tokens")
    return trials, things * (1 + every)


def _to_queries(
    product: Product, contexts: float, answers: float, arrays: float, rows: float,
    queries: int = 1, sums: float = 0.0, vectors: int = 0,
) -> Work:  # fmt: skip
    """Count contexts that are read, and answers to questions about them.

    `queries` are those of a row, `vectors` those that each row gets for the tokens of an object,
    `sums` bytes of what is estimated over rows.
    """
    content = product.content
    name = "records" if "records" in content else content.get("experiment", "estimates")
    n_contexts = _CONTEXTS.get(name, 2)
    things = int(content.get("task", {}).get("things", 2))
    device = content.get("device", "cpu")
    flops = elements = weights = state = added = 0.0
    kinds = set()
    for model in content["models"]:
        engine = _engine(model)
        kinds.add(engine.kind)
        flops += engine.flops(contexts, answers)
        elements += answers * (
            _ORACLE if engine.kind == "oracle" else engine.layers * engine.width * 200.0
        )
        weights = max(weights, engine.weights * engine.bytes_each)
        batch = min(
            int(content.get("batch_size", 100)), int(content.get("task", {}).get("rows", 100))
        )
        limit = int(model.get("batch_size", content.get("batch_size", 100)))
        at_once = max(batch, limit // batch * batch)  # all conditions of a row are answered
        n_tokens = things * (engine.object_tokens + 2 * engine.word_tokens)
        numbers = batch * engine.layers * engine.object_tokens * engine.width
        added = max(added, 4.0 * vectors * numbers)
        state = max(state, engine.memory(n_contexts, batch, at_once, n_tokens, queries) + sums)
    on_gpu = device == "cuda"
    libraries: Libraries = "plain" if kinds == {"oracle"} else "hub"
    unknown = next((f"the size of {kind}" for kind in kinds if kind.startswith("engine:")), "")
    return Work(
        libraries,
        passes=contexts + answers,
        flops=flops / 0.5,
        elements=elements,
        python=2e7 + 500.0 * answers if kinds == {"oracle"} else 2e7 + 2000.0 * answers,
        bytes_peak=(weights if on_gpu else weights + state) + added + 6e7,
        bytes_device=(weights + state) * on_gpu,
        bytes_disk=(arrays + rows) * len(content["models"]),
        bytes_rows=rows * len(content["models"]),
        threads=content.get("threads", 1),
        device=device,
        key=f"studies.binding_id.suites[{product.wildcards['suite']}].batch_size",
        unknown=unknown,
    )


def numbers_of_effects(engine: _Engine, task: Content) -> int:
    """Return how many numbers `Estimates.stored` has.

    These are effects of roles and slots on objects and items, of roles on colors, and one of
    content.
    """
    slots = _SLOTS.get(task["layout"], 9)
    levels = task["things"] + slots
    tokens = engine.object_tokens + levels * (engine.object_tokens + 2 * engine.word_tokens)
    tokens -= slots * engine.word_tokens  # colors keep their slots
    return int(engine.layers * engine.width * tokens)


def binding_id_estimates(product: Product) -> Work:
    """Count contexts of the estimation split under every exchange, and mean differences."""
    content = product.content
    task = content["task"]
    contexts = (1.0 + _GROUPS) * task["estimation_rows"]
    engines = [_engine(model) for model in content["models"]]
    numbers = sum(numbers_of_effects(engine, task) for engine in engines)
    arrays = 4.0 * numbers / len(engines)
    # Of both halves of the rows sums in float64, and what is solved of them and of all.
    return _to_queries(product, contexts, 0, arrays, 7900, sums=7 * arrays)


def binding_id_interventions(product: Product) -> Work:
    """Count contexts of tested rows, and answers under every condition of an experiment."""
    content = product.content
    if "records" in content:
        return _to_queries(product, 500, 2000, 1e6, 1e5)
    rows, things = content["task"]["rows"], content["task"]["things"]
    deepest = max((_engine(model) for model in content["models"]), key=lambda e: e.layers)
    trials, queries = _trials(content, deepest)
    name = content["experiment"]
    candidates = things * (1 + (name in ("factorizability", "layers")))  # of one scene, or both
    return _to_queries(
        product,
        2.0 * rows * (1 + (name == "signatures")),
        float(rows * trials * queries),
        4.0 * rows * trials * queries * candidates,
        1.0 * _ROWS.get(name, _ROW) * trials * queries,
        queries,
        vectors=things * _vectors(content["task"]) if name == "mean" else 0,
    )


def _vectors(task: Content) -> int:
    """Return how many vectors of its own each row gets for an object in the experiment `mean`.

    A null is of its own thing; where slots do not follow from roles, all are of its own slots.
    """
    follow = task["order"] == "left_first" and task["things"] == _SLOTS.get(task["layout"], 9)
    return 1 if follow else 8


def toy_vlm(product: Product) -> Work:
    """Count the training of a toy: a scene has about 140 tokens, interchange reads three times."""
    content = product.content
    toy = content["toy"]
    training = toy["training"]
    weights = 14.0 * LAYERS * WIDTH**2 + 24.0 * TOWER_WIDTH**2 + 300.0 * WIDTH
    times = 3 if toy["objective"] == "interchange" else 1
    n = training["steps"] * training["batch_size"] * times
    return Work(
        "hub",
        passes=n,
        flops=6.0 * n * 140 * weights / 0.5,
        elements=n * 140.0 * WIDTH * LAYERS * 40,
        python=2e4 * training["steps"] * times,
        bytes_disk=4.2 * weights,
        bytes_peak=16 * weights
        + 4.0 * training["batch_size"] * times * 140 * WIDTH * LAYERS * 40
        + 1e8,
        key=f"studies.binding_id.toys[{product.wildcards['toy']}].training.batch_size",
    )
