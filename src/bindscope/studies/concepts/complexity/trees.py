"""Random forests and boosted histograms on the leading principal components of embeddings."""

from __future__ import annotations

from typing import Literal

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from bindscope.studies.concepts.complexity.fitted import Fitted
from bindscope.studies.concepts.complexity.splits import ObjectSplit
from bindscope.studies.concepts.scenes import Floats, Scenes


def fit_trees(
    kind: Literal["forest", "booster"],
    z: Floats,
    scenes: Scenes,
    split: ObjectSplit,
    *,
    components: int = 64,
    rounds: int = 300,
    seed: int = 0,
) -> Fitted:
    """Fit trees to the training scenes of a split.

    Parameters
    ----------
    kind
        `forest`: `rounds` trees on values as ones and zeros, all components at once. `booster`:
        `rounds` rounds of depth 6 on values as categories, a model per component.
    z
        Embeddings (n, d).
    scenes
        Of the same n.
    split
        Training scenes.
    components
        Most principal components, of the training scenes; the rest is foretold as their mean.
    rounds, seed
        Of scikit-learn's models.
    """
    z = np.asarray(z, np.float64)
    mean = z[split.train].mean(axis=0)
    _, spread, axes = np.linalg.svd(z[split.train] - mean, full_matrices=False)
    axes = axes[:components][spread[:components] > 1e-9 * max(spread[0], 1e-30)]
    targets = (z[split.train] - mean) @ axes.T
    values = scenes.values.reshape(len(scenes), -1)
    found = np.zeros((len(z), len(axes)))
    parameters = 0
    if kind == "forest" and len(axes):
        sizes = np.array(scenes.sizes * scenes.n_slots)
        ones = np.concatenate(
            [values[:, [i]] == np.arange(size) for i, size in enumerate(sizes)], axis=1
        )
        forest = RandomForestRegressor(rounds, random_state=seed).fit(ones[split.train], targets)
        found = forest.predict(ones).reshape(found.shape)
        parameters = sum(tree.tree_.node_count for tree in forest.estimators_) * len(axes)
    elif kind == "booster":
        for i, target in enumerate(targets.T):
            model = HistGradientBoostingRegressor(
                max_iter=rounds,
                max_depth=6,
                min_samples_leaf=min(20, max(1, len(targets) // 10)),
                categorical_features=list(range(values.shape[1])),
                early_stopping=False,
                random_state=seed,
            )
            found[:, i] = model.fit(values[split.train], target).predict(values)
            parameters += rounds * 31
    predicted = (mean + found @ axes).astype(np.float32)
    error = np.square(predicted - z)[split.train].sum() / max(np.square(targets).sum(), 1e-30)
    return Fitted({"final": predicted[None]}, np.array([[error]]), parameters, [True])
