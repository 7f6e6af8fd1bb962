"""What the workflow costs besides its jobs: planning many jobs, finding nothing to do, imports.

``python benchmarks/workflow_overhead.py`` works in a fresh copy of the working tree, prints a table
and writes JSON. Beside each number stands its floor: what Snakemake alone takes for as many jobs
with as many inputs and nothing of ours, or what a bare import of torch takes. Nothing is computed:
the run before the second run has scripts that only make their outputs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from default_run import fresh_copy
from measure import processor

# The promises (docs/benchmarks.md).
BUDGET = {"dry_run_wall_s": 10.0, "no_op_wall_s": 4.0, "light_cpu_s": 0.6, "torch_cpu_s": 1.5}

STUB = """\
from pathlib import Path

for path in map(Path, snakemake.output):
    if path.suffix == ".zarr":
        path.mkdir(parents=True)
        path = path / "zarr.json"
    path.write_text("{}")
"""

# As many jobs as `many_jobs` and about as many edges, with nothing of ours.
PLAIN = """\
rule all:
    input: expand("fits/{n}.txt", n=range(%(fits)d))
rule fit:
    input: lambda wildcards: f"pooled/{int(wildcards.n) %% %(pooled)d}.txt"
    output: "fits/{n}.txt"
    log: "logs/{n}.log"
    benchmark: "benchmarks/{n}.jsonl"
    params: spec=lambda wildcards: "s" * 2000, code=lambda wildcards: "c" * 33
    resources: mem_mb=lambda wildcards, attempt: 1000 * attempt
    shell: "touch {output}"
rule pooled:
    output: "pooled/{n}.txt"
    shell: "touch {output}"
"""


@dataclass(frozen=True)
class Cost:
    """Seconds of one command."""

    wall_s: float
    cpu_s: float


def main() -> int:
    """Measure, print and write; returns 1 where a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", default="results/workflow_overhead.json", help="where to write")
    parser.add_argument("--no-budget", action="store_true", help="exit 0 over budget too")
    parser.add_argument("--only", choices=["plan", "no-op", "imports"], help="one part of it")
    arguments = parser.parse_args()
    folder = fresh_copy()
    print(f"working in {folder}", flush=True)
    parts = {"plan": plan, "no-op": no_op, "imports": imports}
    measured: dict[str, Any] = {"processor": processor(), "cores": os.cpu_count()}
    measured["python"] = platform.python_version()
    broken = []
    for name, part in parts.items():
        if arguments.only in (None, name):
            measured[name] = {key: asdict(cost) for key, cost in part(folder).items()}
            broken += over_budget(name, measured[name])
    print(table(measured))
    for line in broken:
        print(f"over budget: {line}")
    output = Path(arguments.json)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(measured, indent=1) + "\n")
    return 1 if broken and not arguments.no_budget else 0


def many_jobs(models: int = 12, probes: int = 12, shards: int = 80) -> dict[str, Any]:
    """Return a configuration: fits of every layer, two kinds of tokens and every probe.

    With the defaults 3,744 fits, 960 pooled shards, 80 shards of scenes; 4,835 jobs in all.
    """
    names = [f"vit-{i}" for i in range(models)]
    architecture = {"n_layers": 12, "width": 16, "n_heads": 2, "patch_px": 8}
    training = {"dataset": "many", "steps": 4, "batch_size": 16, "threads": 1}
    probe_names = [f"linear-{i}" for i in range(probes)]
    return {
        "datasets": [
            {
                "name": "many",
                "space": {
                    "kind": "uniform", "min_objects": 2, "max_objects": 3,
                    "groups": [{"name": "color", "size": 3}, {"name": "shape", "size": 2}],
                },
                "split": {"rule": "random"},
                "n_scenes": {"train": 64 * (shards - 30), "val": 640, "test": 1280},
                "shard_size": {"train": 64, "val": 64, "test": 64},
                "render": {"kind": "shapes", "size_px": 32, "object_px": 8, "margin_px": 1},
            }
        ],
        "models": [
            {"name": name, "source": "controlled:objects", "seed": seed, "training": training,
             "architecture": architecture}
            for seed, name in enumerate(names)
        ],
        "probes": [
            {"name": name, "family": "linear", "l2": [0.01 * (i + 1)]}
            for i, name in enumerate(probe_names)
        ],
        "fits": [
            {"name": "fits", "datasets": ["many"], "models": names, "layers": "all",
             "tokens": ["cls", "mean"], "probes": probe_names}
        ],
    }  # fmt: skip


def plan(folder: Path) -> dict[str, Cost]:
    """Dry run of many jobs; our graph alone; Snakemake without anything of ours."""
    (folder / "many.yaml").write_text(yaml.safe_dump(many_jobs(), sort_keys=False))
    graph = "import yaml; from bindscope.graph.build import read_graph; "
    graph += "read_graph(yaml.safe_load(open('many.yaml')), 'many.yaml')"
    plain = folder / "plain"
    plain.mkdir()
    (plain / "Snakefile").write_text(PLAIN % {"fits": 3744, "pooled": 1091})
    dry = ("-m", "snakemake", "--dry-run", "--quiet", "all", "--cores", "1")
    return {
        "dry run, 4,835 jobs": cost(folder, *dry, "--configfile", "many.yaml"),
        "  our graph alone": cost(folder, "-c", graph),
        "  floor: Snakemake alone": cost(plain, *dry),
    }


def no_op(folder: Path) -> dict[str, Cost]:
    """The default run again, when nothing is to be done."""
    for script in (folder / "workflow/scripts").glob("*.py"):
        script.write_text(STUB)
    run = ("-m", "snakemake", "--quiet", "all", "--cores", "all")
    cost(folder, *run)
    return {
        "default run, nothing to do": cost(folder, *run, says="Nothing to be done"),
        "  floor: snakemake --version": cost(folder, "-m", "snakemake", "--version"),
    }


def imports(folder: Path) -> dict[str, Cost]:
    """Each script's imports; the better of two, the first one may write byte code."""
    scripts = sorted((Path(__file__).parents[1] / "workflow/scripts").glob("*.py"))
    commands = {f"import {path.stem}": f"import runpy; runpy.run_path({str(path)!r})"
                for path in scripts}  # fmt: skip
    commands["  floor: import torch"] = "import torch"
    commands["  floor: import numpy, zarr"] = "import numpy, zarr"
    return {
        name: min((cost(folder, "-c", code) for _ in range(2)), key=lambda found: found.cpu_s)
        for name, code in commands.items()
    }


def cost(folder: Path, *arguments: str, says: str = "") -> Cost:
    """Time one command of this interpreter; it must succeed, and say something where asked."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    before, started = os.times(), time.monotonic()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    wall, after = time.monotonic() - started, os.times()
    if done.returncode or says not in done.stdout + done.stderr:
        raise SystemExit(f"{arguments} failed\n{(done.stdout + done.stderr)[-4000:]}")
    cpu = sum(after[2:4]) - sum(before[2:4])
    return Cost(round(wall, 2), round(cpu, 2))


def over_budget(part: str, measured: dict[str, dict[str, float]]) -> list[str]:
    """Return the lines of one part that break a promise."""
    first, *_ = measured
    if part != "imports":
        bound = BUDGET["dry_run_wall_s" if part == "plan" else "no_op_wall_s"]
        return [f"{first}: {wall} s"] if (wall := measured[first]["wall_s"]) > bound else []
    torch = measured["  floor: import torch"]["cpu_s"]
    found = []
    for name, entry in measured.items():
        bound = BUDGET["torch_cpu_s" if entry["cpu_s"] >= torch else "light_cpu_s"]
        if name.startswith("import") and entry["cpu_s"] > bound:
            found.append(f"{name}: {entry['cpu_s']} s of processor time, promised {bound}")
    return found


def table(measured: dict[str, Any]) -> str:
    """Write a Markdown table."""
    lines = [f"{measured['processor']}, {measured['cores']} cores", ""]
    lines += ["| what | wall s | processor s |", "|---|---|---|"]
    for part in ("plan", "no-op", "imports"):
        for name, entry in measured.get(part, {}).items():
            lines.append(f"| {name} | {entry['wall_s']:.1f} | {entry['cpu_s']:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
