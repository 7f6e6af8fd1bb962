"""What of the edits that a configuration asks for cannot be made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from bindscope.config.codes import Dataset
from bindscope.config.grid import depth, layers_of, undefined
from bindscope.config.models import AnyModel
from bindscope.studies.same_object.effects_config import Effects

if TYPE_CHECKING:
    from bindscope.studies.same_object.config import PairSection

EDITED = ("quadratic", "low_rank")  # families whose form has a subspace


def effects_problems(
    section: PairSection,
    effects: Effects,
    datasets: Mapping[str, Dataset],
    models: Mapping[str, AnyModel],
) -> Iterator[str]:
    """Yield what edits ask for that is not fitted, or cannot be edited."""
    probes = {probe.name: probe for probe in section.probes}
    yield from undefined("effects", effects, datasets=datasets, models=models, probes=probes)
    for name in effects.probes:
        if name in probes and probes[name].family not in EDITED:
            yield f"effects.probes: {name!r} has no subspace; name quadratic or low-rank probes"
        elif name in probes and probes[name].model_dump()["token_norm"] != "none":
            yield f"effects.probes: {name!r} norms tokens first; use one with `token_norm: none`"
    if effects.later is not None and effects.later <= max(effects.layers):
        yield "effects.later: must come after all `layers`; name a later layer, or leave it out"
    for model in (models[name] for name in effects.models if name in models):
        if max(effects.layers) >= depth(model):
            yield (
                f"effects.layers: after layer {max(effects.layers)} of {model.name!r} comes no "
                f"block whose attention could change; edit layers below {depth(model)}"
            )
    yield from _unfitted(section, effects, models)
    yield from _retrained(section, effects, datasets)
    for name in effects.datasets:
        used = section.scenes or (datasets[name].n_scenes if name in datasets else None)
        if effects.scenes and used and effects.scenes > used.test:
            yield (
                f"effects.scenes: {effects.scenes}, but {used.test} of {name!r} are used; ask for "
                "fewer"
            )


def _unfitted(
    section: PairSection, effects: Effects, models: Mapping[str, AnyModel]
) -> Iterator[str]:
    """Yield what of the edits no entry of `fits` has a probe for."""
    fitted = {
        (dataset, model, probe, layer)
        for block in section.fits
        if "none" in block.controls
        for dataset in block.datasets
        for model in block.models
        if model in models
        for probe in block.probes
        for layer in layers_of(models[model], block)
    }
    layers = {*effects.layers, *([effects.later] if effects.later else [])}
    for dataset in effects.datasets:
        for model in effects.models:
            for probe in effects.probes:
                for layer in sorted(layers):
                    if model in models and (dataset, model, probe, layer) not in fitted:
                        yield (
                            f"effects: no entry of `fits` fits {probe!r} to layer {layer} of "
                            f"{model!r} on {dataset!r}; add it there, or leave it out here"
                        )


def _retrained(
    section: PairSection, effects: Effects, datasets: Mapping[str, Dataset]
) -> Iterator[str]:
    """Yield what cannot be fitted again."""
    asked = effects.retrained
    if asked is None:
        return
    probes = {probe.name: probe for probe in section.probes}
    yield from undefined("effects.retrained", asked, probes=probes)
    for name in asked.probes:
        if name in probes and probes[name].family in ("position", "baseline"):
            yield f"effects.retrained.probes: {name!r} reads no tokens; name one that does"
    if "weights" in asked.edits and not effects.weights:
        yield "effects.retrained.edits: `weights` is not made; set `effects: {weights: true}`"
    for name in effects.datasets:
        used = section.scenes or (datasets[name].n_scenes if name in datasets else None)
        for split in ("train", "val"):
            if used and getattr(asked, split) > getattr(used, split):
                yield (
                    f"effects.retrained.{split}: {getattr(asked, split)}, but "
                    f"{getattr(used, split)} of {name!r} are used; ask for fewer"
                )
