"""Approximators: learners of the map from values to embeddings, scored on unseen objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bindscope.fitting.checkpoint import Checkpoint
from bindscope.studies.concepts.config import Approximator
from bindscope.studies.concepts.decomposition import r_squared
from bindscope.studies.concepts.embedding import Embedded
from bindscope.studies.concepts.learners import (
    Fitted,
    Perceptron,
    Structured,
    fit_coordinates,
    fit_descended,
)
from bindscope.studies.concepts.recognition import hits_of, scored
from bindscope.studies.concepts.rows import Row, scalar
from bindscope.studies.concepts.scenes import Doubles, Floats, Scenes
from bindscope.studies.concepts.splits import ObjectSplit, split_objects
from bindscope.studies.concepts.vectors import one_hot_fit, one_hot_sum, value_columns

SUBSETS = ("train", "test")  # of a split, whose scenes are scored
VALIDATION_SHARE = 0.1  # of the objects in training, that choose among states of a fit


def approximate(
    approximator: Approximator, z: Floats, scenes: Scenes, split: ObjectSplit, device: str = "cpu"
) -> Fitted:
    """Fit an approximator of embeddings (n, d) to a split, whose seed is that of the fit too."""
    kind, terms = approximator.kind, ("additive", approximator.kind)
    if kind in ("forest", "booster"):
        return _fit_trees(approximator, z, scenes, split)
    if kind == "additive":
        return _fit_sums(z, scenes, split)
    if kind != "mlp" and not approximator.rank:
        return fit_coordinates(z, scenes, split, terms, approximator.starts, device)
    generator = torch.Generator().manual_seed(split.seed)
    shape = scenes.sizes, scenes.n_slots, z.shape[1]
    model: nn.Module = (
        Perceptron(*shape, approximator.widths, generator)
        if kind == "mlp"
        else Structured(*shape, terms, approximator.rank, generator)
    )
    return fit_descended(z, scenes, split, model, approximator.steps, device)


def _fit_sums(z: Floats, scenes: Scenes, split: ObjectSplit) -> Fitted:
    train = np.asarray(z[split.train], np.float64)
    mean, columns = train.mean(axis=0), value_columns(scenes)
    n_columns = scenes.n_slots * sum(scenes.sizes)
    table = one_hot_fit(columns[split.train], n_columns, train - mean)
    predicted = mean + one_hot_sum(table, columns)
    return Fitted(predicted.astype(np.float32), parameters=table.size)


def _fit_trees(approximator: Approximator, z: Floats, scenes: Scenes, split: ObjectSplit) -> Fitted:
    """Fit trees, or rounds of depth 6 for each principal component, to training scenes."""
    from sklearn.decomposition import PCA
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.multioutput import MultiOutputRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    train, values = np.asarray(z[split.train], np.float64), scenes.values.reshape(len(scenes), -1)
    axes = PCA(min(approximator.components, *train.shape), svd_solver="full").fit(train)
    model: Any = make_pipeline(
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        RandomForestRegressor(approximator.rounds, random_state=split.seed),
    )
    if approximator.kind == "booster":
        leaf = min(20, max(1, len(train) // 10))
        model = MultiOutputRegressor(HistGradientBoostingRegressor(
            max_iter=approximator.rounds, max_depth=6, min_samples_leaf=leaf,
            random_state=split.seed, categorical_features=list(range(values.shape[1])),
            early_stopping=False,
        ))  # fmt: skip
    model.fit(values[split.train], axes.transform(train))
    return Fitted(axes.inverse_transform(model.predict(values)).astype(np.float32))


class _Score(NamedTuple):
    """How one split's predictions of a subset score."""

    scenes: Scenes
    r2: float
    hits: dict[str, Doubles]


def approximator_rows(
    embedded: Embedded,
    options: Mapping[str, Any],
    coverages: Sequence[float],
    seeds: Sequence[int],
    validation_share: float = VALIDATION_SHARE,
) -> Iterator[Row]:
    """Yield rows of an approximator: R2, and what probes recognize in what it predicts.

    `options` are fields of `config.Approximator`. Scenes of all splits of a coverage count
    together, with intervals over objects: further splits of the same objects make a mean more
    exact, and are no further objects. The probes know all objects.
    """
    z, scenes = embedded.z, embedded.scenes
    for coverage in coverages:
        splits = [split_objects(scenes, coverage, s, validation=validation_share) for s in seeds]
        scores: dict[str, list[_Score]] = {subset: [] for subset in SUBSETS}
        ended: list[bool] = []
        for split in splits:
            fit = approximate(Approximator(**options), z, scenes, split, embedded.device)
            ended.append(fit.ended)
            for subset, of_subset in scores.items():
                if len(index := getattr(split, subset)):
                    part, there = fit.predicted[index], scenes.take(index)
                    hits = hits_of(embedded.readout, part, there)
                    of_subset.append(_Score(there, r_squared(z[index], part), hits))
        about = {
            "kind": options["kind"], "coverage": coverage, "n_splits": len(splits),
            "fitted_share": len(splits[0].fitted_objects) / len(scenes.present),
            "n_train": min(len(split.train) for split in splits), "n_parameters": fit.parameters,
            "n_absent_values": max(split.absent_values for split in splits),
            **embedded.about(*([] if all(ended) else ["not_converged"])),
        }  # fmt: skip
        for subset, of_subset in scores.items():
            for row in _scored(embedded, of_subset):
                yield {**row, **about, "split": subset}


def _scored(embedded: Embedded, scores: Sequence[_Score]) -> Iterator[Row]:
    if not scores:
        return
    slots = np.concatenate([score.scenes.slots for score in scores])
    scenes = Scenes(slots, embedded.scenes.sizes)
    hits = {name: np.concatenate([s.hits[name] for s in scores]) for name in scores[0].hits}
    yield scalar("r2", float(np.mean([score.r2 for score in scores])), len(scenes), 0)
    yield from scored(embedded.readout, hits, scenes)


def named_rows(
    embedded: Embedded,
    approximators: Sequence[Mapping[str, Any]],
    coverages: Sequence[float],
    seeds: Sequence[int],
) -> Iterator[Row]:
    """Yield the rows of several approximators, mappings of `name` and `options`."""
    for approximator in approximators:
        for row in approximator_rows(embedded, approximator["options"], coverages, seeds):
            yield {"variant": approximator["name"], **row}


def rows_of_runs(
    runs: Iterable[tuple[Row, Embedded]],
    spec: Mapping[str, Any],
    checkpoint: Checkpoint,
) -> list[Row]:
    """Return rows of several embeddings, those of a checkpoint included.

    A run is what each of its rows says of an embedding, and the embedding. `spec` has the job's
    `approximator`, `coverages` and `seeds`. The checkpoint holds the rows so far after each
    coverage of an embedding.
    """
    state = checkpoint.read()
    done, rows = (state[1]["step"], state[1]["rows"]) if state else (0, [])
    step = 0
    for about, embedded in runs:
        for coverage in spec["coverages"]:
            step += 1
            if step <= done:
                continue
            how = spec["approximator"], [coverage], spec["seeds"]
            rows += [{**row, **about} for row in approximator_rows(embedded, *how)]
            checkpoint.write({}, {"step": step, "rows": rows})
    return rows
