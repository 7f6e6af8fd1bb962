"""Products of captions: the texts, their vectors, and images in the space where both meet."""

from __future__ import annotations

from typing import Any

from bindscope.config.codes import Dataset
from bindscope.config.models import AnyModel, Controlled, Pretrained, Zoo
from bindscope.config.zoo import read_manifest
from bindscope.core.graph import Graph, Product, once
from bindscope.core.registries import TEXT_TOWERS
from bindscope.core.splits import SPLITS
from bindscope.graph.activations import add_index, local_path, model_code, model_slice
from bindscope.graph.data import add_codes
from bindscope.scenes.value_names import words

QUERIES = "queries"
TEXTS = (*SPLITS, QUERIES)
CAPTIONED = ("captions", "captions_unpaired")  # objectives with a text tower


def unread(model: AnyModel) -> str | None:
    """Say why a model reads no captions; None if it does."""
    library = model.source.partition(":")[0]
    if library not in TEXT_TOWERS:
        return f"models of {library!r} read no captions, only those of {', '.join(TEXT_TOWERS)}"
    if isinstance(model, Controlled | Zoo):
        source = model.source
        if isinstance(model, Zoo):
            source = str(read_manifest(source)["recipe"]["model"]["source"])
        if source.partition(":")[2] not in CAPTIONED:
            return f"{model.source!r} was not trained with captions"
    return None


@once
def add_captions(graph: Graph, dataset: Dataset) -> list[Product]:
    """Captions of each split's scenes, and queries for all objects and values."""
    assert dataset.captions is not None
    content = {
        "groups": words(dataset),
        "templates": dataset.captions.model_dump(mode="json")["templates"],
    }
    codes: list[list[Product]] = [[product] for product in add_codes(graph, dataset)]
    return [
        graph.add("captions", {"dataset": dataset.name, "texts": texts}, content, {"codes": made})
        for texts, made in zip(TEXTS, [*codes, []], strict=True)
    ]


@once
def add_text_embeddings(
    graph: Graph, model: AnyModel, dataset: Dataset, weights: Product | None
) -> list[Product]:
    """Vectors of all captions of a dataset, and of its queries: as `TEXTS`."""
    tower = _tower(graph, model, weights)
    return [
        graph.add(
            "text_embeddings",
            {"dataset": dataset.name, "model": model.name, "texts": captions.wildcards["texts"]},
            _content(model),
            {"captions": captions, "weights": tower},
            runs=[TEXT_TOWERS[model.source.partition(":")[0]]],
        )
        for captions in add_captions(graph, dataset)
    ]


@once
def add_joint(
    graph: Graph, model: AnyModel, dataset: Dataset, weights: Product | None, pooled: Product
) -> Product:
    """Index of a model's images in the joint space; `pooled` is that of its pooled tokens."""
    tower = _tower(graph, model, weights)
    made = {
        split: [
            graph.add(
                "joint",
                {
                    "dataset": dataset.name, "model": model.name, "split": split,
                    "shard": shard.wildcards["shard"],
                },
                _content(model),
                {"pooled": shard, "weights": tower},
                runs=[TEXT_TOWERS[model.source.partition(":")[0]]],
            )
            for shard in pooled.inputs[split]
        ]
        for split in SPLITS
    }  # fmt: skip
    return add_index(graph, model, dataset, "joint", made)


def _content(model: AnyModel) -> dict[str, Any]:
    extraction = model.extraction  # type: ignore[union-attr]
    return {
        "model": model_slice(model), "threads": extraction.threads, "device": extraction.device,
    }  # fmt: skip


def _tower(graph: Graph, model: AnyModel, weights: Product | None) -> list[Product]:
    """Return what a text tower is loaded from: of a downloaded model, with its tokenizer."""
    if isinstance(model, Pretrained) and model.pretrained and not local_path(model.source):
        content = {"model": {"source": model.source}, "texts": True}
        return [graph.add("weights", {"model": model.name}, content, runs=model_code(model))]
    return [weights] if weights else []
