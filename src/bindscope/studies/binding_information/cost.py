"""What fits take, from the number of weights of probes and the scenes that they read."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter

from bindscope.core.graph import Product
from bindscope.core.store.manifest import item_bytes
from bindscope.core.work import Work, n_scenes, sides
from bindscope.graph.cost import n_counts, shape_of
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.families import LinearProbe
from bindscope.studies.binding_information.probes.base import chosen_targets

DECIDES_NOTHING = True

# Bytes of a weight in L-BFGS: of the last ten steps and changes of the gradient 80, of what it
# works with 40, of the path and three averages 20, of copies that are written 16.
_HISTORY = 156
BESIDE = 1.3e8  # bytes of what a descent holds, and of scenes that are drawn for intervals
_WORK, _BLOCK = 8, 4096  # arrays of a convex fit (scenes x bits), and scenes that are read at once


def fit(product: Product) -> Work:
    """Count the fits of all targets and seeds of a job, and what they write."""
    content, seeds = product.content, len(product.content["seeds"])
    probe: AnyProbe = TypeAdapter(AnyProbe).validate_python({**content["probe"], "name": "probe"})
    coded = product.inputs["labels"][0].inputs["codes"]
    n = {code.wildcards["split"]: n_scenes(code) for code in coded}
    space = coded[0].content.get("dataset", {}).get("space")
    counts = n_counts(space) if space else 0
    has_patches, dim, tokens, cls, bytes_each = _inputs(product)
    targets = chosen_targets(probe, tuple(content["sizes"]), counts)
    heads = [part for target in targets for part in target.heads(probe.jointly)]
    width = probe.read_dims(dim, cls)[-1] if has_patches else dim
    plain = LinearProbe(name="linear", family="linear")
    linear = sum(plain.count(part, width)[0] for part in heads)
    numbers = [probe.count(part, dim, tokens, cls) for part in heads]
    free, used = (sum(column) for column in zip(*numbers, strict=True))
    memory, fitting = probe.memory_mb * 2.0**20, 0.0
    is_converged = probe.protocol == "converged"
    descends = not (probe.convex and is_converged)
    if is_converged:  # linear parts come first, with inverse Hessians in half of the memory
        space_dim = width if has_patches else min(dim, n["train"])
        sizes = [4.0 * part.count * (space_dim + 1 + part.length) ** 2 for part in heads]
        inverses = [min(2 * size, memory / 2) for size in sizes if size <= memory / 2]
        fitting = _HISTORY * linear + max(inverses, default=0.0)  # of two targets at a time
    if descends:
        # Of every seed weights and the best of them; of one seed, or of all where they share their
        # batches, gradients, two moments, and a step; in the end copies and the file.
        moved = 8 * seeds + 20 * (seeds if has_patches else 1)
        fitting = max(fitting + 4 * free * seeds, free * max(moved, 16 * seeds))
    bits = sum(sides(content)) + counts
    in_memory = _bytes_read(probe, n, bits, dim, tokens * has_patches, bytes_each)
    rows = seeds * 3100.0
    decides = next((key for key in ("hidden", "rank") if hasattr(probe, key)), "memory_mb")
    decides = decides if descends and fitting > in_memory else "memory_mb"
    return Work(
        units=seeds * n["train"] * used,
        bytes_host=8 * n["test"] * (bits + 1),
        bytes_loaded=in_memory + 8 * free * seeds + BESIDE,
        bytes_computed=max(fitting - 8 * free * seeds, 0),
        bytes_rows=rows,
        bytes_disk=4 * seeds * (free + linear * (descends and is_converged)) + rows,
        key=f"studies.binding_information.probes[{product.wildcards['probe']}].{decides}",
    )


def _inputs(product: Product) -> tuple[bool, int, int, int, int]:
    """Return whether a job reads patches, their width and number, how many vectors, and bytes.

    The last are those of a stored number. A null probe reads one number.
    """
    what = product.content["representation"]
    has_patches = what["tokens"] == "patches" or bool(what.get("patches"))
    if not product.inputs.get("index"):
        return has_patches, 1, 1, 1, 4
    (index,) = product.inputs["index"]
    shape, how = shape_of(index), index.sources[0].content["model"].get("extraction", {})
    if not has_patches:
        return False, shape.width * (1 + (what["tokens"] == "cls_mean")), 1, 1, 4
    bytes_each = item_bytes(how.get("dtype", "float32"))
    return True, shape.width_of(what["layer"]), shape.patches, int(shape.vectors > 0), bytes_each


def _bytes_read(
    probe: AnyProbe, n: Mapping[str, int], bits: int, dim: int, patch_tokens: int, bytes_each: int
) -> float:
    """Return the bytes of inputs, labels and a batch; `patch_tokens` 0: inputs are vectors."""
    memory, total = probe.memory_mb * 2.0**20, sum(n.values())
    labels = 9.0 * total * bits  # a byte of each bit, and two anchors at most
    if patch_tokens:
        width = dim + 2 * getattr(probe, "hidden", bits + 8)
        batch = 12 * min(probe.batch_size, n["train"]) * patch_tokens * width
        patches = 1.0 * total * patch_tokens * dim * bytes_each
        inputs = min(patches, memory) + min(8.0 * total * dim, memory)
        return inputs + min(labels, memory / 8) + batch
    numbers = dim * total + (n["train"] + n["val"]) * (dim + 1 + bits) + n["train"] * _WORK * bits
    block = 4 * _BLOCK * (dim + 1 + bits * (1 + _WORK))
    return min(4.0 * numbers + labels, memory + memory / 8) + block


def attention(product: Product) -> Work:
    """Count where a probe's queries read in the first test scenes."""
    n, shape = n_scenes(product.inputs["scenes"][0]), shape_of(product.inputs["index"][0])
    cells, _ = sides(product.inputs["fit"][0].content)
    numbers = n * shape.patches * (shape.width + 2 * cells)
    return Work(units=numbers, bytes_host=4.0 * numbers + 4e7)
