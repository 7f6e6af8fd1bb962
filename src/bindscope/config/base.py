"""What every configuration model shares.

Modules in this room hold fields, defaults and validators, and nothing that computes a result: they
are left out of the code keys, because all they decide stands in the spec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

SLUG = r"^[a-z0-9][a-z0-9-]{0,31}$"
Slug = Annotated[str, StringConstraints(pattern=SLUG)]


@dataclass(frozen=True)
class NameOf:
    """Marks a name that another part of the configuration gives.

    Attributes
    ----------
    lists
        Keys of lists whose entries have the names, in the innermost section around the field's
        own that has such a list.
    """

    lists: tuple[str, ...]


DatasetName = Annotated[Slug, NameOf(("datasets",))]
ModelName = Annotated[Slug, NameOf(("models",))]
ProbeName = Annotated[Slug, NameOf(("probes",))]
# No count of a run is larger: a plan of 1e12 scenes alone would take more memory than there is.
MOST = 10**9
PositiveInt = Annotated[int, Field(ge=1, le=MOST)]
NonNegativeInt = Annotated[int, Field(ge=0)]  # seeds: of any size
Resamples = Annotated[int, Field(ge=1, le=10**6)]
Depth = Annotated[int, Field(ge=1, le=1000)]
"""Number of blocks of a model: `layers: all` reads each."""
Probability = Annotated[float, Field(ge=0, le=1)]


class ConfigModel(BaseModel):
    """A frozen model that forbids unknown keys."""

    # A job imports most models and validates none: each is built when it is first used.
    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), defer_build=True
    )


class SplitCounts(ConfigModel):
    """One number per split."""

    train: PositiveInt
    val: PositiveInt
    test: PositiveInt


class ImageSource(ConfigModel):
    """What every source of scenes has: images that are left out."""

    decodes: ClassVar[bool] = False
    """Whether every image is decoded when scenes are read, whatever `bad_images` is."""

    skip: tuple[str, ...] = Field(
        (), description="Images to leave out, by name or by file name without folder."
    )
    bad_images: Literal["stop", "skip"] = Field(
        "stop",
        description=(
            "`skip` leaves out, counts and lists images that are missing or do not decode, and "
            "those whose mask is missing, damaged, of another size or incomplete. `stop` ends the "
            "job with a list."
        ),
    )


class Group(ConfigModel):
    """One feature group."""

    name: Slug = Field(description="Name of the feature group (`color`).")
    size: PositiveInt = Field(description="Number of values.")


Groups = Annotated[
    tuple[Group, ...],
    Field(
        min_length=1, description="Feature groups; the last one varies fastest in the object code."
    ),
]
