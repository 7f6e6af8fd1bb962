"""Helpers of the rules; all they know comes from the graph that the library builds."""

import gc
import json
import sys
from pathlib import Path

# Before any import of bindscope: this clone's code, never an installed copy.
sys.path.insert(0, str(Path(workflow.basedir) / "src"))

from bindscope.commands.planning import plan_faster, signed
from bindscope.core.errors import BindscopeError, remember_configfiles
from bindscope.studies.build import leaves, read_graph
from bindscope.core.paths import PATHS, WILDCARDS, stem
from snakemake.exceptions import WorkflowError


def checked_graph():
    """Check the configuration and list its products."""
    source = " + ".join(map(str, workflow.configfiles)) or "--config"
    try:
        return read_graph(config, source)
    except BindscopeError as error:
        # Snakemake would show where in this file a WorkflowError comes from, as a traceback.
        raise SystemExit(f"\n{error}") from None


remember_configfiles(workflow.configfiles)
graph = checked_graph()

# Jobs and files live as long as Snakemake does. The collector looked through all of them again and
# again: a quarter of the time to plan 5,000 jobs.
gc.collect()
gc.freeze()
gc.set_threshold(100_000, 20, 100)
plan_faster()


def product(rule_name, wildcards):
    try:
        return graph.find(rule_name, dict(wildcards.items()))
    except BindscopeError as error:
        raise WorkflowError(str(error)) from None


def spec(rule_name):
    """The product's configuration slice, as one string that Snakemake compares."""

    @signed
    def find(wildcards):
        return product(rule_name, wildcards).spec

    return find


def code(rule_name):
    """The hash of the code behind the product."""

    @signed
    def find(wildcards):
        return product(rule_name, wildcards).code

    return find


def made_from(rule_name):
    """Inputs by role.

    Stores are ancient: one that was deleted is made again, one that was touched is not read anew.
    """

    @signed
    def find(wildcards):
        return {
            role: ancient(paths) if role.endswith("_store") else paths
            for role, paths in product(rule_name, wildcards).files().items()
        }

    return find


def output_of(rule_name, name):
    return PATHS[rule_name][name]


def log_of(rule_name):
    return f"results/logs/{stem(rule_name)}.log"


def benchmark_of(rule_name):
    return f"results/benchmarks/{stem(rule_name)}.jsonl"


def alike(rule_name, value):
    """A value of the spec: one number where all products of the rule have the same.

    Snakemake asks a function for every job, and several times.
    """
    found = {p.key: value(json.loads(p.spec)) for p in graph.of(rule_name)}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))

    @signed
    def find(wildcards):
        return found[product(rule_name, wildcards).key]

    return find


def threads_of(rule_name):
    """Threads stand in the spec: a weight depends on how a sum was split (seen)."""
    return alike(rule_name, lambda spec: spec.get("threads", 1))


def gpus_of(rule_name):
    """One device for a job that computes on CUDA, none for any other."""
    return alike(rule_name, lambda spec: int(spec.get("device") == "cuda"))


def memory(mem_mb):
    """Ask for more on each retry."""

    @signed
    def find(wildcards, attempt):
        return mem_mb * attempt

    return find


def minutes(runtime):
    """Ask for more time on each retry: a job that was cut off would be cut off again."""

    @signed
    def find(wildcards, attempt):
        return runtime * attempt

    return find


def captions():
    """Captions of the report's figures: the texts that Snakemake's own report shows too."""
    return [f"workflow/report/{p.wildcards['figure']}.rst" for p in graph.of("figure")]
