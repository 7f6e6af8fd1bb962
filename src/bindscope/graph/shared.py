"""What all studies of a configuration share: its datasets, models and their activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bindscope.config.base import Group
from bindscope.config.codes import FAST, Dataset
from bindscope.config.models import AnyModel
from bindscope.config.observed import ClevrSource, TableSource
from bindscope.config.slots import Clevr2dRenderer
from bindscope.config.solids import SolidsRenderer
from bindscope.core.graph import Graph, Product
from bindscope.graph.activations import add_patches, add_pooled, add_weights
from bindscope.scenes import clevr_2d
from bindscope.scenes.palette import COLOURS, SHAPES
from bindscope.scenes.solids.values import VALUES, group_values


@dataclass(frozen=True)
class Shared:
    """The entities that several studies read.

    Attributes
    ----------
    datasets, models
        Configurations by name, in the configuration's order.
    """

    datasets: Mapping[str, Dataset]
    models: Mapping[str, AnyModel]

    def activations(
        self, graph: Graph, model: AnyModel, dataset: Dataset, layer: int | str, tokens: str
    ) -> Product:
        """Return the index of a model's activations, with all that they are made from.

        Parameters
        ----------
        graph
            Where products are added.
        model, dataset
            What is run over what.
        layer
            The layer that is wanted; pooled tokens come with all layers.
        tokens
            `patches`, or one of the pooled tokens.
        """
        weights = add_weights(graph, model, self.datasets, self.models.values())
        if tokens == "patches":
            return add_patches(graph, model, dataset, weights, layer)
        return add_pooled(graph, model, dataset, weights)


def value_names(dataset: Dataset) -> list[dict[str, Any]]:
    """Name the feature groups of a dataset and their values, in the order of the object code.

    Returns
    -------
    list of ``{"name": ..., "values": [...]}``
        Values are numbered where neither the renderer nor the source names them.
    """
    return [
        {"name": group.name, "values": _values(dataset, i, group)}
        for i, group in enumerate(dataset.space.groups)
    ]


def _values(dataset: Dataset, i: int, group: Group) -> list[str]:
    render, source = dataset.render, dataset.source
    if isinstance(render, SolidsRenderer):
        return list(group_values(group.name, render.colors)[: group.size])
    if isinstance(source, TableSource):
        return list(source.values[group.name])
    if isinstance(source, ClevrSource):
        return list(VALUES[group.name])
    palette: tuple[str, ...] = ()
    if isinstance(render, FAST):
        palette = (tuple(COLOURS), SHAPES)[i]
    elif isinstance(render, Clevr2dRenderer):
        palette = (tuple(clevr_2d.COLOURS), clevr_2d.SHAPES)[i]
    if group.size <= len(palette):
        return list(palette[: group.size])
    return [str(value) for value in range(group.size)]
