"""What the study computes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bindscope.config.models import local_path
from bindscope.config.wording import instead
from bindscope.config.zoo import TOY, read_manifest
from bindscope.core.contents import content_key
from bindscope.core.devices import kind_here
from bindscope.core.errors import ConfigError
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.core.registries import ADAPTERS
from bindscope.graph.shared import Shared
from bindscope.studies.binding_id.config import (
    TRAINED,
    BindingIdSection,
    Records,
    ShapesTask,
    Suite,
    Toy,
    VisionLanguageModel,
)
from bindscope.studies.binding_id.names import precision_of
from bindscope.studies.binding_id.registry import (
    ENGINES,
    EXPERIMENTS,
    RECORDS,
    experiment_reference,
    find_experiment,
    find_judged,
    find_notes,
)

DECIDES_NOTHING = True

_SUITE = "results/binding_id/{suite}/{task}/{subject}"
_TYPES = "bindscope.core.registries:LANGUAGE_TYPES"
_RULE, _ESTIMATES = "binding_id_interventions", "binding_id_estimates"
ORACLES = "oracles"
"""Stands in paths for all oracles of a suite: one job has them all."""

_COST = "bindscope.studies.binding_id.cost"
_TOY = "results/binding_id/toys/{toy}-{key}"
TOY_STEP = Step(
    "toy_vlm",
    {"manifest": f"{_TOY}.json", "weights": f"{_TOY}.safetensors"},
    leaf=True,
    makes="toy vision-language models",
    work=f"{_COST}:toy_vlm",
    zoo="bindscope.studies.binding_id.toys.model:described",
)

STEPS = (
    Step(
        _ESTIMATES,
        {
            "estimates": f"{_SUITE}/estimates-{{key}}.safetensors",
            "vectors": f"{_SUITE}/estimates-{{key}}.vectors.jsonl",
        },
        leaf=True,
        makes="mean differences",
        work=f"{_COST}:estimates",
    ),
    Step(
        _RULE,
        {
            "rows": f"{_SUITE}/{{experiment}}-{{key}}.jsonl",
            "answers": f"{_SUITE}/{{experiment}}-{{key}}.safetensors",
        },
        leaf=True,
        makes="interventions on frozen contexts",
        work=f"{_COST}:interventions",
    ),
    TOY_STEP,
)


CONDITIONS_AT_ONCE = 4
"""Conditions of a step's rows that a model answers under at once, where nobody says it."""

_Models = Callable[[str], list[dict[str, Any]]]
"""Experiment -> what decides the answers of its models; "": of estimates."""


def add_products(graph: Graph, shared: Shared, section: BindingIdSection) -> None:
    """Add a job for every suite, task, model and experiment; all oracles of a suite share one."""
    tasks = {task.name: task for task in section.tasks}
    oracles = {oracle.name: oracle for oracle in section.oracles}
    models = {model.name: model for model in section.models}
    toys = {toy.name: add_toy(graph, toy) for toy in section.toys}
    records_by_name = {record.name: record for record in section.records}
    for suite in section.suites:
        planted = [
            {
                "kind": "oracle",
                "origin": "oracle",
                **oracles[name].model_dump(mode="json", exclude_none=True),
            }
            for name in suite.oracles
        ]
        for task in (tasks[name] for name in suite.tasks):
            if planted:
                _add_experiments(graph, suite, task, ORACLES, _always(planted), [])
            for model in (models[name] for name in suite.models):
                published = partial(_published, model, suite)
                _add_experiments(graph, suite, task, model.name, published, _weights(graph, model))
            for name in suite.toys:
                model_spec, trained = toys[name]
                _add_experiments(graph, suite, task, name, _always([model_spec]), trained)
        for model in (models[name] for name in suite.models):
            for records in (records_by_name[name] for name in suite.records):
                _add_records(graph, suite, records, model)


def _add_records(graph: Graph, suite: Suite, records: Records, model: VisionLanguageModel) -> None:
    """Add the questions about a user's own photos that a model is asked."""
    content = {
        **suite.model_dump(mode="json", include={"resamples", "seed", "threads"}),
        "device": kind_here(suite.device),
        "records": {
            "folder": records.folder,
            "file": records.file,
            "sha256": content_key(records.folder),
        },
        "models": _published(model, suite, "records"),
    }
    names = {
        "suite": suite.name,
        "task": records.name,
        "subject": model.name,
        "experiment": "records",
    }
    graph.add(
        _RULE,
        names,
        content,
        {"weights": _weights(graph, model), "estimates": []},
        runs=[ENGINES["published"], RECORDS],
    )


def _published(model: VisionLanguageModel, suite: Suite, experiment: str) -> list[dict[str, Any]]:
    """What decides a model's answers in a suite besides the weights that a rule brings."""
    path = local_path(model.source)
    origin = "pretrained" if path is None else "local"
    spec = model.model_dump(mode="json")
    device = kind_here(suite.device)
    spec["batch_size"] = model.batch_size or CONDITIONS_AT_ONCE * suite.batch_size
    fine = experiment in EXPERIMENTS and find_notes(experiment).fine
    spec["precision"] = precision_of(model.precision, model.compat, device, fine=fine)
    content = {"kind": "published", "origin": origin, **spec}
    return [content if path is None else {**content, "weights_sha256": content_key(path)}]


def _always(models: list[dict[str, Any]]) -> _Models:
    return lambda _: models


def _weights(graph: Graph, model: VisionLanguageModel) -> list[Product]:
    """Add the download of a model of the hub, with its processor."""
    if local_path(model.source) is not None:
        return []
    content = {"model": {"source": model.source}, "texts": True, "types": _TYPES}
    return [graph.add("weights", {"model": model.name}, content, runs=[ADAPTERS["hf"]])]


def _add_experiments(
    graph: Graph,
    suite: Suite,
    task: ShapesTask,
    subject: str,
    models: _Models,
    weights: list[Product],
) -> None:
    """Add the experiments of a suite on a task and a model, and the estimates that some add.

    `models` says what decides answers of a kind of job: an experiment, or none of the estimates.
    """
    shared = {
        **suite.model_dump(mode="json", include={"batch_size", "threads"}),
        "task": task.model_dump(mode="json", exclude={"name"}),
        "models": models(""),
    }
    kinds = dict.fromkeys(model["kind"] for model in shared["models"])
    if kinds.keys() - {"oracle", "toy"}:  # these are read on the CPU
        shared["device"] = kind_here(suite.device)
    engines = [ENGINES[kind] for kind in kinds]
    names = {"suite": suite.name, "task": task.name, "subject": subject}
    experiments = {name: find_experiment(name) for name in suite.experiments}
    estimates: list[Product] = []
    if any(experiment.estimates for experiment in experiments.values()):
        made_from = {"weights": weights}
        estimates = [graph.add(_ESTIMATES, names, shared, made_from, runs=engines)]
    options = suite.model_dump(mode="json")
    for name, experiment in experiments.items():
        run_options = {key: options[key] for key in ("resamples", "seed")}
        run_options["options"] = [options[key] for key in experiment.options]
        judged = list(find_judged()) if experiment.judged else []
        runs = [*engines, *map(experiment_reference, dict.fromkeys([name, *judged]))]
        made_from = {"weights": weights, "estimates": estimates if experiment.estimates else []}
        content = {**shared, **run_options, "experiment": name, "models": models(name)}
        graph.add(_RULE, {**names, "experiment": name}, content, made_from, runs=runs)


def add_named_toy(graph: Graph, section: Any, name: str) -> Product | str:
    """Add the training of a toy of the section, or name what the zoo has of it (`Study.trains`)."""
    toys = {toy.name: toy for toy in section.toys}
    if name not in toys:
        raise ConfigError(
            f"models, source toy:{name}",
            f"there is no toy {name!r}{instead(name, list(toys))}",
            "name an entry of studies.binding_id.toys",
        )
    toy = toys[name]
    if toy.source != TRAINED:
        return str(toy.source)
    (training,) = add_toy(graph, toy)[1]
    return training


def add_toy(graph: Graph, toy: Toy) -> tuple[dict[str, Any], list[Product]]:
    """Return what decides a toy's answers; add its training, if it is trained here."""
    manifest = None if toy.source == TRAINED else read_manifest(toy.source, TOY)
    objective = manifest["objective"] if manifest else toy.objective
    origin = "toy" if objective == "free" else "interchange_toy"
    spec = {"kind": "toy", "origin": origin, "name": toy.name}
    if manifest:
        return {**spec, "source": toy.source, "weights_sha256": manifest["sha256"]}, []
    content: dict[str, Any] = {
        "toy": toy.model_dump(mode="json", exclude={"name", "source"}),
    }
    return spec, [graph.add("toy_vlm", {"toy": toy.name}, content)]
