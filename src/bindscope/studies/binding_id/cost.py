"""What the study's steps take: contexts that a vision-language model reads, and questions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from bindscope.core.graph import Product
from bindscope.core.work import Content, Work
from bindscope.graph.language import LanguageModel, family, language_model, unknown_size
from bindscope.graph.towers import settings
from bindscope.studies.binding_id.registry import EXPERIMENTS, find_notes
from bindscope.studies.binding_id.toys import LAYERS, WIDTH

DECIDES_NOTHING = True

_GROUPS = 3  # things, colors, items
_TEXT = 50  # tokens of a context besides those of its image
_IMAGE_PX, _SLOT_PX = 384, 66  # `tasks.scenes`: sides of images and regions
_SLOTS = {"pair": 2, "level": 2}  # of a layout; the others have nine
_ORACLE_WIDTH = 152  # `oracle.WIDTH`
_ROW = 1000  # bytes of the rows of a condition and question, at most


@dataclass(frozen=True)
class _Engine:
    """A model that answers.

    Attributes
    ----------
    model
        Its language model.
    tokens
        Of a context.
    bytes_each
        Of a number.
    object_tokens, word_tokens
        Tokens of an object, and of a color or an item.
    pixels
        Numbers of an image as the model reads it.
    eager
        Whether scores of attention are written out, and their softmax.
    unknown
        What of it is a guess.
    """

    model: LanguageModel
    tokens: int
    bytes_each: int = 4
    object_tokens: int = 2
    word_tokens: int = 1
    pixels: float = 0
    eager: bool = False
    unknown: str = ""

    def memory(self, contexts: int, batch: int, at_once: int, n_tokens: int, queries: int) -> float:
        """Return the bytes of what is held of a batch of rows beside the weights.

        Of each context keys and values, embeddings, the residual of `n_tokens`, pixels and a
        mask; and either what a block makes of a context, or edited keys and values, which are put
        side by side, and logits of all questions, turned into float64 and probabilities.
        """
        model = self.model
        cache = self.tokens * model.cached * model.layers
        context = cache + self.tokens * model.width + n_tokens * model.layers * model.width
        each = batch * (self.bytes_each * context + 4 * self.pixels)
        each += self.bytes_each * self.tokens**2
        read = self.bytes_each * batch * self.tokens * (3 * model.hidden + 4 * model.width)
        if self.eager:
            read += 3 * self.bytes_each * batch * model.heads * self.tokens**2
        answered = at_once * (2 * self.bytes_each * cache + 20 * queries * model.vocabulary)
        return float(contexts * each + max(read, answered))


def _engine(content: Content) -> _Engine:
    if content["kind"] == "oracle":
        return _Engine(LanguageModel(4, _ORACLE_WIDTH, heads=1), 12)
    if content["kind"] == "toy":
        toy = LanguageModel(
            LAYERS, WIDTH, cached=2 * WIDTH, hidden=4 * WIDTH, weights=14 * LAYERS * WIDTH**2
        )
        return _Engine(toy, 60, object_tokens=1)
    source = str(content["source"])
    grids, side = _grids(source)
    pad = 3 if content.get("compat") == "paper" else 0
    return _Engine(
        language_model(source),
        _TEXT + grids[0] ** 2 + sum(cells * (cells + 1) for cells in grids[1:]),  # rows have ends
        2 if content.get("precision") == "bfloat16" else 4,
        object_tokens=sum((ceil(_SLOT_PX * n / _IMAGE_PX) + 2 * pad) ** 2 for n in grids),
        word_tokens=2,
        pixels=3 * side**2,
        eager=content.get("attention") == "eager",
        unknown=unknown_size(source),
    )


def _grids(source: str) -> tuple[tuple[int, ...], float]:
    """Return cells of a side in each view of an image, and the side of as many pixels."""
    kind, known = family(source), settings(source)
    vision = known.get("vision_config", {})
    patch, merged = _side(vision, "patch_size", 14), int(vision.get("spatial_merge_size", 2))
    if kind.startswith("qwen"):  # the image is read as two frames
        return (round(_IMAGE_PX / (patch * merged)),), 2**0.5 * _IMAGE_PX
    sides = {"internvl": 448, "llava_onevision": 384}
    side = _side(vision, "image_size", sides.get(kind, 336))
    if kind == "internvl":
        return (int(side // patch * known.get("downsample_ratio", 0.5)),), side
    cells = side // patch
    crops = {"llava": 0, "llava_next": 2}.get(kind, 1)  # along a side of the second view
    return (cells, *[crops * cells] * (crops > 0)), (1 + crops**2) ** 0.5 * side


def _side(vision: Content, name: str, default: int) -> int:
    """Return a side in pixels, which some configurations give as a pair."""
    side = vision.get(name, default)
    return int(side[0] if isinstance(side, list) else side)


def contexts_in_memory(name: str) -> int:
    """Return how many contexts of a row an experiment, records or estimates hold at a time."""
    if name == "estimates":
        return 3  # the base, and two runs that it is compared with
    return find_notes(name).contexts if name in EXPERIMENTS else 1


def _read(product: Product, name: str, queries: int, rows: float) -> Work:
    """Count contexts of so many rows that models read, and answers to questions about them.

    Models of a job are alike; `queries` are those of a row.
    """
    content = product.content
    task, limit = content.get("task", {}), int(content.get("batch_size", 100))
    engine, model = _engine(content["models"][0]), content["models"][0]
    batch, things = min(limit, int(task.get("rows", 100))), int(task.get("things", 2))
    at_once = max(batch, int(model.get("batch_size", limit)) // batch * batch)  # of a condition
    n_tokens = things * (engine.object_tokens + 2 * engine.word_tokens)
    if name == "estimates":
        at_once = batch
    host = 6e7
    if name == "mean":
        numbers = batch * engine.model.layers * engine.object_tokens * engine.model.width
        host += 4.0 * things * _vectors(task) * numbers
    return Work(
        units=len(content["models"]) * rows * engine.tokens * max(engine.model.weights, 1),
        bytes_host=host,
        bytes_loaded=engine.model.weights * engine.bytes_each,
        bytes_computed=engine.memory(contexts_in_memory(name), batch, at_once, n_tokens, queries),
        key=f"studies.binding_id.suites[{product.wildcards['suite']}].batch_size",
        unknown=engine.unknown,
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
    return int(engine.model.layers * engine.model.width * tokens)


def estimates(product: Product) -> Work:
    """Count contexts of the estimation split under every exchange, and mean differences."""
    task, models = product.content["task"], product.content["models"]
    arrays = 4.0 * numbers_of_effects(_engine(models[0]), task)
    work = _read(product, "estimates", 1, (1.0 + _GROUPS) * task["estimation_rows"])
    # Of both halves of the rows sums in float64, and what is solved of them and of all.
    computed = work.bytes_computed + 7 * arrays
    return replace(work, bytes_computed=computed, bytes_disk=arrays * len(models))


def interventions(product: Product) -> Work:
    """Count contexts of tested rows, and answers under every condition of an experiment."""
    content = product.content
    if "records" in content:
        return _read(product, "records", 1, 500)
    task, name, models = content["task"], content["experiment"], content["models"]
    notes = find_notes(name)
    conditions = notes.trials(_engine(models[0]).model, content["options"])
    queries = task["things"] * (1 + notes.foreign)
    answers = 1.0 * conditions * queries * len(models)
    # Of each answer as many candidates as queries, at most.
    disk, rows = answers * 4 * task["rows"] * queries, answers * _ROW
    work = _read(product, name, queries, task["rows"] * conditions)
    return replace(work, bytes_disk=disk + rows, bytes_rows=rows)


def _vectors(task: Content) -> int:
    """Return how many vectors of its own each row gets for an object in the experiment `mean`.

    A null is of its own thing; where slots do not follow from roles, all are of its own slots.
    """
    follow = task["order"] == "left_first" and task["things"] == _SLOTS.get(task["layout"], 9)
    return 1 if follow else 8


def toy_vlm(product: Product) -> Work:
    """Count the training of a toy: a scene has about 140 tokens, interchange reads three."""
    training = product.content["toy"]["training"]
    batch = 3 * training["batch_size"]
    return Work(
        units=training["steps"] * batch,
        bytes_computed=4.0 * batch * 140 * WIDTH * LAYERS * 40 + 1.2e8,
        key=f"studies.binding_id.toys[{product.wildcards['toy']}].training.batch_size",
    )
