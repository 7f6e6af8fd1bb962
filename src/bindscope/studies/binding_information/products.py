"""What the study computes: fits, null probes beside them, learning curves, attention maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bindscope.config.codes import Dataset
from bindscope.config.grid import layers_of
from bindscope.config.models import AnyModel, KnownAnswer
from bindscope.core.errors import ConfigError
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.graph.activations import add_truth
from bindscope.graph.data import add_codes, add_labels, add_scenes, by_feature_code
from bindscope.graph.shared import Shared
from bindscope.studies.binding_information.config import (
    AnyProbe,
    FitBlock,
    InformationSection,
    LearningCurve,
)
from bindscope.studies.binding_information.registry import options_of

DECIDES_NOTHING = True

FitInputs = Mapping[str, Product | list[Product]]

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


_COST = "bindscope.studies.binding_information.cost"
STEPS = (
    Step("fit", _fit_outputs(_FIT), leaf=True, makes="fits", work=f"{_COST}:fit"),
    Step(
        "null",
        _fit_outputs(_NULL),
        script="fit.py",
        leaf=True,
        makes="fits",
        work=f"{_COST}:fit",
    ),
    Step(
        "learning_curve",
        {"rows": f"{_CURVE}.jsonl"},
        leaf=True,
        makes="learning curves",
        work=f"{_COST}:fit",
    ),
    Step(
        "attention",
        {"maps": f"{_ATTENTION}.safetensors", "share": f"{_ATTENTION}.json"},
        reads={"fit": ("weights",)},
        leaf=True,
        makes="attention maps",
        work=f"{_COST}:attention",
    ),
)


def add_products(graph: Graph, shared: Shared, section: InformationSection) -> None:
    """Add every fit of the section, and all it needs."""
    for block in (*section.fits, *section.learning_curves):
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


def _add_block(graph: Graph, shared: Shared, section: InformationSection, block: FitBlock) -> None:
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
    section: InformationSection
    dataset: Dataset
    probe: AnyProbe

    def add(
        self, model: AnyModel, layer: int | str, tokens: str, index: Product, block: FitBlock
    ) -> None:
        """Add the fits of every seed block and control, and the null probes beside them."""
        place: dict[str, Any] = {"layer": layer, "tokens": tokens}
        # Temporary patches are deleted when their last consumer is done, so fits must be one.
        stores = [p for p in index.sources if p.rule == "patches_temporary"]
        inputs: FitInputs = {"index": index, "patches": stores}
        for seeds in block.seed_blocks:
            if not isinstance(block, LearningCurve):
                self._add_nulls(seeds)
            for control in block.controls:
                names = {"model": model.name, **place, "control": control}
                if isinstance(block, LearningCurve):  # which is about the chain's parts alone
                    curve, shares = self._with_targets("chained"), {"shares": list(block.shares)}
                    curve.fit("learning_curve", names, seeds, place, inputs, shares)
                    continue
                fit = self.fit("fit", names, seeds, place, inputs)
                if control == "none" and model.sees_images:
                    self._add_attention(fit, index, stores)

    def _with_targets(self, *targets: str) -> _Fits:
        return replace(self, probe=self.probe.model_copy(update={"targets": targets}))

    def fit(
        self,
        rule: str,
        names: Mapping[str, Any],
        seeds: tuple[int, ...],
        representation: Mapping[str, Any],
        inputs: FitInputs,
        further: Mapping[str, Any] | None = None,
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
        runs = self.probe.code()
        if self.probe.protocol == "converged":
            runs |= options_of("linear").code()  # the others hold it
        inputs = {**inputs, "labels": add_labels(self.graph, self.dataset)}
        return self.graph.add(rule, wildcards, content, inputs, runs=sorted(runs))

    def _add_nulls(self, seeds: tuple[int, ...]) -> None:
        """Add null probes of the plain targets; the others start from the prior."""
        if "plain" in self.probe.targets:
            representation = {"tokens": "null", "patches": self.probe.patches}
            for seed in seeds:
                self._with_targets("plain").fit("null", {}, (seed,), representation, {})

    def _add_attention(self, fit: Product, index: Product, stores: list[Product]) -> None:
        """Add maps of attention where objects have queries, and their places are known."""
        if not self.probe.attends or "plain" not in self.probe.targets or self.dataset.source:
            return
        names = ("dataset", "model", "layer", "probe", "seeds")
        codes = add_codes(self.graph, self.dataset)
        self.graph.add(
            "attention",
            {name: fit.wildcards[name] for name in names},
            {"information": self.section.information.model_dump(mode="json")},
            {
                "fit": fit,
                "index": index,
                "patches": stores,
                "scenes": add_scenes(self.graph, self.dataset, "test")[:1],
                "codes": [product for product in codes if product.wildcards["split"] == "test"],
            },
        )
