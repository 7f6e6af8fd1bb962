"""Encoders whose binding information is known: they see codes, not images.

They run through the same rules as any other model, with one layer, and are what the estimators are
held against (``docs/known_answers.md``). How much they hold is computed in `known_answer_truth`,
which nothing here imports: a corrected closed form encodes nothing anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bindscope.codes.space import build_space, feature_code
from bindscope.models import known_answer_codes
from bindscope.models.base import TokenMap
from bindscope.models.known_answer_codes import encoder_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bindscope.config.codes import SceneDistribution
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


def token_map(config: KnownAnswer, dataset: SceneDistribution) -> TokenMap | None:
    """Token map of `token_grid`: [CLS] and a square grid; None for the other encoders."""
    if encoder_name(config) != "token_grid":
        return None
    side = known_answer_codes.grid_side(build_space(dataset.space))
    return TokenMap(prefix=1, registers=0, grid=(side, side), patch_px=1, has_cls=True)
