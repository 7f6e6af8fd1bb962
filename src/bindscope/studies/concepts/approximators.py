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
    learners_at_once,
)
from bindscope.studies.concepts.recognition import hits_of, scored
from bindscope.studies.concepts.rows import Row, scalar
from bindscope.studies.concepts.scenes import Doubles, Floats, Scenes
from bindscope.studies.concepts.splits import ObjectSplit, split_objects
from bindscope.studies.concepts.vectors import one_hot_fit, one_hot_sum, value_columns

SUBSETS = ("train", "test")  # of a split, whose scenes are scored
VALIDATION_SHARE = 0.1  # of the objects in training, that choose among states of a fit


def terms_of(approximator: Approximator) -> tuple[str, ...]:
    """Return what a structured approximator adds up."""
    return ("additive",) if approximator.kind == "additive" else ("additive", approximator.kind)


def approximate(
    approximator: Approximator,
    z: Floats,
    scenes: Scenes,
    splits: Sequence[ObjectSplit],
    device: str = "cpu",
) -> Iterator[tuple[Sequence[ObjectSplit], Fitted]]:
    """Fit an approximator of embeddings (n, d) to each of several splits of one coverage.

    Yields the fits of some splits at a time, copies in their order: no more than fit in memory
    together. Seeds of the splits are those of the fits as well; learners that descend together
    take that of the first.
    """
    kind, dim = approximator.kind, z.shape[1]
    if kind == "mlp" or approximator.rank:

        def build(copies: int, generator: torch.Generator) -> nn.Module:
            shape = (scenes.sizes, scenes.n_slots, dim, copies)
            if kind == "mlp":
                return Perceptron(*shape, approximator.widths, generator)
            return Structured(*shape, terms_of(approximator), approximator.rank, generator)

        width = sum(approximator.widths) if kind == "mlp" else 2 * approximator.rank
        size = learners_at_once(build, z.shape, max(len(s.train) for s in splits), width)
        for start in range(0, len(splits), size):
            some = splits[start : start + size]
            yield some, fit_descended(z, scenes, some, build, approximator.steps, device)
        return
    for split in splits:
        if kind in ("forest", "booster"):
            fit = _fit_trees(approximator, z, scenes, split)
        elif kind == "additive":
            fit = _fit_sums(z, scenes, split)
        else:
            how = terms_of(approximator), approximator.starts, device
            fit = fit_coordinates(z, scenes, split, *how)
        yield [split], fit


def _fit_sums(z: Floats, scenes: Scenes, split: ObjectSplit) -> Fitted:
    train = np.asarray(z[split.train], np.float64)
    mean, columns = train.mean(axis=0), value_columns(scenes)
    n_columns = scenes.n_slots * sum(scenes.sizes)
    table = one_hot_fit(columns[split.train], n_columns, train - mean)
    predicted = mean + one_hot_sum(table, columns)
    loss = 1 - r_squared(train, predicted[split.train])
    return Fitted(
        predicted[None].astype(np.float32), "final", np.array([[loss]]), table.size, [True]
    )


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
    predicted = axes.inverse_transform(model.predict(values)).astype(np.float32)
    loss = 1 - r_squared(train, predicted[split.train])
    return Fitted(predicted[None], "final", np.array([[loss]]), None, [True])


class _Score(NamedTuple):
    """How one split's predictions of a subset score."""

    scenes: Scenes
    r2: float
    r2_all_scenes: float
    hits: dict[str, Doubles]


def approximator_rows(
    embedded: Embedded,
    options: Mapping[str, Any],
    coverages: Sequence[float],
    seeds: Sequence[int],
    device: str = "cpu",
    validation_share: float = VALIDATION_SHARE,
) -> Iterator[Row]:
    """Yield rows of an approximator: R2, and what probes recognize in what it predicts.

    `options` are fields of `config.Approximator`. Scenes of all splits of a coverage count
    together, with intervals over objects: further splits of the same objects make a mean more
    exact, and are no further objects. The probes know all objects.
    """
    z, scenes = embedded.z, embedded.scenes
    mean = np.asarray(z, np.float64).mean(axis=0)
    for coverage in coverages:
        splits = [split_objects(scenes, coverage, s, validation=validation_share) for s in seeds]
        scores: dict[str, list[_Score]] = {subset: [] for subset in SUBSETS}
        ended: list[bool] = []
        # Of what is predicted, only hits outlive the fits of a part of the splits.
        for some, fit in approximate(Approximator(**options), z, scenes, splits, device):
            ended += fit.ended
            for split, predicted in zip(some, fit.predicted, strict=True):
                for subset, of_subset in scores.items():
                    if len(index := getattr(split, subset)):
                        part, there = predicted[index], scenes.take(index)
                        r2 = r_squared(z[index], part), r_squared(z[index], part, mean)
                        hits = hits_of(embedded.readout, part, there)
                        of_subset.append(_Score(there, *r2, hits))
        about = {
            "kind": options["kind"], "coverage": coverage, "n_splits": len(splits),
            "selected": fit.selected,
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
    for name in ("r2", "r2_all_scenes"):
        value = float(np.mean([getattr(score, name) for score in scores]))
        yield scalar(name, value, len(scenes), 0)
    yield from scored(embedded.readout, hits, scenes)


def rows_of_runs(
    runs: Iterable[tuple[Row, Embedded]],
    spec: Mapping[str, Any],
    checkpoint: Checkpoint,
    device: str = "cpu",
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
            how = spec["approximator"], [coverage], spec["seeds"], device
            rows += [{**row, **about} for row in approximator_rows(embedded, *how)]
            checkpoint.write({}, {"step": step, "rows": rows})
    return rows
