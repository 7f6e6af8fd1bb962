"""The step that trains toys."""

from __future__ import annotations

from typing import Any

from bindscope.config.zoo import read_manifest
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.studies.binding_id.toys.sizes import KIND
from bindscope.studies.binding_id.toys_config import TRAINED, Toy

_TOY = "results/binding_id/toys/{toy}-{key}"
TOY_STEP = Step(
    "toy_vlm",
    {"manifest": f"{_TOY}.json", "weights": f"{_TOY}.safetensors"},
    leaf=True,
    makes="toy vision-language models",
    zoo="bindscope.studies.binding_id.toys.stored:described",
)


def add_toy(graph: Graph, toy: Toy) -> tuple[dict[str, Any], list[Product]]:
    """Return what decides a toy's answers; add its training, if it is trained here."""
    made = None if toy.source == TRAINED else read_manifest(toy.source, KIND)
    objective = made["objective"] if made else toy.objective
    origin = "toy" if objective == "free" else "interchange_toy"
    given = {"kind": "toy", "origin": origin, "name": toy.name}
    if made:
        return {**given, "source": toy.source, "weights_sha256": made["sha256"]}, []
    content: dict[str, Any] = {
        "toy": toy.model_dump(mode="json", exclude={"name", "source"}),
        "threads": toy.training.threads,
        "device": toy.training.device,
    }
    if toy.tower_sha256 is not None:
        content["tower_sha256"] = toy.tower_sha256
    return given, [graph.add("toy_vlm", {"toy": toy.name}, content)]
