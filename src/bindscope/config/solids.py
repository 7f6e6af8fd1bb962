"""How 3-D scenes are drawn: features of objects, camera, lights, placement, backend.

Source of names, numbers and placement rules: CLEVR (arXiv 1612.06890), section 3, and the scene
files that come with it.
"""

from __future__ import annotations

from math import hypot
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from bindscope.config.base import ConfigModel, NonNegativeInt, PositiveInt, Probability

Color = Literal["gray", "red", "blue", "green", "brown", "purple", "cyan", "yellow"]
Shape = Literal["cube", "sphere", "cylinder"]
Material = Literal["rubber", "metal"]
Size = Literal["large", "small"]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]

# What may be configured; which value is which stands in `scenes.solids.values`, which is code.
KNOWN_VALUES: dict[str, tuple[str, ...]] = {
    "color": get_args(Color),
    "shape": get_args(Shape),
    "material": get_args(Material),
    "size": get_args(Size),
}


class SolidsFixed(ConfigModel):
    """What all objects share in a feature that no feature group varies."""

    color: Color = Field("gray", description="Color of all objects.")
    shape: Shape = Field("cube", description="Shape of all objects.")
    material: Material = Field("rubber", description="Material of all objects.")
    size: Size = Field("small", description="Size of all objects.")


class RaycastBackend(ConfigModel):
    """NumPy alone: hard shadows, one reflection; the same image on every run, on any machine."""

    kind: Literal["raycast"]
    antialias: Annotated[int, Field(ge=1, le=8)] = Field(
        2, description="Rays per pixel, along each side of it."
    )


class MitsubaBackend(ConfigModel):
    """Mitsuba 3, a path tracer: `pip install 'bindscope[solids]'`."""

    kind: Literal["mitsuba"]
    variant: Literal["scalar_rgb", "llvm_ad_rgb", "cuda_ad_rgb"] = Field(
        "scalar_rgb",
        description="Mitsuba's engine: `scalar_rgb` runs anywhere, `llvm_ad_rgb` needs LLVM's "
        "library, `cuda_ad_rgb` an NVIDIA device.",
    )
    samples: PositiveInt = Field(64, description="Light paths per pixel.")


Backend = Annotated[RaycastBackend | MitsubaBackend, Field(discriminator="kind")]


class SolidsRenderer(ConfigModel):
    """Solids on the ground, lit and seen as in CLEVR.

    The name of a feature group says what it is: `color`, `shape`, `material` or `size`.
    """

    kind: Literal["solids"]
    backend: Backend = Field(
        RaycastBackend(kind="raycast"), description="Who draws. Labels are the same whoever does."
    )
    size_px: PositiveInt = Field(224, description="Side of the square image.")
    colors: tuple[Color, ...] = Field(
        get_args(Color),
        min_length=1,
        description="The colors of a feature group `color`, in the order of its values.",
    )
    fixed: SolidsFixed = Field(
        SolidsFixed(), description="Features of all objects that no feature group varies."
    )
    camera_height: Positive = Field(
        5.34367, description="Height of the camera above the ground, in scene units."
    )
    camera_distance: Positive = Field(
        9.91537, description="Distance of the camera from the centre, along the ground."
    )
    camera_pitch: Annotated[float, Field(gt=-60, lt=89)] | None = Field(
        None,
        description="Degrees that the camera looks down; left out: it looks at the centre of "
        "the ground.",
    )
    camera_jitter: NonNegative | tuple[NonNegative, NonNegative, NonNegative] = Field(
        0.5, description="Largest shift of the camera along each axis; or along x, y and z."
    )
    light_jitter: NonNegative = Field(
        1.0, description="Largest shift of each light along each axis."
    )
    extent: Positive = Field(
        3.0, description="Centres of objects lie in [-extent, extent] along both ground axes."
    )
    min_distance: NonNegative = Field(
        0.25, description="Smallest gap between two objects' circles on the ground."
    )
    margin: NonNegative = Field(
        0.4,
        description="Smallest difference of two objects' positions along the camera's left-right "
        "axis, and along its front-back axis.",
    )
    min_visible_px: NonNegativeInt = Field(
        0, description="A scene in which fewer pixels of some object are visible is placed again."
    )

    hidden: tuple[Probability, Probability] | None = Field(
        None,
        exclude_if=lambda hidden: hidden is None,  # it enters no key of scenes without an order
        description="Smallest and largest share of the second object that the first one hides: two "
        "objects in `slots: 2`, in front and behind. Left out: objects stand anywhere.",
    )
    places: tuple[tuple[float, float], ...] | None = Field(
        None,
        exclude_if=lambda places: places is None,
        description="Place [x, y] on the ground of the object in each slot, which is not turned. "
        "Without jitter of camera and lights, scenes differ in their objects alone. Left out: "
        "objects stand anywhere.",
    )

    @model_validator(mode="after")
    def _drawable(self) -> Self:
        if len(set(self.colors)) < len(self.colors):
            raise ValueError("colors names a color twice")
        if self.hidden and self.hidden[0] > self.hidden[1]:
            raise ValueError("hidden is [smallest, largest]: exchange the two")
        if self.hidden and self.places:
            raise ValueError("hidden finds the places of objects: give one of hidden and places")
        jitter = self.camera_jitter
        x, y, z = jitter if isinstance(jitter, tuple) else (jitter, jitter, jitter)
        if self.camera_height <= z:
            raise ValueError(
                f"camera_jitter ({z}) can put a camera at height "
                f"{self.camera_height} under the ground; lower it below the height"
            )
        if self.camera_distance - hypot(x, y) <= self.extent * 2**0.5 + 1:
            raise ValueError(
                f"a camera {self.camera_distance} from the centre can stand among objects up to "
                f"{self.extent} from it along both axes; raise camera_distance or lower extent"
            )
        return self


def undrawable(renderer: SolidsRenderer, groups: dict[str, int]) -> str | None:
    """Say why groups (name -> number of values) cannot be drawn; None if they can."""
    for name, size in groups.items():
        known = renderer.colors if name == "color" else KNOWN_VALUES.get(name, ())
        if not known:
            return (
                f"the solids renderer has no feature {name!r}; name the feature groups after "
                f"{', '.join(KNOWN_VALUES)}"
            )
        if size > len(known):
            return (
                f"feature group {name!r} has {size} values, and the solids renderer knows "
                f"{len(known)} ({', '.join(known)}); lower its size"
            )
    return None
