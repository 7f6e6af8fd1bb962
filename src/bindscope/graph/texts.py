"""Products of captions: the texts, their vectors, and images in the space where both meet."""

from __future__ import annotations

from bindscope.config.codes import Dataset
from bindscope.config.models import AnyModel, KnownAnswer
from bindscope.core.graph import Graph, Product, once
from bindscope.core.registries import TEXT_TOWERS
from bindscope.graph.activations import add_pooled, model_code, model_slice
from bindscope.graph.data import add_codes
from bindscope.scenes.value_names import words

CAPTIONED = ("captions", "captions_unpaired")  # objectives with a text tower


def unread(model: AnyModel) -> str | None:
    """Say why a model reads no captions; None if it does."""
    library = model.source.partition(":")[0]
    if library not in TEXT_TOWERS:
        return f"models of {library!r} read no captions, only those of {', '.join(TEXT_TOWERS)}"
    if model.objective and model.objective not in CAPTIONED:
        return f"{model.source!r} was not trained with captions"
    return None


@once
def add_captions(graph: Graph, dataset: Dataset) -> Product:
    """Captions of all scenes of a dataset, and queries for its objects and their values."""
    assert dataset.captions is not None
    content = {
        "groups": words(dataset),
        "templates": dataset.captions.model_dump(mode="json")["templates"],
    }
    inputs = {codes.wildcards["split"]: codes for codes in add_codes(graph, dataset)}
    return graph.add("captions", {"dataset": dataset.name}, content, inputs)


@once
def add_text_embeddings(
    graph: Graph, model: AnyModel, dataset: Dataset, weights: Product | None
) -> Product:
    """Vectors of the captions and queries of a dataset by a model that reads them."""
    inputs = {"captions": add_captions(graph, dataset)}
    return _add(graph, "text_embeddings", model, dataset, weights, inputs)


@once
def add_joint(graph: Graph, model: AnyModel, dataset: Dataset, weights: Product | None) -> Product:
    """Images of a dataset in the space where a model's images and captions meet."""
    inputs = {"index": add_pooled(graph, model, dataset, weights)}
    return _add(graph, "joint", model, dataset, weights, inputs)


def _add(
    graph: Graph,
    rule: str,
    model: AnyModel,
    dataset: Dataset,
    weights: Product | None,
    inputs: dict[str, Product],
) -> Product:
    assert not isinstance(model, KnownAnswer)
    extraction = model.extraction
    return graph.add(
        rule,
        {"dataset": dataset.name, "model": model.name},
        {
            "model": model_slice(model),
            "threads": extraction.threads,
            "device": extraction.device,
        },
        {**inputs, "weights": _tower(graph, model, weights)},
        runs=[TEXT_TOWERS[model.source.partition(":")[0]]],
    )


def _tower(graph: Graph, model: AnyModel, weights: Product | None) -> list[Product]:
    """Return what a text tower is loaded from: of a downloaded model, with its tokenizer."""
    if model.downloads:
        content = {"model": {"source": model.source}, "texts": True}
        return [graph.add("weights", {"model": model.name}, content, runs=model_code(model))]
    return [weights] if weights else []
