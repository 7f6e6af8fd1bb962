"""Helpers of the rules; all they know comes from the graph that the library builds."""

import json
import sys
from pathlib import Path

# Before any import of bindscope: this clone's code, never an installed copy.
SOURCE = str(Path(workflow.basedir) / "src")
sys.path.insert(0, SOURCE)

from bindscope.commands.cost import refuse_too_large
from bindscope.commands.lock import claim, release
from bindscope.commands.phases import show_run
from bindscope.commands.sources import refuse_missing_sources
from bindscope.config.composition import add_included, join_names
from bindscope.core.errors import BindscopeError, remember_configfiles
from bindscope.core.job import give_jobs_path, name_launcher, warm_executable
from bindscope.core.provenance import correct_records, end_future_times
from bindscope.core.standing import keep_lost, lost_products, write_standing
from bindscope.studies.build import (
    all_steps,
    captions,
    read_graph,
    stem,
    studies,
    wildcards,
)
from snakemake.exceptions import WorkflowError


def checked_graph():
    """Check the configuration and list its products; refuse jobs that memory cannot hold."""
    source = join_names(workflow.configfiles) or "--config"
    try:
        found = read_graph(add_included(config, workflow.configfiles), source)
        if workflow.is_main_process:
            refuse_missing_sources(add_included(config, workflow.configfiles), source)
            memory, gpu = map(workflow.global_resources.get, ("mem_mb", "gpu_mb"))
            refuse_too_large(found, memory and memory.value, source, gpu and gpu.value)
            print(*found.notes, sep="\n", end="\n" * bool(found.notes), file=sys.stderr)
        return found
    except BindscopeError as error:
        # Snakemake would show where in this file a WorkflowError comes from, as a traceback.
        raise SystemExit(f"\n{error}") from None


def refuse_braces(*folders):
    """Snakemake takes what stands in braces in a path for a name, and would end in a traceback."""
    for folder in filter(lambda folder: {*"{}"} & {*str(folder)}, folders):
        raise SystemExit(
            f"\n{folder}: Snakemake cannot run in a folder with braces in its path\n"
            "  remedy: rename it"
        )


refuse_braces(workflow.basedir, Path.cwd())
give_jobs_path(SOURCE)
sys.executable = warm_executable()  # with which Snakemake starts scripts
name_launcher()
remember_configfiles(workflow.configfiles)
graph = checked_graph()
if workflow.is_main_process:
    if n := end_future_times(graph):
        print(f"{n} files had a time in the future; it is now.", file=sys.stderr)
    correct_records(graph)
# Templates of Snakemake's own report read the configuration.
config["captions"] = captions()
show_run(workflow.logger_manager.get_log_handlers(), graph)


def product(rule_name, wildcards):
    try:
        return graph.find(rule_name, dict(wildcards.items()))
    except BindscopeError as error:
        raise WorkflowError(str(error)) from None


def spec(rule_name):
    """The product's configuration slice, as one string that Snakemake compares."""
    return lambda wildcards: product(rule_name, wildcards).spec


def code(rule_name):
    """The hash of the code behind the product."""
    return lambda wildcards: product(rule_name, wildcards).code


def made_from(rule_name):
    """Inputs by role.

    Stores are ancient: one that was deleted is made again, one that was touched is not read anew.
    """
    return lambda wildcards: {
        role: ancient(paths) if role.endswith("_store") else paths
        for role, paths in product(rule_name, wildcards).files().items()
    }


def output_of(rule_name, name):
    return all_steps()[rule_name].outputs[name]


def log_of(rule_name):
    return f"results/logs/{stem(rule_name)}.log"


def from_spec(rule_name, value):
    """A value of each product's spec; a plain number where all products of the rule agree.

    Snakemake asks a function for every job, and several times.
    """
    found = {p.key: value(json.loads(p.spec)) for p in graph.select(rule_name)}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return lambda wildcards: found[product(rule_name, wildcards).key]


def threads_of(rule_name):
    """Threads stand in the spec: a weight depends on how a sum was split (seen)."""
    return from_spec(rule_name, lambda spec: spec.get("threads", 1))


def gpus_of(rule_name):
    """One device for a job that computes on CUDA, none for any other."""
    return from_spec(rule_name, lambda spec: int(spec.get("device") == "cuda"))


def all_of(rule_name):
    """All products of a rule of the same dataset, for a job that is to wait for them."""
    return lambda wildcards: ancient(
        [
            product.path()
            for product in graph.select(rule_name, dataset=wildcards.dataset)
        ]
    )


def one_after_another(rule_name):
    """Priorities by which the products of a rule are made in their order, all above 0 and below 1.

    Temporary stores are to be read and removed before Snakemake begins the next ones.
    """
    products = graph.select(rule_name)
    ranks = {
        product.key: 1 - i / len(products) for i, product in enumerate(products, 1)
    }
    return lambda wildcards: ranks[product(rule_name, wildcards).key]


def memory_of(rule_name):
    """What a job is counted to need, and as much again on each retry."""
    return (
        lambda wildcards, attempt: product(rule_name, wildcards).work.memory_mb
        * attempt
    )


def units_of(rule_name):
    """The size of a job, for its record in results/benchmarks; no limit is set on it."""
    return lambda wildcards: max(1, round(product(rule_name, wildcards).work.units))
