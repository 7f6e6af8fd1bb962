"""The whole configuration of a run."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from bindscope.config.base import Model, NonNegativeInt, Slug
from bindscope.config.codes import Dataset
from bindscope.config.information import Information
from bindscope.config.models import AnyModel
from bindscope.config.probes import AnyProbe
from bindscope.config.references import problems

Tokens = Literal["cls", "mean", "cls_mean", "patches"]
FIGURES = (
    "scenes", "tokens", "layers", "attention", "structure", "training", "breakdown", "calibration",
    "complexity", "resolution", "occlusion", "natural",
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


class Family(Model):
    """Models that are one family at several input sizes: a curve of the figure `resolution`."""

    name: Slug = Field(description="Name of the curve.")
    models: tuple[Slug, ...] = Field(min_length=2, description="Names of models.")


class Report(Model):
    """The page."""

    title: str = Field("Binding information", description="Title of results/report.html.")
    figures: tuple[Literal[FIGURES], ...] = Field(  # type: ignore[valid-type]
        FIGURES, description="Figures to draw; one whose data are not configured is left out."
    )
    families: tuple[Family, ...] = Field(
        (),
        description="Curves of the figure `resolution`: models that differ in their input size.",
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
        if found := list(problems(self)):
            raise ValueError("\n".join(found))
        return self


__all__ = ["FIGURES", "Config", "Family", "FitBlock", "Information", "Report"]
