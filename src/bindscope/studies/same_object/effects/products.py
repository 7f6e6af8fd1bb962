"""The products of edits: one job per dataset, model, layer and probe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bindscope.config.codes import Dataset, SceneDistribution
from bindscope.config.models import AnyModel, Controlled, KnownAnswer, Zoo
from bindscope.config.zoo import kept_names
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.core.registries import OBJECTIVES
from bindscope.core.splits import SPLITS
from bindscope.graph.activations import add_weights, model_code, model_slice
from bindscope.graph.data import add_codes, add_scenes, renderer_code, space_code
from bindscope.graph.shared import Shared
from bindscope.studies.same_object.effects.config import Effects
from bindscope.studies.same_object.registry import FAMILIES

if TYPE_CHECKING:
    from bindscope.studies.same_object.config import PairSection

_BASE = "results/same_object/{dataset}/{model}/effects-{layer}/{probe}-{key}"
_HEADS = "results/heads/{model}-{key}"
HEADS = Step(
    "refitted_heads",
    {
        "manifest": f"{_HEADS}.json",
        "weights": f"{_HEADS}.safetensors",
        "history": f"{_HEADS}.history.json",
    },
    leaf=True,
    makes="heads",
)
EFFECTS = Step(
    "same_object_effects",
    {"rows": f"{_BASE}.jsonl"},
    reads={"fit": ("weights",), "weights": ("weights",), "heads": ("weights", "history")},
    leaf=True,
    makes="effects of edits",
)


def add_effects(graph: Graph, shared: Shared, section: PairSection, effects: Effects) -> None:
    """Add a job per dataset, model, layer and probe."""
    probes = [probe for probe in section.probes if probe.name in effects.probes]
    for dataset in (shared.datasets[name] for name in effects.datasets):
        for model in (shared.models[name] for name in effects.models):
            for probe in probes:
                names = {"dataset": dataset.name, "model": model.name, "probe": probe.name}
                fits = _by_layer(graph.of("same_object_fit", control="none", **names))
                for layer in effects.layers:
                    _add(graph, shared, section, effects, dataset, model, names, layer, fits)


def _by_layer(fits: list[Product]) -> dict[int, Product]:
    """Return the fit that holds each layer but `final`."""
    return {
        layer: fit for fit in fits for layer in json.loads(fit.spec)["layers"] if layer != "final"
    }


def _add(
    graph: Graph,
    shared: Shared,
    section: PairSection,
    effects: Effects,
    dataset: Dataset,
    model: AnyModel,
    names: Mapping[str, str],
    layer: int,
    fits: Mapping[int, Product],
) -> None:
    assert not isinstance(model, KnownAnswer)
    later = effects.later or min((found for found in fits if found > layer), default=None)
    used = {fits[at].path(): fits[at] for at in (layer, later) if at is not None}
    samples = fits[layer].inputs["samples"][SPLITS.index("test")]
    n_scenes = effects.scenes or json.loads(samples.spec)["n_scenes"]
    n_shards = -(-n_scenes // dataset.shard_size.test)
    weights = add_weights(graph, model, shared.datasets, shared.models.values())
    content = {
        "model": model_slice(model),
        "layer": layer,
        "later": later,
        "effects": effects.model_dump(
            mode="json",
            include={"directions", "shuffle", "inject", "weights", "seed"},
        ),
        "n_scenes": n_scenes,
        "background": section.sampling.background,
        "intervals": section.intervals.model_dump(mode="json"),
        "threads": model.extraction.threads,
        "device": model.extraction.device,
    }
    inputs: dict[str, Product | list[Product]] = {
        "scenes": add_scenes(graph, dataset, "test")[:n_shards],
        "samples": samples,
        "fit": list(used.values()),
        "weights": [weights] if weights else [],
        "heads": [],
    }
    runs = model_code(model)
    again, read = _retrained(graph, dataset, section, effects, fits[layer])
    content["retrained"] = again
    inputs |= read
    runs += [FAMILIES[probe["family"]] for probe in again["probes"]]
    if isinstance(model, Controlled | Zoo):
        codes = add_codes(graph, dataset)
        inputs["codes"] = [codes[SPLITS.index("test")]]
        objective = model.objective
        runs += [OBJECTIVES[objective]] if objective in OBJECTIVES else []
        if isinstance(model, Zoo) and effects.refit:
            inputs["heads"] = _heads(graph, model, effects.refit)
    graph.add("same_object_effects", {**names, "layer": layer}, content, inputs, runs=runs)


def _retrained(
    graph: Graph, dataset: Dataset, section: PairSection, effects: Effects, fit: Product
) -> tuple[dict[str, Any], dict[str, list[Product]]]:
    """Return what is said of probes that are fitted again, and scenes and samples of the splits.

    Claims are about the edited probe and about removal, so both are always among them.
    """
    asked, edited = effects.retrained, fit.wildcards["probe"]
    known = {probe.name: probe for probe in section.probes}
    names = dict.fromkeys((edited, *asked.probes))
    content: dict[str, Any] = {
        "edits": list(dict.fromkeys((*asked.edits, "remove"))),
        "probes": [known[name].model_dump(mode="json") for name in names],
    }
    inputs: dict[str, list[Product]] = {}
    samples = fit.inputs["samples"]
    assert isinstance(samples, list)
    for split in ("train", "val"):
        sample = samples[SPLITS.index(split)]
        content[split] = min(getattr(asked, split), json.loads(sample.spec)["n_scenes"])
        n_shards = -(-content[split] // getattr(dataset.shard_size, split))
        inputs[f"{split}_scenes"] = add_scenes(graph, dataset, split)[:n_shards]
        inputs[f"{split}_samples"] = [sample]
    return content, inputs


def _heads(graph: Graph, model: Zoo, steps: int) -> list[Product]:
    """Add what a model's file lacks for its own loss; nothing where it has it, or has no loss."""
    manifest, objective = model.stored, model.objective
    kept = any(name.startswith("objective.") for name in kept_names(model.source))
    if kept or objective not in OBJECTIVES:
        return []
    recipe = manifest["recipe"]
    dataset = SceneDistribution.model_validate(
        {**recipe["dataset"], "name": recipe["model"]["training"]["dataset"]}
    )
    content = {
        "model": {"source": model.source, "weights_sha256": manifest["sha256"]},
        "recipe": recipe,
        "steps": steps,
        "threads": recipe["threads"],
        "device": recipe["device"],
    }
    code = [OBJECTIVES[objective], *space_code(dataset), *renderer_code(dataset)]
    return [graph.add("refitted_heads", {"model": model.name}, content, runs=code)]
