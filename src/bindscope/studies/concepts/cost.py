"""What the study's steps take: scenes of objects, and maps between them and embeddings."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from bindscope.core.graph import Product
from bindscope.core.work import Content, Work, n_scenes, sides
from bindscope.graph.cost import shape_of
from bindscope.graph.towers import text_width, tower_of
from bindscope.studies.concepts.counting import ROWS_AT_ONCE, SCORES_AT_ONCE, SPECIAL_TOKENS

DECIDES_NOTHING = True

# Bytes of a row, and of the rows of an approximator at a coverage.
_ROW, _OF_COVERAGE = 600, 17_500
_ALIGNED = 1 + 20 + 6  # maps between modalities: one, permutations, and those that are decomposed
_BESIDE = 1.2e8  # bytes that scikit-learn takes, and scores of objects


def encoder_weights(encoder: Content, sizes: list[int]) -> float:
    """Return the weights of a dual encoder."""
    dim, values, types = encoder["dim"], sum(sizes), len(sizes)
    if encoder["kind"] == "product":
        return float(3 * dim * values)
    width, hidden = encoder.get("width", 0), encoder["hidden"]
    if encoder["kind"] == "transformer":
        block = 4 * width**2 + 2 * width * hidden + 9 * width + hidden
        return float(2 * (encoder["layers"] * block + width * (values + SPECIAL_TOKENS + dim)))
    return float(2 * hidden * (types * dim + 1 + dim) + 3 * dim * values)


def dual_encoder(product: Product) -> Work:
    """Count the training of all coverages and seeds, and what is asked of them."""
    content = product.content
    sizes, how, encoder = content["sizes"], content["training"], content["encoder"]
    runs, objects = len(content["coverages"]) * len(content["seeds"]), prod(sizes)
    total, types = encoder_weights(encoder, sizes), len(sizes)
    dim, batch, slots = encoder["dim"], how["batch_size"], max(how["objects_per_scene"])
    queries = objects
    if how["queries"] == "batch":  # objects of the scenes, and an exchange of each
        queries = min(slots * batch, how["max_objects"] or slots * batch) + batch * (slots > 1)
    pairs = min(objects**2, content["max_scenes"] or objects**2)
    layers, width, hidden = (encoder.get(key, 0) for key in ("layers", "width", "hidden"))
    tokens = batch * (slots * (types + 1) + 1) + queries * (types + 2)
    embedded = min(objects, ROWS_AT_ONCE) * (types + 2) * (8 * width + 2 * hidden)
    # Of weights their moments; what a batch needs, of each token and layer about ten vectors and
    # two hidden ones; what is scored at once; and embeddings of all objects and pairs.
    trained = 16.0 * runs * total + 12.0 * (batch * queries + 4 * (batch * slots + queries) * dim)
    trained += 4.0 * layers * tokens * (10 * width + 2 * hidden)
    scored = 26.0 * min(pairs, max(SCORES_AT_ONCE // objects, 1)) * objects
    queried = 4.0 * pairs * dim + 32.0 * objects * dim + 4.0 * embedded
    return Work(
        units=runs * how["steps"] * (batch * slots + queries) * total,
        bytes_computed=trained + scored + queried + 8e7,
        bytes_disk=4.0 * runs * total,
        bytes_rows=20.0 * runs * _ROW,  # 5 kinds of scenes, of 4 sets of objects
        key=f"studies.concepts.dual_encoders[{product.wildcards['encoder']}].training.batch_size",
    )


def _read(product: Product) -> tuple[int, int, int]:
    """Return the scenes and dimensions of the embeddings that a job reads, and the objects."""
    content, (cells, _) = product.content, sides(product.content)
    if "dual" in content:
        dual = content["dual"]
        return int(dual["objects"]) ** 2, int(dual["encoder"]["dim"]), int(dual["objects"])
    n = sum(map(n_scenes, product.inputs["codes"]))
    if "embeddings" not in product.inputs:  # of a planted encoder
        return n, int(content["encoder"]["dim"]), cells
    embedding = product.inputs["embeddings"][0]
    if embedding.rule == "index":
        return n, shape_of(embedding).width, cells
    model = embedding.content["model"]  # of vectors where images and texts meet
    return n, text_width(model) or tower_of(model, 224).width, cells


def _in_memory(n: int, dim: int, cells: int) -> float:
    """Return the bytes of embeddings in float64, a few times over, and of what objects occur."""
    return 8.0 * 4 * n * dim + 10.0 * n * min(cells, 3 * n) + 9e7


def concept_geometry(product: Product) -> Work:
    """Count probes of embeddings, sums over objects, and exchanges of objects by strength."""
    content, (n, dim, cells) = product.content, _read(product)
    estimators = 2 * len(content["estimators"])
    edits = estimators * len(content["strengths"])
    return Work(
        units=(1 + estimators + edits) * n * dim * min(cells, 3 * n),
        bytes_loaded=_in_memory(n, dim, cells) + 8.0 * _ALIGNED * dim * dim,
        bytes_rows=_ROW * (6 + (1 + estimators) * 40.0 + edits * 22.0),
    )


def binding_complexity(product: Product) -> Work:
    """Count an approximator fitted at all coverages and seeds, and probes of what it predicts."""
    content, (n, dim, cells) = product.content, _read(product)
    how, coverages, runs = content["approximator"], content["coverages"], 1
    for trained in product.inputs.get("weights", ()):
        runs = len(trained.content["coverages"]) * len(trained.content["seeds"])
    inputs, joined = 2 * sum(content["sizes"]), 2 * len(content["sizes"]) * dim
    numbers, width = inputs * dim, 0
    if how["kind"] == "mlp":  # its first layer reads joined vectors
        width = sum(how["widths"])
        numbers += sum(a * b for a, b in pairwise([joined, *how["widths"], dim]))
    if content["protocol"] == "paper":  # of each scene
        width += joined
    fitted = 16.0 * numbers + 16.0 * n * dim + 12.0 * n * max(coverages) * (dim + width)
    splits = len(coverages) * len(content["seeds"])
    key = "studies.concepts.analyses, dual_objects" if "dual" in content else "datasets, n_scenes"
    return Work(
        units=runs * splits * how.get("steps", how.get("rounds", 1)) * n * (dim + width),
        bytes_host=8.0 * (splits * n + min(SCORES_AT_ONCE, n * cells)) + _BESIDE,
        bytes_loaded=_in_memory(n, dim, cells) + 1.2 * fitted,
        bytes_rows=1.0 * _OF_COVERAGE * runs * len(coverages),
        key=key,
    )
