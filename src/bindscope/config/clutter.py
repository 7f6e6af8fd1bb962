"""How cluttered 2-D scenes are drawn: sizes, textures, copies, occluders, background."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bindscope.config.base import ConfigModel, PositiveInt, Probability

Texture = Literal["plain", "stripes", "dots", "checks"]


class ClutterRenderer(ConfigModel):
    """Textured shapes over one another, on stuff (first feature group: color, second: shape)."""

    kind: Literal["clutter"]
    size_px: PositiveInt = Field(96, description="Side of the square image.")
    object_px: tuple[PositiveInt, ...] = Field(
        (24, 32), min_length=1, description="Sides of objects' boxes; each draws one of them."
    )
    small_px: PositiveInt = Field(10, description="Side of a small object's box.")
    small: Probability = Field(0.1, description="Share of objects that are small.")
    textures: tuple[Texture, ...] = Field(
        ("plain", "stripes", "dots", "checks"),
        min_length=1,
        description="Textures of objects; each object draws one of them.",
    )
    two_textures: Probability = Field(
        0.2, description="Share of objects whose lower half has another texture than the upper."
    )
    duplicates: Probability = Field(
        0.5,
        description="Share of scenes with an exact copy of an object beside it. It is no object of "
        "the code; neither of the two is hidden.",
    )
    patch_px: PositiveInt = Field(
        16, description="An object and its copy are a multiple of this apart along both axes."
    )
    touching: Probability = Field(
        0.3,
        description="Share of scenes in which two objects are put edge to edge, of one shape and "
        "two colors where the scene has such.",
    )
    occluders: Probability = Field(
        0.3,
        description="Share of scenes in which a bar splits an object in two; a copy that leaves no "
        "room for them comes first.",
    )
    occluder_px: PositiveInt = Field(6, description="Width of a bar.")
    stuff: Annotated[int, Field(ge=0, le=4)] = Field(
        2, description="Regions of the background; 0: it is white and has no label."
    )
    unlabelled: Probability = Field(
        0.5, description="Share of scenes in which a part of the stuff has no label."
    )

    @model_validator(mode="after")
    def _drawable(self) -> Self:
        if len(set(self.textures)) < len(self.textures):
            raise ValueError("textures names a texture twice")
        if self.two_textures and len(self.textures) < 2:
            raise ValueError(
                "two_textures asks for a second texture and textures has one; name another one, "
                "or set two_textures to 0"
            )
        sizes = (*self.object_px, self.small_px) if self.small else self.object_px
        if max(sizes) > self.size_px:
            raise ValueError(
                f"an object of {max(sizes)} px does not fit an image of {self.size_px} px"
            )
        if self.occluders and self.occluder_px > min(sizes) - 4:
            raise ValueError(
                f"a bar of {self.occluder_px} px leaves nothing to see of an object of "
                f"{min(sizes)} px; lower occluder_px to {min(sizes) - 4} or less"
            )
        apart = -(-(max(sizes) + 2) // self.patch_px) * self.patch_px
        if self.duplicates and max(sizes) + apart > self.size_px:
            raise ValueError(
                f"an object of {max(sizes)} px and its copy {apart} px apart do not fit an "
                f"image of {self.size_px} px; lower object_px, or set duplicates to 0"
            )
        if self.touching and 2 * max(sizes) > self.size_px:
            raise ValueError(
                f"two objects of {max(sizes)} px side by side do not fit an image of "
                f"{self.size_px} px; lower object_px, or set touching to 0"
            )
        return self
