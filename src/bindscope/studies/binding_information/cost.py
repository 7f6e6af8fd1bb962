"""What the study's steps take, from the number of weights of probes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pydantic import TypeAdapter

from bindscope.core.graph import Product
from bindscope.core.work import Content, Work, sides
from bindscope.graph.cost import n_counts, shape_of
from bindscope.graph.towers import grid_tokens
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.families import LinearProbe
from bindscope.studies.binding_information.probes.base import Heads, chosen_targets

DECIDES_NOTHING = True


# Bytes of a weight in L-BFGS: of the last ten steps and changes of the gradient 80, of what it
# works with 40, of the path and three averages 20, of copies that are written 16.
_HISTORY = 156
_BESIDE = 6e7  # bytes of what a descent and the modules of its first gradient hold
_CONVEX_WORK = 8  # `probes.batches.WORK`, which is beside torch
_RESAMPLED = 2e6  # `statistics.bootstrap.BLOCK`
_SHOWN = 8  # scenes whose maps are kept


class _Read(NamedTuple):
    """What a fit reads: scenes by split, count bits, width and number of tokens, and [CLS]."""

    n: Mapping[str, int]
    counts: int
    dim: int = 1
    tokens: int = 1
    cls: int = 1

    @classmethod
    def by(cls, product: Product, patches: bool) -> _Read:
        """Return what a job reads; a null probe reads one number."""
        coded = product.inputs["labels"][0].inputs["codes"]
        n = {code.wildcards["split"]: int(code.content["n_scenes"]) for code in coded}
        space = coded[0].content.get("dataset", {}).get("space")
        counts = n_counts(space) if space else 0
        if not product.inputs.get("index"):
            return cls(n, counts)
        (index,) = product.inputs["index"]
        shape, dim = shape_of(index)
        if not patches:
            joined = product.content["representation"]["tokens"] == "cls_mean"
            return cls(n, counts, dim * (1 + joined))
        if shape is None:
            space = index.inputs["train"][0].content["dataset"]["space"]
            return cls(n, counts, dim, grid_tokens(space))
        width = shape.width_of(product.content["representation"]["layer"])
        return cls(n, counts, width, shape.patches, int(shape.vectors > 0))


def fit(product: Product) -> Work:
    """Count the fits of all targets and seeds of a job, and what they write."""
    content, what = product.content, product.content["representation"]
    patches = what["tokens"] == "patches" or bool(what.get("patches"))
    probe: AnyProbe = TypeAdapter(AnyProbe).validate_python({**content["probe"], "name": "probe"})
    read, seeds = _Read.by(product, patches), len(content["seeds"])
    targets = chosen_targets(probe, tuple(content["sizes"]), read.counts)
    heads = [part for target in targets for part in target.heads(probe.jointly)]
    widths = probe.read_dims(read.dim, read.cls) if patches else (read.dim,)
    bits = sum(sides(content)) + read.counts
    plain = LinearProbe(name="linear", family="linear")
    linear = sum(plain.count(part, widths[-1])[0] for part in heads)
    numbers = [probe.count(part, read.dim, read.tokens, read.cls) for part in heads]
    free, used = (sum(column) for column in zip(*numbers, strict=True))
    converged = probe.protocol == "converged"
    descends = not (probe.convex and converged)
    # The linear parts are fitted first, and what their descent holds goes before the next one.
    # Vectors that are wider than there are scenes are turned into the space of these.
    spaces = widths if patches else (min(read.dim, read.n["train"]),)
    fitting = (_HISTORY * linear + _inverses(heads, spaces, probe.memory_mb)) * converged
    if descends:
        # Of every seed weights and the best of them; of one seed, or of all where they share their
        # batches, gradients, two moments, and a step; in the end copies and the file.
        moved = 8 * seeds + 20 * (seeds if patches else 1)
        fitting = max(fitting + 4 * free * seeds, free * max(moved, 16 * seeds) + _BESIDE)
    in_memory = _in_memory(probe, read, content, bits, patches)
    n_test = read.n["test"]
    resampled = _resampled(content["information"]["bootstrap_samples"] * n_test)
    decides = next((key for key in ("hidden", "rank") if hasattr(probe, key)), "memory_mb")
    rows = seeds * 3100.0
    written = free + linear * (converged and descends)
    results = 8.0 * free * seeds
    return Work(
        "torch",
        units=seeds * read.n["train"] * used,
        bytes_host=8 * n_test * (bits + 1) + resampled,
        bytes_loaded=in_memory + results,
        bytes_computed=max(fitting - results, 0),
        bytes_rows=rows,
        bytes_disk=4 * written * seeds + rows + seeds * (6e3 + 3e3 * len(heads)) + 8 * n_test,
        key=f"studies.binding_information.probes[{product.wildcards['probe']}]."
        f"{decides if descends and fitting > in_memory else 'memory_mb'}",
    )


null = fit


def _resampled(drawn: float) -> float:
    """Return the bytes of scenes that are drawn, and how often each was, for intervals.

    They are integers, and floats in the end; where they are not drawn at once, of two blocks.
    """
    return 24.0 * drawn if drawn <= _RESAMPLED else 32 * _RESAMPLED


def _inverses(heads: Sequence[Heads], spaces: Sequence[int], memory_mb: float) -> float:
    """Return the bytes of inverse Hessians of single columns: half of the memory, at most."""
    columns: Counter[tuple[int, int, str]] = Counter()
    for part in heads:
        columns[part.reads] += part.count
    sizes = [
        4.0 * number * (dim + 1 + bits) ** 2
        for (_, bits, _), number in columns.items()
        for dim in spaces
    ]
    return max((size for size in sizes if size <= memory_mb * 2.0**19), default=0.0)


def _in_memory(probe: AnyProbe, read: _Read, content: Content, bits: int, patches: bool) -> float:
    """Return the bytes of inputs and labels in memory (`probes.batches`)."""
    n, dim, memory = read.n, read.dim, probe.memory_mb * 2.0**20
    total, (cells, _) = sum(n.values()), sides(content)
    labels = total * (bits + 4.0 * (bits + cells))
    if patches:
        # Hidden units, or every head's attention, of a batch.
        width = dim + 2 * getattr(probe, "hidden", cells + 8)
        batch = 12 * min(probe.batch_size, n["train"]) * read.tokens * width
        inputs, vectors = 2.0 * total * read.tokens * dim, 8.0 * dim * (n["train"] + n["val"])
        return min(inputs, memory) + min(labels, memory / 8) + min(vectors, memory) + batch
    design = (n["train"] + n["val"]) * (dim + 1 + bits) + n["train"] * _CONVEX_WORK * bits
    whole = 4.0 * dim * total + 4.0 * design * (probe.protocol == "converged") + labels
    streamed = 4 * 4096 * (dim + 1 + bits * (1 + _CONVEX_WORK))
    if whole <= memory:
        return whole
    return min(memory, 4.0 * dim * total) + min(labels, memory / 8) + streamed


def learning_curve(product: Product) -> Work:
    """Count a fit to each share of the train scenes."""
    whole, shares = fit(product), product.content["shares"]
    rows = 3000.0 * len(shares)
    return replace(whole, units=whole.units * sum(shares), bytes_disk=rows, bytes_rows=rows)


def attention(product: Product) -> Work:
    """Count where a probe's queries read in the first test scenes; of a few the maps are kept."""
    (scenes,) = product.inputs["scenes"]
    shape, dim = shape_of(product.inputs["index"][0])
    n, tokens = scenes.content["stop"] - scenes.content["start"], shape.patches if shape else 1
    cells, side = sides(product.inputs["fit"][0].content)[0], shape.input_px if shape else 1
    return Work(
        "torch",
        units=n * tokens * dim * cells,
        bytes_host=4.0 * n * tokens * (dim + 2 * cells) + 4e7,
        bytes_disk=_SHOWN * 4.0 * (side**2 + cells * tokens),
    )
