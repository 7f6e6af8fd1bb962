"""Fits, and what stands beside them: null probes, truths, attention maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bindscope.config.codes import Dataset, RandomSplit
from bindscope.config.models import AnyModel, KnownAnswer
from bindscope.config.probes import AnyProbe
from bindscope.config.root import Config, FitBlock
from bindscope.graph.activations import add_patches, add_pooled, add_weights, model_slice
from bindscope.graph.data import add_anchors, add_codes, add_priors, add_scenes, space_slice
from bindscope.graph.product import Graph, Product


@dataclass(frozen=True)
class Entities:
    """A configuration's entities by name."""

    config: Config
    datasets: dict[str, Dataset]
    models: dict[str, AnyModel]
    probes: dict[str, AnyProbe]

    @classmethod
    def of(cls, config: Config) -> Entities:
        """Index a configuration."""
        return cls(
            config,
            {d.name: d for d in config.datasets},
            {m.name: m for m in config.models},
            {p.name: p for p in config.probes},
        )


def depth(model: AnyModel) -> int:
    """Return the number of blocks; known-answer encoders have none."""
    if isinstance(model, KnownAnswer):
        return 0
    architecture = getattr(model, "architecture", None)
    return int(architecture.n_layers if architecture else model.n_layers)  # type: ignore[union-attr]


def layers(model: AnyModel, block: FitBlock) -> list[int | str]:
    """Return the layers of a model that a block asks for."""
    if block.layers == "all":
        return list(range(depth(model) + 1))
    if block.layers == "last":
        return [depth(model)]
    return list(block.layers)


def add_block(graph: Graph, entities: Entities, block: FitBlock) -> None:
    """Add every fit of a block, and all it needs."""
    for dataset in (entities.datasets[name] for name in block.datasets):
        for model in (entities.models[name] for name in block.models):
            weights = add_weights(graph, model, entities.datasets)
            if isinstance(model, KnownAnswer):
                _add_truth(graph, model, dataset)
            for layer in layers(model, block):
                for tokens in block.tokens:
                    if tokens == "patches":
                        index = add_patches(graph, model, dataset, weights, layer)
                    else:
                        index = add_pooled(graph, model, dataset, weights)
                    for name in block.probes:
                        probe = entities.probes[name]
                        _add_fits(
                            graph,
                            entities.config,
                            block,
                            dataset,
                            model,
                            layer,
                            tokens,
                            probe,
                            index,
                        )


def _add_truth(graph: Graph, model: KnownAnswer, dataset: Dataset) -> Product:
    return graph.add(
        "truth",
        {"dataset": dataset.name, "model": model.name},
        {"dataset": space_slice(dataset), "model": model_slice(model)},
    )


def _common(
    config: Config, dataset: Dataset, probe: AnyProbe, seeds: tuple[int, ...]
) -> dict[str, Any]:
    return {
        "probe": probe.model_dump(mode="json", exclude={"name"}),
        "seeds": list(seeds),
        "sizes": [group.size for group in dataset.space.groups],
        "disjoint": not isinstance(dataset.split, RandomSplit),
        "information": config.information.model_dump(mode="json"),
        "threads": probe.threads,
        "device": probe.device,
    }


def _labels(graph: Graph, dataset: Dataset) -> dict[str, Product | list[Product]]:
    return {
        "codes": add_codes(graph, dataset),
        "anchors": add_anchors(graph, dataset),
        "priors": add_priors(graph, dataset),
    }


def _add_fits(
    graph: Graph,
    config: Config,
    block: FitBlock,
    dataset: Dataset,
    model: AnyModel,
    layer: int | str,
    tokens: str,
    probe: AnyProbe,
    index: Product,
) -> None:
    for seeds in block.seed_blocks:
        common = _common(config, dataset, probe, seeds)
        names = "_".join(map(str, seeds))
        graph.add(
            "null",
            {"dataset": dataset.name, "probe": probe.name, "seeds": names},
            {**common, "representation": {"tokens": "null"}, "control": "none"},
            _labels(graph, dataset),
        )
        for control in block.controls:
            fit = graph.add(
                "fit",
                {
                    "dataset": dataset.name, "model": model.name, "layer": layer,
                    "tokens": tokens, "probe": probe.name, "control": control, "seeds": names,
                },
                {
                    **common,
                    "representation": {"tokens": tokens, "layer": layer},
                    "control": control,
                },
                {"index": index, **_labels(graph, dataset)},
            )  # fmt: skip
            if tokens == "patches" and control == "none" and not isinstance(model, KnownAnswer):
                _add_attention(graph, dataset, fit, index)


def _add_attention(graph: Graph, dataset: Dataset, fit: Product, index: Product) -> None:
    names = ("dataset", "model", "layer", "probe", "seeds")
    graph.add(
        "attention",
        {name: fit.wildcards[name] for name in names},
        {"threads": 1},
        {
            "fit": fit,
            "index": index,
            "scenes": add_scenes(graph, dataset, "test")[:1],
            "codes": [c for c in add_codes(graph, dataset) if c.wildcards["split"] == "test"],
        },
    )
