"""Random forests and boosted histograms on the leading principal components of embeddings."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from bindscope.studies.concepts.complexity.fitted import Fitted
from bindscope.studies.concepts.complexity.splits import ObjectSplit
from bindscope.studies.concepts.decomposition import r_squared
from bindscope.studies.concepts.scenes import Floats, Scenes


def fit_trees(
    kind: Literal["forest", "booster"],
    z: Floats,
    scenes: Scenes,
    split: ObjectSplit,
    components: int,
    rounds: int,
) -> Fitted:
    """Fit `rounds` trees, or rounds of depth 6 for each component, to training scenes (n, d)."""
    own, values = np.asarray(z[split.train], np.float64), scenes.values.reshape(len(scenes), -1)
    axes = PCA(min(components, *own.shape), svd_solver="full").fit(own)
    model: Any = make_pipeline(
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        RandomForestRegressor(rounds, random_state=split.seed),
    )
    if kind == "booster":
        leaf = min(20, max(1, len(own) // 10))
        model = MultiOutputRegressor(HistGradientBoostingRegressor(
            max_iter=rounds, max_depth=6, min_samples_leaf=leaf, random_state=split.seed,
            categorical_features=list(range(values.shape[1])), early_stopping=False,
        ))  # fmt: skip
    model.fit(values[split.train], axes.transform(own))
    predicted = axes.inverse_transform(model.predict(values)).astype(np.float32)
    loss = 1 - r_squared(own, predicted[split.train])
    return Fitted(predicted[None], "final", np.array([[loss]]), None, [True])
