"""What the study computes: patches of images, their tokens, fits of probes of pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bindscope.activations.parts import in_parts
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
    Geometry,
    Maps,
    PairFits,
    PairSection,
    PatchGrid,
    Planted,
    PlantedModel,
    patch_grid,
    used_scenes,
)
from bindscope.studies.same_object.effects.products import EFFECTS, HEADS, add_effects
from bindscope.studies.same_object.marks import LEADING, WITHOUT_MODEL
from bindscope.studies.same_object.probes_config import AnyScorer
from bindscope.studies.same_object.registry import FAMILIES

_ACTIVATIONS = "results/activations/{dataset}/{model}"
_FIT = "results/same_object/{dataset}/{model}/layers-{layers}/{probe}-{control}-{seeds}-{key}"
_BASELINE = "results/same_object/{dataset}/grid-{grid}/{probe}-{seeds}-{key}"
# The fit of any other probe has one optimum.
SEEDED = ("identity_pointwise",)
# Families that a claim about a leading probe compares it with, at whatever layer it is judged.
RIVALS = (
    "linear", "diagonal", "quadratic_position", "class_pointwise", "class_position",
    "identity_pointwise",
)  # fmt: skip


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
        store(f"{_ACTIVATIONS}/sampled-{{layers}}/{{part}}-{{key}}"),
        reads={"weights": ("weights",)},
        makes="activations",
    ),
    # Tokens that Snakemake removes when the last fit has read them; the entry of `fits` is in their
    # path, because tokens that are made again take all their fits with them.
    Step(
        "sampled_temporary",
        store(f"{_ACTIVATIONS}/temporary-sampled-{{layers}}/{{entry}}/{{part}}-{{key}}"),
        script="sampled.py",
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
    Step(
        "same_object_maps",
        {"maps": "results/same_object/{dataset}/{model}/maps-{layers}/{probe}-{key}.safetensors"},
        reads={"fit": ("weights",), "weights": ("weights",)},
        leaf=True,
        makes="score maps",
    ),
    Step(
        "same_object_geometry",
        {"rows": "results/same_object/{dataset}/{model}/geometry-{layers}/{probe}-{key}.jsonl"},
        reads={"fit": ("weights",)},
        leaf=True,
        makes="geometry of scores",
    ),
    HEADS,
    EFFECTS,
)


def _add_maps(graph: Graph, shared: Shared, section: PairSection, maps: Maps) -> None:
    """Add the score maps of every fit of the probes that they show."""
    of_probes = [probe for probe in section.probes if probe.name in maps.probes]
    for dataset in maps.datasets:
        scenes = used_shards(graph, section, shared.datasets[dataset], "test")[:1]
        for model in (shared.models[name] for name in maps.models):
            assert not isinstance(model, KnownAnswer)
            weights = add_weights(graph, model, shared.datasets, shared.models.values())
            for probe in of_probes:
                names = {"dataset": dataset, "model": model.name, "probe": probe.name}
                for fit in graph.of("same_object_fit", control="none", **names):
                    content = {
                        "model": model_slice(model),
                        "layers": json.loads(fit.spec)["layers"],
                        "seed": 0,  # of what has none
                        "token_norm": probe.model_dump()["token_norm"],
                        "n_scenes": maps.scenes,
                        "threads": model.extraction.threads,
                        "device": model.extraction.device,
                    }
                    graph.add(
                        "same_object_maps",
                        {**names, "layers": fit.wildcards["layers"]},
                        content,
                        {"fit": fit, "scenes": scenes, "weights": [weights] if weights else []},
                        runs=model_code(model),
                    )


def _add_geometry(graph: Graph, section: PairSection, geometry: Geometry) -> None:
    """Add what is measured of the scores of every fit of the probes that are named."""
    of_probes = [probe for probe in section.probes if probe.name in geometry.probes]
    for dataset in geometry.datasets:
        for model in geometry.models:
            for probe in of_probes:
                names = {"dataset": dataset, "model": model, "probe": probe.name}
                for fit in graph.of("same_object_fit", control="none", **names):
                    known = json.loads(fit.spec)
                    content = {
                        **{key: known[key] for key in ("layers", "background", "intervals")},
                        "token_norm": probe.model_dump()["token_norm"],
                        "threads": probe.threads,
                    }
                    graph.add(
                        "same_object_geometry",
                        {**names, "layers": fit.wildcards["layers"]},
                        content,
                        {"fit": fit, **fit.inputs},
                    )


def add_products(graph: Graph, shared: Shared, section: PairSection) -> None:
    """Add every fit of the section, and all it needs."""
    asked: set[tuple[object, ...]] = set()
    for block in section.fits:
        for dataset in (shared.datasets[name] for name in block.datasets):
            for model in (shared.models[name] for name in block.models):
                grid = patch_grid(model, dataset, block)
                assert grid is not None
                _Fits(graph, shared, section, block, dataset, model, grid, asked).add()
    for planted in section.planted:
        for dataset in (shared.datasets[name] for name in planted.datasets):
            grid = planted.patch_grid
            _Fits(graph, shared, section, planted, dataset, planted, grid, asked).add()
    if section.maps:
        _add_maps(graph, shared, section, section.maps)
    if section.geometry:
        _add_geometry(graph, section, section.geometry)
    if section.effects:
        add_effects(graph, shared, section, section.effects)


@dataclass(frozen=True)
class _Fits:
    """Fits of all probes of a block on one model's tokens of one dataset."""

    graph: Graph
    shared: Shared
    section: PairSection
    block: PairFits | PlantedModel
    dataset: Dataset
    model: AnyModel | PlantedModel
    grid: PatchGrid
    asked: set[tuple[object, ...]]

    @property
    def windows(self) -> int:
        """Windows of a side of an image; planted tokens are of whole ones."""
        return 1 if isinstance(self.block, PlantedModel) else self.block.windows

    def add(self) -> None:
        """Add the fits of every block of layers, probe, control and block of seeds."""
        samples = add_patch_samples(self.graph, self.section, self.dataset, self.grid, self.windows)
        known = {probe.name: probe for probe in self.section.probes}
        for probe in (known[name] for name in self.block.probes):
            for seeds in self.block.seed_blocks if probe.family in SEEDED else [(0,)]:
                if probe.family in WITHOUT_MODEL:
                    self._baseline(probe, seeds, samples)
                    continue
                for layers in self._layer_blocks():
                    for control in self.block.controls:
                        self._fit(probe, seeds, layers, control, samples)
        for probe, seeds in self._rivals():
            for layers in self._layer_blocks():
                self._fit(probe, seeds, layers, "none", samples)

    def _rivals(self) -> list[tuple[AnyScorer, tuple[int, ...]]]:
        """Return probes that other entries fit to these tokens and that a claim may need here.

        A claim is judged at the layer that validation prefers for a leading probe, which is not
        known beforehand: so its rivals are fitted to every layer that a leading probe is fitted to.
        """
        known = {probe.name: probe for probe in self.section.probes}
        if "none" not in self.block.controls or not any(
            known[name].family in LEADING for name in self.block.probes
        ):
            return []
        found: dict[tuple[str, tuple[int, ...]], AnyScorer] = {}
        for block in self.section.fits:
            if self.dataset.name in block.datasets and self.model.name in block.models:
                for probe in (known[name] for name in block.probes):
                    if probe.family in RIVALS and probe.name not in self.block.probes:
                        seeds = block.seed_blocks if probe.family in SEEDED else ((0,),)
                        found |= {(probe.name, each): probe for each in seeds}
        return [(probe, seeds) for (_, seeds), probe in found.items()]

    def _layer_blocks(self) -> list[tuple[int | str, ...]]:
        """Cut the layers into what one forward pass reads."""
        if isinstance(self.model, PlantedModel) or isinstance(self.block, PlantedModel):
            return [(0,)]
        layers, size = layers_of(self.model, self.block), self.block.layers_per_job
        return [tuple(layers[i : i + size]) for i in range(0, len(layers), size)]

    def _tokens(
        self, layers: tuple[int | str, ...], samples: Mapping[str, Product]
    ) -> dict[str, list[Product]]:
        """Add the tokens of the sampled patches, by split."""
        if isinstance(self.model, PlantedModel):
            return _add_planted(self.graph, self.model, self.dataset, samples)
        return self._sampled(self.model, layers, samples)

    def _sampled(
        self, model: AnyModel, layers: tuple[int | str, ...], samples: Mapping[str, Product]
    ) -> dict[str, list[Product]]:
        assert not isinstance(model, KnownAnswer)
        weights = add_weights(self.graph, model, self.shared.datasets, self.shared.models.values())
        content = {
            "model": model_slice(model),
            "threads": model.extraction.threads,
            "device": model.extraction.device,
            "layers": list(layers),
            "windows": self.windows,
        }
        shards = {
            split: used_shards(self.graph, self.section, self.dataset, split) for split in SPLITS
        }
        n_shards: dict[str, int] = {split: len(products) for split, products in shards.items()}
        used = used_scenes(self.section, self.dataset)
        parts = in_parts(n_shards, self.dataset.shard_size.model_dump(), used)
        names = {"dataset": self.dataset.name, "model": model.name, "layers": joined(layers)}
        rule = "sampled"
        if not model.extraction.keep_patches:
            rule, names["entry"] = "sampled_temporary", self.block.name
        made: dict[str, list[Product]] = {split: [] for split in SPLITS}
        for name, part in parts.items():
            inputs: dict[str, Product | list[Product]] = {
                "scenes": [shards[held["split"]][held["shard"]] for held in part],
                "samples": [samples[held["split"]] for held in part],
                "weights": [weights] if weights else [],
            }
            product = self.graph.add(
                rule, {**names, "part": name}, {**content, "part": part}, inputs,
                runs=model_code(model),
            )  # fmt: skip
            for held in part:
                made[held["split"]].append(product)
        return made

    def _fit(
        self,
        probe: AnyScorer,
        seeds: tuple[int, ...],
        layers: tuple[int | str, ...],
        control: str,
        samples: Mapping[str, Product],
    ) -> None:
        """Add a fit of those layers that no block before has asked for: a layer has one row."""
        place = (self.dataset.name, self.model.name, probe.name, seeds, control)
        layers = tuple(layer for layer in layers if (*place, str(layer)) not in self.asked)
        self.asked.update((*place, str(layer)) for layer in layers)
        if not layers:
            return
        names = {
            "dataset": self.dataset.name, "model": self.model.name, "layers": joined(layers),
            "probe": probe.name, "control": control, "seeds": joined(seeds, "_"),
        }  # fmt: skip
        inputs: dict[str, list[Product]] = {"samples": list(samples.values())}
        self.graph.add(
            "same_object_fit",
            names,
            {**self._content(probe, seeds), "layers": list(layers), "control": control},
            {**inputs, **self._tokens(layers, samples)},
            runs=[FAMILIES[probe.family]],
        )

    def _baseline(
        self, probe: AnyScorer, seeds: tuple[int, ...], samples: Mapping[str, Product]
    ) -> None:
        """Add the fit of a probe that reads no token; all models of a grid share it."""
        names = {
            "dataset": self.dataset.name, "grid": joined(self.grid, "x"), "probe": probe.name,
            "seeds": joined(seeds, "_"),
        }  # fmt: skip
        self.graph.add(
            "same_object_baseline",
            names,
            {**self._content(probe, seeds), "layers": [], "control": "none"},
            {"samples": list(samples.values())},
            runs=[FAMILIES[probe.family]],
        )

    def _content(self, probe: AnyScorer, seeds: tuple[int, ...]) -> dict[str, Any]:
        return {
            "probe": probe.model_dump(mode="json", exclude={"name"}),
            "seeds": list(seeds),
            "background": self.section.sampling.background,
            "intervals": self.section.intervals.model_dump(mode="json"),
            "threads": probe.threads,
            "device": probe.device,
        }


def joined(parts: Sequence[int | str], by: str = "-") -> str:
    """Write layers, seeds or a grid as one wildcard."""
    return by.join(map(str, parts))


def used_shards(graph: Graph, section: PairSection, dataset: Dataset, split: str) -> list[Product]:
    """Return the shards that hold the scenes that are used of a split."""
    size = getattr(dataset.shard_size, split)
    n_shards = -(-used_scenes(section, dataset)[split] // size)
    return add_scenes(graph, dataset, split)[:n_shards]


@once
def add_patch_samples(
    graph: Graph, section: PairSection, dataset: Dataset, grid: PatchGrid, windows: int
) -> dict[str, Product]:
    """Add which patches of each image are in pairs, and what they show; by split."""
    content = {
        "sampling": section.sampling.model_dump(mode="json"),
        "groups": [group.model_dump() for group in dataset.space.groups],
        "grid": list(grid),
        "windows": windows,
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
    content = {"planted": planted.model_dump(mode="json", include=set(Planted.model_fields))}
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
