"""Which models embed which scenes and captions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from bindscope.config.base import Model, Slug
from bindscope.config.grid import unknown
from bindscope.graph.texts import unread

if TYPE_CHECKING:
    from bindscope.config.root import Config


class Embeddings(Model):
    """Embeddings of datasets with `slots` by models."""

    name: Slug = Field(description="What this entry is for; only for people.")
    datasets: tuple[Slug, ...] = Field(min_length=1, description="Names of datasets with `slots`.")
    models: tuple[Slug, ...] = Field(min_length=1, description="Names of models.")
    texts: bool = Field(
        False,
        description="Whether captions are embedded too, and images in the space where both meet; "
        "the datasets then need `captions`, and the models a text tower.",
    )


def embedding_problems(where: str, config: Config, entry: Embeddings) -> Iterator[str]:
    """Yield what an entry asks for that its datasets and models do not have."""
    datasets = {dataset.name: dataset for dataset in config.datasets}
    models = {model.name: model for model in config.models}
    yield from unknown(f"{where}.datasets", entry.datasets, datasets)
    yield from unknown(f"{where}.models", entry.models, models)
    for dataset in (datasets[name] for name in entry.datasets if name in datasets):
        if dataset.slots is None:
            yield f"{where}.datasets: the objects of {dataset.name!r} are in no order: give `slots`"
        if entry.texts and dataset.captions is None:
            yield f"{where}.texts: dataset {dataset.name!r} has no `captions`"
        if not entry.texts and dataset.render is None:
            yield f"{where}.datasets: dataset {dataset.name!r} has no render section"
    for model in (models[name] for name in entry.models if name in models):
        if entry.texts and (problem := unread(model)):
            yield f"{where}.texts: {problem}"
