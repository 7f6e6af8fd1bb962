"""What the study computes: patches of images, their tokens, fits of probes of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bindscope.config.codes import Dataset
from bindscope.config.grid import layers_of
from bindscope.config.models import AnyModel, KnownAnswer
from bindscope.core.graph import Graph, Product, once
from bindscope.core.interfaces import Step
from bindscope.core.splits import SPLITS
from bindscope.graph.activations import add_weights, model_code, model_slice
from bindscope.graph.data import add_scenes
from bindscope.graph.shared import Shared
from bindscope.graph.steps import store
from bindscope.studies.same_object.config import (
    AnyScorer,
    PairFits,
    PatchGrid,
    PlantedModel,
    Section,
    patch_grid,
    used_scenes,
)
from bindscope.studies.same_object.registry import FAMILIES

_ACTIVATIONS = "results/activations/{dataset}/{model}"
_FIT = "results/same_object/{dataset}/{model}/layers-{layers}/{probe}-{control}-{seeds}-{key}"
_BASELINE = "results/same_object/{dataset}/grid-{grid}/{probe}-{seeds}-{key}"
WITHOUT_MODEL = ("position", "baseline")


def _fit_outputs(base: str) -> dict[str, str]:
    return {
        "rows": f"{base}.jsonl",
        "strata": f"{base}.strata.jsonl",
        "images": f"{base}.images.safetensors",
        "weights": f"{base}.safetensors",
        "history": f"{base}.history.json",
    }


STEPS = (
    Step(
        "patch_samples",
        store("results/patch_samples/{dataset}/{grid}-{split}-{key}"),
        makes="patches",
    ),
    Step(
        "sampled",
        store(f"{_ACTIVATIONS}/sampled-{{layers}}/{{split}}-{{shard}}-{{key}}"),
        reads={"weights": ("weights",)},
        makes="activations",
    ),
    Step(
        "same_object_known",
        store(f"{_ACTIVATIONS}/planted-{{grid}}/{{split}}-{{key}}"),
        makes="activations",
    ),
    Step("same_object_fit", _fit_outputs(_FIT), leaf=True, makes="fits of pairs"),
    Step(
        "same_object_baseline",
        _fit_outputs(_BASELINE),
        script="same_object_fit.py",
        leaf=True,
        makes="fits of pairs",
    ),
)


def add_products(graph: Graph, shared: Shared, section: Section) -> None:
    """Add every fit of the section, and all it needs."""
    planted = {entry.name: entry for entry in section.planted}
    for block in section.fits:
        for dataset in (shared.datasets[name] for name in block.datasets):
            for name in block.models:
                model = planted.get(name) or shared.models[name]
                _Fits(graph, shared, section, block, dataset, model).add()


@dataclass(frozen=True)
class _Fits:
    """Fits of all probes of a block on one model's tokens of one dataset."""

    graph: Graph
    shared: Shared
    section: Section
    block: PairFits
    dataset: Dataset
    model: AnyModel | PlantedModel

    def add(self) -> None:
        """Add the fits of every block of layers, probe, control and block of seeds."""
        grid = patch_grid(self.model, self.dataset, self.block)
        assert grid is not None
        samples = add_patch_samples(self.graph, self.section, self.dataset, grid)
        known = {probe.name: probe for probe in self.section.probes}
        for layers in self._layer_blocks():
            tokens = self._tokens(layers, samples)
            for probe in (known[name] for name in self.block.probes):
                for seeds in self.block.seed_blocks:
                    self._fits(probe, seeds, layers, grid, tokens, samples)

    def _layer_blocks(self) -> list[tuple[int | str, ...]]:
        """Cut the layers into what one forward pass reads."""
        if isinstance(self.model, PlantedModel):
            return [(0,)]
        layers, size = layers_of(self.model, self.block), self.block.layers_per_job
        return [tuple(layers[i : i + size]) for i in range(0, len(layers), size)]

    def _tokens(
        self, layers: tuple[int | str, ...], samples: Mapping[str, Product]
    ) -> dict[str, list[Product]]:
        """Add the tokens of the sampled patches, by split."""
        if isinstance(self.model, PlantedModel):
            return _add_planted(self.graph, self.model, self.dataset, samples)
        assert not isinstance(self.model, KnownAnswer)
        weights = add_weights(
            self.graph, self.model, self.shared.datasets, self.shared.models.values()
        )
        return {
            split: self._sampled(self.model, layers, weights, split, samples[split])
            for split in SPLITS
        }

    def _sampled(
        self,
        model: AnyModel,
        layers: tuple[int | str, ...],
        weights: Product | None,
        split: str,
        samples: Product,
    ) -> list[Product]:
        assert not isinstance(model, KnownAnswer)
        content = {
            "model": model_slice(model),
            "threads": model.extraction.threads,
            "device": model.extraction.device,
            "layers": list(layers),
        }
        size = getattr(self.dataset.shard_size, split)
        made = []
        for i, scenes in enumerate(used_shards(self.graph, self.section, self.dataset, split)):
            used = used_scenes(self.section, self.dataset)[split]
            rows = {"start": i * size, "stop": min((i + 1) * size, used)}
            names = {
                "dataset": self.dataset.name, "model": model.name, "layers": joined(layers),
                "split": split, "shard": scenes.wildcards["shard"],
            }  # fmt: skip
            inputs = {"scenes": scenes, "samples": samples, "weights": [weights] if weights else []}
            made.append(
                self.graph.add(
                    "sampled", names, {**content, **rows}, inputs, runs=model_code(model)
                )
            )
        return made

    def _fits(
        self,
        probe: AnyScorer,
        seeds: tuple[int, ...],
        layers: tuple[int | str, ...],
        grid: PatchGrid,
        tokens: Mapping[str, Sequence[Product]],
        samples: Mapping[str, Product],
    ) -> None:
        names = {"dataset": self.dataset.name, "probe": probe.name, "seeds": joined(seeds, "_")}
        content = {
            "probe": probe.model_dump(mode="json", exclude={"name"}),
            "seeds": list(seeds),
            "background": self.section.sampling.background,
            "intervals": self.section.intervals.model_dump(mode="json"),
            "threads": probe.threads,
            "device": probe.device,
        }
        inputs: dict[str, list[Product]] = {"samples": [samples[split] for split in SPLITS]}
        runs = [FAMILIES[probe.family]]
        if probe.family in WITHOUT_MODEL:
            content |= {"layers": [], "control": "none"}
            names["grid"] = joined(grid, "x")
            self.graph.add("same_object_baseline", names, content, inputs, runs=runs)
            return
        inputs |= {split: list(found) for split, found in tokens.items()}
        names |= {"model": self.model.name, "layers": joined(layers)}
        for control in self.block.controls:
            self.graph.add(
                "same_object_fit",
                {**names, "control": control},
                {**content, "layers": list(layers), "control": control},
                inputs,
                runs=runs,
            )


def joined(parts: Sequence[int | str], by: str = "-") -> str:
    """Write layers, seeds or a grid as one wildcard."""
    return by.join(map(str, parts))


def used_shards(graph: Graph, section: Section, dataset: Dataset, split: str) -> list[Product]:
    """Return the shards that hold the scenes that are used of a split."""
    size = getattr(dataset.shard_size, split)
    n_shards = -(-used_scenes(section, dataset)[split] // size)
    return add_scenes(graph, dataset, split)[:n_shards]


@once
def add_patch_samples(
    graph: Graph, section: Section, dataset: Dataset, grid: PatchGrid
) -> dict[str, Product]:
    """Add which patches of each image are in pairs, and what they show; by split."""
    content = {
        "sampling": section.sampling.model_dump(mode="json"),
        "groups": [group.model_dump() for group in dataset.space.groups],
        "grid": list(grid),
    }
    return {
        split: graph.add(
            "patch_samples",
            {"dataset": dataset.name, "grid": joined(grid, "x"), "split": split},
            {**content, "split": split, "n_scenes": used_scenes(section, dataset)[split]},
            {"scenes": used_shards(graph, section, dataset, split)},
        )
        for split in SPLITS
    }


def _add_planted(
    graph: Graph, planted: PlantedModel, dataset: Dataset, samples: Mapping[str, Product]
) -> dict[str, list[Product]]:
    content = {"planted": planted.model_dump(mode="json", exclude={"name", "patch_grid"})}
    return {
        split: [
            graph.add(
                "same_object_known",
                {
                    "dataset": dataset.name, "model": planted.name, "split": split,
                    "grid": joined(planted.patch_grid, "x"),
                },
                content,
                {"samples": samples[split]},
            )
        ]
        for split in SPLITS
    }  # fmt: skip
