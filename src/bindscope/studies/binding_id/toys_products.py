"""The step that trains toys."""

from __future__ import annotations

from typing import Any

from bindscope.config.wording import instead
from bindscope.config.zoo import TOY, read_manifest
from bindscope.core.errors import ConfigError
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.studies.binding_id.toys_config import TRAINED, Toy

_TOY = "results/binding_id/toys/{toy}-{key}"
TOY_STEP = Step(
    "toy_vlm",
    {"manifest": f"{_TOY}.json", "weights": f"{_TOY}.safetensors"},
    leaf=True,
    makes="toy vision-language models",
    zoo="bindscope.studies.binding_id.toys.stored:described",
)


def add_named_toy(graph: Graph, section: Any, name: str) -> Product | str:
    """Add the training of a toy of the section, or name what the zoo has of it.

    See `core.interfaces.Study.trains`.

    Raises
    ------
    ConfigError
        If the section has no such toy.
    """
    toys = {toy.name: toy for toy in section.toys}
    if name not in toys:
        raise ConfigError(
            f"models, source toy:{name}",
            f"there is no toy {name!r}{instead(name, list(toys))}",
            "name an entry of studies.binding_id.toys",
        )
    toy = toys[name]
    if toy.source != TRAINED:
        return str(toy.source)
    (training,) = add_toy(graph, toy)[1]
    return training


def add_toy(graph: Graph, toy: Toy) -> tuple[dict[str, Any], list[Product]]:
    """Return what decides a toy's answers; add its training, if it is trained here."""
    made = None if toy.source == TRAINED else read_manifest(toy.source, TOY)
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
