"""Approximators: learners of the map from values to embeddings, scored on unseen objects.

- `additive`: a vector per value and slot, summed.
- `per_object`: in addition, the product over the types of an object's vectors, summed over slots.
- `global`: in addition, the product over the types of all slots.
- `mlp`: a vector per value and slot, joined, then layers with ReLU.
- `forest`, `booster`: trees of scikit-learn; `xgboost`: those of XGBoost.

Products are in the embedding's own dimensions, which have nothing in common: each is a small fit
(`fit_coordinates`). Under `protocol: paper` all but trees are fitted as in the released code, where
products pass a linear map (`protocols`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import cos, inf, pi
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bindscope.core.array_types import Doubles, Floats
from bindscope.core.optional import import_version
from bindscope.fitting.adam import Adam
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.lbfgs import Problem, descend
from bindscope.studies.concepts.config import Approximator
from bindscope.studies.concepts.counting import TREES
from bindscope.studies.concepts.decomposition import r_squared
from bindscope.studies.concepts.learners import MLP, PaperMap, combined
from bindscope.studies.concepts.protocols import paper_order, predict_at_best
from bindscope.studies.concepts.recognition import Embedded, hits_of, scored
from bindscope.studies.concepts.scenes import ObjectSplit, Scenes, split_objects
from bindscope.studies.concepts.set_separation import scalar
from bindscope.studies.concepts.vectors import one_hot_fit, one_hot_sum, value_columns
from bindscope.tables.rows import Row


class Fitted(NamedTuple):
    """What a learner predicts."""

    # Embeddings of all scenes, (n, d), by the state that is judged: the one of the smallest loss on
    # validation scenes, where a learner has several states and there are such scenes.
    predicted: npt.NDArray[np.float32]
    parameters: int | None = None  # None of trees
    ended: bool = True  # whether the fit converged


def _scaled(z: Floats, split: ObjectSplit, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return embeddings minus the mean of training scenes over one number, the mean, the number.

    So the rate of a descent does not hang on the unit of the embedding.
    """
    values = torch.from_numpy(np.asarray(z, np.float32)).to(device)
    mean = values[split.train].mean(0)
    scale = (values[split.train] - mean).square().mean().sqrt().clamp_min(1e-12)
    return (values - mean) / scale, mean, scale


# --- By descent ---------------------------------------------------------------------------------

RATE = 1e-2  # of Adam at the start; it falls to 0 along a cosine
EVALUATIONS = 20
STILL_FALLING, NEGLIGIBLE = 0.05, 1e-3  # share of the loss; of the embedding's variance


def fit_descended(
    z: Floats,
    scenes: Scenes,
    split: ObjectSplit,
    model: MLP,
    steps: int,
    device: str = "cpu",
) -> Fitted:
    """Fit an MLP of embeddings (n, d) to the training scenes of a split by full batches of Adam.

    It is judged by its best validation loss or, where no scene validates, at the end. It has
    converged if its loss hardly fell in the second half of the steps.
    """
    columns = torch.from_numpy(value_columns(scenes)).to(device)
    targets, mean, scale = _scaled(z, split, device)
    inputs, training = columns[split.train], targets[split.train]
    optimizer = Adam(model.to(device).parameters(), 0.0)
    losses, best, predicted = [], inf, targets
    for step in range(steps + 1):
        if step % max(1, steps // EVALUATIONS) == 0 or step == steps:
            with torch.no_grad():
                state = model(columns)
            error = (state - targets).square().mean(1)
            losses.append(float(error[split.train].mean()))
            loss = float(error[split.validation].mean()) if len(split.validation) else -inf
            if loss < best or not len(split.validation):
                best, predicted = loss, state
        if step < steps:
            (model(inputs) - training).square().mean().backward()
            optimizer.step(RATE * (1 + cos(pi * step / steps)) / 2)
    before, after = losses[len(losses) // 2], losses[-1]
    return Fitted(
        (predicted * scale + mean).cpu().numpy(),
        sum(p.numel() for p in model.parameters()),
        before - after <= max(STILL_FALLING * before, NEGLIGIBLE),
    )


# --- In the embedding's own dimensions ----------------------------------------------------------

TOLERANCE = 1e-6  # of the loss, in variances of the embedding
SIZE = 0.1  # standard deviation of the first numbers
# Half of each times the sum of squares is added to the mean square of the error, in variances of
# the embedding. Without validation scenes the first counts alone.
RIDGES = (1e-4, 1e-2, 1e-1)
ITERATIONS = 200


@dataclass(eq=False)
class _Errors(Problem):
    """Mean square of the error of each column of weights, by autograd."""

    columns: Tensor
    targets: Tensor
    terms: Sequence[str]
    n_slots: int
    rows: int
    penalty: Tensor

    def predict(self, w: Tensor, columns: Tensor) -> Tensor:
        """Return predictions (n, columns of w)."""
        out = w[-1:]
        for i, term in enumerate(self.terms):
            table = w[i * self.rows : (i + 1) * self.rows]
            out = out + combined(term, table[columns], self.n_slots)
        return out

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = w.detach().requires_grad_()
            loss = (self.predict(leaf, self.columns) - self.targets).square().mean(0)
            (slope,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), slope

    def select(self, columns: Tensor) -> _Errors:
        return replace(self, targets=self.targets[:, columns])

    def precondition(self, gradient: Tensor, ridge: float) -> Tensor:
        del ridge
        return gradient * (self.rows / self.columns.shape[1])  # how seldom a value is there


def fit_coordinates(
    z: Floats,
    scenes: Scenes,
    split: ObjectSplit,
    terms: Sequence[str],
    starts: int,
    device: str = "cpu",
) -> Fitted:
    """Fit sums and products to the training scenes of a split, all dimensions in one L-BFGS.

    A product has local minima, so that each dimension is fitted from several starts, of which the
    one with the least penalized loss on training scenes is chosen; in every other start, factors of
    products are about 1, not about 0. Where a product does not hold, its predictions of unseen
    objects are far off unless a ridge limits them: where there are validation scenes, each
    dimension has its best ridge and start by these as well.
    """
    columns = torch.from_numpy(value_columns(scenes)).to(device)
    targets, mean, scale = _scaled(z, split, device)
    dim = targets.shape[1]
    rows = scenes.n_slots * sum(scenes.sizes)
    first = _first(terms, rows, dim, starts, split.seed).to(device)
    predicted, penalized, decrements = [], [], []
    for ridge in RIDGES if len(split.validation) else RIDGES[:1]:
        repeated = targets[split.train].repeat(1, starts)
        errors = _Errors(
            columns[split.train],
            repeated,
            terms,
            scenes.n_slots,
            rows,
            torch.ones(1, 1, device=device),
        )
        minimum = descend(errors, first, ridge, iterations=ITERATIONS, tolerance=TOLERANCE)
        with torch.no_grad():
            predicted.append(errors.predict(minimum.w, columns).view(len(targets), -1, dim))
        penalized.append(ridge / 2 * minimum.w.square().sum(0).view(-1, dim))
        decrements.append(minimum.decrement.view(-1, dim))
    fits = torch.cat(predicted, dim=1)
    error = (fits - targets[:, None]).square()
    # Fits of the first ridge come first: the one of least penalized loss says what converged.
    final = (error[split.train].mean(0) + torch.cat(penalized))[:starts].argmin(0)
    chosen = error[split.validation].mean(0).argmin(0) if len(split.validation) else final
    converged = torch.cat(decrements).gather(0, final[None]) <= 10 * TOLERANCE
    return Fitted(
        (fits[:, chosen, torch.arange(dim, device=fits.device)] * scale + mean).cpu().numpy(),
        len(first) * dim,
        bool(converged.float().mean() >= 0.95),
    )


def _first(terms: Sequence[str], rows: int, dim: int, starts: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(terms) * rows + 1, starts, dim)
    first = SIZE * torch.randn(shape, generator=generator)
    for i, term in enumerate(terms):
        if term != "additive":
            first[i * rows : (i + 1) * rows, 1::2] += 1
    return first.flatten(1)


SUBSETS = ("train", "test")  # of a split, whose scenes are scored
XGBOOST = "3.2.0"  # as in pyproject.toml
VALIDATION_SHARE = 0.1  # of the objects in training, that choose among states of a fit


def approximate(
    approximator: Approximator,
    z: Floats,
    scenes: Scenes,
    split: ObjectSplit,
    device: str = "cpu",
    score: Callable[[Floats], float] | None = None,
) -> Fitted:
    """Fit an approximator of embeddings (n, d) to a split, whose seed is that of the fit too.

    With a `score` of predictions of all scenes, by the protocol of the paper. Predictions are NaN
    where no scene trains.
    """
    if not len(split.train):
        return Fitted(np.full(z.shape, np.nan, np.float32))
    kind = approximator.kind
    if kind in TREES:
        return _fit_trees(approximator, z, scenes, split)
    if score is not None:
        return _fit_as_released(approximator, z, scenes, split, device, score)
    if kind == "additive":
        return _fit_sums(z, scenes, split)
    if kind != "mlp":
        terms = ("additive", kind)
        return fit_coordinates(z, scenes, split, terms, approximator.starts, device)
    generator = torch.Generator().manual_seed(split.seed)
    model = MLP(scenes.sizes, scenes.n_slots, z.shape[1], approximator.widths, generator)
    return fit_descended(z, scenes, split, model, approximator.steps, device)


def _fit_as_released(
    approximator: Approximator,
    z: Floats,
    scenes: Scenes,
    split: ObjectSplit,
    device: str,
    score: Callable[[Floats], float],
) -> Fitted:
    """Fit one of the released code's maps; see `protocols.predict_at_best`."""
    shape = scenes.sizes, scenes.n_slots, z.shape[1]
    model = PaperMap(approximator, *shape, split.seed).to(device)
    predicted = predict_at_best(
        model,
        torch.from_numpy(value_columns(scenes)).to(device),
        torch.from_numpy(np.asarray(z, np.float32)).to(device),
        split.train,
        score,
        approximator.steps,
    )
    return Fitted(predicted, sum(p.numel() for p in model.parameters()))


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
    trees: Any = RandomForestRegressor(approximator.rounds, random_state=split.seed)
    if approximator.kind == "xgboost":
        where = "approximators, kind: xgboost"
        library = import_version("xgboost", XGBOOST, where, "xgboost-cpu", "`kind: booster`")
        trees = library.XGBRegressor(
            n_estimators=approximator.rounds,
            max_depth=6,
            tree_method="hist",
            random_state=split.seed,
            n_jobs=torch.get_num_threads(),
        )
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    model: Any = make_pipeline(encoder, trees)
    if approximator.kind == "booster":
        leaf = min(20, max(1, len(train) // 10))
        model = MultiOutputRegressor(
            HistGradientBoostingRegressor(
                max_iter=approximator.rounds,
                max_depth=6,
                min_samples_leaf=leaf,
                random_state=split.seed,
                categorical_features=list(range(values.shape[1])),
                early_stopping=False,
            )
        )
    model.fit(values[split.train], axes.transform(train))
    # Of a single component scikit-learn's and XGBoost's predictions are of one dimension.
    predicted = np.asarray(model.predict(values)).reshape(len(values), -1)
    return Fitted(axes.inverse_transform(predicted).astype(np.float32))


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
    z, scenes, as_released = embedded.z, embedded.scenes, embedded.protocol == "paper"
    for coverage in coverages:
        splits = [
            split_objects(scenes, coverage, seed, order=paper_order(scenes, seed))
            if as_released
            else split_objects(scenes, coverage, seed, validation=validation_share)
            for seed in seeds
        ]
        scores: dict[str, list[_Score]] = {subset: [] for subset in SUBSETS}
        ended: list[bool] = []
        for split in splits:
            score = partial(_test_accuracy, embedded, split) if as_released else None
            fit = approximate(Approximator(**options), z, scenes, split, embedded.device, score)
            ended.append(fit.ended)
            for subset, of_subset in scores.items():
                if len(index := getattr(split, subset)):
                    part, there = fit.predicted[index], scenes.take(index)
                    hits = hits_of(embedded.readout, part, there)
                    of_subset.append(_Score(there, r_squared(z[index], part), hits))
        about = {
            "kind": options["kind"],
            "coverage": coverage,
            "n_splits": len(splits),
            "fitted_share": len(splits[0].fitted_objects) / len(scenes.present),
            "n_train": min(len(split.train) for split in splits),
            "n_parameters": fit.parameters,
            "n_absent_values": max(split.absent_values for split in splits),
            **embedded.about(
                *([] if all(ended) else ["not_converged"]),
                *(["chosen_on_test"] if as_released and options["kind"] not in TREES else []),
            ),
        }
        for subset, of_subset in scores.items():
            for row in _scored(embedded, of_subset):
                yield {**row, **about, "split": subset}


def _test_accuracy(embedded: Embedded, split: ObjectSplit, predicted: Floats) -> float:
    """Return the share of test scenes whose objects are recognized in predictions of all scenes."""
    if not len(split.test):
        return float("nan")
    hits = embedded.readout.object_hits(predicted[split.test], embedded.scenes.take(split.test))
    return float(np.mean(hits))


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
