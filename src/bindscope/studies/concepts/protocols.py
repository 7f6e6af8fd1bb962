"""Splits and fits of the released code (`protocol: paper`): Adam on embeddings as they are.

Random numbers are those of the released code, so that splits and edits agree where scenes are in
the same order. Source: code of arXiv 2605.31503, `train_embeddings.py`, `run_interventions.py`,
`run_probe_suite.py` and `approximate_complexity_scenes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, inf, pi
from random import Random

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bindscope.core.array_types import Doubles, Floats, Integers
from bindscope.fitting.adam import Adam
from bindscope.studies.concepts.counting import Protocol, SplitBy
from bindscope.studies.concepts.scenes import Parts, Scenes, parts_by_scene, split_scenes

RATE = 1e-2
EDITS_SEED = 42
JUDGED_EVERY = 100  # steps of an approximator
REMOVAL_SHARE = 0.99  # of the scenes, that the parts to subtract are fitted to


def paper_permutation(n: int, seed: int = 0) -> Integers:
    """Return torch's permutation of n numbers by a generator of a seed, int64 (n,)."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).numpy()


def split_by_protocol(
    scenes: Scenes, split_by: SplitBy, protocol: Protocol, seed: int = 0
) -> Parts:
    """Split scenes as the protocol does; `split_by` and `seed` as in `scenes.split_scenes`."""
    if protocol == "paper":
        return parts_by_scene(paper_permutation(len(scenes), seed))
    return split_scenes(scenes, split_by, seed)


def paper_order(scenes: Scenes, seed: int) -> Integers:
    """Return the objects of scenes in the order in which they are taken for training.

    It permutes that of their first appearance in the data set.
    """
    objects, first = np.unique(scenes.slots, return_index=True)
    return objects[np.argsort(first)][paper_permutation(len(objects), seed)]


def paper_targets(scenes: Scenes, concept_type: int) -> Integers:
    """Draw the value that edits put into each scene, int64 (n,); -1 where it has all values."""
    draw, targets = Random(EDITS_SEED), []
    every = range(scenes.sizes[concept_type])
    for row in scenes.values[:, :, concept_type].tolist():
        absent = [value for value in every if value not in row]
        drawn = draw.sample(absent, 1) if len(absent) > 1 else [*absent, -1]
        targets.append(drawn[0])
    return np.array(targets, np.int64)


def fit_paper_probes(
    z: Floats, targets: Sequence[Tensor], steps: int, device: str = "cpu"
) -> list[Doubles]:
    """Fit softmax regressions without bias or ridge by full batches, the rate along a cosine.

    Parameters
    ----------
    z
        Embeddings (n, d), neither centered nor scaled.
    targets
        Rows that sum to 1, float64 (n, V), of each regression.
    steps
        Of Adam, with all rows.
    device
        Where they are fitted.

    Returns
    -------
    Weights (V, d) of each.
    """
    rows = torch.from_numpy(np.asarray(z, np.float32)).to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        heads = [nn.Linear(z.shape[1], target.shape[1], bias=False) for target in targets]
    probes = nn.ModuleList(heads).to(device)
    shares = [target.to(device, torch.float32) for target in targets]
    optimizer = Adam(probes.parameters(), 0.0)
    for step in range(steps):
        losses = [
            cross_entropy(probe(rows), share) for probe, share in zip(probes, shares, strict=True)
        ]
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step(RATE * (1 + cos(pi * step / steps)) / 2)
    return [probe.weight.detach().cpu().numpy().astype(np.float64) for probe in heads]


def predict_at_best(
    model: nn.Module,
    columns: Tensor,
    z: Tensor,
    train: Integers,
    score: Callable[[Floats], float],
    steps: int,
) -> Floats:
    """Fit a map by full batches at a constant rate, and predict by the state that scores best.

    Parameters
    ----------
    model
        Maps rows of tables, int64 (n, m C), to embeddings (n, d).
    columns, z
        Of all scenes.
    train
        Scenes that are fitted.
    score
        Judges predictions of all scenes every 100 steps; NaN is never better.
    steps
        Of Adam.

    Returns
    -------
    Predictions of all scenes (n, d), float32.
    """
    optimizer, best, predicted = Adam(model.parameters(), 0.0), -inf, None
    inputs, targets = columns[train], z[train]
    for step in range(steps):
        (model(inputs) - targets).square().mean().backward()
        optimizer.step(RATE)
        if step % JUDGED_EVERY == 0:
            with torch.no_grad():
                state = model(columns).cpu().numpy()
            value = score(state)
            if predicted is None or value > best:
                best, predicted = value, state
    assert predicted is not None
    return np.asarray(predicted)
