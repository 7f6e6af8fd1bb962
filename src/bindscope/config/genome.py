"""Which of Visual Genome's images, names and attributes become scenes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bindscope.config.base import Model, PositiveInt, Probability
from bindscope.config.groups import Group


class GenomeRules(Model):
    """How annotations become object codes: an object has one category and one value.

    docs/visual_genome.md explains every choice.
    """

    feature: Literal["color", "attribute"] = Field(
        description="`color`: values are basic colour terms; `attribute`: the commonest attributes."
    )
    coco_only: bool = Field(True, description="Only images that are in COCO too (`coco_id`).")
    n_categories: PositiveInt = Field(
        50, description="Object categories: those that occur in the most images."
    )
    min_category_images: PositiveInt = Field(
        100, description="Images that a category must occur in."
    )
    n_values: PositiveInt = Field(
        11, description="Attribute values, without the value for objects that have none of them."
    )
    min_value_images: PositiveInt = Field(100, description="Images that a value must occur in.")
    several: Literal["first", "commonest", "drop_image"] = Field(
        "first",
        description="What an object with several values gets: the one listed first, the one of the "
        "most images, or nothing: its image is left out.",
    )
    duplicate_iou: Probability = Field(
        0.7,
        description="Two boxes of the same category that overlap so much (intersection over union) "
        "are one object; 1 merges equal boxes only. What the release merged stays merged.",
    )
    min_objects: PositiveInt = Field(
        2, description="Smallest number of objects of the vocabulary in an image."
    )
    max_objects: PositiveInt = Field(
        20, description="Largest number, before the exact prior takes too long."
    )


class GenomeSource(GenomeRules):
    """Visual Genome's official release 1.2 or 1.4, CC BY 4.0 (arXiv 1602.07332).

    The space's groups are `category` and, second, `color` or `attribute`, which has one value more
    than `n_values`: for objects that have none of them.
    """

    kind: Literal["visual_genome"]
    path: str = Field(
        description="Folder with objects.json, attributes.json and image_data.json, unpacked or as "
        ".json.zip, and object_alias.txt and attribute_alias.txt if they are to be used. A change "
        "of its content is noticed."
    )
    images: str = Field(
        description="Folder with VG_100K and VG_100K_2; not inside `path`, which is read as a "
        "whole to notice changes."
    )

    @property
    def repeats(self) -> bool:
        """Whether a scene may hold two objects with the same values: natural images do."""
        return True


def genome_problem(source: GenomeSource, groups: tuple[Group, ...]) -> str | None:
    """Say how a release's categories and values do not fit the groups; None if they do."""
    wanted = {"category": source.n_categories, source.feature: source.n_values + 1}
    if [group.name for group in groups] != list(wanted):
        return f"the groups of this source are {' and '.join(wanted)}, in this order"
    for group in groups:
        if group.size != wanted[group.name]:
            return (
                f"{group.name} has size {group.size}, but the source makes {wanted[group.name]} "
                f"values of it (n_categories, or n_values and one for objects without)"
            )
    return None
