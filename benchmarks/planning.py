"""What planning costs: a dry run of 5,000 jobs beside Snakemake without anything of ours.

Works in a fresh copy of the working tree. The floor is Snakemake on a workflow of the same shape,
which does nothing: as many jobs with as many input and output files, logs, benchmarks, parameters
and resources as ours. The lower floor is as many jobs with one input and none of that.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from default_run import fresh_copy
from measure import Entry, Options, medians, run_python, side_by_side

TITLE = "Planning many jobs"
PROMISED_S = 10.0
LISTED = ("-m", "snakemake", "--dry-run", "--cores", "1")
# What Snakemake advises for many jobs: how many of each rule. (`--quiet all` would list every job.)
DRY = (*LISTED, "--quiet", "rules", "progress")
CONFIG = "many.yaml"
GRAPH = f"""
import yaml
from bindscope.studies.build import read_graph
read_graph(yaml.safe_load(open({CONFIG!r})), {CONFIG!r})
"""

# As in common.smk, so that the floors are as low as they can be.
TUNED = """\
import gc, inspect
gc.set_threshold(100_000, 20, 100)
def signed(function):
    function.__signature__ = inspect.signature(function)
    return function
"""

# The jobs and files of `many_jobs`, with functions that look nothing up.
SAME_SHAPE = (
    TUNED
    + """\
@signed
def spec(wildcards):
    return "s" * 2000
@signed
def code(wildcards):
    return "c" * 33
@signed
def more(wildcards, attempt):
    return 1000 * attempt
@signed
def read(wildcards):
    return [f"index/{int(wildcards.n) % 12}.json", "labels.json"]
@signed
def scenes(wildcards):
    n = int(wildcards.n) % 80
    return [f"scenes/{n}.json", f"scenes/{n}.zarr", "weights/0.json", "weights/0.safetensors"]
rule all:
    input: expand("fits/{n}.jsonl", n=range(3744)), "table.csv"
rule table:
    input: expand("fits/{n}.jsonl", n=range(3744))
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
)

# As many jobs with one input and nothing else.
BARE = (
    TUNED
    + """\
rule all:
    input: expand("fits/{n}.txt", n=range(3744))
rule fit:
    input: lambda wildcards: f"pooled/{int(wildcards.n) % 1091}.txt"
    output: "fits/{n}.txt"
    shell: "touch {output}"
rule pooled:
    output: "pooled/{n}.txt"
    shell: "touch {output}"
"""
)


def entries(options: Options) -> list[Entry]:
    """Time the dry runs in turns: once counted after once not counted, each takes long."""
    folder = fresh_copy()
    try:
        times = _time(folder, replace(options, repetitions=min(options.repetitions, 1)))
    finally:
        shutil.rmtree(folder)
    ours, listed, graph, same, bare = (
        times[name] for name in ("ours", "listed", "graph", "same", "bare")
    )
    same_shape = "Snakemake alone, same jobs and files"
    return [
        Entry("dry run, 4,836 jobs, counted by rule", ours, same_shape, same,
              seconds_promised=PROMISED_S),
        Entry("the same, every job listed", listed, seconds_promised=PROMISED_S),
        Entry("its graph of products alone, imports included", graph),
        Entry(same_shape, same, "Snakemake alone, as many jobs with one input", bare),
    ]  # fmt: skip


def _time(folder: Path, options: Options) -> dict[str, float]:
    (folder / CONFIG).write_text(yaml.safe_dump(many_jobs(), sort_keys=False))
    (folder / "graph.py").write_text(GRAPH)
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: run_python(folder, *DRY, "--configfile", CONFIG),
        "listed": lambda: run_python(folder, *LISTED, "--configfile", CONFIG),
        "graph": lambda: run_python(folder, "graph.py"),
    }
    for name, text in (("same", SAME_SHAPE), ("bare", BARE)):
        plain = folder / name
        plain.mkdir()
        (plain / "nothing.py").touch()
        (plain / "Snakefile").write_text(text)
        runs[name] = partial(run_python, plain, *DRY)
    return medians(side_by_side(runs, options))


def many_jobs(models: int = 12, probes: int = 12, shards: int = 80) -> dict[str, Any]:
    """Return a configuration: fits of every layer, two kinds of tokens and every probe.

    With the defaults 3,744 fits, 960 pooled shards, 80 shards of scenes; 4,836 jobs in all.
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
