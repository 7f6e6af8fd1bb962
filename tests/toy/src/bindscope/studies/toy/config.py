"""The toy study's section of the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from bindscope.config.base import ConfigModel
from bindscope.config.grid import Grid, grid_problems

if TYPE_CHECKING:
    from bindscope.config.root import Config

DECIDES_NOTHING = True


class Section(ConfigModel):
    """How long the tokens of models are."""

    grids: tuple[Grid, ...] = Field(min_length=1, description="What is measured where.")


def problems(config: Config, section: Section) -> Iterator[str]:
    """Yield what in the section does not fit the rest of the configuration."""
    datasets = {dataset.name: dataset for dataset in config.datasets}
    models = {model.name: model for model in config.models}
    for i, grid in enumerate(section.grids):
        yield from grid_problems(f"grids.{i}", grid, datasets, models)
