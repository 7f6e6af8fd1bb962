"""What the study's steps take: scenes of objects, and maps between them and embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from bindscope.core.graph import Product
from bindscope.core.work import Work, sides
from bindscope.graph.cost import n_of, shape_of
from bindscope.graph.towers import text_width, tower_of
from bindscope.studies.concepts.counting import (
    ROWS_AT_ONCE,
    SCORES_AT_ONCE,
    SPECIAL_TOKENS,
)

DECIDES_NOTHING = True

Content = Mapping[str, Any]

_NEWTON = 40  # passes of a softmax regression over its scenes (default run)
_ROW = 330  # bytes of a row (default run)
_OF_COVERAGE = 17_500  # bytes of the rows of an approximator at a coverage (small presets)
# Of a row of scores, and of a tensor's entry in a file (concepts_nightly).
_SCORE, _TENSOR = 600, 115
_OF_SCORE = 5  # numbers that are made of a score
_SKLEARN = 1.1e8  # bytes that its import takes, for trees
# Maps between modalities: one, `alignment.PERMUTATIONS`, and six that a decomposition holds.
_ALIGNED = 1 + 20 + 6
_SMALL = 0.5  # share of the rate of large products that such batches reach


def encoder_weights(encoder: Content, sizes: list[int]) -> tuple[float, float]:
    """Return the weights of a dual encoder, and of products that one object takes part in."""
    dim, values, types = encoder["dim"], sum(sizes), len(sizes)
    if encoder["kind"] == "product":
        return 3 * dim * values, dim * types
    width, hidden = encoder.get("width", 0), encoder["hidden"]
    if encoder["kind"] == "transformer":
        block = 4 * width**2 + 2 * width * hidden + 9 * width + hidden
        tower = encoder["layers"] * block + width * (values + SPECIAL_TOKENS + dim)
        return 2 * tower, 2 * types * tower
    perceptron = hidden * (types * dim + 1 + dim)
    return 2 * perceptron + 3 * dim * values, perceptron


def dual_encoder(product: Product) -> Work:
    """Count the training of all coverages and seeds, and what is asked of them."""
    content = product.content
    sizes, how = content["sizes"], content["training"]
    runs, objects = len(content["coverages"]) * len(content["seeds"]), prod(sizes)
    total, used = encoder_weights(content["encoder"], sizes)
    dim, batch = content["encoder"]["dim"], how["batch_size"]
    slots = max(how["objects_per_scene"])
    queries = objects
    if how["queries"] == "batch":  # objects of the scenes, and an exchange of each
        queries = min(slots * batch, how["max_objects"] or slots * batch) + batch * (slots > 1)
    read = batch * slots + queries
    step = runs * 6.0 * (read * used + batch * queries * dim)
    # Of each split single objects and pairs are scenes; candidates are all objects.
    most = content["max_scenes"] or objects**2
    pairs = min(objects**2, most)
    scored = runs * 2.0 * (min(objects, most) + pairs)
    n_queries = runs * objects  # that are embedded
    types = len(sizes)
    layers, width, hidden = (content["encoder"].get(k, 0) for k in ("layers", "width", "hidden"))
    embedded = (types + 2) * (8 * width + 2 * hidden)
    tokens = batch * (slots * (types + 1) + 1) + queries * (types + 2)
    at_once = max(SCORES_AT_ONCE // objects, 1)
    arrays = (
        16.0 * runs * total
        + 12.0 * (batch * queries + read * dim * 4)
        + 26.0 * min(pairs, at_once) * objects  # scores, and what is compared
        + 4.0 * pairs * dim
        # Queries in float32 twice, in float64 twice, and those of the encoder before.
        + 32.0 * objects * dim + 4.0 * min(objects, ROWS_AT_ONCE) * embedded
        + (8e7 if layers else 3e7)
        # Of each token and layer what gradients need: about ten vectors, and two hidden ones.
        + 4.0 * layers * tokens * (10 * width + 2 * hidden)
    )  # fmt: skip
    # Of training objects three scores, of held-out ones two; of two objects by three strata.
    rows = 1.0 * runs * (3 + 2) * (1 + 3) * _SCORE
    tensors = {"product": 3, "mlp_set": 9}.get(content["encoder"]["kind"], 4 + 24 * layers)
    return Work(
        "torch",
        flops=(how["steps"] * step + 2.0 * ((scored + n_queries) * used + scored * objects * dim))
        / _SMALL,
        elements=how["steps"] * runs * (6.0 * batch * queries + 8 * total + 20 * batch * slots)
        + scored * (20.0 + _OF_SCORE * objects)
        + n_queries * layers * embedded,
        python=runs * (3e4 * how["steps"] + 3e6),
        bytes_peak=5e8 if content["device"] == "cuda" else arrays,
        bytes_device=arrays * (content["device"] == "cuda"),
        bytes_disk=runs * (4.0 * total + _TENSOR * tensors) + rows,
        bytes_rows=rows,
        threads=content["threads"],
        device=content["device"],
        key=f"studies.concepts.dual_encoders[{product.wildcards['encoder']}].training.batch_size",
    )


def _read(product: Product) -> tuple[int, int]:
    """Return the scenes and dimensions of the embeddings that a job reads."""
    n = n_of(product.inputs["codes"])
    if "embeddings" not in product.inputs:  # of a planted encoder
        return n, int(product.content["encoder"]["dim"])
    embedding = product.inputs["embeddings"][0]
    if embedding.rule == "index":
        return n, shape_of(embedding)[1]
    model = embedding.content["model"]  # of vectors where images and texts meet
    return n, text_width(model) or tower_of(model, 224).width


def _recognized(n: int, dim: int, sizes: list[int]) -> tuple[float, float]:
    """Return operations and numbers of fitting probes once, and of asking them once."""
    cells, values = sides({"sizes": sizes})
    cells = min(cells, 3 * n)  # those that occur
    fitted = _NEWTON * 4.0 * n * dim * (cells + values)
    return fitted, n * (cells + values) * 30.0


def concept_geometry(product: Product) -> Work:
    """Count probes of embeddings, sums over objects, and exchanges of objects by strength."""
    content = product.content
    n, dim = _read(product)
    flops, elements = _recognized(n, dim, content["sizes"])
    estimators = 2 * len(content["estimators"])
    states, edits = 1 + estimators, estimators * len(content["strengths"])
    cells, _ = sides(content)
    aligned = 8.0 * _ALIGNED * dim * dim * bool(product.inputs.get("captions"))
    rows = _ROW * (6 + states * 40.0 + edits * 22.0)
    return Work(
        "torch",
        flops=flops / _SMALL + (states + edits) * 4.0 * n * dim * cells + 4.0 * n * dim * dim,
        elements=(_NEWTON + 4 * (states + edits)) * elements + 1000.0 * 30 * cells * states,
        python=2e7 + states * 4e6 + edits * 2e6,
        bytes_peak=_in_memory(n, dim, cells) + aligned,
        bytes_disk=rows,
        bytes_rows=rows,
        threads=content["threads"],
        device=content["device"],
        key="datasets, n_scenes",
    )


def _in_memory(n: int, dim: int, cells: int) -> float:
    """Return the bytes of embeddings in float64, a few times over, and of what objects occur."""
    return 8.0 * 4 * n * dim + 10.0 * n * min(cells, 3 * n) + 9e7


def learner_weights(
    how: Content, sizes: Sequence[int], slots: int, dim: int
) -> tuple[float, float]:
    """Return the weights of an approximator, and of products that one scene takes part in.

    The first layer of a perceptron reads joined vectors, and is applied to each value once.
    """
    table = slots * sum(sizes) * dim
    if how["kind"] != "mlp":
        return table, table
    layers = sum(a * b for a, b in pairwise([*how["widths"], dim]))
    return table + slots * len(sizes) * dim * how["widths"][0] + layers, layers


def binding_complexity(product: Product) -> Work:
    """Count an approximator fitted at all coverages and seeds, and probes of what it predicts."""
    content = product.content
    how, splits = content["approximator"], len(content["coverages"]) * len(content["seeds"])
    runs, slots = 1, 2
    if "dual" in content:
        (weights,) = product.inputs["weights"]
        runs = len(weights.content["coverages"]) * len(weights.content["seeds"])
        n, dim = int(content["dual"]["objects"]) ** 2, int(content["dual"]["encoder"]["dim"])
    else:
        n, dim = _read(product)
    cells, _ = sides(content)
    if "dual" in content:  # its queries are those of the objects that are drawn
        cells = min(cells, int(content["dual"]["objects"]))
    n_weights, used = learner_weights(how, content["sizes"], slots, dim)
    width = sum(how["widths"]) if how["kind"] == "mlp" else 2 * how["rank"]
    steps = {"additive": 1, "forest": 0, "booster": 0}.get(how["kind"], how["steps"])
    share = sum(content["coverages"]) / len(content["coverages"])
    fitted = runs * splits * steps * (n * share * used + n_weights) * 6.0
    probes, elements = _recognized(n, dim, content["sizes"])
    if "dual" in content:  # its own queries are what reads it
        probes, elements = 0.0, elements / _NEWTON
    rows = 1.0 * _OF_COVERAGE * runs * len(content["coverages"])
    trees = how["rounds"] * n * 60.0 * (how["components"] if how["kind"] == "booster" else 20)
    in_memory = 16.0 * n_weights + 16.0 * n * dim + 12.0 * n * share * (dim + width)
    return Work(
        "torch",
        flops=(fitted + runs * probes) / _SMALL,
        elements=runs
        * (_NEWTON * elements + splits * (steps * n * (dim + width) * 4.0 + 6 * elements))
        + runs * splits * trees * (how["kind"] in ("forest", "booster")),
        python=runs * (1e7 + splits * (1e6 + 2000.0 * steps)),
        bytes_peak=_in_memory(n, dim, cells)
        + in_memory * 1.2
        + 8.0 * splits * n
        + _SKLEARN * (how["kind"] in ("forest", "booster"))
        + 8.0 * min(SCORES_AT_ONCE, n * cells) * ("dual" in content),
        bytes_disk=rows,
        bytes_rows=rows,
        threads=content["threads"],
        device=content["device"],
        key="studies.concepts.analyses, dual_objects"
        if "dual" in content
        else "datasets, n_scenes",
    )
