"""The step that trains toys."""

from __future__ import annotations

from typing import Any

from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.studies.binding_id.toys_config import Toy

_TOY = "results/binding_id/toys/{toy}-{key}"
TOY_STEP = Step(
    "toy_vlm",
    {"manifest": f"{_TOY}.json", "weights": f"{_TOY}.safetensors"},
    leaf=True,
    makes="toy vision-language models",
)


def add_toy(graph: Graph, toy: Toy) -> Product:
    """Add the training of a toy."""
    content: dict[str, Any] = {
        "toy": toy.model_dump(mode="json", exclude={"name"}),
        "threads": toy.training.threads,
        "device": toy.training.device,
    }
    if toy.tower_sha256 is not None:
        content["tower_sha256"] = toy.tower_sha256
    return graph.add("toy_vlm", {"toy": toy.name}, content)
