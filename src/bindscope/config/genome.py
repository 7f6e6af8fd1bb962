"""Visual Genome: where the release comes from, and which of its words become scenes."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from bindscope.config.base import (
    ConfigModel,
    Group,
    ImageSource,
    PositiveInt,
    Probability,
)
from bindscope.core.addresses import Address

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class GenomeRules(ConfigModel):
    """How annotations become object codes: an object has one category and one value.

    docs/natural_images.md explains every choice.
    """

    feature: Literal["color", "attribute"] = Field(
        description="`color`: values are basic color terms; `attribute`: the commonest attributes."
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


class Download(ConfigModel):
    """A file that is downloaded, and counts only with its checksum."""

    url: Address = Field(description="`http:` or `https:`; the file keeps the address' last part.")
    sha256: Sha256 = Field(description="SHA-256 that it must have.")


_ANNOTATIONS = "https://visualgenome.org/static/data/dataset"
_IMAGES = "https://cs.stanford.edu/people/rak248/VG_100K_2"
# docs/natural_images.md says where the checksums are from.
_RELEASE = {
    f"{_ANNOTATIONS}/objects.json.zip": (
        "efa456069aedb420b7dabf54f4608c89c78a00de550f1433066e9b6f84fb629c"
    ),
    f"{_ANNOTATIONS}/attributes.json.zip": (
        "7f71c80fb5396c67a3022e0748de16a3253b7fe5759e151215e0f1a3de3f38c7"
    ),
    f"{_ANNOTATIONS}/image_data.json.zip": (
        "b87a94918cb2ff4d952cf1dfeca0b9cf6cd6fd204c2f8704645653be1163681a"
    ),
    f"{_IMAGES}/images.zip": "51c682d2721f880150720bb416e0346a4c787e4c55d7f80dfd1bd3f73ba81646",
    f"{_IMAGES}/images2.zip": "99da1a0ddf87011319ff3b05cf9176ffee2731cc3c52951162d9ef0d68e3cfb5",
}


class GenomeSource(GenomeRules, ImageSource):
    """Visual Genome's official release 1.2 or 1.4, CC BY 4.0 (arXiv 1602.07332).

    Its feature groups are `category` and, second, `color` or `attribute`, which has one value more
    than `n_values`: for objects that have none of them.
    """

    kind: Literal["visual_genome"]
    path: str | None = Field(
        None,
        description="Folder with objects.json, attributes.json and image_data.json, unpacked or as "
        ".json.zip, and object_alias.txt and attribute_alias.txt if they are to be used. A change "
        "of its content is noticed. Left out: the release is downloaded (15 GB).",
    )
    images: str | None = Field(
        None,
        description="Folder with VG_100K and VG_100K_2; not inside `path`, which is read as a "
        "whole to notice changes. Left out together with `path`.",
    )
    downloads: tuple[Download, ...] = Field(
        tuple(Download(url=url, sha256=sha256) for url, sha256 in _RELEASE.items()),
        min_length=1,
        description="The release's files; archives that are called `images*.zip` hold the images.",
    )
    folder: str = Field(
        "results/downloads/visual_genome",
        description="Folder that the files are put into, with nothing else in it.",
    )

    @model_validator(mode="after")
    def _one_release(self) -> Self:
        if (self.path is None) != (self.images is None):
            raise ValueError("give `path` and `images`, or neither: then both are downloaded")
        return self


def genome_problem(source: GenomeSource, groups: tuple[Group, ...]) -> str | None:
    """Say how a release's categories and values do not fit the groups; None if they do."""
    required_sizes = {"category": source.n_categories, source.feature: source.n_values + 1}
    if [group.name for group in groups] != list(required_sizes):
        return (
            f"the feature groups of this source are {' and '.join(required_sizes)}, in this order"
        )
    for group in groups:
        if group.size != required_sizes[group.name]:
            return (
                f"{group.name} has size {group.size}, but the source makes "
                f"{required_sizes[group.name]} values of it (n_categories, or n_values and one "
                f"for objects without)"
            )
    return None
