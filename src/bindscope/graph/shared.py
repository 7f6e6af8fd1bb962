"""What all studies of a configuration share: its datasets, models and their activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bindscope.config.codes import Dataset
from bindscope.config.models import AnyModel, ToyVision
from bindscope.core.errors import ConfigError
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
    trained
        Scheme of a model's source -> adds what such a model is loaded from, by its name in the
        section of the study that trains it; or names the zoo's, ``zoo:<name>``.
    """

    datasets: Mapping[str, Dataset]
    models: Mapping[str, AnyModel]
    trained: Mapping[str, Callable[[Graph, str], Product | str]] = field(default_factory=dict)

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
        if isinstance(model, ToyVision) and isinstance(toy := self._toy(graph, model), str):
            model = model.model_copy(update={"source": f"toy:{toy}"})
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
        """Return what a model is loaded from, where the run trains or downloads it.

        Raises
        ------
        ConfigError
            If it is a study's to train, and no study of the configuration does.
        """
        if isinstance(model, ToyVision):
            toy = self._toy(graph, model)
            return None if isinstance(toy, str) else toy
        return add_weights(graph, model, self.datasets, self.models.values())

    def _toy(self, graph: Graph, model: ToyVision) -> Product | str:
        if model.zoo_source:
            return model.zoo_source
        scheme, _, name = model.source.partition(":")
        if scheme not in self.trained:
            raise ConfigError(
                f"model {model.name!r} ({model.source})",
                "no study of this configuration trains it",
                "add the section of the study whose `toys` has it (config/README.md)",
            )
        return self.trained[scheme](graph, name)
