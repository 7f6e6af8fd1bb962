"""Which of Visual Genome's images, names and attributes become scenes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bindscope.config.base import Model, PositiveInt, Probability


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
