"""What the values of a dataset's feature groups are called."""

from __future__ import annotations

from typing import Any

from bindscope.config.base import Group
from bindscope.config.codes import FAST, SceneDistribution
from bindscope.config.observed import ClevrSource, TableSource
from bindscope.config.pug_spare import PugSpareSource
from bindscope.config.slots import Clevr2dRenderer
from bindscope.config.solids import SolidsRenderer
from bindscope.config.sprites import SpritesRenderer
from bindscope.scenes import clevr_2d_palette, sprite_palette
from bindscope.scenes.palette import COLORS, SHAPES
from bindscope.scenes.pug_spare_values import VALUES as PUG_SPARE
from bindscope.scenes.solids.values import VALUES, group_values


def value_names(dataset: SceneDistribution) -> list[dict[str, Any]]:
    """Name the feature groups of a dataset and their values, in the order of the object code.

    Values are numbered where neither the renderer nor the source names them.
    """
    return [
        {"name": group.name, "values": _values(dataset, i, group)}
        for i, group in enumerate(dataset.space.groups)
    ]


def words(dataset: SceneDistribution) -> list[dict[str, Any]]:
    """Name groups and values as captions do: as `value_names`, or as the captions section says."""
    named = value_names(dataset)
    caption_words = dataset.captions.words if dataset.captions else {}
    return [
        {**group, "values": list(caption_words.get(group["name"], group["values"]))}
        for group in named
    ]


def _values(dataset: SceneDistribution, i: int, group: Group) -> list[str]:
    render, source = dataset.render, dataset.source
    if isinstance(render, SolidsRenderer):
        return list(group_values(group.name, render.colors)[: group.size])
    if isinstance(source, TableSource):
        return list(source.values[group.name])
    if isinstance(source, ClevrSource):
        return list(VALUES[group.name])
    if isinstance(source, PugSpareSource):
        return list(PUG_SPARE[group.name])
    palette: tuple[str, ...] = ()
    if isinstance(render, FAST):
        palette = (tuple(COLORS), SHAPES)[i]
    elif isinstance(render, Clevr2dRenderer):
        palette = (tuple(clevr_2d_palette.COLORS), clevr_2d_palette.SHAPES)[i]
    elif isinstance(render, SpritesRenderer):
        palette = (sprite_palette.COLORS, sprite_palette.SHAPES)[i][render.words]
    if group.size <= len(palette):
        return list(palette[: group.size])
    return [str(value) for value in range(group.size)]
