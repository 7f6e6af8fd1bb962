"""Encoders whose binding information is known: they see codes, not images.

`encode` makes the representation, `truth` says in closed form how much it holds. They run through
the same rules as any other model, with one layer, and are what the estimators are held against
(``docs/known_answers.md``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bindscope.codes.space import build_space, feature_code
from bindscope.core.errors import ConfigError
from bindscope.models import known_answer_codes, known_answer_truth
from bindscope.models.base import TokenMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bindscope.config.codes import SceneDistribution
    from bindscope.config.grid import Tokens
    from bindscope.config.models import KnownAnswer


def encode(
    config: KnownAnswer,
    dataset: SceneDistribution,
    split: str,
    start: int,
    objects: NDArray[np.uint8],
) -> dict[str, NDArray[np.float32]]:
    """Encode some scenes of a split.

    Row i depends on the configuration, the dataset's space and seed, the split, and the scene's
    index ``start + i`` only, so that shards of any size agree.

    Parameters
    ----------
    config
        The encoder.
    dataset
        The dataset that the codes are of.
    split
        "train", "val" or "test".
    start
        Index of the first scene in the split.
    objects
        Object codes, uint8 (n, K).

    Returns
    -------
    ``cls``, float32 (n, d); `token_grid` also has ``patches``, float32 (n, T, d), with the token
    map that `token_map` returns.
    """
    space = build_space(dataset.space)
    scenes = known_answer_codes.Scenes(
        objects=objects,
        features=feature_code(objects, space.sizes),
        space=space,
        noise=known_answer_codes.Noise(config.seed, dataset.seed, split, start, len(objects)),
    )
    arrays = known_answer_codes.ENCODERS[encoder_name(config)](config, scenes)
    return {name: np.ascontiguousarray(a, dtype=np.float32) for name, a in arrays.items()}


def truth(
    config: KnownAnswer, dataset: SceneDistribution, split: str = "test", tokens: Tokens = "cls"
) -> tuple[float | None, float | None]:
    """Binding information of an encoder in closed form.

    Parameters
    ----------
    config
        The encoder.
    dataset
        The dataset whose distribution of object codes is meant.
    split
        The split: on disjoint feature codes each has its own distribution.
    tokens
        What the probe reads; other than ``cls`` for `token_grid` only.

    Returns
    -------
    I(O;Z) and I(O;Z|F) in bits; None where there is no closed form.
    """
    name = encoder_name(config)
    if name == "token_grid":
        return known_answer_truth.token_grid(dataset, split, tokens)
    if tokens != "cls":
        raise ConfigError(
            f"models.{config.name}",
            f"{config.source} gives one vector per scene, but a fit reads tokens: {tokens}",
            "write tokens: [cls] for this model, or use known-answer:token_grid",
        )
    return known_answer_truth.TRUTHS[name](config, dataset, split)


def token_map(config: KnownAnswer, dataset: SceneDistribution) -> TokenMap | None:
    """Token map of `token_grid`: [CLS] and a square grid; None for the other encoders."""
    if encoder_name(config) != "token_grid":
        return None
    side = known_answer_codes.grid_side(build_space(dataset.space))
    return TokenMap(prefix=1, registers=0, grid=(side, side), patch_px=1, has_cls=True)


def encoder_name(config: KnownAnswer) -> str:
    """Name of the encoder in ``known-answer:<encoder>``."""
    return config.source.partition(":")[2]
