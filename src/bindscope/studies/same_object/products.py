"""What the study computes: patches of images, their tokens, fits of probes of pairs."""

from __future__ import annotations

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
from bindscope.studies.same_object.quantities import (
    LEADING,
    NO_MODEL,
    RIVALS,
    WITHOUT_MODEL,
)

DECIDES_NOTHING = True

_ACTIVATIONS = "results/activations/{dataset}/{model}"
_RESULTS = "results/same_object/{dataset}/{model}"
_FIT = f"{_RESULTS}/layers-{{layers}}/{{probe}}-{{seeds}}-{{key}}"
# The fit of any other probe has one optimum.
SEEDED = ("identity_pointwise",)

_COST = "bindscope.studies.same_object.cost"
STEPS = (
    Step(
        "patch_samples",
        store("results/patch_samples/{dataset}/{grid}-{split}-{key}"),
        makes="patches",
        work=f"{_COST}:patch_samples",
    ),
    Step(
        "sampled",
        store(f"{_ACTIVATIONS}/sampled-{{layers}}/{{part}}-{{key}}"),
        reads={"weights": ("weights",)},
        makes="activations",
        work=f"{_COST}:sampled",
    ),
    # Tokens that Snakemake removes when the last fit has read them; the entry of `fits` is in their
    # path, because tokens that are made again take all their fits with them.
    Step(
        "sampled_temporary",
        store(f"{_ACTIVATIONS}/temporary-sampled-{{layers}}/{{entry}}/{{part}}-{{key}}"),
        script="sampled.py",
        reads={"weights": ("weights",)},
        makes="activations",
        work=f"{_COST}:sampled",
    ),
    # Of a probe that reads labels and positions alone, model and layers are `none`.
    Step(
        "same_object_fit",
        {
            "rows": f"{_FIT}.jsonl",
            "strata": f"{_FIT}.strata.jsonl",
            "images": f"{_FIT}.images.safetensors",
            "weights": f"{_FIT}.safetensors",
        },
        leaf=True,
        makes="fits of pairs",
        work=f"{_COST}:fit",
    ),
    Step(
        "same_object_maps",
        {"maps": f"{_RESULTS}/maps-{{layers}}/{{probe}}-{{key}}.safetensors"},
        reads={"fit": ("weights",), "weights": ("weights",)},
        leaf=True,
        makes="score maps",
        work=f"{_COST}:maps",
    ),
    Step(
        "same_object_geometry",
        {"rows": f"{_RESULTS}/geometry-{{layers}}/{{probe}}-{{key}}.jsonl"},
        reads={"fit": ("weights",)},
        leaf=True,
        makes="geometry of scores",
        work=f"{_COST}:geometry",
    ),
    Step(
        "same_object_effects",
        {"rows": f"{_RESULTS}/effects-{{layer}}/{{probe}}-{{key}}.jsonl"},
        reads={"fit": ("weights",), "weights": ("weights",)},
        leaf=True,
        makes="effects of edits",
        work=f"{_COST}:effects",
    ),
)


def add_products(graph: Graph, shared: Shared, section: PairSection) -> None:
    """Add every fit of the section, and all it needs."""
    requested: set[tuple[object, ...]] = set()
    for block in section.fits:
        for names in product(block.datasets, block.models):
            dataset, model = shared.datasets[names[0]], shared.models[names[1]]
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
                self._fit(NO_MODEL, probe, seeds, (), samples)
                continue
            for i in range(0, len(every), size):  # what one forward pass reads
                places = {
                    layer: (self.dataset.name, self.model.name, probe.name, seeds, str(layer))
                    for layer in every[i : i + size]
                }
                layers = tuple(layer for layer, place in places.items() if place not in requested)
                requested.update(places.values())
                if layers:
                    self._fit(self.model.name, probe, seeds, layers, samples)

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

    def _fit(
        self,
        model: str,
        probe: AnyScorer,
        seeds: tuple[int, ...],
        layers: tuple[int | str, ...],
        samples: Mapping[str, Product],
    ) -> None:
        names = {
            "dataset": self.dataset.name,
            "model": model,
            "probe": probe.name,
            "layers": joined(layers) or NO_MODEL,
            "seeds": joined(seeds, "_"),
        }
        content = {
            "probe": probe.model_dump(mode="json", exclude={"name"}),
            "seeds": list(seeds),
            "threads": probe.threads,
            "device": probe.device,
            "layers": list(layers),
        }
        inputs: dict[str, list[Product]] = {"samples": list(samples.values())}
        if layers:
            inputs |= self._tokens(layers, samples)
        self.graph.add("same_object_fit", names, content, inputs, runs=[FAMILIES[probe.family]])

    def _tokens(
        self, layers: tuple[int | str, ...], samples: Mapping[str, Product]
    ) -> dict[str, list[Product]]:
        """Add the tokens of the sampled patches, by split."""
        used = used_scenes(self.section, self.dataset)
        shards = {split: _shards(self.graph, self.dataset, split, n) for split, n in used.items()}
        n_shards = {split: len(products) for split, products in shards.items()}
        parts = in_parts(n_shards, self.dataset.shard_size.model_dump(), used)
        names = {
            "dataset": self.dataset.name,
            "model": self.model.name,
            "layers": joined(layers),
        }
        content, weights = _run(self.graph, self.shared, self.model)
        rule = "sampled"
        assert not isinstance(self.model, KnownAnswer)
        if not self.model.extraction.keep_patches:
            rule, names["entry"] = "sampled_temporary", self.block.name
        by_split: dict[str, list[Product]] = {split: [] for split in SPLITS}
        for name, part in parts.items():
            inputs = {
                "scenes": [shards[piece["split"]][piece["shard"]] for piece in part],
                "samples": [samples[piece["split"]] for piece in part],
                "weights": weights,
            }
            sampled_part = self.graph.add(
                rule,
                {**names, "part": name},
                {**content, "layers": list(layers), "part": part},
                inputs,
                runs=model_code(self.model),
            )
            for piece in part:
                by_split[piece["split"]].append(sampled_part)
        return by_split


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


def _shards(graph: Graph, dataset: Dataset, split: str, n: int) -> list[Product]:
    """Return the shards that hold the first scenes of a split."""
    return add_scenes(graph, dataset, split)[: -(-n // getattr(dataset.shard_size, split))]


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
            {**content, "split": split, "n_scenes": n},
            {"scenes": _shards(graph, dataset, split, n)},
        )
        for split, n in used_scenes(section, dataset).items()
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
        scenes = _shards(graph, shared.datasets[names["dataset"]], "test", 1)
        for fit in fits:
            content = {**run, "layers": fit.content["layers"], "n_scenes": maps.scenes}
            inputs = {"fit": [fit], "scenes": scenes, "weights": weights}
            names = {**names, "layers": fit.wildcards["layers"]}
            graph.add("same_object_maps", names, content, inputs, runs=model_code(model))


def _add_geometry(graph: Graph, section: PairSection, geometry: Geometry) -> None:
    """Add what is measured of the scores of every fit of the probes that are named."""
    for probe, names, fits in _fits_of(graph, section, geometry):
        for fit in fits:
            layers = fit.content["layers"]
            pairs = [list(pair) for pair in geometry.cross_layers if {*pair} <= {*layers}]
            content = {"layers": layers, "cross_layers": pairs, "threads": probe.threads}
            names = {**names, "layers": fit.wildcards["layers"]}
            graph.add("same_object_geometry", names, content, {"fit": fit, **fit.inputs})


def _add_edits(graph: Graph, shared: Shared, section: PairSection, effects: Effects) -> None:
    """Add a job per dataset, model, probe and layer."""
    for _, names, fits in _fits_of(graph, section, effects):
        of_layers = {
            layer: fit for fit in fits for layer in fit.content["layers"] if layer != "final"
        }
        for layer in effects.layers:
            _add_edits_of_layer(graph, shared, section, effects, names, layer, of_layers)
        depth = shared.models[names["model"]].depth or 0
        for layer in of_layers if effects.attention == "all" else ():
            if layer not in effects.layers and layer < depth:
                of_layer = {layer: of_layers[layer]}
                _add_edits_of_layer(graph, shared, section, effects, names, layer, of_layer)


def _add_edits_of_layer(
    graph: Graph,
    shared: Shared,
    section: PairSection,
    effects: Effects,
    names: Mapping[str, str],
    layer: int,
    fits: Mapping[int, Product],
) -> None:
    """Edit one layer, read there and in the next one with a probe; fit probes again.

    Claims are about the edited probe, so it is always among those that are fitted again. Of a layer
    that is not among the edited ones only attention is measured.
    """
    dataset, model = shared.datasets[names["dataset"]], shared.models[names["model"]]
    run, weights = _run(graph, shared, model)
    later = min((candidate for candidate in fits if candidate > layer), default=None)
    used = {fits[at].path(): fits[at] for at in (layer, later) if at is not None}
    known = {probe.name: probe for probe in section.probes}
    edits = layer in effects.layers
    refitted = (names["probe"], *effects.retrained.probes) if edits else ()
    again = [known[name] for name in dict.fromkeys(refitted)]
    n_scenes = {"train": effects.retrained.train, "val": effects.retrained.val} if edits else {}
    n_scenes["test"] = effects.scenes or used_scenes(section, dataset)["test"]
    inputs: dict[str, list[Product]] = {"fit": list(used.values()), "weights": weights}
    samples: dict[str, Product] = dict(zip(SPLITS, fits[layer].inputs["samples"], strict=True))
    for split in n_scenes:
        sample = samples[split]
        n_scenes[split] = min(n_scenes[split], sample.content["n_scenes"])
        inputs[f"{split}_scenes"] = _shards(graph, dataset, split, n_scenes[split])
        inputs[f"{split}_samples"] = [sample]
    content = {
        **run,
        "layer": layer,
        "later": later,
        "edits": edits,
        "directions": effects.directions,
        "n_scenes": n_scenes,
        "retrained": [probe.model_dump(mode="json") for probe in again],
    }
    runs = [*model_code(model), *(FAMILIES[probe.family] for probe in again)]
    if edits and isinstance(model, Controlled | Zoo):
        inputs["codes"] = [add_codes(graph, dataset)[SPLITS.index("test")]]
        runs += [OBJECTIVES[model.objective]] if model.objective in OBJECTIVES else []
    graph.add("same_object_effects", {**names, "layer": layer}, content, inputs, runs=runs)
