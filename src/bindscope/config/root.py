"""The whole configuration of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field, model_validator

from bindscope.config.base import Model, NonNegativeInt, Slug
from bindscope.config.codes import Dataset
from bindscope.config.information import Information
from bindscope.config.models import AnyModel, KnownAnswer
from bindscope.config.probes import PATCH_FAMILIES, AnyProbe

Tokens = Literal["cls", "mean", "cls_mean", "patches"]
FIGURES = (
    "tokens", "layers", "attention", "structure", "training", "breakdown", "calibration",
)  # fmt: skip


class FitBlock(Model):
    """A grid of fits: datasets x models x layers x tokens x probes x seed blocks x controls."""

    name: Slug = Field(description="What this grid is for; only for people.")
    datasets: tuple[Slug, ...] = Field(min_length=1, description="Names of datasets.")
    models: tuple[Slug, ...] = Field(min_length=1, description="Names of models.")
    layers: Literal["all", "last"] | tuple[NonNegativeInt | Literal["final"], ...] = Field(
        "last",
        description="`all` (0 to n_layers), `last` (n_layers), or a list; 0 is the input of the "
        "first block, `final` the output of the model's last norm.",
    )
    tokens: tuple[Tokens, ...] = Field(
        ("cls",),
        description="What the probe reads: `cls`, `mean` (of patch tokens), `cls_mean`, `patches`.",
    )
    probes: tuple[Slug, ...] = Field(min_length=1, description="Names of probes.")
    seed_blocks: tuple[tuple[NonNegativeInt, ...], ...] = Field(
        ((0,),), description="Seeds; each block is one job, a new block refits nothing."
    )
    controls: tuple[Literal["none", "shuffled_labels"], ...] = Field(
        ("none",), description="`shuffled_labels` breaks the pairing of scenes and labels."
    )


class Report(Model):
    """The page."""

    title: str = Field("Binding information", description="Title of results/report.html.")
    figures: tuple[Literal[FIGURES], ...] = Field(  # type: ignore[valid-type]
        FIGURES, description="Figures to draw; one whose data are not configured is left out."
    )


class Config(Model):
    """Everything that decides the results."""

    datasets: tuple[Dataset, ...] = Field(min_length=1, description="Scenes.")
    models: tuple[AnyModel, ...] = Field(min_length=1, description="Representations.")
    probes: tuple[AnyProbe, ...] = Field(min_length=1, description="Probe families.")
    fits: tuple[FitBlock, ...] = Field(min_length=1, description="Which probes are fitted where.")
    information: Information = Field(Information(), description="Intervals and flags.")
    report: Report = Field(Report(), description="The report.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _unique("datasets", (d.name for d in self.datasets))
        _unique("models", (m.name for m in self.models))
        _unique("probes", (p.name for p in self.probes))
        _unique("fits", (f.name for f in self.fits))
        for i, block in enumerate(self.fits):
            self._check_block(f"fits.{i}", block)
        self._check_training()
        return self

    def _check_block(self, where: str, block: FitBlock) -> None:
        datasets = {d.name: d for d in self.datasets}
        models = {m.name: m for m in self.models}
        probes = {p.name: p for p in self.probes}
        _known(f"{where}.datasets", block.datasets, datasets)
        _known(f"{where}.models", block.models, models)
        _known(f"{where}.probes", block.probes, probes)
        for name in block.models:
            _check_layers(where, models[name], block)
            if not isinstance(models[name], KnownAnswer):
                for dataset in block.datasets:
                    if datasets[dataset].render is None:
                        raise ValueError(
                            f"{where}: model {name!r} sees images, but dataset {dataset!r} has no "
                            "render section"
                        )
        for name in block.probes:
            wants_patches = probes[name].family in PATCH_FAMILIES
            for tokens in block.tokens:
                if wants_patches != (tokens == "patches"):
                    raise ValueError(
                        f"{where}: probe {name!r} ({probes[name].family}) "
                        f"{'needs' if wants_patches else 'cannot read'} patch tokens, but tokens "
                        f"lists {tokens!r}; put it in a block with "
                        f"tokens: [{'patches' if wants_patches else 'cls'}]"
                    )
            if probes[name].family == "quadratic_reuse":
                for dataset in block.datasets:
                    if len(datasets[dataset].space.groups) != 2:
                        raise ValueError(
                            f"{where}: probe {name!r} (quadratic_reuse) is defined for two feature "
                            f"groups, {dataset!r} has {len(datasets[dataset].space.groups)}; use "
                            "multilinear_reuse"
                        )

    def _check_training(self) -> None:
        datasets = {d.name: d for d in self.datasets}
        for i, model in enumerate(self.models):
            training = getattr(model, "training", None)
            if training is None:
                continue
            where = f"models.{i}.training.dataset"
            _known(where, (training.dataset,), datasets)
            render = datasets[training.dataset].render
            if render is None:
                raise ValueError(f"{where}: dataset {training.dataset!r} has no render section")
            patch = model.architecture.patch_px  # type: ignore[union-attr]
            if render.size_px % patch:
                raise ValueError(
                    f"models.{i}.architecture.patch_px: {patch} px patches do not divide the "
                    f"{render.size_px} px images of {training.dataset!r}"
                )


def _check_layers(where: str, model: object, block: FitBlock) -> None:
    if isinstance(block.layers, str):
        return
    deepest = 0 if isinstance(model, KnownAnswer) else _depth(model)
    for layer in block.layers:
        if layer == "final" and not isinstance(model, KnownAnswer):
            continue
        if layer == "final" or layer > deepest:
            raise ValueError(
                f"{where}.layers: model {model.name!r} has layers 0 to {deepest}, not {layer!r}"  # type: ignore[attr-defined]
            )


def _depth(model: object) -> int:
    architecture = getattr(model, "architecture", None)
    return int(architecture.n_layers if architecture else model.n_layers)  # type: ignore[attr-defined]


def _unique(where: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{where}: the name {name!r} is used twice")
        seen.add(name)


def _known(where: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"{where}: {name!r} is not defined; there are {', '.join(known)}")


__all__ = ["FIGURES", "Config", "FitBlock", "Information", "Report"]
