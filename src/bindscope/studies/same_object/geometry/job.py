"""One job: all that is measured of the scores and tokens of a fitted probe, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import Store, open_store
from bindscope.fitting.denormals import flushed
from bindscope.studies.same_object.data import PairData, Pairs
from bindscope.studies.same_object.estimates import Bootstrap, Row
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.geometry.places import positions_decoded
from bindscope.studies.same_object.geometry.residuals import residuals
from bindscope.studies.same_object.geometry.scores import (
    Labels,
    by_distance,
    cross_scores,
    transfers,
)
from bindscope.studies.same_object.job import pair_data
from bindscope.studies.same_object.marks import weights_name

MORE = ("copy_of", "purity")  # of the patches of test


@dataclass(frozen=True)
class Measured:
    """What a job reads.

    Attributes
    ----------
    splits
        Split -> layer -> patches.
    weights
        The fitted probe of each layer.
    more
        `MORE` of the patches of test, (n, M) each.
    """

    splits: Mapping[str, Mapping[str, PairData]]
    weights: Mapping[str, FittedScorer]
    more: Mapping[str, NDArray[Any]]

    @classmethod
    def open(
        cls,
        samples: Sequence[str],
        tokens: Mapping[str, Sequence[str]],
        fit: Mapping[str, NDArray[Any]],
        spec: Mapping[str, Any],
    ) -> Measured:
        """Open stores of samples (train, val, test) and of tokens by split, and take weights."""
        opened = dict(zip(SPLITS, map(open_store, samples), strict=True))
        stores = {split: [open_store(path) for path in tokens[split]] for split in SPLITS}
        layers = [str(layer) for layer in spec["layers"]]
        splits: dict[str, dict[str, PairData]] = {
            split: {
                layer: pair_data(opened[split], stores[split], layer, spec["background"])
                for layer in layers
            }
            for split in SPLITS
        }
        weights = {
            layer: FittedScorer.read(fit, weights_name(layer, 0, 0), spec["token_norm"])
            for layer in layers
        }
        width = splits["test"][layers[0]].valid.shape[1]
        return cls(splits, weights, _more(opened["test"], width))


def _more(sample: Store, width: int) -> dict[str, NDArray[Any]]:
    return {name: sample.read(name)[:, :width] for name in MORE}


@flushed()
@torch.no_grad()
def measured_rows(data: Measured, spec: Mapping[str, Any]) -> list[Row]:
    """Return the rows of all layers, without names and keys.

    Parameters
    ----------
    data
        Patches and probes.
    spec
        The job's `intervals`.
    """
    by = Bootstrap(spec["intervals"]["bootstrap_samples"], spec["intervals"]["bootstrap_seed"])
    tests = data.splits["test"]
    labels = Labels.of(next(iter(tests.values())))
    moved = transfers(data.weights, tests, labels, by)
    return [
        {"layer": layer, **one}
        for layer in tests
        for one in (*_of_layer(data, layer, labels, by), *moved[layer])
    ]


def _of_layer(data: Measured, layer: str, labels: Labels, by: Bootstrap) -> Iterator[Row]:
    probe = data.weights[layer]
    splits: dict[str, PairData] = {split: data.splits[split][layer] for split in SPLITS}
    train, val, test = splits.values()
    scores = probe.of_tokens(test)
    yield from cross_scores(scores, labels, test.classes, data.more["copy_of"], by)
    yield from by_distance(scores, labels, by)
    yield from positions_decoded(train, val, test, probe.scaling, probe.norm, by)
    raw = np.concatenate([block.x.numpy() for block in Pairs(test).blocks()])
    yield from residuals(raw, labels, data.more["copy_of"], data.more["purity"], by)
