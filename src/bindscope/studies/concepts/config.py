"""The study's section of the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from bindscope.config.base import Model
from bindscope.config.references import repeated
from bindscope.studies.concepts.analyses_config import (
    Analysis,
    PlantedEncoder,
    analysis_problems,
)
from bindscope.studies.concepts.dual_config import DualEncoders, dual_problems
from bindscope.studies.concepts.embeddings_config import Embeddings, embedding_problems

if TYPE_CHECKING:
    from bindscope.config.root import Config


class ConceptSection(Model):
    """How concepts are bound in embeddings, and by encoders that are trained to."""

    embeddings: tuple[Embeddings, ...] = Field(
        (), description="Embeddings of scenes and captions by models."
    )
    planted: tuple[PlantedEncoder, ...] = Field(
        (), description="Encoders of known structure, for the same analyses as models."
    )
    analyses: tuple[Analysis, ...] = Field(
        (), description="Geometry, edits and complexity of embeddings."
    )
    dual_encoders: tuple[DualEncoders, ...] = Field(
        (), description="Controlled dual encoders of scenes and queries."
    )


def encoder_names(section: ConceptSection) -> list[str]:
    """Names of all encoders that are trained to bind, in order."""
    return [entry.name for entry in section.dual_encoders]


def problems(config: Config, section: ConceptSection) -> Iterator[str]:
    """Yield what in the section does not fit the rest of the configuration."""
    for i, block in enumerate(section.embeddings):
        yield from embedding_problems(f"embeddings.{i}", config, block)
    yield from _analyses(config, section)
    yield from repeated("dual_encoders", encoder_names(section))
    for i, entry in enumerate(section.dual_encoders):
        yield from dual_problems(f"dual_encoders.{i}", entry)


def _analyses(config: Config, section: ConceptSection) -> Iterator[str]:
    yield from repeated("analyses", [entry.name for entry in section.analyses])
    yield from repeated("planted", [one.name for one in section.planted])
    models = {model.name for model in config.models}
    for one in section.planted:
        if one.name in models:
            yield f"planted: {one.name!r} is the name of a model, too; rename one"
    for i, entry in enumerate(section.analyses):
        where = f"analyses.{i}"
        yield from analysis_problems(where, config, entry, section)
        if entry.complexity:
            names = [option.name for option in entry.complexity.approximators]
            yield from repeated(f"{where}.complexity.approximators", names)
