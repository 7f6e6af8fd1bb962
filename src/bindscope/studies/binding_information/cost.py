"""What the study's steps take: arithmetic of probes, from their number of weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from bindscope.core.graph import Product
from bindscope.core.work import Work, sides
from bindscope.graph.cost import n_counts, shape_of
from bindscope.graph.towers import grid_tokens
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.families import LinearProbe
from bindscope.studies.binding_information.probes.base import Heads, chosen_targets

DECIDES_NOTHING = True

Content = Mapping[str, Any]

# Of a path of ten ridge strengths, columns that leave it counted in part (default run: 370 to 900
# iterations of the slowest column), and of a fit that a null probe ends early. The curvature is
# measured after each `fitting.lbfgs.REFRESH` of them.
_PATH, _NULL_PATH, _REFRESH = 240, 60, 20
# Bytes of what a descent holds besides weights and inputs, and of the modules that torch imports
# when it first goes backward from a gradient, which stay (default run).
_BESIDE, _BACKWARD_BYTES = 2.4e7, 3.6e7
_PAPER_EPOCHS = 40
_CONVEX_WORK = 8  # `probes.batches.WORK`, which is beside torch
_RESAMPLED = 2e6  # `statistics.bootstrap.BLOCK`
_SHOWN = 8  # scenes whose maps are kept
# Of a weight in an iteration of L-BFGS: of each of the ten steps and changes of the gradient that
# it remembers a product and a sum, both twice, and ten more operations. They are sums and products,
# of which four take as long as a function such as exp.
_MOVED = (4 * 10 + 10) / 4
# Bytes of a weight: of the last ten steps and changes of the gradient 80, of what it works with 40,
# of the path and three averages 20, of the weights, the best of them and two copies when they are
# written 16.
_HISTORY = 156.0
_STRENGTHS = 10  # of `probes.convex.STRENGTHS`
# Steps of the interpreter for a call of torch on a small tensor, 2 microseconds; such calls of an
# iteration of L-BFGS (110 for its memory, 50 for the line), and of a step of a descent with its
# evaluation; by how much the slowest column of a path, which decides their number, is slower than
# the mean; and the modules that torch imports when it first goes backward from a gradient.
_CALL, _ITERATION, _STEP, _SLOWEST, _BACKWARD = 40, 220, 300, 1.5, 7.5e6
_TRIED = 4  # functions of a margin in an iteration or a step
_SMALL = 0.7  # share of the rate of large products that batches of 128 and 256 scenes reach


def _sizes(product: Product) -> tuple[dict[str, int], int]:
    """Return scenes by split, and count bits."""
    codes = product.inputs["labels"][0].inputs["codes"]
    n = {code.wildcards["split"]: int(code.content["n_scenes"]) for code in codes}
    space = codes[0].content.get("dataset", {}).get("space")
    return n, n_counts(space) if space else 0


def probe_of(content: Content) -> AnyProbe:
    """Return the probe that a product is about."""
    probe: AnyProbe = TypeAdapter(AnyProbe).validate_python({**content["probe"], "name": "probe"})
    return probe


class _Read(NamedTuple):
    """What a fit reads: scenes by split, count bits, width and number of tokens, and [CLS]."""

    n: Mapping[str, int]
    counts: int
    dim: int = 1
    tokens: int = 1
    patches: bool = False
    cls: int = 1

    @classmethod
    def by(cls, product: Product) -> _Read:
        """Return what a job reads; a null probe reads one number."""
        what = product.content["representation"]
        patches = what["tokens"] == "patches" or bool(what.get("patches"))
        if not product.inputs.get("index"):
            return cls(*_sizes(product), patches=patches)
        (index,) = product.inputs["index"]
        shape, dim = shape_of(index)
        dim *= 2 if what["tokens"] == "cls_mean" else 1
        if not patches:
            return cls(*_sizes(product), dim)
        if shape is None:
            tokens = grid_tokens(index.inputs["train"][0].content["dataset"]["space"])
            return cls(*_sizes(product), dim, tokens, patches)
        dim = shape.width_of(product.content["representation"]["layer"])
        return cls(*_sizes(product), dim, shape.patches, patches, int(shape.vectors > 0))


def fit(product: Product) -> Work:
    """Count the fits of all targets and seeds of a job, and what they write."""
    content, read = product.content, _Read.by(product)
    probe, seeds, n_test = probe_of(content), len(content["seeds"]), read.n["test"]
    targets = chosen_targets(probe, tuple(content["sizes"]), read.counts)
    heads = [part for target in targets for part in target.heads(probe.jointly)]
    n_heads, bits = sum(part.count for part in heads), sum(sides(content)) + read.counts
    widths = probe.read_dims(read.dim, read.cls) if read.patches else (read.dim,)
    vector = widths[-1]
    plain = LinearProbe(name="linear", family="linear")
    linear = sum(plain.count(part, vector)[0] for part in heads)
    numbers = [probe.count(part, read.dim, read.tokens, read.cls) for part in heads]
    free, used = (sum(column) for column in zip(*numbers, strict=True))
    convex = probe.protocol == "converged"
    alone = probe.convex and convex
    flops = elements = inverses = 0.0
    python = 7e6
    if convex:
        path = _PATH if "index" in product.inputs else _NULL_PATH
        # Descents in the space of n scenes end after about n steps, as conjugate gradients do.
        path = min(path, _STRENGTHS * read.n["train"])
        path *= seeds if content["control"] != "none" else 1
        # Vectors that are wider than there are scenes are turned into the space of these.
        spaces = widths if read.patches else (min(vector, read.n["train"]),)
        problems = [problem for space in spaces for problem in _problems(heads, space)]
        inverses = _inverses(problems, probe.memory_mb)
        for n_weights, n_columns in problems:
            flops += _descent(n_weights, n_columns, read.n["train"], path)
            elements += path * n_columns * (_TRIED * read.n["train"] + _MOVED * n_weights)
            python += _CALL * _ITERATION * _SLOWEST * path
    if not alone:
        steps, batch = _steps(probe, read.n["train"])
        flops += seeds * steps * 6 * batch * used / _SMALL
        each = batch * (n_heads * _TRIED + 512 * read.tokens) + 6 * free
        elements += seeds * steps * each
        python += _BACKWARD + _CALL * _STEP * seeds * steps * len(heads)
    # The linear parts are fitted first, and what their descent holds goes before the next one.
    in_memory, history = _in_memory(probe, content, read, bits), _HISTORY * linear * convex
    descent = 0.0 if alone else _BESIDE + _descending(free, seeds, read.patches)
    linear_parts = history + inverses
    fitting = linear_parts if alone else max(linear_parts + 4.0 * free * seeds, descent)
    on_gpu = content["device"] == "cuda"
    resampled = _resampled(content["information"]["bootstrap_samples"] * n_test)
    capacity = [name for name in ("hidden", "rank") if hasattr(probe, name)]
    decides = capacity[0] if descent > in_memory and capacity else "memory_mb"
    rows = seeds * (2700.0 + 400.0 * ("plain" in probe.targets))
    weights = free + (linear if convex and not alone else 0)
    history = seeds * (6e3 + 4000 * len(heads) * (1 - alone / 3))
    return Work(
        "torch", flops=flops, elements=elements + 4000 * n_test * seeds,
        python=python,
        bytes_peak=in_memory + _BACKWARD_BYTES * (not alone) + 8 * n_test * bits
        + max(8.0 * free * seeds if on_gpu else fitting, resampled),
        bytes_rows=rows,
        bytes_disk=4 * weights * seeds + rows + history + 8 * n_test * ("plain" in probe.targets),
        bytes_device=(in_memory + fitting) * on_gpu,
        threads=content["threads"], device=content["device"],
        key=f"studies.binding_information.probes[{product.wildcards['probe']}].{decides}",
    )  # fmt: skip


null = fit


def _resampled(drawn: float) -> float:
    """Return the bytes of scenes that are drawn, and how often each was, for intervals.

    They are integers, and floats in the end; where they are not drawn at once, of two blocks.
    """
    return 24.0 * drawn if drawn <= _RESAMPLED else 32 * _RESAMPLED


def _problems(heads: Sequence[Heads], dim: int) -> Iterator[tuple[int, int]]:
    """Yield rows and columns of the weights of linear parts that are fitted together.

    Each column has rows for all bits of the problem, those that it may not read masked.
    """
    columns: Counter[tuple[int, int, str]] = Counter()
    for part in heads:
        columns[part.reads] += part.count
    for (_, bits, _), number in columns.items():
        yield dim + 1 + bits, number


def _descent(rows: int, columns: int, n: int, path: float) -> float:
    """Return the operations of a path of ridge strengths down some iterations.

    An iteration takes a product with the scenes for the line and one for the gradient, and two
    applications of the preconditioner, of two triangular products each. The curvature and its
    Cholesky factor, which is inverted in float64, are made for each strength and then anew.
    """
    factors = _STRENGTHS + path / _REFRESH
    factor = 2.0 * n * rows * (rows + columns) + 2 * (1 + 1 / 3) * rows**3
    return path * columns * (4.0 * n * rows + 8.0 * rows**2) + factors * factor


def _steps(probe: AnyProbe, n_train: int) -> tuple[float, int]:
    """Return the steps of a descent, and the scenes of each."""
    if probe.protocol != "converged":
        batch = min(1024, n_train)
        return _PAPER_EPOCHS * -(-n_train // batch), batch
    return probe.cycles * probe.steps, min(probe.batch_size, n_train)


def _descending(weights: float, seeds: int, shared: bool) -> float:
    """Return the bytes of what descends, or of the results where these take more.

    Of every seed these are weights and the best of them; of one seed, or of all where they share
    their batches, gradients, two moments, and what a step makes of the largest parameter and its
    gradient. Results hold weights, the best, a copy and the file.
    """
    return weights * max(8.0 * seeds + 20.0 * (seeds if shared else 1), 16.0 * seeds)


def _inverses(problems: Sequence[tuple[int, int]], memory_mb: float) -> float:
    """Return the bytes of inverse Hessians of single columns: half of the memory, at most."""
    sizes = (4.0 * n_columns * n_weights**2 for n_weights, n_columns in problems)
    return max((size for size in sizes if size <= memory_mb * 2.0**19), default=0.0)


def _in_memory(probe: AnyProbe, content: Content, read: _Read, bits: int) -> float:
    """Return the bytes of inputs and labels in memory (`probes.batches`)."""
    n, dim = read.n, read.dim
    total, (cells, _) = sum(n.values()), sides(content)
    labels = total * (bits + 4.0 * (bits + cells))
    memory = probe.memory_mb * 2.0**20
    if read.patches:
        inputs, vectors = 2.0 * total * read.tokens * dim, 8.0 * dim * (n["train"] + n["val"])
        width = dim + 2 * getattr(
            probe, "hidden", cells + 8
        )  # hidden units, or every head's attention
        batch = 12 * min(probe.batch_size, n["train"]) * read.tokens * width
        bytes_peak = min(inputs, memory) + min(labels, memory / 8) + min(vectors, memory) + batch
        return float(bytes_peak)
    design = 4.0 * (n["train"] + n["val"]) * (dim + 1 + bits)
    design += 4.0 * n["train"] * _CONVEX_WORK * bits
    whole = 4.0 * dim * total + design * (probe.protocol == "converged")
    if whole + labels <= memory:
        return float(whole + labels)
    streamed = 4 * 4096 * (dim + 1 + bits * (1 + _CONVEX_WORK))
    return float(min(memory, 4.0 * dim * total) + min(labels, memory / 8) + streamed)


def learning_curve(product: Product) -> Work:
    """Count a fit to each share of the train scenes."""
    whole = fit(product)
    shares = product.content["shares"]
    return replace(
        whole,
        flops=whole.flops * sum(shares),
        elements=whole.elements * sum(shares),
        python=whole.python * len(shares),
        bytes_disk=3000.0 * len(shares),
        bytes_rows=3000.0 * len(shares),
    )


def attention(product: Product) -> Work:
    """Count where a probe's queries read in the first test scenes; of a few the maps are kept."""
    (scenes,) = product.inputs["scenes"]
    shape, dim = shape_of(product.inputs["index"][0])
    n, tokens = scenes.content["stop"] - scenes.content["start"], shape.patches if shape else 1
    cells, side = sides(product.inputs["fit"][0].content)[0], shape.input_px if shape else 1
    return Work(
        "torch",
        flops=4.0 * n * tokens * dim * cells,
        elements=4.0 * n * tokens * cells,
        bytes_peak=4.0 * n * tokens * (dim + 2 * cells) + 4e7,
        bytes_disk=_SHOWN * 4.0 * (side**2 + cells * tokens),
    )
