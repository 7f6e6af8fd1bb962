"""Products of models: weights, activations and their index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bindscope.activations.parts import in_parts
from bindscope.config.codes import Dataset, endless
from bindscope.config.models import AnyModel, Controlled, KnownAnswer, PythonModel
from bindscope.core.contents import content_key
from bindscope.core.errors import ConfigError
from bindscope.core.graph import Graph, Product, once
from bindscope.core.registries import ADAPTERS, OBJECTIVES
from bindscope.core.splits import SPLITS
from bindscope.graph.data import (
    add_codes,
    add_scenes,
    codes_slice,
    renderer_code,
    shards,
    space_code,
)


def model_slice(model: AnyModel) -> dict[str, Any]:
    """What decides a model's activations, besides its weights."""
    content = model.model_dump(mode="json", exclude={"name": True, "extraction": {"keep_patches"}})
    if model.local_weights:
        content["weights_sha256"] = content_key(model.local_weights)
    if model.stored:
        content["weights_sha256"] = model.stored["sha256"]
    return content


def model_code(model: AnyModel) -> list[str]:
    """Return the implementation of a model: its adapter, and the user's own module."""
    scheme, _, rest = model.source.partition(":")
    return [ADAPTERS[scheme], *([rest] if isinstance(model, PythonModel) else [])]


def trained_as(model: Controlled) -> dict[str, Any]:
    """What decides a controlled model's weights, besides the scenes: not how it is run later."""
    return model.model_dump(mode="json", exclude={"name", "extraction", "input_px"})


def _draws_afresh(model: Controlled, dataset: Dataset) -> bool:
    """Whether scenes are drawn for each step of the training."""
    if model.training.scenes is None:
        return endless(dataset)
    return model.training.scenes == "fresh"


def trainer(model: Controlled, models: Iterable[AnyModel]) -> Controlled:
    """Return the model whose name a training has: the first one that is trained as this one is."""
    same = trained_as(model)
    return next((m for m in models if isinstance(m, Controlled) and trained_as(m) == same), model)


def add_weights(
    graph: Graph, model: AnyModel, datasets: Mapping[str, Dataset], models: Iterable[AnyModel]
) -> Product | None:
    """Trained or downloaded weights, where a model has any.

    Models that are trained in the same way (and run at different input sizes, say) share them.
    """
    if isinstance(model, Controlled):
        return _add_training(graph, model, datasets[model.training.dataset], models)
    if model.downloads:
        content: dict[str, Any] = {"model": {"source": model.source}}
        if model.source.startswith("hf:"):
            content["types"] = "bindscope.models.hf_adapter:TYPES"
        return graph.add("weights", {"model": model.name}, content, runs=model_code(model))
    return None


def _add_training(
    graph: Graph, model: Controlled, dataset: Dataset, models: Iterable[AnyModel]
) -> Product:
    """Weights of a controlled model; scenes that are drawn afresh are no products."""
    objective = model.objective
    inputs: dict[str, list[Product]] = {}
    code = [*space_code(dataset), *model_code(model)]
    if objective in OBJECTIVES:
        code.append(OBJECTIVES[objective])
        if _draws_afresh(model, dataset):
            code += renderer_code(dataset)
        else:
            splits = ("train", "val")
            codes = [c for c in add_codes(graph, dataset) if c.wildcards["split"] in splits]
            scenes = [s for split in splits for s in add_scenes(graph, dataset, split)]
            inputs = {"codes": codes, "scenes": scenes}
    return graph.add(
        "training",
        {"model": trainer(model, models).name},
        {
            "model": trained_as(model),
            "dataset": codes_slice(dataset) | dataset.model_dump(mode="json", include={"render"}),
            "threads": model.training.threads,
            "device": model.training.device,
        },
        inputs,
        runs=code,
    )


@once
def add_pooled(graph: Graph, model: AnyModel, dataset: Dataset, weights: Product | None) -> Product:
    """Index of the pooled tokens (or encoded codes) of all layers."""
    if isinstance(model, KnownAnswer):
        return _add_index(graph, model, dataset, "encoded", _encoded(graph, model, dataset))
    shards = _add_shards(graph, model, dataset, weights, "pooled", {})
    return _add_index(graph, model, dataset, "pooled", shards)


@once
def add_patches(
    graph: Graph, model: AnyModel, dataset: Dataset, weights: Product | None, layer: int | str
) -> Product:
    """Index of the patch tokens of one layer."""
    if isinstance(model, KnownAnswer):
        return _add_index(graph, model, dataset, "encoded", _encoded(graph, model, dataset))
    keep = model.extraction.keep_patches
    rule, array = ("patches", "patches") if keep else ("patches_temporary", "temporary")
    shards = _add_shards(graph, model, dataset, weights, rule, {"layer": layer})
    return _add_index(graph, model, dataset, f"{array}-{layer}", shards)


def _encoded(graph: Graph, model: KnownAnswer, dataset: Dataset) -> dict[str, list[Product]]:
    content = {"dataset": codes_slice(dataset), "model": model_slice(model)}
    products: dict[str, list[Product]] = {split: [] for split in SPLITS}
    for name, part in _parts(dataset).items():
        product = graph.add(
            "encoded",
            {"dataset": dataset.name, "model": model.name, "part": name},
            {**content, "part": part},
            runs=[*space_code(dataset), *model_code(model)],
        )
        for block in part:
            products[block["split"]].append(product)
    return products


def _parts(dataset: Dataset) -> dict[str, list[dict[str, Any]]]:
    """All scenes of a dataset in parts."""
    n_shards: dict[str, int] = {split: len(shards(dataset, split)) for split in SPLITS}
    return in_parts(n_shards, dataset.shard_size.model_dump(), dataset.n_scenes.model_dump())


def add_truth(graph: Graph, model: KnownAnswer, dataset: Dataset, tokens: str) -> Product:
    """What a known-answer encoder's output says about the objects: expected, and of test scenes."""
    return graph.add(
        "truth",
        {"dataset": dataset.name, "model": model.name, "tokens": tokens},
        {
            "dataset": codes_slice(dataset),
            "model": model_slice(model),
            "tokens": tokens,
            "n_scenes": dataset.n_scenes.test,
        },
        runs=space_code(dataset),
    )


def _add_shards(
    graph: Graph,
    model: AnyModel,
    dataset: Dataset,
    weights: Product | None,
    rule: str,
    layer: dict[str, int | str],
) -> dict[str, list[Product]]:
    assert not isinstance(model, KnownAnswer)
    if getattr(dataset.render, "fit", "") == "crops":
        raise ConfigError(
            f"datasets.{dataset.name}.render.fit",
            f"{model.name!r} reads whole images here, and these are crops",
            "use `squash` or `letterbox`; only fits of `same_object` read crops",
        )
    content = {
        "model": model_slice(model),
        "threads": model.extraction.threads,
        "device": model.extraction.device,
        **layer,
    }
    products: dict[str, list[Product]] = {split: [] for split in SPLITS}
    for name, part in _parts(dataset).items():
        scenes = [add_scenes(graph, dataset, block["split"])[block["shard"]] for block in part]
        product = graph.add(
            rule,
            {"dataset": dataset.name, "model": model.name, "part": name, **layer},
            {**content, "part": part},
            {"scenes": scenes, "weights": [weights] if weights else []},
            runs=model_code(model),
        )
        for block in part:
            products[block["split"]].append(product)
    return products


def _add_index(
    graph: Graph, model: AnyModel, dataset: Dataset, array: str, shards: dict[str, list[Product]]
) -> Product:
    return graph.add(
        "index",
        {"dataset": dataset.name, "model": model.name, "array": array},
        {"array": array, "n_scenes": dataset.n_scenes.model_dump()},
        shards,
    )
