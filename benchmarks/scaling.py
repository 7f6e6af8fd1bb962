"""What ten million scenes and a hundred models would take, computed from measured unit costs.

``python benchmarks/scaling.py`` reads ``resources/benchmarks/cost_growth.json`` (measured by
``cost_growth.py``) and writes the tables of ``docs/scaling.md`` and the table of growth in
``docs/benchmarks.md``. Sizes of stores and numbers of files come from the layouts that the writer
uses, numbers of jobs from the graphs of small configurations: they are bilinear in shards and
models.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cost_growth import RECORD, curves, rows_table
from measure import ROOT

from bindscope.activations.estimate import bytes_needed, patch_arrays, pooled_arrays
from bindscope.graph.build import read_graph
from bindscope.models.base import TokenMap
from bindscope.store.manifest import ArrayLayout

PAGE, GROWTH_PAGE = ROOT / "docs" / "scaling.md", ROOT / "docs" / "benchmarks.md"
LAYERS, DIM, GRID, PATCH_PX, SIDE = 24, 1024, 16, 14, 8
HEADS, FEATURES = SIDE**2, 2 * SIDE
TOKENS = TokenMap(prefix=1, registers=0, grid=(GRID, GRID), patch_px=PATCH_PX, has_cls=True)


@dataclass(frozen=True)
class Scenario:
    """What is asked for; every number is an assumption.

    Attributes
    ----------
    scenes, shard, models
        Scenes in all (8 of 10 to train, 1 each to val and test), scenes per shard, models.
    steps
        Optimiser steps of a fit, per seed.
    seeds
        Seeds of a block.
    gpu_flops
        FLOP/s that a GPU reaches: 40 % of 312 TFLOP/s, an A100's bfloat16 peak. Not measured.
    cpu_cores, gpus
        Of the cluster.
    """

    scenes: int = 10_000_000
    shard: int = 10_000
    models: int = 100
    steps: int = 1520
    seeds: int = 3
    gpu_flops: float = 0.4 * 312e12
    cpu_cores: int = 1000
    gpus: int = 64

    @property
    def shards(self) -> int:
        """Shards of all splits."""
        return self.scenes // self.shard


def configuration(models: int, shards: int) -> dict[str, Any]:
    """Return the configuration of the scenario for some models and shards (at least 3)."""
    names = [f"vit-{i}" for i in range(models)]
    groups = [{"name": name, "size": SIDE} for name in ("color", "shape")]
    space = {"kind": "uniform", "groups": groups, "min_objects": 18, "max_objects": 18}
    n_train = shards - 2
    fits = {"datasets": ["scenes"], "models": names, "seed_blocks": [[0, 1, 2]]}
    return {
        "datasets": [
            {"name": "scenes", "space": space, "split": {"rule": "random"},
             "n_scenes": {"train": n_train, "val": 1, "test": 1},
             "shard_size": {"train": 1, "val": 1, "test": 1},
             "render": {"kind": "shapes", "size_px": 256, "object_px": 16}}
        ],
        "models": [
            {"name": name, "source": f"hf:some/{name}@{'0' * 40}", "n_layers": LAYERS}
            for name in names
        ],
        "probes": [
            {"name": "linear", "family": "linear"},
            {"name": "quadratic", "family": "quadratic"},
            {"name": "shared", "family": "quadratic_reuse"},
            {"name": "dnn", "family": "dnn"},
            {"name": "attention", "family": "attention_quadratic"},
        ],
        "fits": [
            {"name": "layers", "layers": "all", "tokens": ["cls", "mean"],
             "probes": ["linear", "quadratic"], **fits},
            {"name": "families", "layers": "last", "tokens": ["cls"], "probes": ["shared", "dnn"],
             **fits},
            {"name": "patches", "layers": "last", "tokens": ["patches"], "probes": ["attention"],
             **fits},
        ],
    }  # fmt: skip


def n_products(models: int, shards: int) -> Counter[str]:
    """Count the products of the graph by rule, for small numbers."""
    graph = read_graph(configuration(models, shards), "scaling")
    return Counter(product.rule for product in graph.products.values())


def n_fits() -> Counter[str]:
    """Count the fits of one model by family."""
    config = configuration(1, 3)
    family = {probe["name"]: probe["family"] for probe in config["probes"]}
    fits = read_graph(config, "scaling").of("fit")
    return Counter(family[fit.wildcards["probe"]] for fit in fits)


def extrapolated(models: int, shards: int) -> Counter[str]:
    """Count them for any numbers: a + b models + c shards + d models shards, from four graphs."""
    (m, s), (dm, ds) = (1, 3), (models - 1, shards - 3)
    base, more = n_products(m, s), n_products(m + 1, s)
    longer, both = n_products(m, s + 1), n_products(m + 1, s + 1)
    found: Counter[str] = Counter()
    for rule in both:
        b, c = more[rule] - base[rule], longer[rule] - base[rule]
        d = both[rule] - more[rule] - longer[rule] + base[rule]
        found[rule] = base[rule] + b * dm + c * ds + d * dm * ds
    return found


def n_files(layouts: dict[str, ArrayLayout]) -> int:
    """Return the files of a store: chunks, a zarr.json per array and group, the manifest."""
    return sum(len(layout.chunk_names()) + 1 for layout in layouts.values()) + 2


def marginal(record: dict[str, Any], curve: str, what: str = "seconds") -> float:
    """Return what one more unit costs: the slope between the two largest points."""
    x, y = record["curves"][curve]["x"], record["curves"][curve][what]
    return float(max(y[-1] - y[-2], 0.0) / (x[-1] - x[-2]))


@dataclass(frozen=True)
class Estimate:
    """One line of a table: a name, a number in a unit, where it comes from."""

    what: str
    value: str
    source: str


def storage(case: Scenario, record: dict[str, Any]) -> list[Estimate]:
    """Bytes and files."""
    pooled = pooled_arrays(case.shard, LAYERS, DIM, TOKENS, "float16")
    patches = patch_arrays(case.shard, DIM, TOKENS, "float16")
    drawn = record["curves"]["render against scenes (256 px)"]
    per_scene = drawn["result"][-1] / drawn["x"][-1]
    labels = HEADS + FEATURES + 4 * (2 * HEADS + FEATURES)
    stores = case.shards * case.models
    rows = [
        ("scenes, 256 px", per_scene * case.scenes, f"{per_scene / 1e3:.1f} kB a scene, measured"),
        ("codes and anchors", labels * case.scenes, f"{labels} bytes a scene, before compression"),
        ("pooled tokens, all layers", bytes_needed(pooled) * stores, "layout, exact"),
        ("patch tokens, one layer", bytes_needed(patches) * stores, "layout, exact"),
    ]
    found = [Estimate(name, f"{value / 1e12:,.3g} TB", how) for name, value, how in rows]
    files = n_files(pooled) + n_files(patches)
    found.append(
        Estimate("files of activations", f"{files * stores:,}", f"{files} a shard and model")
    )
    return found


def compute(case: Scenario, record: dict[str, Any]) -> list[Estimate]:
    """CPU hours from measured unit costs; GPU hours from FLOPs and an assumed rate."""
    unit = {name: marginal(record, name) for name in record["curves"]}
    render = unit["render against scenes (256 px)"]
    heads = record["curves"]["priors against heads K"]
    wider = heads["seconds"][-1] / heads["seconds"][heads["x"].index(36)]
    priors = unit["priors against scenes"] * wider
    block = unit["pooled against layers (ViT-L)"] / 8
    passes = case.scenes * case.models * LAYERS
    rows = [
        ("render", render * case.scenes, f"{render * 1e3:.2f} ms a scene"),
        ("priors", priors * case.scenes, f"{priors * 1e6:.0f} µs a scene"),
        ("forward pass, pooled", block * passes, f"{block * 1e3:.0f} ms a scene and block"),
        ("forward pass, patches", block * passes, "the same pass again"),
    ]
    for family, n in n_fits().items():
        if f"{family} against steps (d 1024)" not in unit:
            continue  # linear: convex, see the page
        batches = 4 if family == "attention_quadratic" else 1  # measured with batches of 32
        step = unit[f"{family} against steps (d 1024)"] * batches
        total = step * case.steps * case.seeds * n * case.models
        rows.append((f"fits, {family}", total, f"{step * 1e3:.0f} ms a step, {case.steps} steps"))
    row, tested = unit["rows against scenes"], case.scenes // 10
    total = row * tested * n_fits().total() * case.models * case.seeds
    rows.append(("rows, intervals", total, f"{row * 1e6:.0f} µs a test scene"))
    found = [Estimate(name, f"{value / 3600:,.3g} CPU h", how) for name, value, how in rows]
    tokens = GRID**2 + 1
    flops = (24 * DIM**2 * tokens + 4 * tokens**2 * DIM) * passes
    hours = 2 * flops / case.gpu_flops / 3600
    found.append(
        Estimate(
            "both forward passes on GPUs",
            f"{hours:,.3g} GPU h",
            f"**not measured**: {2 * flops:.2g} FLOP at an assumed {case.gpu_flops / 1e12:.0f} "
            f"TFLOP/s; {hours / case.gpus / 24:.1f} days on {case.gpus}",
        )
    )
    return found


def workflow(case: Scenario, record: dict[str, Any]) -> list[Estimate]:
    """Jobs, and what Snakemake takes to plan them."""
    counts = extrapolated(case.models, case.shards)
    jobs = sum(counts.values())
    largest = ", ".join(f"{n:,} {rule}" for rule, n in counts.most_common(3))
    planned = record["curves"]["plan against jobs"]
    time, memory = curves(planned)
    per_job = marginal(record, "plan against jobs")
    jobs_model = sum(extrapolated(1, case.shards).values())
    return [
        Estimate("jobs in one graph", f"{jobs:,}", largest),
        Estimate(
            "planning (dry run)",
            f"{per_job * jobs / 3600:,.2g} h",
            f"{1e3 * per_job:.1f} ms a job, if linear; by the fitted exponent "
            f"{time.exponent:.2f} {time.at(jobs) / 3600:,.2g} h",
        ),
        Estimate(
            "memory of Snakemake",
            f"{marginal(record, 'plan against jobs', 'memory_mb') * jobs / 1e3:,.3g} GB",
            f"measured up to {planned['x'][-1]:,} jobs; fitted exponent {memory.exponent:.2f}",
        ),
        Estimate("log and benchmark files", f"{2 * jobs:,}", "one each a job"),
        Estimate(
            "the same, a graph per model",
            f"{jobs_model:,} jobs, {per_job * jobs_model / 60:,.2g} min",
            "one configuration a model; scenes and labels are shared by their keys",
        ),
    ]


def fit_memory(case: Scenario, record: dict[str, Any]) -> list[Estimate]:
    """Memory of one fit on all training scenes."""
    found = []
    for family in ("linear", "quadratic"):
        per_scene = 1e6 * marginal(record, f"{family} against scenes (d 1024)", "memory_mb")
        n_train = case.scenes * 8 // 10
        vector = 4 * DIM
        found.append(
            Estimate(
                f"{family} fit, vectors",
                f"{per_scene * n_train / 1e9:,.3g} GB",
                f"{per_scene / 1e3:.1f} kB a training scene, of which the vector is "
                f"{vector / 1e3:.1f}; labels and anchors of four targets the rest",
            )
        )
    return found


def page_tables(record: dict[str, Any], case: Scenario | None = None) -> dict[str, str]:
    """Return the Markdown tables of the page by name."""
    case = case or Scenario()
    parts = {
        "storage": storage, "compute": compute, "workflow": workflow, "fit_memory": fit_memory,
    }  # fmt: skip
    return {name: _table(part(case, record)) for name, part in parts.items()}


def _table(rows: list[Estimate]) -> str:
    lines = ["| what | estimate | from |", "|---|---|---|"]
    return "\n".join(lines + [f"| {row.what} | {row.value} | {row.source} |" for row in rows])


def growth_table(record: dict[str, Any]) -> str:
    """Return the table of growth, with the machine that it was measured on."""
    found = list(record["curves"].values())
    about = found[0]["machine"]
    dates = sorted({curve["machine"]["date"] for curve in found})
    head = (
        f"`python benchmarks/cost_growth.py`, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}: "
    )
    head += f"{about['processor']}, one thread, nothing beside it.\n\n"
    return head + rows_table(found)


def write_pages(path: Path = RECORD) -> None:
    """Fill both pages from the record."""
    from run import fill

    record = json.loads(path.read_text())
    fill("cost_growth", growth_table(record), GROWTH_PAGE)
    for name, text in page_tables(record).items():
        fill(name, text, PAGE)


if __name__ == "__main__":
    write_pages()
