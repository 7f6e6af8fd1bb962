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
from bindscope.core.store.manifest import ArrayLayout
from bindscope.models.base import TokenMap
from bindscope.studies.binding_information.probes.base import all_parts
from bindscope.studies.build import read_graph

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


def marginal(record: dict[str, Any], curve: str, what: str = "seconds") -> float | None:
    """Return what one more unit costs: the slope from the second to the last point.

    None where the record has no such curve; the page then says so.
    """
    if curve not in record["curves"]:
        return None
    x, y = record["curves"][curve]["x"], record["curves"][curve][what]
    return float(max(y[-1] - y[1], 0.0) / (x[-1] - x[1]))


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
    passes, fits = case.scenes * case.models * LAYERS, n_fits()
    n_rows = case.scenes // 10 * fits.total() * case.models * case.seeds
    forward = ("pooled against layers (ViT-L)", 1 / 8, "a scene and block", passes)  # 8 scenes
    lines = {
        "render": ("render against scenes (256 px)", 1.0, "a scene", case.scenes),
        "priors": ("priors against scenes (8 x 8)", 1.0, "a scene", case.scenes),
        "forward pass, pooled": forward,
        "forward pass, patches: the same pass again": forward,
    }
    for family, n in fits.items():
        # Attention is measured with batches of 32 of 128; linear fits are convex, see the page.
        batches = 4.0 if family == "attention_quadratic" else 1.0
        steps = case.steps * case.seeds * n * case.models
        if family != "linear":
            lines[f"fits, {family}"] = (
                f"{family} against steps (d 1024)",
                batches,
                "a step",
                steps,
            )
    lines["rows, intervals"] = ("rows against scenes", 1.0, "a test scene and row", n_rows)
    found = [_hours(name, record, *line) for name, line in lines.items()]
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


def _hours(
    name: str, record: dict[str, Any], curve: str, factor: float, of: str, n: int
) -> Estimate:
    """Return the hours of n units of a curve's marginal cost."""
    unit = marginal(record, curve)
    if unit is None:
        return Estimate(name, "not measured yet", curve)
    source = f"{n:,} x {_round(1e3 * factor * unit)} ms {of}"
    return Estimate(name, f"{_round(factor * unit * n / 3600)} CPU h", source)


def workflow(case: Scenario, record: dict[str, Any]) -> list[Estimate]:
    """Jobs, and what Snakemake takes to plan them."""
    counts = extrapolated(case.models, case.shards)
    jobs = sum(counts.values())
    largest = ", ".join(f"{n:,} {rule}" for rule, n in counts.most_common(3))
    found = [
        Estimate("jobs in one graph", f"{jobs:,}", largest),
        Estimate("log and benchmark files", f"{2 * jobs:,}", "one each a job"),
    ]
    per_job = marginal(record, "plan against jobs")
    if per_job is None:
        return [*found, Estimate("planning", "not measured yet", "plan against jobs")]
    planned = record["curves"]["plan against jobs"]
    time, memory = curves(planned)
    own = sum(extrapolated(1, case.shards).values())
    per_job_mb = marginal(record, "plan against jobs", "memory_mb") or 0.0
    return [
        *found,
        Estimate(
            "planning it (dry run)",
            f"{per_job * jobs / 3600:,.2g} h",
            f"{1e3 * per_job:.1f} ms a job if linear; {time.at(jobs) / 3600:,.2g} h by the fitted "
            f"exponent {time.exponent:.2f}, measured up to {planned['x'][-1]:,} jobs",
        ),
        Estimate(
            "memory of Snakemake",
            f"{per_job_mb * jobs / 1e3:,.2g} GB",
            f"{1e3 * per_job_mb:.0f} kB a job; fitted exponent {memory.exponent:.2f}",
        ),
        Estimate(
            "planning a graph per model",
            f"{per_job * own / 60:,.2g} min each",
            f"{own:,} jobs; scenes and labels are shared by their keys",
        ),
    ]


def fit_memory(case: Scenario, record: dict[str, Any]) -> list[Estimate]:
    """Memory of one fit on all training scenes."""
    found = []
    n_train = case.scenes * 8 // 10
    for family in ("linear", "quadratic"):
        curve = f"{family} against scenes (d 1024)"
        mb = marginal(record, curve, "memory_mb")
        if mb is None:
            found.append(Estimate(f"{family} fit", "not measured yet", curve))
            continue
        found.append(
            Estimate(
                f"{family} fit, vectors in memory",
                f"{mb * n_train / 1e3:,.3g} GB",
                f"{1e3 * mb:.1f} kB a training scene, val and test in proportion; the vector alone "
                f"is {4 * DIM / 1e3:.1f} kB",
            )
        )
    each = HEADS + FEATURES + 4 * (2 * HEADS + FEATURES)  # codes and anchors, as they are stored
    total = f"{each * case.scenes / 1e9:,.3g} GB"
    found.append(Estimate("labels alone, if they were held", total, f"{each} bytes a scene"))
    kept = 8 * len(all_parts((1, 1)))  # a loss of each part
    test = kept * case.scenes // 10
    found.append(
        Estimate(
            "what grows with the scenes, streamed", f"{test / 1e6:,.3g} MB",
            f"{kept} bytes a test scene and seed",
        )
    )  # fmt: skip
    return found


def page_tables(record: dict[str, Any], case: Scenario | None = None) -> dict[str, str]:
    """Return the Markdown tables of the page by name."""
    case = case or Scenario()
    parts = {
        "storage": storage, "compute": compute, "workflow": workflow, "fit_memory": fit_memory,
    }  # fmt: skip
    return {name: _table(part(case, record)) for name, part in parts.items()}


def _round(value: float) -> str:
    """Write three figures, without an exponent where the number is large."""
    three = float(f"{value:.3g}")
    return f"{three:,.0f}" if three >= 100 else f"{three:.3g}"


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
