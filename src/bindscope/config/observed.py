"""Scenes that are read, not drawn: where they lie, how they are split, what is assumed of them."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from bindscope.config.base import (
    ConfigModel,
    Group,
    Groups,
    ImageSource,
    NonNegativeInt,
    PositiveInt,
    SplitCounts,
)
from bindscope.config.genome import GenomeSource, Sha256, genome_problem
from bindscope.config.pug_spare import PugSpareSource, pug_spare_problem
from bindscope.config.segmented import Ade20kSource, CocoPanopticSource, segmented_problem
from bindscope.config.solids import KNOWN_VALUES
from bindscope.core.addresses import Address

LARGEST_CELLS = 2**15  # cells of objects are stored as int16


class DrawsSpace(ConfigModel):
    """A scene is `n_objects` independent draws, each uniform over all object types.

    CLEVR's scenes: 6 draws out of 8 colors x 3 shapes x 2 materials x 2 sizes. A type may be drawn
    more than once; the object code says which types occur.
    """

    kind: Literal["draws"]
    groups: Groups
    n_objects: PositiveInt = Field(description="Number of draws, repeats included.")


class CountedSpace(ConfigModel):
    """The scene distribution is unknown and is estimated from `train`.

    Only for scenes that are read. Entropies are estimates from above, and rows of the table carry
    the flag `assumed_prior`.
    """

    kind: Literal["counted"]
    groups: Groups
    max_objects: PositiveInt = Field(
        description="Largest number of objects in a scene; a scene with more is an error."
    )

    @model_validator(mode="after")
    def _indexable(self) -> Self:
        if (cells := prod(group.size for group in self.groups)) > LARGEST_CELLS:
            raise ValueError(
                f"the feature groups make {cells:,} cells, and stores hold at most "
                f"{LARGEST_CELLS:,}; make a feature group smaller"
            )
        return self


class IndexSplit(ConfigModel):
    """The first `sizes.train` scenes in the source's order, then val, then test."""

    rule: Literal["index"]
    sizes: SplitCounts = Field(description="Scenes set apart for each split, in this order.")


class ColumnSplit(ConfigModel):
    """The source says which split a scene is in."""

    rule: Literal["column"]
    column: str = Field("split", description="Column with `train`, `val` or `test`.")


class BucketSplit(ConfigModel):
    """A hash modulo `buckets` decides the split; what is hashed is the rule's."""

    rule: str
    salt: str = Field("bindscope", description="Prefix of the hashed text.")
    buckets: PositiveInt = Field(10, description="Number of hash buckets.")
    test: tuple[NonNegativeInt, ...] = Field(
        (0, 1), min_length=1, description="Buckets of the test split."
    )
    val: tuple[NonNegativeInt, ...] = Field(
        (2,), min_length=1, description="Buckets of the validation split."
    )

    @model_validator(mode="after")
    def _disjoint(self) -> Self:
        if both := set(self.test) & set(self.val):
            raise ValueError(f"buckets {sorted(both)} are in two splits")
        if max((*self.test, *self.val)) >= self.buckets:
            raise ValueError(f"bucket numbers run from 0 to {self.buckets - 1}")
        return self


class HashedImagesSplit(BucketSplit):
    """sha1("salt|image") modulo `buckets` decides a scene's split: stable when scenes are added."""

    rule: Literal["hashed_images"]


class TableBoxes(ConfigModel):
    """The columns of an object's box, in pixels of the image."""

    format: Literal["xyxy", "xywh"] = Field(
        description="`xyxy`: left, top, right and bottom edge; `xywh`: left and top edge, width "
        "and height."
    )
    columns: tuple[str, str, str, str] = Field(description="The four columns, in that order.")


class TableMasks(ConfigModel):
    """The columns that say which pixels are of an object.

    A mask is a PNG (or another file without loss) as large as its image, of mode 1, L, P, I or RGB.
    A pixel's number is its gray value or palette index; of colored pixels R + 256 G + 65536 B.
    """

    file: str = Field(
        "mask",
        description="Column with the name of the mask file, the same for all rows of an "
        "image; names start where those of images do.",
    )
    id: str = Field("id", description="Column with the number of the object's pixels.")


class TableSource(ImageSource):
    """A CSV or Parquet file with a row per object: its image, its value in every feature group."""

    decodes: ClassVar[bool] = True

    kind: Literal["table"]
    path: str = Field(description="The file, `.csv` or `.parquet`.")
    images: str | None = Field(
        None,
        description="Folder or zip archive that image names start from; left out: the file's "
        "folder.",
    )
    image: str = Field("image", description="Column with the name of the image file.")
    values: dict[str, tuple[str, ...]] = Field(
        description="The values of every feature group in order, by its name; the column with them "
        "has that name too."
    )
    boxes: TableBoxes | None = Field(
        None, description="Columns of boxes; left out: the table has none."
    )
    masks: TableMasks | None = Field(
        None, description="Columns of masks; left out: there are none."
    )
    orientation: Literal["upright", "stored"] = Field(
        "upright",
        description=(
            "`upright`: boxes and masks refer to the image as its EXIF tag turns it. `stored`: to "
            "the stored pixels, and the tag is ignored."
        ),
    )
    slots: tuple[dict[str, str], ...] | None = Field(
        None,
        min_length=1,
        exclude_if=lambda slots: slots is None,  # it enters no key of tables with a row per object
        description=(
            "For a table with a row per image: for each slot the columns of its object's values; "
            "empty cells are empty slots. Default: a row per object, in the order of the slots."
        ),
    )
    repeats: bool = Field(
        False, description="Whether a scene may hold two objects with the same values."
    )

    @model_validator(mode="after")
    def _slots_fit(self) -> Self:
        for columns in self.slots or ():
            if sorted(columns) != sorted(self.values):
                raise ValueError(
                    f"slots names columns of {', '.join(columns) or 'nothing'}; each slot needs "
                    f"one of {', '.join(self.values)}"
                )
        if self.slots and (self.boxes or self.masks):
            raise ValueError("boxes and masks are for a table with a row per object, not for slots")
        return self


class ClevrSource(ImageSource):
    """The official CLEVR v1.0: scene files and images, CC BY 4.0 (arXiv 1612.06890).

    Its feature groups are any of `color` (8), `shape` (3), `material` (2) and `size` (2).
    """

    kind: Literal["clevr"]
    path: str | None = Field(
        None,
        description="The archive, or the folder it was unpacked to (with `scenes` and `images`); "
        "left out: the archive is downloaded (19 GB).",
    )
    url: Address = Field(
        "https://dl.fbaipublicfiles.com/clevr/CLEVR_v1.0.zip",
        description="Where the archive is downloaded from.",
    )
    sha256: Sha256 = Field(
        "5cd61cf1096ed20944df93c9adb31e74d189b8459a94f54ba00090e5c59936d1",
        description="SHA-256 that the downloaded archive must have.",
    )
    folder: str = Field("results/downloads", description="Folder that the archive is put into.")
    parts: tuple[Literal["train", "val"], ...] = Field(
        ("train", "val"),
        min_length=1,
        description="CLEVR's own parts to read, in this order; its test part has no scene file.",
    )
    n_objects: PositiveInt = Field(
        6, description="Only scenes with this number of objects are read."
    )


class PythonSource(ImageSource):
    """A reader of your own: a class with `vocabulary`, `images` and `scenes()`."""

    decodes: ClassVar[bool] = True

    kind: Literal["python"]
    reader: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] = Field(
        description="`my_package.my_module:MyReader`."
    )
    path: str | None = Field(
        None,
        description="File or folder with the labels, and not with the images: it is read at each "
        "start, so that a change of its content is noticed.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Anything else that the reader wants."
    )
    repeats: bool = Field(
        False, description="Whether a scene may hold two objects with the same values."
    )


AnySource = Annotated[
    TableSource
    | ClevrSource
    | GenomeSource
    | Ade20kSource
    | CocoPanopticSource
    | PugSpareSource
    | PythonSource,
    Field(discriminator="kind"),
]
READ_SPLITS = (IndexSplit, ColumnSplit, HashedImagesSplit)


class PhotosRenderer(ConfigModel):
    """Images as they were read, brought into a square; or crops of them, next to each other."""

    kind: Literal["photos"]
    size_px: PositiveInt = Field(224, description="Side of the square image.")
    fit: Literal["squash", "letterbox", "crops"] = Field(
        "squash",
        description="`squash`: both sides become `size_px`; `letterbox`: the longer one does, the "
        "shape stays, and what is left over is grey and unlabelled; `crops`: as `crops` says.",
    )
    crops: tuple[PositiveInt, PositiveInt] | None = Field(
        None,
        description="With `fit: crops`: numbers of square crops of side `size_px` along the "
        "shorter and the longer side, spread evenly from edge to edge. A model reads each on its "
        "own; only fits of `same_object` read such scenes.",
    )
    short_px: PositiveInt | None = Field(
        None, description="With `fit: crops`: what the shorter side becomes before it is cropped."
    )

    @model_validator(mode="after")
    def _croppable(self) -> Self:
        if (self.fit == "crops") != (self.crops is not None and self.short_px is not None):
            raise ValueError("`fit: crops` needs `crops` and `short_px`, and other fits neither")
        if self.short_px is not None and self.short_px < self.size_px:
            raise ValueError("a crop of `size_px` is wider than `short_px`; raise `short_px`")
        return self


def vocabulary_problem(source: AnySource, groups: tuple[Group, ...]) -> str | None:
    """Say how the values that a source declares do not fit the groups; None if they do."""
    if isinstance(source, ClevrSource):
        return _clevr_problem(groups)
    if isinstance(source, GenomeSource):
        return genome_problem(source, groups)
    if isinstance(source, Ade20kSource | CocoPanopticSource):
        return segmented_problem(source, groups)
    if isinstance(source, PugSpareSource):
        return pug_spare_problem(groups)
    if not isinstance(source, TableSource):
        return None
    names = [group.name for group in groups]
    if sorted(source.values) != sorted(names):
        return (
            f"source.values is for {', '.join(source.values)}; the feature groups are "
            f"{', '.join(names)}"
        )
    for group in groups:
        values = source.values[group.name]
        if len(set(values)) < len(values):
            return f"source.values.{group.name} names a value twice"
        if len(values) != group.size:
            return (
                f"source.values.{group.name} has {len(values)} values, but the feature group's "
                f"size is {group.size}"
            )
    return None


def _clevr_problem(groups: tuple[Group, ...]) -> str | None:
    for group in groups:
        values = KNOWN_VALUES.get(group.name)
        if values is None:
            return f"CLEVR has no feature {group.name!r}; there are {', '.join(KNOWN_VALUES)}"
        if len(values) != group.size:
            return (
                f"CLEVR's {group.name!r} has {len(values)} values, but the feature group's size is "
                f"{group.size}"
            )
    return None
