"""What planning costs: dry runs of 1,200 and of 4,800 jobs beside Snakemake without ours.

Works in a fresh copy of the working tree. The floor is Snakemake on a workflow of the same shape,
which does nothing: as many jobs with as many input and output files, logs, benchmarks, parameters
and resources as ours. How time grows with the number of jobs is the exponent between both sizes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import yaml
from default_run import fresh_copy
from measure import Entry, Options, Other, side_by_side

TITLE = "Planning many jobs"
PROMISED = 0.67  # at most half as long again as Snakemake alone
LIST = ("--dry-run", "--cores", "1")
# What Snakemake advises for many jobs: how many of each rule. (`--quiet all` would list every job.)
COUNT = (*LIST, "--quiet", "rules", "progress")
LAYERS, PROBES, SHARDS = 13, 12, 80
FITS = LAYERS * 2 * PROBES  # of a model: every layer, two kinds of tokens, every probe

# The jobs and files of `many_jobs`, with functions that look nothing up.
SAME_SHAPE = """\
def spec(wildcards):
    return "s" * 2000
def code(wildcards):
    return "c" * 33
def more(wildcards, attempt):
    return 1000 * attempt
def read(wildcards):
    return [f"index/{int(wildcards.n) % MODELS}.json", "labels.json"]
def scenes(wildcards):
    n = int(wildcards.n) % 80
    return [f"scenes/{n}.json", f"scenes/{n}.zarr", "weights/0.json", "weights/0.safetensors"]
rule all:
    input: expand("fits/{n}.jsonl", n=range(MODELS * 312)), "table.csv"
rule table:
    input: expand("fits/{n}.jsonl", n=range(MODELS * 312))
    output: "table.csv"
    script: "nothing.py"
rule fit:
    input: read
    output: rows="fits/{n}.jsonl", weights="fits/{n}.w", history="fits/{n}.h", details="fits/{n}.d"
    log: "logs/fits/{n}.log"
    benchmark: "benchmarks/fits/{n}.jsonl"
    params: spec=spec, code=code
    resources: mem_mb=more, runtime=more, gpu=0
    script: "nothing.py"
rule index:
    input: expand("pooled/{{n}}-{shard}.{kind}", shard=range(80), kind=["json", "zarr"])
    output: "index/{n}.json"
    script: "nothing.py"
rule pooled:
    input: scenes
    output: manifest="pooled/{m}-{n}.json", store=directory("pooled/{m}-{n}.zarr")
    log: "logs/pooled/{m}-{n}.log"
    benchmark: "benchmarks/pooled/{m}-{n}.jsonl"
    params: spec=spec, code=code
    resources: mem_mb=more, runtime=more, gpu=0
    script: "nothing.py"
rule scenes:
    output: manifest="scenes/{n}.json", store=directory("scenes/{n}.zarr")
    script: "nothing.py"
rule weights:
    output: manifest="weights/{n}.json", weights="weights/{n}.safetensors"
    script: "nothing.py"
rule labels:
    output: "labels.json"
    script: "nothing.py"
"""


def entries(options: Options) -> list[Entry]:
    """Time the dry runs in turns: once counted after once not counted, each takes long."""
    models = (1,) if options.size == "ci" else (3, 12)
    folder = fresh_copy()
    try:
        runs: dict[str, Callable[[], object]] = {}
        for m in models:
            config = f"{m}.yaml"
            (folder / config).write_text(yaml.safe_dump(many_jobs(m), sort_keys=False))
            runs[f"counted {m}"] = partial(dry_run, folder, *COUNT, "--configfile", config)
        runs["listed"] = partial(dry_run, folder, *LIST, "--configfile", config)
        plain = folder / "plain"
        plain.mkdir()
        (plain / "nothing.py").touch()
        (plain / "Snakefile").write_text(SAME_SHAPE.replace("MODELS", str(models[-1])))
        runs["plain"] = partial(dry_run, plain, *COUNT)
        times = side_by_side(runs, replace(options, repetitions=1))
    finally:
        shutil.rmtree(folder)
    last = f"dry run, {n_jobs(models[-1]):,} jobs"
    most = times[f"counted {models[-1]}"]
    floor = Other("Snakemake alone, same jobs and files", times["plain"], PROMISED)
    timed = [
        Entry(f"{last}, counted by rule", most, [floor]),
        Entry(f"{last}, every job listed", times["listed"]),
    ]
    if len(models) > 1:
        few = times[f"counted {models[0]}"]
        exponent = log(most / few) / log(n_jobs(models[-1]) / n_jobs(models[0]))
        what = f"dry run, {n_jobs(models[0]):,} jobs: time grows with jobs^{exponent:.2f}"
        timed.append(Entry(what, few, notes={"exponent": exponent}))
    return timed


def dry_run(folder: Path, *arguments: str) -> None:
    """Plan the workflow in a folder, on one thread."""
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{arguments} failed\n{(done.stdout + done.stderr)[-4000:]}")


def n_jobs(models: int) -> int:
    """Return the jobs of `many_jobs`, roughly: those that do not grow with models left out."""
    return models * (FITS + SHARDS + 1) + SHARDS


def many_jobs(models: int) -> dict[str, Any]:
    """Return a configuration: fits of every layer, two kinds of tokens and every probe."""
    names = [f"vit-{i}" for i in range(models)]
    architecture = {"n_layers": LAYERS - 1, "width": 16, "n_heads": 2, "patch_px": 8}
    training = {"dataset": "many", "steps": 4, "batch_size": 16, "threads": 1}
    probes = [{"name": f"linear-{i}", "family": "linear", "steps": 100 + i} for i in range(PROBES)]
    fits = {
        "name": "fits",
        "datasets": ["many"],
        "models": names,
        "layers": "all",
        "tokens": ["cls", "mean"],
        "probes": [probe["name"] for probe in probes],
    }
    return {
        "datasets": [
            {
                "name": "many",
                "space": {
                    "kind": "uniform",
                    "min_objects": 2,
                    "max_objects": 3,
                    "groups": [{"name": "color", "size": 3}, {"name": "shape", "size": 2}],
                },
                "split": {"rule": "random"},
                "n_scenes": {"train": 64 * (SHARDS - 30), "val": 640, "test": 1280},
                "shard_size": {"train": 64, "val": 64, "test": 64},
                "render": {"kind": "shapes", "size_px": 32, "object_px": 8, "margin_px": 1},
            }
        ],
        "models": [
            {
                "name": name,
                "source": "controlled:objects",
                "seed": seed,
                "training": training,
                "architecture": architecture,
            }
            for seed, name in enumerate(names)
        ],
        "studies": {"binding_information": {"probes": probes, "fits": [fits]}},
    }
