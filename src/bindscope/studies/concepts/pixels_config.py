"""Dual encoders of images and captions in the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from bindscope.config.base import Model, Slug
from bindscope.config.grid import unknown
from bindscope.config.models import Controlled
from bindscope.graph.texts import unread
from bindscope.studies.concepts.dual_config import Candidates

if TYPE_CHECKING:
    from bindscope.config.codes import Dataset
    from bindscope.config.models import AnyModel
    from bindscope.config.root import Config


class PixelEncoders(Model):
    """Dual encoders of images and captions: controlled models that differ in coverage or seed."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    dataset: Slug = Field(
        description="Name of a dataset of pairs in `slots: 2` with captions, best one with split "
        "rule `enumerated`, which has them all; the models may be trained on another one, of the "
        "same groups."
    )
    models: tuple[Slug, ...] = Field(
        min_length=1,
        description="Names of models that were trained with captions, and with a coverage.",
    )
    candidates: tuple[Candidates, ...] = Field(
        ("swaps",), description="As in `dual_encoders[].evaluation`."
    )


def pixel_problems(where: str, config: Config, entry: PixelEncoders) -> Iterator[str]:
    """Yield what an entry asks for that its dataset and models do not have."""
    datasets = {dataset.name: dataset for dataset in config.datasets}
    models = {model.name: model for model in config.models}
    yield from unknown(f"{where}.dataset", [entry.dataset], datasets)
    yield from unknown(f"{where}.models", entry.models, models)
    dataset = datasets.get(entry.dataset)
    if dataset is not None:
        yield from _dataset_problems(f"{where}.dataset", dataset)
    trained: dict[tuple[float | None, int], str] = {}
    for model in (models[name] for name in entry.models if name in models):
        problems = list(_model_problems(f"{where}.models", model, dataset, datasets))
        yield from problems
        if not problems and isinstance(model, Controlled):
            run = model.training.coverage, model.seed
            if trained.setdefault(run, model.name) != model.name:
                yield (
                    f"{where}.models: {trained[run]!r} and {model.name!r} have one coverage and "
                    "one seed; make an entry of each kind of training"
                )


def _dataset_problems(where: str, dataset: Dataset) -> Iterator[str]:
    if dataset.slots != 2:
        yield f"{where}: the scenes of {dataset.name!r} are no pairs in order: give `slots: 2`"
    if dataset.captions is None or dataset.render is None:
        yield f"{where}: {dataset.name!r} needs `captions` and `render`"


def _model_problems(
    where: str, model: AnyModel, dataset: Dataset | None, datasets: Mapping[str, Dataset]
) -> Iterator[str]:
    if problem := unread(model):
        yield f"{where}: {problem}"
    elif not isinstance(model, Controlled) or model.training.coverage is None:
        yield (
            f"{where}: {model.name!r} was trained on scenes of all objects, so that none is held "
            "out; give a controlled model a `training.coverage`"
        )
    elif dataset is not None and model.training.dataset in datasets:
        own, other = (
            [(group.name, group.size) for group in one.space.groups]
            for one in (dataset, datasets[model.training.dataset])
        )
        if own != other:
            yield (
                f"{where}: {model.name!r} was trained on {model.training.dataset!r}, whose groups "
                f"are not those of {dataset.name!r}; give both the same ones"
            )
