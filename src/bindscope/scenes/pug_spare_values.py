"""The values of PUG:SPARE's two feature groups, in the order in which its table names them."""

from __future__ import annotations

TABLE = "PUG_SPARE.csv"  # the release's table of scenes
VALUES: dict[str, tuple[str, ...]] = {
    "character": (
        "Crow",
        "Fox",
        "DeerStag",
        "DeerDoe",
        "Wolf",
        "Crocodile",
        "Elephant",
        "Hippopotamus",
        "Lion",
        "Lioness",
        "Rhinoceros",
        "Zebra",
    ),
    "texture": ("Red", "Blue", "Green", "Yellow", "Brown", "Purple", "Cyan", "Gray"),
}
