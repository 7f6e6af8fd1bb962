"""What a reader sees instead of the study's slugs: families of probes and reference lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bindscope.figures.colours import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PINK


@dataclass(frozen=True)
class Shown:
    """How a family of probe is shown: its name in legends, its words in a sentence, its look."""

    name: str
    words: str
    colour: str
    marker: str = "o"

    @property
    def look(self) -> dict[str, Any]:
        """Colour and marker of its lines."""
        return {"color": self.colour, "marker": self.marker or None}


_FAMILIES: Final = {
    "quadratic": Shown("quadratic", "the quadratic probe", BLUE),
    "diagonal": Shown("diagonal", "the diagonal probe", ORANGE, "s"),
    "linear": Shown("linear", "the linear probe", GREY, "v"),
    "class_pointwise": Shown("class", "the class probe", PINK, "D"),
    "class_position": Shown("class + position", "the probe of class and position", PINK, "^"),
    "identity_pointwise": Shown("identity", "the identity probe", GREEN, "P"),
    "quadratic_position": Shown(
        "quadratic + position", "the quadratic probe with positions", BLUE, "^"
    ),
    "cosine": Shown("cosine", "the cosine", AMBER, ">"),
    "position": Shown("position alone", "the probe of positions alone", INK, ""),
}
FAMILY_ORDER: Final = tuple(_FAMILIES)
# Column, name in legends, how it is drawn.
LINES: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("class_oracle_accuracy", "knowing the classes", {"linestyle": (0, (6, 2)), "color": PINK}),
    (
        "image_majority_accuracy",
        "majority of each image",
        {"linestyle": (0, (3, 1, 1, 1)), "color": GREY},
    ),
    ("majority_accuracy", "majority", {"linestyle": (0, (1, 1.5)), "color": GREY}),
)
LOOK_OF_POSITION: Final[dict[str, Any]] = {"linestyle": (0, (4, 1.5)), "color": INK}


def family_shown(family: str) -> Shown:
    """Return how a family of probe is shown."""
    return _FAMILIES.get(family, Shown(family, f"the probe {family}", INK))


def family_order(family: str) -> int:
    """Return the place of a family in legends."""
    return FAMILY_ORDER.index(family) if family in FAMILY_ORDER else len(FAMILY_ORDER)
