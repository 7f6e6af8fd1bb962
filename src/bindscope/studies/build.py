"""From a configuration to all products that it asks for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from bindscope.config.loading import load_config
from bindscope.config.models import Controlled
from bindscope.config.references import section_of
from bindscope.config.root import Config
from bindscope.core.definitions import save_cache
from bindscope.core.errors import BindscopeError, ConfigError
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import FigureEntry, Request, Step, Study, TableEntry
from bindscope.core.registries import studies
from bindscope.graph.activations import add_weights
from bindscope.graph.data import check_programs, check_split
from bindscope.graph.shared import Shared
from bindscope.graph.steps import SHARED_STEPS
from bindscope.graph.steps import WILDCARDS as SHARED_WILDCARDS
from bindscope.sources.survey import check_tables, with_counts

DECIDES_NOTHING = True

TEMPLATE = "src/bindscope/report/template.html.j2"  # no module, so not in the code key
# Manifests of weights that could not be had, as `make run` names them; `os.pathsep` between them.
UNAVAILABLE = "BINDSCOPE_UNAVAILABLE"
CLAIM_RATES = "resources/reference/claims.csv"


@cache
def all_steps() -> dict[str, Step]:
    """Return the rules that there are, by name."""
    study_steps = {step.name: step for study in studies().values() for step in study.steps}
    return {**SHARED_STEPS, **study_steps}


def wildcards() -> dict[str, str]:
    """Return the regular expressions of all wildcards."""
    study_wildcards = [study.wildcards for study in studies().values()]
    return {
        name: text
        for patterns in (SHARED_WILDCARDS, *study_wildcards)
        for name, text in patterns.items()
    }


def captions() -> dict[str, str]:
    """Return the captions of all figures, by name."""
    figures = [figure for study in studies().values() for figure in study.figures]
    return {figure.name: figure.full_caption for figure in figures}


def stem(rule: str) -> str:
    """Return the pattern of a rule's log and benchmark files, in results/logs and /benchmarks."""
    first = next(iter(all_steps()[rule].outputs.values()))
    return first.removeprefix("results/").rpartition(".")[0]


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
        If a key is wrong, a split has no feature codes, or a model's files or module or a program
        that draws scenes are not there.
    """
    unavailable = os.environ.get(UNAVAILABLE, "").split(os.pathsep)
    try:
        config = load_config(with_counts(raw), source)
        graph = build(config, unavailable)
        check_programs(graph)
        graph.notes += check_tables(graph, {d.name: d for d in config.datasets}, raw)
    except BindscopeError as error:
        if error.where.startswith(source):
            raise
        raise ConfigError(f"{source}: {error.where}", error.problem, error.remedy) from None
    save_cache()
    return graph


def build(config: Config, unavailable: Sequence[str] = ()) -> Graph:
    """List every product of a configuration with its keys; imports no more than NumPy.

    Parameters
    ----------
    config
        The configuration.
    unavailable
        Manifests of weights that could not be had: what is made from them is left out, and the
        report says so.
    """
    graph = Graph(all_steps())
    taking_part = {
        name: (study, section)
        for name, study in studies().items()
        if (section := section_of(config, name)) is not None
    }
    shared = Shared(
        {dataset.name: dataset for dataset in config.datasets},
        {model.name: model for model in config.models},
        _trained(taking_part.values()),
    )
    for dataset in config.datasets:
        check_split(dataset)
    for study, section in taking_part.values():
        study.products(graph, shared, section)
    lost = [weights for weights in graph.select("weights") if weights.path() in unavailable]
    graph.drop(lost)
    for study, section in taking_part.values():
        for table in study.tables:
            _add_entry(graph, shared, section, "table", table)
    for model in config.models:
        if isinstance(model, Controlled):  # one that no study reads is trained all the same: a zoo
            add_weights(graph, model, shared.datasets, config.models)
    figure_names = config.report.figures
    for study, section in taking_part.values():
        for figure in study.figures:
            if figure_names is None or figure.name in figure_names:
                _add_entry(graph, shared, section, "figure", figure)
    missing = sorted({weights.wildcards["model"] for weights in lost})
    _add_report(graph, config, [study for study, _ in taking_part.values()], missing)
    return graph


def _trained(
    taking_part: Iterable[tuple[Study, Any]],
) -> dict[str, Callable[[Graph, str], Product | str]]:
    """Return who adds the models that studies train, by the scheme of their source."""

    def bound(add: Callable[[Graph, Any, str], Product | str], section: Any) -> Any:
        return lambda graph, name: add(graph, section, name)

    return {
        scheme: bound(add, section)
        for study, section in taking_part
        for scheme, add in study.trains.items()
    }


def _add_entry(
    graph: Graph, shared: Shared, section: Any, rule: str, entry: TableEntry | FigureEntry
) -> None:
    """Add a table or a figure, where the configuration has something for it."""
    if request := entry.request(graph, shared, section):
        graph.add(
            rule,
            {rule: entry.name},
            {"implementation": entry.implementation},
            runs=[entry.implementation],
            request=request,
            resources=entry.resources if isinstance(entry, FigureEntry) else (),
        )


def _reported(config: Config) -> dict[str, Any]:
    """Return the configuration as the report shows it: of studies those that take part."""
    content = config.model_dump(mode="json")
    sections = {name: section for name, section in content["studies"].items() if section}
    return {**content, "studies": sections}


def _add_report(graph: Graph, config: Config, taking_part: list[Study], missing: list[str]) -> None:
    """Add the page: a chapter per study that has something to say, with its figures."""
    figures = graph.select("figure")
    drawn = {figure.wildcards["figure"] for figure in figures}
    tables = {table.wildcards["table"] for table in graph.select("table")}
    chapters: list[dict[str, Any]] = [
        {
            "study": study.name,
            "title": study.title,
            "findings": study.findings,
            "tables": [table.name for table in study.tables if table.name in tables],
            "figures": {
                f.name: [f.title, f.caption, f.narrow] for f in study.figures if f.name in drawn
            },
        }
        for study in taking_part
        if study.findings
    ]
    resources = [path for study in taking_part for path in study.resources]
    graph.add(
        "report",
        {},
        {"chapters": chapters, **({"missing": missing} if missing else {})},
        runs=[
            reference
            for study in taking_part
            if study.findings
            for reference in (study.findings, *study.findings_code)
        ],
        request=Request(
            {"tables": graph.select("table"), "figures": figures},
            {"config": _reported(config)},
            {"figures": ("svg",)},
        ),
        resources=[TEMPLATE, CLAIM_RATES, *resources],
    )
