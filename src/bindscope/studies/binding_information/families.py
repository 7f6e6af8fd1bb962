"""Probe families: the options that a configuration gives them, and what each says of itself.

No torch here: a configuration is read by every job. `registry` has the families by name; the class
that is fitted is `ProbeOptions.implementation`. How to add one: docs/add_probe.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import Field, PositiveFloat, field_validator

from bindscope.config.base import ConfigModel, PositiveInt, Slug
from bindscope.core.registries import resolve
from bindscope.figures.colors import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PINK, SKY

if TYPE_CHECKING:
    from bindscope.studies.binding_information.probes.base import Heads
    from bindscope.studies.binding_information.probes.module import Family

ParameterCounts = tuple[float, float]

_BATCH = "Scenes per step (never under `paper`: 2 x 512 there)."

_PROBES = "bindscope.studies.binding_information.probes"


class Label(NamedTuple):
    """How something is shown: its name in axes, its words (with an article), and its color.

    `short` stands under a tick, in lines as narrow as they go.
    """

    name: str
    words: str
    color: str
    short: str = ""

    @property
    def tick(self) -> str:
        """The name under a tick."""
        return self.short or self.name


class ProbeOptions(ConfigModel):
    """Base of a family's options, with what the family says of itself.

    Attributes
    ----------
    implementation
        ``"module:class"`` of its `probes.module.Family`; or override `load`.
    patches, attends
        Whether it reads patch tokens, not vectors, and has a map of attention per object.
    convex, jointly
        Whether it is fitted as a convex problem, and one module has all heads of a target.
    label
        Its words and color; by default its name.
    """

    implementation: ClassVar[str] = ""
    patches: ClassVar[bool] = False
    convex: ClassVar[bool] = False
    jointly: ClassVar[bool] = False
    attends: ClassVar[bool] = False
    label: ClassVar[Label | None] = None

    name: Slug = Field(description="Name in paths, tables and figures.")
    family: str
    protocol: Literal["converged", "paper"] = Field(
        "converged",
        description="`converged`: standardised inputs, convex optimum or one-cycle AdamW, best "
        "validation weights. `paper`: Adam 1e-3, 40 epochs, last weights, raw inputs, as released.",
    )
    targets: tuple[Literal["plain", "anchored", "chained"], ...] = Field(
        ("plain", "anchored", "chained"),
        min_length=1,
        description="What is fitted: `plain` (the paper's probes over O and over F), `anchored` "
        "(over O, from the exact prior), `chained` (one after the other, from exact priors).",
    )
    steps: PositiveInt = Field(
        400,
        description="Optimiser steps of the first cycle; the whole fit takes two to eight times as "
        "many. Linear parts take what they need, at most 400 iterations of L-BFGS.",
    )
    batch_size: PositiveInt = Field(256, description=_BATCH)
    threads: PositiveInt = Field(1, description="CPU threads of one fit; part of the key.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Kind of device.")

    @field_validator("name")
    @classmethod
    def _is_not_the_best(cls, name: str) -> str:
        if name == "best":
            raise ValueError(
                "no probe may be called 'best': the table's rows of the best probe are; "
                "call it by its family"
            )
        return name

    memory_mb: PositiveInt = Field(
        1024,
        description="Memory for activations (and labels that take more than an eighth of it); what "
        "is larger is streamed in shuffled blocks.",
    )

    @classmethod
    def load(cls) -> type[Family]:
        """Import the class that is fitted."""
        family: type[Family] = resolve(cls.implementation)
        return family

    @classmethod
    def code(cls) -> set[str]:
        """Return what the code key of a fit covers beyond the study's own modules."""
        named = {cls.implementation} - {""}
        return named if cls.__module__ == __name__ else named | {f"{cls.__module__}:{cls.__name__}"}

    def read_dims(self, dim: int, cls: int = 1) -> tuple[int, ...]:
        """Return the widths of its convex fits, which end with that of all it reads.

        Patch tokens have width `dim`, and there are `cls` vectors beside them.
        """
        return ((1 + cls) * dim,)

    @classmethod
    def words(cls, family: str) -> Label:
        """Return how the family is shown."""
        return cls.label or Label(family, f"a probe of the family {family}", INK)

    def problem(self, sizes: Sequence[int]) -> str | None:
        """Return why the family does not fit feature groups of some sizes, and what to use."""

    def count(self, heads: Heads, dim: int, tokens: int = 1, cls: int = 1) -> tuple[float, float]:
        """Return the number of weights, and of products that a scene takes part in.

        `dim` is the width of what is read, of so many patch `tokens` (1: a vector), and of `cls`
        vectors beside them.
        """
        weights = 2 * getattr(self, "rank", 16) * (dim + heads.length) * heads.count
        return weights, weights * tokens


class LinearProbe(ProbeOptions):
    """Logistic regression per head on the representation and the revealed bits."""

    implementation = f"{_PROBES}.linear:Linear"
    convex = True
    label = Label("linear", "a linear probe", GREY)

    family: Literal["linear"]

    def count(self, heads: Heads, dim: int, tokens: int = 1, cls: int = 1) -> ParameterCounts:  # noqa: D102
        weights = (dim + heads.length) * heads.count
        return weights, weights


class PooledQuadraticProbe(ProbeOptions):
    """A quadratic form of every patch token, averaged over them; a convex fit that always ends."""

    implementation = f"{_PROBES}.pooled:PooledQuadratic"
    patches = True
    convex = True
    label = Label("pooled quadratic", "a pooled quadratic probe", INK, "pooled\nquadratic")

    family: Literal["pooled_quadratic"]
    protocol: Literal["converged"] = Field("converged", description="It has no other.")
    components: PositiveInt = Field(
        24, description="Principal components of the tokens of which products are averaged."
    )

    def read_dims(self, dim: int, cls: int = 1) -> tuple[int, ...]:  # noqa: D102
        components = min(self.components, dim)
        linear = (1 + cls) * dim
        return linear, linear + components * (components + 1) // 2

    def count(self, heads: Heads, dim: int, tokens: int = 1, cls: int = 1) -> ParameterCounts:  # noqa: D102
        weights = (self.read_dims(dim, cls)[-1] + heads.length) * heads.count
        components = min(self.components, dim)
        return weights, weights + tokens * components * (dim + components)


class DescendedProbe(ProbeOptions):
    """Base of the options of families that are fitted by descent."""

    learning_rate: PositiveFloat = Field(3e-3, description="Peak rate of a cycle.")
    weight_decay: float = Field(1e-4, ge=0, description="AdamW's weight decay.")


class RankedProbe(DescendedProbe):
    """Base of the options of families with forms of a low rank."""

    rank: PositiveInt = Field(16, description="Rank of each head's bilinear form.")


class QuadraticProbe(RankedProbe):
    """A low-rank quadratic form per head."""

    implementation = f"{_PROBES}.quadratic:Quadratic"
    label = Label("quadratic", "a quadratic probe", BLUE)

    family: Literal["quadratic"]


class _ReuseProbe(RankedProbe):
    def count(self, heads: Heads, dim: int, tokens: int = 1, cls: int = 1) -> tuple[float, float]:
        if heads.kind != "object":
            return super().count(heads, dim, tokens, cls)
        by_value, by_bit = sum(heads.sizes) * dim, len(heads.sizes) * heads.count * heads.length
        weights = self.rank * (by_value + by_bit)
        return weights, weights


class QuadraticReuseProbe(_ReuseProbe):
    """Quadratic, projections of z shared by objects with the same feature; two feature groups."""

    implementation = f"{_PROBES}.multilinear:MultilinearReuse"
    label = Label("shared quadratic", "a shared quadratic probe", SKY, "shared\nquadratic")

    family: Literal["quadratic_reuse"]

    def problem(self, sizes: Sequence[int]) -> str | None:  # noqa: D102
        if len(sizes) == 2:
            return None
        return f"is defined for two feature groups, not {len(sizes)}; use multilinear_reuse"


class MultilinearReuseProbe(_ReuseProbe):
    """quadratic_reuse for any number of feature groups."""

    implementation = f"{_PROBES}.multilinear:MultilinearReuse"
    label = Label("shared multilinear", "a shared multilinear probe", PINK, "shared\nmultilinear")

    family: Literal["multilinear_reuse"]


class DnnProbe(DescendedProbe):
    """A four-layer MLP per head."""

    implementation = f"{_PROBES}.dnn:Dnn"
    label = Label("neural net", "a neural-net probe", ORANGE, "neural\nnet")

    family: Literal["dnn"]
    hidden: PositiveInt = Field(32, description="Hidden units; the paper's config has 2048.")
    weight_decay: float = Field(0.3, ge=0, description="AdamW's weight decay.")

    def count(self, heads: Heads, dim: int, tokens: int = 1, cls: int = 1) -> ParameterCounts:  # noqa: D102
        weights = self.hidden * (dim + heads.length + 2 * self.hidden + 1) * heads.count
        return weights, weights


class AttentionProbe(RankedProbe):
    """Heads that read the patch tokens by attention, then quadratic; needs `tokens: patches`."""

    implementation = f"{_PROBES}.attention:AttentionQuadratic"
    patches = True
    attends = True
    label = Label("attention", "an attention probe", GREEN)

    family: Literal["attention_quadratic"]
    batch_size: PositiveInt = Field(128, description=_BATCH)

    def count(self, heads: Heads, dim: int, tokens: int = 1, cls: int = 1) -> ParameterCounts:  # noqa: D102
        each = 2 * self.rank * (cls * dim + heads.length + dim) + dim
        weights = each * heads.count + dim * (dim + heads.length)
        return weights, heads.count * (each + 2 * tokens * dim)


class SetProbe(DescendedProbe):
    """An MLP on every patch token, summed, then one over the sum and the bits."""

    implementation = f"{_PROBES}.set:Set"
    patches = True
    jointly = True
    label = Label("set", "a set probe", AMBER)

    family: Literal["set"]
    hidden: PositiveInt = Field(192, description="Hidden units of every token.")
    steps: PositiveInt = Field(
        1250,
        description="Optimiser steps of the first cycle; the whole fit takes two to eight times as "
        "many.",
    )
    summed: PositiveInt = Field(128, description="Numbers that are summed over the tokens.")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Share of what is summed that a step hides."
    )
    batch_size: PositiveInt = Field(128, description=_BATCH)
    learning_rate: PositiveFloat = Field(5e-3, description="Peak rate of a cycle.")
    weight_decay: float = Field(0.3, ge=0, description="AdamW's weight decay.")

    def count(self, heads: Heads, dim: int, tokens: int = 1, cls: int = 1) -> ParameterCounts:  # noqa: D102
        each, read = self.hidden * (dim + self.summed), self.summed + heads.length
        once = self.summed * (cls * dim + self.summed) + read * heads.count
        return each + tokens * self.hidden + once, tokens * each + once
