"""Fits, and what stands beside them: null probes, truths, attention maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bindscope.config.codes import Dataset
from bindscope.config.models import AnyModel, KnownAnswer
from bindscope.config.probes import PATCH_FAMILIES, AnyProbe
from bindscope.config.root import Config, FitBlock
from bindscope.core.graph import Graph, Product, once
from bindscope.graph.activations import add_patches, add_pooled, add_weights, model_slice
from bindscope.graph.data import (
    add_codes,
    add_labels,
    add_scenes,
    by_feature_code,
    space_slice,
)


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
        probes = [entities.probes[name] for name in block.probes]
        of_probes = [_Fits(graph, entities.config, dataset, probe) for probe in probes]
        for model in (entities.models[name] for name in block.models):
            weights = add_weights(graph, model, entities.datasets, entities.models.values())
            for layer in layers(model, block):
                for tokens in block.tokens:
                    if tokens == "patches":
                        index = add_patches(graph, model, dataset, weights, layer)
                    else:
                        index = add_pooled(graph, model, dataset, weights)
                    if isinstance(model, KnownAnswer):
                        _add_truth(graph, model, dataset, tokens)
                    for fits in of_probes:
                        fits.add(model, layer, tokens, index, block)


def _add_truth(graph: Graph, model: KnownAnswer, dataset: Dataset, tokens: str) -> Product:
    return graph.add(
        "truth",
        {"dataset": dataset.name, "model": model.name, "tokens": tokens},
        {"dataset": space_slice(dataset), "model": model_slice(model), "tokens": tokens},
    )


@dataclass(frozen=True)
class _Fits:
    """Fits of one probe on one dataset."""

    graph: Graph
    config: Config
    dataset: Dataset
    probe: AnyProbe

    def add(
        self, model: AnyModel, layer: int | str, tokens: str, index: Product, block: FitBlock
    ) -> None:
        """Add the fits of every seed block and control, and the null probes beside them."""
        names = {"model": model.name, "layer": layer, "tokens": tokens}
        # Temporary patches are deleted when their last consumer is done, so fits must be one.
        stores = [p for p in _flat(index) if p.rule == "patches_temporary"]
        for seeds in block.seed_blocks:
            _add_null(self.graph, self, seeds)
            for control in block.controls:
                fit = self.fit(
                    "fit",
                    {**names, "control": control},
                    seeds,
                    {"tokens": tokens, "layer": layer},
                    {"index": index, "patches": stores},
                )
                # Where objects are is known for drawn scenes of real models only.
                has_masks = not isinstance(model, KnownAnswer) and not self.dataset.source
                if tokens == "patches" and control == "none" and has_masks:
                    self._attention(fit, index, stores)

    def fit(
        self,
        rule: str,
        names: dict[str, Any],
        seeds: tuple[int, ...],
        representation: dict[str, Any],
        inputs: dict[str, Product | list[Product]],
    ) -> Product:
        """Add one fit, or the null probe of one."""
        content = {
            "probe": self.probe.model_dump(mode="json", exclude={"name"}),
            "seeds": list(seeds),
            "sizes": [group.size for group in self.dataset.space.groups],
            "disjoint": by_feature_code(self.dataset),
            "information": self.config.information.model_dump(mode="json"),
            "threads": self.probe.threads,
            "device": self.probe.device,
            "representation": representation,
            "control": names.get("control", "none"),
        }
        wildcards = {
            **names,
            "dataset": self.dataset.name,
            "probe": self.probe.name,
            "seeds": "_".join(map(str, seeds)),
        }
        return self.graph.add(
            rule, wildcards, content, {**inputs, "labels": add_labels(self.graph, self.dataset)}
        )

    def _attention(self, fit: Product, index: Product, stores: list[Product]) -> Product:
        names = ("dataset", "model", "layer", "probe", "seeds")
        return self.graph.add(
            "attention",
            {name: fit.wildcards[name] for name in names},
            {"information": self.config.information.model_dump(mode="json")},
            {
                "fit": fit,
                "index": index,
                "patches": stores,
                "scenes": add_scenes(self.graph, self.dataset, "test")[:1],
                "codes": [
                    codes
                    for codes in add_codes(self.graph, self.dataset)
                    if codes.wildcards["split"] == "test"
                ],
            },
        )


@once
def _add_null(graph: Graph, fits: _Fits, seeds: tuple[int, ...]) -> Product:
    """Add the null probe beside all fits of a probe, whatever they read."""
    representation = {"tokens": "null", "patches": fits.probe.family in PATCH_FAMILIES}
    return fits.fit("null", {}, seeds, representation, {})


def _flat(product: Product) -> list[Product]:
    return [given for products in product.inputs.values() for given in products]
