"""What trains a toy, as JSON, and what it therefore cannot answer, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bindscope.studies.binding_id.toys_config import Answer, Toy


def recipe(toy: Toy, *without: str) -> dict[str, Any]:
    """Return what trains a toy, without some keys.

    `answers` is left out where it is the default: toys that were trained before there was a choice
    keep their keys.
    """
    left_out = {*without, *(() if "slot" in toy.answers else ("answers",))}
    return toy.model_dump(mode="json", exclude=left_out)


def not_learnt(learnt: tuple[Answer, ...], answer: Answer) -> tuple[str, str] | None:
    """Return problem and remedy if a toy is asked for what it was not trained on."""
    if answer in learnt:
        return None
    asked = {"item": "items of things", "slot": "places of items' things"}
    return (
        f"it is asked for {asked[answer]} (`answer: {answer}`), and was trained on "
        f"{' and '.join(asked[one] for one in learnt)} alone",
        f"ask a toy of `answers: [item, slot]` (trained here, or zoo:toy-two-hop-0), or use "
        f"`answer: {learnt[0]}`",
    )
