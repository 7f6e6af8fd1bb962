"""What the adapters share: which token of a sequence is what, and which layers there are.

`core.interfaces.Model` describes what a model offers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Layer, Model


@dataclass(frozen=True)
class TokenMap:
    """Which token of a sequence is what: [CLS], others, registers, then patches in raster order.

    `prefix` tokens stand before the first patch, the last of them registers; `grid` are rows and
    columns of patches, whose side is `patch_px` in pixels of the model's input; (0, 0) for none.
    """

    prefix: int
    registers: int
    grid: tuple[int, int]
    patch_px: int
    has_cls: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", tuple(int(side) for side in self.grid))
        if self.registers < 0 or self.prefix < self.registers + int(self.has_cls):
            raise ModelError(
                "token map",
                f"a prefix of {self.prefix} tokens does not hold {self.registers} registers"
                + (" and a [CLS] token" if self.has_cls else ""),
                "count every token before the first patch in `prefix`",
            )
        without_patches = self.grid == (0, 0) and self.has_cls
        if len(self.grid) != 2 or (min(*self.grid, self.patch_px) < 1 and not without_patches):
            raise ModelError(
                "token map",
                f"grid {self.grid} with patches of {self.patch_px} px has no patch",
                "give `grid` as (rows, columns), both at least 1, and a patch of at least 1 px",
            )

    @property
    def n_patches(self) -> int:
        """Number of patch tokens."""
        return self.grid[0] * self.grid[1]

    @property
    def n_tokens(self) -> int:
        """Number of all tokens of a sequence."""
        return self.prefix + self.n_patches

    @property
    def register_tokens(self) -> slice:
        """The registers along the token axis; empty for a model without any."""
        return slice(self.prefix - self.registers, self.prefix)

    @property
    def patches(self) -> slice:
        """The patch tokens along the token axis, in raster order."""
        return slice(self.prefix, self.n_tokens)

    def check(self, n_tokens: int, where: str) -> None:
        """Refuse a sequence of another length than the map's, with ModelError."""
        if n_tokens != self.n_tokens:
            raise ModelError(
                where,
                f"{n_tokens} tokens, but the token map counts {self.prefix} + {self.grid[0]} x "
                f"{self.grid[1]} = {self.n_tokens}",
                "use a model that keeps every token through all blocks; for a model of your own, "
                "count its prefix and its patch grid as they are",
            )


@dataclass(frozen=True)
class LayerShape:
    """What the tokens of one layer look like: their width, and which of them is what.

    `is_map`: they are cells of a map of convolutions, which see more of the image than their own.
    """

    dim: int
    token_map: TokenMap
    is_map: bool = False


def layer_shapes(model: Model) -> dict[Layer, LayerShape]:
    """Return the layers of a model in ascending order, with what each looks like.

    All alike, from 0 to ``"final"``, unless the model has an attribute `shapes`.
    """
    shapes: dict[Layer, LayerShape] | None = getattr(model, "shapes", None)
    if shapes is not None:
        return shapes
    layers: list[Layer] = [*range(model.n_layers + 1), "final"]
    return dict.fromkeys(layers, LayerShape(model.dim, model.token_map))


def ordered_layers(layers: Sequence[Layer], n_layers: int, where: str) -> list[Layer]:
    """Return requested layers once each, ascending; ModelError for one that is none."""
    for layer in layers:
        known = layer == "final" or (isinstance(layer, int) and 0 <= layer <= n_layers)
        if not known or isinstance(layer, bool):
            raise ModelError(
                where,
                f"there is no layer {layer!r}",
                f'ask for 0 (input of block 1) to {n_layers} (after the last block) or "final"',
            )
    numbers: list[Layer] = [*sorted({layer for layer in layers if isinstance(layer, int)})]
    return [*numbers, "final"] if "final" in layers else numbers
