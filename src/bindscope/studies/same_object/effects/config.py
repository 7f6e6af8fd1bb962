"""Configuration of edits: what is edited, which controls are made, and what cannot be edited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from bindscope.config.base import (
    DatasetName,
    Model,
    ModelName,
    NonNegativeInt,
    PositiveInt,
    ProbeName,
)
from bindscope.config.codes import Dataset
from bindscope.config.grid import layers_of
from bindscope.config.models import AnyModel

if TYPE_CHECKING:
    from bindscope.studies.same_object.config import PairSection

EDITED = ("quadratic",)  # families whose form has a subspace
Share = Annotated[float, Field(gt=0, le=1)]
Alpha = Annotated[float, Field(ge=0, lt=1)]


class Retrained(Model):
    """Probes that are fitted again to edited tokens; the edited probe always is."""

    probes: tuple[ProbeName, ...] = Field(
        (), description="Names of probes that read tokens, fitted again beside the edited one."
    )
    edits: tuple[Literal["shuffle", "inject", "remove", "weights"], ...] = Field(
        ("shuffle", "inject", "remove"),
        description="The edits, at their greatest strength, of every subspace; and no edit. "
        "`remove`, which a claim is about, is always among them.",
    )
    train: PositiveInt = Field(
        500,
        description="Scenes of train, the first ones, at most: the model runs over them under "
        "each edit.",
    )
    val: PositiveInt = Field(250, description="Scenes of validation, the first ones, at most.")


class Effects(Model):
    """Edits of what a fitted probe reads, and what they do to attention, probes and the loss."""

    datasets: tuple[DatasetName, ...] = Field(min_length=1, description="Names of datasets.")
    models: tuple[ModelName, ...] = Field(min_length=1, description="Names of models.")
    probes: tuple[ProbeName, ...] = Field(
        min_length=1, description="Names of quadratic probes whose subspace is edited."
    )
    layers: tuple[NonNegativeInt, ...] = Field(
        min_length=1,
        description="Layers that are edited, each for itself; the block after it is measured.",
    )
    later: PositiveInt | None = Field(
        None,
        description="A later layer whose probe, as it was fitted, reads the tokens too. Default: "
        "the next layer that the probe is fitted to.",
    )
    directions: PositiveInt = Field(
        8, description="Directions of the subspace: eigenvalues of the probe, largest by size."
    )
    shuffle: tuple[Share, ...] = Field(
        (0.5, 1.0),
        description="Shares of the patches of an image that exchange what is in it; all of them, "
        "which a claim is about, always.",
    )
    inject: tuple[Alpha, ...] = Field(
        (0.5, 0.0),
        description="Alphas of injections: the share of its own that a patch keeps, the rest is "
        "its object's mean; 0, which a claim is about, always.",
    )
    weights: bool = Field(
        True,
        description="Whether the subspace is taken out of all weights that write the residual "
        "stream, too: no layer's tokens have a part in it. Needs layers of one width.",
    )
    retrained: Retrained = Field(
        Retrained(),
        description="Probes that are fitted again to edited tokens, which distinguishes "
        "information that is gone from information that the old probe no longer finds.",
    )
    refit: NonNegativeInt = Field(
        400,
        description="Steps in which head, decoder or text tower of a model of the zoo whose file "
        "has none are fitted again to its frozen transformer, for its own pretraining loss; 0: it "
        "has no such loss.",
    )
    scenes: PositiveInt | None = Field(
        None, description="Number of test scenes, the first ones. Default: those that are used."
    )
    seed: NonNegativeInt = Field(0, description="Seed of shuffles and random directions.")


def effects_problems(
    section: PairSection,
    effects: Effects,
    datasets: Mapping[str, Dataset],
    models: Mapping[str, AnyModel],
) -> Iterator[str]:
    """Yield what edits ask for that is not fitted, or cannot be edited."""
    probes = {probe.name: probe for probe in section.probes}
    for name in effects.probes:
        if probes[name].family not in EDITED:
            yield f"effects.probes: {name!r} has no subspace; name quadratic probes"
        elif probes[name].model_dump()["token_norm"] != "none":
            yield f"effects.probes: {name!r} norms tokens first; use one with `token_norm: none`"
    if effects.later is not None and effects.later <= max(effects.layers):
        yield "effects.later: must come after all `layers`; name a later layer, or leave it out"
    for model in (models[name] for name in effects.models):
        if max(effects.layers) >= model.depth:
            yield (
                f"effects.layers: after layer {max(effects.layers)} of {model.name!r} comes no "
                f"block whose attention could change; edit layers below {model.depth}"
            )
    yield from _unfitted(section, effects, models)
    yield from _retrained(section, effects)
    for name in effects.datasets:
        used = section.scenes or datasets[name].n_scenes
        if effects.scenes and effects.scenes > used.test:
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
        for probe in block.probes
        for layer in layers_of(models[model], block)
    }
    layers = {*effects.layers, *([effects.later] if effects.later else [])}
    for dataset, model, probe in product(effects.datasets, effects.models, effects.probes):
        here = {at for *names, at in fitted if names == [dataset, model, probe]}
        for layer in sorted(layers - here):
            yield (
                f"effects: no entry of `fits` fits {probe!r} to layer {layer} of {model!r} on "
                f"{dataset!r}; add it there, or leave it out here"
            )
        last = max((at for at in here if isinstance(at, int)), default=0)
        if layers <= here and last <= max(effects.layers):
            yield (
                f"effects.layers: {probe!r} is fitted to no layer of {model!r} on {dataset!r} "
                f"after layer {max(effects.layers)}, and claims are about a later layer; add one "
                "to `fits`"
            )


def _retrained(section: PairSection, effects: Effects) -> Iterator[str]:
    """Yield what cannot be fitted again."""
    asked = effects.retrained
    probes = {probe.name: probe for probe in section.probes}
    for name in asked.probes:
        if probes[name].family in ("position", "baseline"):
            yield f"effects.retrained.probes: {name!r} reads no tokens; name one that does"
    if "weights" in asked.edits and not effects.weights:
        yield "effects.retrained.edits: `weights` is not made; set `effects: {weights: true}`"
