"""Photos with masks of objects: releases that say for every pixel which object it is of."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bindscope.config.base import Group, ImageSource


class Ade20kSource(ImageSource):
    """ADE20K's full release of 2021 (IJCV 2019, arXiv 1608.05442); its images need registration.

    It has one feature group, `class`. docs/natural_images.md explains every choice.
    """

    kind: Literal["ade20k"]
    path: str = Field(
        description="The folder ADE20K_2021_17_01, with `index_ade20k.pkl`, `objectInfo150.csv` "
        "and `images`. A change of the first two is noticed."
    )
    parts: tuple[Literal["training", "validation"], ...] = Field(
        ("training", "validation"), min_length=1, description="The release's own parts to read."
    )
    classes: Literal["benchmark", "all"] = Field(
        "benchmark",
        description="`benchmark`: the 150 classes of objectInfo150.csv; `all`: every name of the "
        "index.",
    )
    other_objects: Literal["keep", "ignore"] = Field(
        "keep",
        description="Objects of none of the 150 classes: a class of their own, the last; or "
        "unlabelled.",
    )


class CocoPanopticSource(ImageSource):
    """COCO 2017 with panoptic annotations (arXiv 1405.0312, 1801.00868).

    It has one feature group, `class`, with the categories of the annotations in their order.
    """

    kind: Literal["coco_panoptic"]
    path: str = Field(
        description="Folder with `annotations/panoptic_<part>.json`, the masks in "
        "`annotations/panoptic_<part>` and the images in `<part>`. A change of the .json is "
        "noticed."
    )
    parts: tuple[Literal["train2017", "val2017"], ...] = Field(
        ("train2017", "val2017"), min_length=1, description="The release's own parts to read."
    )


SegmentedSource = Ade20kSource | CocoPanopticSource


def segmented_problem(source: SegmentedSource, groups: tuple[Group, ...]) -> str | None:
    """Say how a release's classes do not fit the groups; None if they do, or only files know."""
    if [group.name for group in groups] != ["class"]:
        return "the only feature group of this source is `class`"
    if isinstance(source, Ade20kSource) and source.classes == "benchmark":
        n_classes = 151 if source.other_objects == "keep" else 150
        if groups[0].size != n_classes:
            more = " and one for other objects" if source.other_objects == "keep" else ""
            return f"class has size {groups[0].size}, but the source makes 150 values of it{more}"
    return None
