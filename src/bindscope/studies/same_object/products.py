"""What the study computes: patches of images, their tokens, fits of probes of pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from bindscope.activations.parts import in_parts
from bindscope.config.codes import Dataset
from bindscope.config.grid import layers_of
from bindscope.config.models import AnyModel, Controlled, KnownAnswer, Zoo
from bindscope.core.graph import Graph, Product, once
from bindscope.core.interfaces import Step
from bindscope.core.registries import OBJECTIVES
from bindscope.core.splits import SPLITS
from bindscope.graph.activations import add_weights, model_code, model_slice
from bindscope.graph.data import add_codes, add_scenes
from bindscope.graph.shared import Shared
from bindscope.graph.steps import store
from bindscope.studies.same_object.config import (
    FAMILIES,
    AnyScorer,
    Effects,
    Geometry,
    Maps,
    OfFits,
    PairFits,
    PairSection,
    PatchGrid,
    patch_grid,
    used_scenes,
)
from bindscope.studies.same_object.quantities import LEADING, RIVALS, WITHOUT_MODEL

_ACTIVATIONS = "results/activations/{dataset}/{model}"
_FIT = "results/same_object/{dataset}/{model}/layers-{layers}/{probe}-{seeds}-{key}"
_BASELINE = "results/same_object/{dataset}/grid-{grid}/{probe}-{seeds}-{key}"
# The fit of any other probe has one optimum.
SEEDED = ("identity_pointwise",)


def _fit_outputs(base: str) -> dict[str, str]:
    return {
        "rows": f"{base}.jsonl",
        "strata": f"{base}.strata.jsonl",
        "images": f"{base}.images.safetensors",
        "weights": f"{base}.safetensors",
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
    Step(
        "same_object_effects",
        {"rows": "results/same_object/{dataset}/{model}/effects-{layer}/{probe}-{key}.jsonl"},
        reads={"fit": ("weights",), "weights": ("weights",)},
        leaf=True,
        makes="effects of edits",
    ),
)


def add_products(graph: Graph, shared: Shared, section: PairSection) -> None:
    """Add every fit of the section, and all it needs."""
    requested: set[tuple[object, ...]] = set()
    for block in section.fits:
        for dataset in (shared.datasets[name] for name in block.datasets):
            for model in (shared.models[name] for name in block.models):
                _Fits(graph, shared, section, block, dataset, model).add(requested)
    if section.maps:
        _add_maps(graph, shared, section, section.maps)
    if section.geometry:
        _add_geometry(graph, section, section.geometry)
    if section.effects:
        _add_edits(graph, shared, section, section.effects)


@dataclass(frozen=True)
class _Fits:
    """Fits of all probes of a block on one model's tokens of one dataset."""

    graph: Graph
    shared: Shared
    section: PairSection
    block: PairFits
    dataset: Dataset
    model: AnyModel

    def add(self, requested: set[tuple[object, ...]]) -> None:
        """Add the fits of every block of layers, probe and block of seeds.

        `requested`: what blocks before have asked for: a layer has one row.
        """
        grid = patch_grid(self.model, self.dataset, self.block)
        assert grid is not None
        samples = add_patch_samples(self.graph, self.section, self.dataset, grid)
        every, size = layers_of(self.model, self.block), self.block.layers_per_job
        for probe, seeds in (*self._probes(), *self._rivals()):
            if probe.family in WITHOUT_MODEL:  # all models of a grid share it
                names = {"grid": joined(grid, "x")}
                self._fit("same_object_baseline", names, probe, seeds, (), samples, {})
                continue
            for i in range(0, len(every), size):  # what one forward pass reads
                places = {
                    layer: (self.dataset.name, self.model.name, probe.name, seeds, str(layer))
                    for layer in every[i : i + size]
                }
                layers = tuple(layer for layer, place in places.items() if place not in requested)
                requested.update(places.values())
                if layers:
                    names = {"model": self.model.name, "layers": joined(layers)}
                    tokens = self._tokens(layers, samples)
                    self._fit("same_object_fit", names, probe, seeds, layers, samples, tokens)

    def _probes(self) -> Iterator[tuple[AnyScorer, tuple[int, ...]]]:
        known = {probe.name: probe for probe in self.section.probes}
        for probe in (known[name] for name in self.block.probes):
            for seeds in self.block.seed_blocks if probe.family in SEEDED else [(0,)]:
                yield probe, seeds

    def _rivals(self) -> list[tuple[AnyScorer, tuple[int, ...]]]:
        """Return probes that other entries fit to these tokens and that a claim may need here.

        A claim is judged at the layer that validation prefers for a leading probe, which is not
        known beforehand: so its rivals are fitted to every layer that a leading probe is fitted to.
        """
        if not any(probe.family in LEADING for probe, _ in self._probes()):
            return []
        rivals: dict[tuple[str, tuple[int, ...]], AnyScorer] = {}
        for block in self.section.fits:
            if self.dataset.name in block.datasets and self.model.name in block.models:
                for probe, seeds in replace(self, block=block)._probes():
                    is_rival = probe.family in (*RIVALS, "quadratic_position")
                    if is_rival and probe.name not in self.block.probes:
                        rivals[probe.name, seeds] = probe
        return [(probe, seeds) for (_, seeds), probe in rivals.items()]

    def _tokens(
        self, layers: tuple[int | str, ...], samples: Mapping[str, Product]
    ) -> dict[str, list[Product]]:
        """Add the tokens of the sampled patches, by split."""
        shards = {
            split: used_shards(self.graph, self.section, self.dataset, split) for split in SPLITS
        }
        n_shards: dict[str, int] = {split: len(products) for split, products in shards.items()}
        used = used_scenes(self.section, self.dataset)
        parts = in_parts(n_shards, self.dataset.shard_size.model_dump(), used)
        names = {
            "dataset": self.dataset.name, "model": self.model.name, "layers": joined(layers),
        }  # fmt: skip
        model = self.model
        assert not isinstance(model, KnownAnswer)
        content, weights = _run(self.graph, self.shared, model)
        rule = "sampled"
        if not model.extraction.keep_patches:
            rule, names["entry"] = "sampled_temporary", self.block.name
        by_split: dict[str, list[Product]] = {split: [] for split in SPLITS}
        for name, part in parts.items():
            inputs: dict[str, Product | list[Product]] = {
                "scenes": [shards[piece["split"]][piece["shard"]] for piece in part],
                "samples": [samples[piece["split"]] for piece in part],
                "weights": weights,
            }
            sampled_part = self.graph.add(
                rule, {**names, "part": name}, {**content, "layers": list(layers), "part": part},
                inputs, runs=model_code(model),
            )  # fmt: skip
            for piece in part:
                by_split[piece["split"]].append(sampled_part)
        return by_split

    def _fit(
        self,
        step: str,
        names: Mapping[str, str],
        probe: AnyScorer,
        seeds: tuple[int, ...],
        layers: tuple[int | str, ...],
        samples: Mapping[str, Product],
        tokens: Mapping[str, list[Product]],
    ) -> None:
        content = {
            "probe": probe.model_dump(mode="json", exclude={"name"}),
            "seeds": list(seeds),
            "intervals": self.section.intervals.model_dump(mode="json"),
            "threads": probe.threads,
            "device": probe.device,
            "layers": list(layers),
        }
        about = {"dataset": self.dataset.name, "probe": probe.name, "seeds": joined(seeds, "_")}
        inputs = {"samples": list(samples.values()), **tokens}
        self.graph.add(step, {**about, **names}, content, inputs, runs=[FAMILIES[probe.family]])


def _run(graph: Graph, shared: Shared, model: AnyModel) -> tuple[dict[str, Any], list[Product]]:
    """Return what a job that runs a model depends on, and the weights that it reads."""
    assert not isinstance(model, KnownAnswer)
    weights = add_weights(graph, model, shared.datasets, shared.models.values())
    content = {
        "model": model_slice(model),
        "threads": model.extraction.threads,
        "device": model.extraction.device,
    }
    return content, [weights] if weights else []


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
    graph: Graph, section: PairSection, dataset: Dataset, grid: PatchGrid
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


# --- What is made of fits ------------------------------------------------------------------------


def _fits_of(
    graph: Graph, section: PairSection, request: OfFits
) -> Iterator[tuple[AnyScorer, dict[str, str], list[Product]]]:
    """Yield probes with the names, and the products, of their fits to a model's tokens."""
    probes = [probe for probe in section.probes if probe.name in request.probes]
    for dataset, model, probe in product(request.datasets, request.models, probes):
        names = {"dataset": dataset, "model": model, "probe": probe.name}
        yield probe, names, graph.select("same_object_fit", **names)


def _add_maps(graph: Graph, shared: Shared, section: PairSection, maps: Maps) -> None:
    """Add the score maps of every fit of the probes that they show."""
    for _, names, fits in _fits_of(graph, section, maps):
        model = shared.models[names["model"]]
        run, weights = _run(graph, shared, model)
        scenes = used_shards(graph, section, shared.datasets[names["dataset"]], "test")[:1]
        for fit in fits:
            layers = json.loads(fit.spec)["layers"]
            content = {**run, "layers": layers, "seed": 0, "n_scenes": maps.scenes}
            inputs: dict[str, Product | list[Product]] = {
                "fit": fit, "scenes": scenes, "weights": weights,
            }  # fmt: skip
            names = {**names, "layers": fit.wildcards["layers"]}
            graph.add("same_object_maps", names, content, inputs, runs=model_code(model))


def _add_geometry(graph: Graph, section: PairSection, geometry: Geometry) -> None:
    """Add what is measured of the scores of every fit of the probes that are named."""
    for probe, names, fits in _fits_of(graph, section, geometry):
        for fit in fits:
            known = json.loads(fit.spec)
            content = {key: known[key] for key in ("layers", "intervals")}
            content["threads"] = probe.threads
            names = {**names, "layers": fit.wildcards["layers"]}
            graph.add("same_object_geometry", names, content, {"fit": fit, **fit.inputs})


def _add_edits(graph: Graph, shared: Shared, section: PairSection, effects: Effects) -> None:
    """Add a job per dataset, model, probe and layer."""
    for _, names, fits in _fits_of(graph, section, effects):
        of_layers = {
            layer: fit for fit in fits for layer in json.loads(fit.spec)["layers"]
            if layer != "final"
        }  # fmt: skip
        for layer in effects.layers:
            _add_edits_of_layer(graph, shared, section, effects, names, layer, of_layers)


def _add_edits_of_layer(
    graph: Graph,
    shared: Shared,
    section: PairSection,
    effects: Effects,
    names: Mapping[str, str],
    layer: int,
    fits: Mapping[int, Product],
) -> None:
    dataset, model = shared.datasets[names["dataset"]], shared.models[names["model"]]
    run, weights = _run(graph, shared, model)
    later = min((candidate for candidate in fits if candidate > layer), default=None)
    used = {fits[at].path(): fits[at] for at in (layer, later) if at is not None}
    samples = fits[layer].inputs["samples"][SPLITS.index("test")]
    n_scenes = effects.scenes or json.loads(samples.spec)["n_scenes"]
    n_shards = -(-n_scenes // dataset.shard_size.test)
    again, read = _retrained(graph, dataset, section, effects, fits[layer])
    content = {
        **run,
        "layer": layer,
        "later": later,
        "directions": effects.directions,
        "n_scenes": n_scenes,
        "intervals": section.intervals.model_dump(mode="json"),
        "retrained": again,
    }
    inputs: dict[str, Product | list[Product]] = {
        "scenes": add_scenes(graph, dataset, "test")[:n_shards],
        "samples": samples,
        "fit": list(used.values()),
        "weights": weights,
        **read,
    }
    runs = [*model_code(model), *(FAMILIES[probe["family"]] for probe in again["probes"])]
    if isinstance(model, Controlled | Zoo):
        inputs["codes"] = [add_codes(graph, dataset)[SPLITS.index("test")]]
        runs += [OBJECTIVES[model.objective]] if model.objective in OBJECTIVES else []
    graph.add("same_object_effects", {**names, "layer": layer}, content, inputs, runs=runs)


def _retrained(
    graph: Graph, dataset: Dataset, section: PairSection, effects: Effects, fit: Product
) -> tuple[dict[str, Any], dict[str, list[Product]]]:
    """Return what is said of probes that are fitted again, and scenes and samples of the splits.

    Claims are about the edited probe, so it is always among them.
    """
    request, edited = effects.retrained, fit.wildcards["probe"]
    known = {probe.name: probe for probe in section.probes}
    names = dict.fromkeys((edited, *request.probes))
    content: dict[str, Any] = {
        "probes": [known[name].model_dump(mode="json") for name in names],
    }
    inputs: dict[str, list[Product]] = {}
    samples = fit.inputs["samples"]
    assert isinstance(samples, list)
    for split in ("train", "val"):
        sample = samples[SPLITS.index(split)]
        content[split] = min(getattr(request, split), json.loads(sample.spec)["n_scenes"])
        n_shards = -(-content[split] // getattr(dataset.shard_size, split))
        inputs[f"{split}_scenes"] = add_scenes(graph, dataset, split)[:n_shards]
        inputs[f"{split}_samples"] = [sample]
    return content, inputs
