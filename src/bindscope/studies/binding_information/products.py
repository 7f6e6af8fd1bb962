"""What the study computes: fits, null probes beside them, learning curves, attention maps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bindscope.config.codes import Dataset
from bindscope.config.grid import layers_of
from bindscope.config.models import AnyModel, KnownAnswer
from bindscope.core.errors import ConfigError
from bindscope.core.graph import Graph, Product, once
from bindscope.core.interfaces import Step
from bindscope.graph.activations import add_truth
from bindscope.graph.data import add_codes, add_labels, add_scenes, by_feature_code
from bindscope.graph.shared import Shared
from bindscope.studies.binding_information.config import (
    AnyProbe,
    FitBlock,
    LearningCurve,
    Section,
)
from bindscope.studies.binding_information.registry import options_of

_REPRESENTATION = "{dataset}/{model}/{tokens}-{layer}"
_FIT = f"results/fits/{_REPRESENTATION}/{{probe}}-{{control}}-{{seeds}}-{{key}}"
_CURVE = f"results/learning_curves/{_REPRESENTATION}/{{probe}}-{{control}}-{{seeds}}-{{key}}"
_NULL = "results/null/{dataset}/{probe}-{seeds}-{key}"
_ATTENTION = "results/attention/{dataset}/{model}/{layer}-{probe}-{seeds}-{key}"


def _fit_outputs(base: str) -> dict[str, str]:
    return {
        "rows": f"{base}.jsonl",
        "weights": f"{base}.safetensors",
        "history": f"{base}.history.json",
        "details": f"{base}.details.safetensors",
    }


STEPS = (
    Step("fit", _fit_outputs(_FIT), leaf=True, makes="fits"),
    Step("null", _fit_outputs(_NULL), script="fit.py", leaf=True, makes="fits"),
    Step("learning_curve", {"rows": f"{_CURVE}.jsonl"}, leaf=True, makes="learning curves"),
    Step(
        "attention",
        {"maps": f"{_ATTENTION}.safetensors", "share": f"{_ATTENTION}.json"},
        reads={"fit": ("weights",)},
        leaf=True,
        makes="attention maps",
    ),
)


def add_products(graph: Graph, shared: Shared, section: Section) -> None:
    """Add every fit of the section, and all it needs."""
    blocks: list[FitBlock | LearningCurve] = [*section.fits, *section.learning_curves]
    for block in blocks:
        _add_block(graph, shared, section, block)
    _check_seeds(graph)


def _check_seeds(graph: Graph) -> None:
    """Refuse a seed that two blocks fit to the same: a table has one row for it."""
    homes: dict[tuple[str, ...], Product] = {}
    for fit in graph.select("fit"):
        names = [value for key, value in fit.wildcards.items() if key not in ("seeds", "key")]
        for seed in fit.wildcards["seeds"].split("_"):
            if homes.setdefault((*names, seed), fit) is not fit:
                raise ConfigError(
                    "studies.binding_information.fits",
                    f"two seed blocks fit seed {seed} to {' '.join(names)}",
                    "give these blocks of `seed_blocks` no seed in common, or the same seeds",
                )


def _add_block(
    graph: Graph, shared: Shared, section: Section, block: FitBlock | LearningCurve
) -> None:
    known = {probe.name: probe for probe in section.probes}
    for dataset in (shared.datasets[name] for name in block.datasets):
        of_probes = [_Fits(graph, section, dataset, known[name]) for name in block.probes]
        for model in (shared.models[name] for name in block.models):
            for layer in layers_of(model, block):
                for tokens in block.tokens:
                    index = shared.activations(graph, model, dataset, layer, tokens)
                    if isinstance(model, KnownAnswer):
                        add_truth(graph, model, dataset, tokens)
                    for fits in of_probes:
                        fits.add(model, layer, tokens, index, block)


@dataclass(frozen=True)
class _Fits:
    """Fits of one probe on one dataset."""

    graph: Graph
    section: Section
    dataset: Dataset
    probe: AnyProbe

    def add(
        self,
        model: AnyModel,
        layer: int | str,
        tokens: str,
        index: Product,
        block: FitBlock | LearningCurve,
    ) -> None:
        """Add the fits of every seed block and control, and the null probes beside them."""
        names: dict[str, Any] = {"model": model.name, "layer": layer, "tokens": tokens}
        # Temporary patches are deleted when their last consumer is done, so fits must be one.
        stores = [p for p in _flat(index) if p.rule == "patches_temporary"]
        for seeds in block.seed_blocks:
            representation = {"tokens": tokens, "layer": layer}
            inputs: dict[str, Product | list[Product]] = {"index": index, "patches": stores}
            # Only the plain probes have a prior to learn; the others start from it.
            if isinstance(block, FitBlock) and "plain" in self.probe.targets:
                plain = self.probe.model_copy(update={"targets": ("plain",)})
                for seed in seeds:
                    _add_null(self.graph, replace(self, probe=plain), seed)
            for control in block.controls:
                names["control"] = control
                if isinstance(block, LearningCurve):
                    self._curve(names, seeds, representation, inputs, block)
                    continue
                fit = self.fit("fit", names, seeds, representation, inputs)
                # Where objects are is known for drawn scenes of real models only.
                has_masks = model.sees_images and not self.dataset.source
                if self._attends and control == "none" and has_masks:
                    self._attention(fit, index, stores)

    @property
    def _attends(self) -> bool:
        """Whether there is a query of every object, of which a map can be drawn."""
        return self.probe.attends and "plain" in self.probe.targets

    def fit(
        self,
        rule: str,
        names: dict[str, Any],
        seeds: tuple[int, ...],
        representation: dict[str, Any],
        inputs: dict[str, Product | list[Product]],
        further: dict[str, Any] | None = None,
    ) -> Product:
        """Add one fit, the null probe of one, or a learning curve."""
        content = {
            "probe": self.probe.model_dump(mode="json", exclude={"name"}),
            "seeds": list(seeds),
            "sizes": [group.size for group in self.dataset.space.groups],
            "disjoint": by_feature_code(self.dataset),
            "information": self.section.information.model_dump(mode="json"),
            "threads": self.probe.threads,
            "device": self.probe.device,
            "representation": representation,
            "control": names.get("control", "none"),
            **(further or {}),
        }
        wildcards = {
            **names,
            "dataset": self.dataset.name,
            "probe": self.probe.name,
            "seeds": "_".join(map(str, seeds)),
        }
        labels = add_labels(self.graph, self.dataset)
        runs = self.probe.code()
        if self.probe.protocol == "converged":
            runs |= options_of("linear").code()  # the others hold it
        inputs = {**inputs, "labels": labels}
        return self.graph.add(rule, wildcards, content, inputs, runs=sorted(runs))

    def _curve(
        self,
        names: dict[str, Any],
        seeds: tuple[int, ...],
        representation: dict[str, Any],
        inputs: dict[str, Product | list[Product]],
        block: LearningCurve,
    ) -> Product:
        """Add a learning curve, which is about the chain's parts alone."""
        chained = replace(self, probe=self.probe.model_copy(update={"targets": ("chained",)}))
        shares = {"shares": list(block.shares)}
        return chained.fit("learning_curve", names, seeds, representation, inputs, shares)

    def _attention(self, fit: Product, index: Product, stores: list[Product]) -> Product:
        names = ("dataset", "model", "layer", "probe", "seeds")
        return self.graph.add(
            "attention",
            {name: fit.wildcards[name] for name in names},
            {"information": self.section.information.model_dump(mode="json")},
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
def _add_null(graph: Graph, fits: _Fits, seed: int) -> Product:
    """Add the null probe beside all fits of a probe with a seed, whatever they read."""
    representation = {"tokens": "null", "patches": fits.probe.patches}
    return fits.fit("null", {}, (seed,), representation, {})


def _flat(product: Product) -> list[Product]:
    return [item for products in product.inputs.values() for item in products]
