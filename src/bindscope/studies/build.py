"""From a configuration to all products that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from bindscope.config.codes import SPLITS, Dataset, Group, ShapesRenderer
from bindscope.config.loading import load_config
from bindscope.config.models import KnownAnswer
from bindscope.config.observed import ClevrSource, TableSource
from bindscope.config.probes import PATCH_FAMILIES
from bindscope.config.root import Config
from bindscope.config.solids import VOCABULARY, SolidsRenderer
from bindscope.core.errors import BindscopeError, ConfigError
from bindscope.core.graph import Graph, Product
from bindscope.core.keys import save_cache
from bindscope.graph.data import (
    add_assignment_priors,
    add_priors,
    add_statistics,
    check_split,
)
from bindscope.studies.binding_information.products import Entities, add_block, depth


def read_graph(raw: Mapping[str, Any], source: str) -> Graph:
    """Check a configuration and list its products.

    Parameters
    ----------
    raw
        The configuration as read from YAML.
    source
        The file it came from, for messages.

    Raises
    ------
    ConfigError
        If a key is wrong, a split has no feature codes, or a model's files or module are not there.
    """
    config = load_config(raw, source)
    try:
        return build(config)
    except BindscopeError as error:
        raise ConfigError(f"{source}: {error.where}", error.problem, error.remedy) from None


def build(config: Config) -> Graph:
    """List every product of a configuration with its keys; imports no more than NumPy."""
    graph = Graph()
    entities = Entities.of(config)
    for dataset in config.datasets:
        check_split(dataset)
        add_priors(graph, dataset)
        add_assignment_priors(graph, dataset)
    for block in config.fits:
        add_block(graph, entities, block)
    for dataset in config.datasets:
        add_statistics(graph, dataset)
    _add_tables(graph, entities)
    _add_attention_table(graph)
    _add_figures(graph, entities)
    _add_report(graph, config)
    save_cache()
    return graph


def _expected(products: list[Product], output: str | None = None) -> dict[str, dict[str, str]]:
    """What each row of a file must say, so that a table refuses rows of another configuration."""
    return {p.path(output): {"spec_key": p.key, "code_key": p.code} for p in products}


def _add_tables(graph: Graph, entities: Entities) -> None:
    priors = graph.of(*PRIORS)
    of_table = {"priors": priors}
    if assignments := graph.of("assignment_priors"):
        of_table["assignments"] = assignments
    expected = _expected([product for given in of_table.values() for product in given])
    graph.add("table_priors", {}, {"expected": expected}, of_table)
    if statistics := graph.of("scene_statistics"):
        content = {"expected": _expected(statistics)}
        graph.add("table_scene_statistics", {}, content, {"statistics": statistics})
    inputs = {
        "fits": graph.of("fit"),
        "nulls": graph.of("null"),
        "priors": priors,
        "truths": graph.of("truth"),
    }
    graph.add(
        "table_binding_information",
        {},
        {
            "expected": _expected([product for given in inputs.values() for product in given]),
            "models": {
                name: {
                    "model_kind": model.source.partition(":")[0],
                    "model_seed": getattr(model, "seed", None),
                    "n_layers": depth(model),
                }
                for name, model in entities.models.items()
            },
        },
        inputs,
    )


def _add_attention_table(graph: Graph) -> None:
    if maps := graph.of("attention"):
        graph.add("table_attention", {}, {"expected": _expected(maps, "share")}, {"maps": maps})


def headline_fits(graph: Graph, entities: Entities) -> list[Product]:
    """Fits of real models' last layers, whose histories and details the figures show.

    The last layer is the last block's, or `final` where a model was not read at that.
    """
    fits = [
        fit
        for fit in graph.of("fit")
        if not isinstance(entities.models[fit.wildcards["model"]], KnownAnswer)
        and fit.wildcards["control"] == "none"
    ]
    deepest = {name: str(depth(model)) for name, model in entities.models.items()}
    read = {(fit.wildcards["model"], fit.wildcards["layer"]) for fit in fits}
    last = {name: layer if (name, layer) in read else "final" for name, layer in deepest.items()}
    return [fit for fit in fits if fit.wildcards["layer"] == last[fit.wildcards["model"]]]


def _figure_inputs(graph: Graph, entities: Entities) -> dict[str, dict[str, list[Product]] | None]:
    """Inputs of each figure besides the tables; None where its data are not configured."""
    fits = graph.of("fit")
    headline = headline_fits(graph, entities)
    blind = {m.name for m in entities.models.values() if isinstance(m, KnownAnswer)}
    many_layers = any(
        len({f.wildcards["layer"] for f in fits if f.wildcards["model"] == name}) > 1
        for name in entities.models
    )
    families = {entities.probes[fit.wildcards["probe"]].family for fit in fits}
    return {
        "scenes": _contact_sheet(graph),
        "tokens": {} if headline else None,
        "layers": {} if many_layers else None,
        "attention": {"maps": maps} if (maps := graph.of("attention")) else None,
        "structure": {} if headline and len(families - set(PATCH_FAMILIES)) > 1 else None,
        "training": {"training": graph.of("training"), "fits": headline} if headline else None,
        "breakdown": {"fits": headline, "nulls": graph.of("null")} if headline else None,
        "calibration": {} if blind else None,
        "complexity": {} if _several(headline, entities, _n_cells) else None,
        "resolution": {"indexes": found} if (found := _of_families(headline, entities)) else None,
        "occlusion": {"statistics": graph.of("table_scene_statistics")}
        if _several(headline, entities, _camera_height)
        else None,
        "natural": {"priors": graph.of("table_priors")}
        if {fit.wildcards["dataset"] for fit in headline} & set(_natural(entities))
        else None,
    }


def _contact_sheet(graph: Graph) -> dict[str, list[Product]] | None:
    """A shard of every dataset that has images, of test scenes if there are, and what names them.

    The values of read datasets have the names that their records say.
    """
    first: dict[str, Product] = {}
    for product in graph.of("scenes", "record_scenes"):
        other = first.setdefault(product.wildcards["dataset"], product)
        if SPLITS.index(product.wildcards["split"]) > SPLITS.index(other.wildcards["split"]):
            first[product.wildcards["dataset"]] = product
    shown = list(first.values())
    records = [p.inputs["records"][0] for p in shown if p.rule == "record_scenes"]
    inputs = {"scenes": shown} | ({"records": records} if records else {})
    return inputs if shown else None


def _natural(entities: Entities) -> list[str]:
    """Names of datasets of natural images: those that are read, CLEVR's drawn ones left out."""
    return [
        name
        for name, dataset in entities.datasets.items()
        if dataset.source and not isinstance(dataset.source, ClevrSource)
    ]


def _of_families(fits: list[Product], entities: Entities) -> list[Product]:
    """Indexes of the activations of models that the report counts as one family."""
    names = {name for family in entities.config.report.families for name in family.models}
    indexes = [fit.inputs["index"][0] for fit in fits if fit.wildcards["model"] in names]
    return list({index.path(): index for index in indexes}.values())


def _n_cells(dataset: Dataset) -> float:
    return prod(group.size for group in dataset.space.groups)


def _camera_height(dataset: Dataset) -> float | None:
    render = dataset.render
    return render.camera_height if isinstance(render, SolidsRenderer) else None


def _several(
    fits: list[Product], entities: Entities, value: Callable[[Dataset], float | None]
) -> bool:
    """Whether a model is read on datasets that differ in a value, of those that have it."""
    values: dict[str, set[float | None]] = {}
    for fit in fits:
        found = value(entities.datasets[fit.wildcards["dataset"]])
        values.setdefault(fit.wildcards["model"], set()).add(found)
    return any(len(found - {None}) > 1 for found in values.values())


def _named(group: Group, dataset: Dataset) -> dict[str, Any]:
    """A group, with the names of its values where the renderer or the source says them."""
    named = group.model_dump(mode="json")
    if isinstance(dataset.render, SolidsRenderer):
        named["values"] = list(dataset.render.values(group.name)[: group.size])
    elif isinstance(dataset.source, TableSource):
        named["values"] = list(dataset.source.values[group.name])
    elif isinstance(dataset.source, ClevrSource):
        named["values"] = list(VOCABULARY[group.name])
    return named


def _add_figures(graph: Graph, entities: Entities) -> None:
    available = _figure_inputs(graph, entities)
    content = {
        "models": list(entities.models),
        "families": [f.model_dump(mode="json") for f in entities.config.report.families],
        "datasets": {
            name: {
                "groups": [_named(group, dataset) for group in dataset.space.groups],
                "rendered": isinstance(dataset.render, ShapesRenderer),
            }
            for name, dataset in entities.datasets.items()
        },
    }
    table = graph.of("table_binding_information")
    for name in entities.config.report.figures:
        inputs = available[name]
        if inputs is not None:
            # The contact sheet shows what the models see: it is there before any of them ran.
            given = inputs if name == "scenes" else {"table": table, **inputs}
            about = {"about": _natural(entities)} if name == "natural" else {}
            graph.add("figure", {"figure": name}, {"figure": name, **content, **about}, given)


def _add_report(graph: Graph, config: Config) -> None:
    graph.add(
        "report",
        {},
        {"config": config.model_dump(mode="json")},
        {
            "table": graph.of("table_binding_information"),
            "priors": graph.of("table_priors"),
            "figures": graph.of("figure"),
        },
    )


# Everything is asked for by name: a job that dies after a change loses its record, and the table
# above it would pass for up to date (seen).
PRIORS = ("priors", "counted_priors")
LEAVES = (
    "fit", "null", *PRIORS, "assignment_priors", "truth", "training", "attention",
    "scene_statistics", "table_priors", "table_scene_statistics", "table_binding_information",
    "table_attention", "figure", "report",
)  # fmt: skip


def leaves(graph: Graph) -> list[str]:
    """Return what `rule all` requests: the path that stands for each leaf."""
    return [product.path() for product in graph.of(*LEAVES)]
