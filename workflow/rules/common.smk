"""Helpers of the rules; all they know comes from the graph that the library builds."""

import json
import sys
from pathlib import Path

# Before any import of bindscope: this clone's code, never an installed copy.
sys.path.insert(0, str(Path(workflow.basedir) / "src"))

from bindscope.errors import BindscopeError, remember_configfiles
from bindscope.graph.build import leaves, read_graph
from bindscope.graph.paths import PATHS, WILDCARDS, stem
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


def product(rule_name, wildcards):
    try:
        return graph.find(rule_name, dict(wildcards.items()))
    except BindscopeError as error:
        raise WorkflowError(str(error)) from None


def spec(rule_name):
    """The product's configuration slice, as one string that Snakemake compares."""

    def find(wildcards):
        return product(rule_name, wildcards).spec

    return find


def code(rule_name):
    """The hash of the code behind the product."""

    def find(wildcards):
        return product(rule_name, wildcards).code

    return find


def made_from(rule_name):
    """Inputs by role: what stands for each product; its other outputs as `<role>_<output>`.

    Stores are ancient: one that was deleted is made again, one that was touched is not read anew.
    """

    def find(wildcards):
        found = {}
        for role, products in product(rule_name, wildcards).inputs.items():
            found[role] = [p.path() for p in products]
            for output in list(PATHS[products[0].rule])[1:] if products else ():
                paths = [p.path(output) for p in products]
                found[f"{role}_{output}"] = (
                    ancient(paths) if output == "store" else paths
                )
        return found

    return find


def output_of(rule_name, name):
    return PATHS[rule_name][name]


def log_of(rule_name):
    return f"results/logs/{stem(rule_name)}.log"


def benchmark_of(rule_name):
    return f"results/benchmarks/{stem(rule_name)}.jsonl"


def threads_of(rule_name):
    """Threads stand in the spec: a weight depends on how a sum was split (seen)."""

    def find(wildcards):
        return json.loads(product(rule_name, wildcards).spec).get("threads", 1)

    return find


def gpus_of(rule_name):
    """One device for a job that computes on CUDA, none for any other."""

    def find(wildcards):
        return int(
            json.loads(product(rule_name, wildcards).spec).get("device") == "cuda"
        )

    return find


def memory(mem_mb):
    """Ask for more on each retry."""

    def find(wildcards, attempt):
        return mem_mb * attempt

    return find


def minutes(runtime):
    """Ask for more time on each retry: a job that was cut off would be cut off again."""

    def find(wildcards, attempt):
        return runtime * attempt

    return find


def captions():
    """Captions of the report's figures: the texts that Snakemake's own report shows too."""
    return [f"workflow/report/{p.wildcards['figure']}.rst" for p in graph.of("figure")]
