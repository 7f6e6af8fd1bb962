"""What all studies of a configuration share: its datasets, models and their activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bindscope.config.codes import Dataset
from bindscope.config.models import AnyModel
from bindscope.core.graph import Graph, Product
from bindscope.graph.activations import add_patches, add_pooled, add_weights
from bindscope.graph.texts import add_joint, add_text_embeddings


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
        weights = self.weights(graph, model)
        if tokens == "patches":
            return add_patches(graph, model, dataset, weights, layer)
        return add_pooled(graph, model, dataset, weights)

    def text_embeddings(self, graph: Graph, model: AnyModel, dataset: Dataset) -> Product:
        """Return the vectors of a dataset's captions by a model that reads (`texts.unread`)."""
        return add_text_embeddings(graph, model, dataset, self.weights(graph, model))

    def joint(self, graph: Graph, model: AnyModel, dataset: Dataset) -> Product:
        """Return a model's images in the space where its images and captions meet."""
        return add_joint(graph, model, dataset, self.weights(graph, model))

    def weights(self, graph: Graph, model: AnyModel) -> Product | None:
        """Return what a model is loaded from, where the run trains or downloads it."""
        return add_weights(graph, model, self.datasets, self.models.values())
