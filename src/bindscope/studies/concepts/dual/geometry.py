"""Measures of a trained encoder's embeddings: a rule of object vectors, bits of pairing.

An object's vector is the mean of the embeddings of scenes that hold it. A *rule* predicts it from
its values, as a product of a vector per value plus their sum. It is fitted to the training objects
and judged by the held-out ones: by how many pairs of them the encoder's queries recognize in sums
of predicted vectors (the quality of a probe in Fig. 9 of arXiv 2605.31503, with one product per
object).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from bindscope.studies.concepts.approximators import approximate
from bindscope.studies.concepts.config import Approximator
from bindscope.studies.concepts.counting import MOST_SCENES
from bindscope.studies.concepts.dual.batches import Split
from bindscope.studies.concepts.dual.encoders import DualEncoder
from bindscope.studies.concepts.dual.evaluation import evaluate, pairs
from bindscope.studies.concepts.dual.training import EncoderRun
from bindscope.studies.concepts.pairing_bits import pairing_bits
from bindscope.studies.concepts.recognition import Readout
from bindscope.studies.concepts.scenes import Flags, Floats, Integers, Scenes
from bindscope.studies.concepts.splits import ObjectSplit
from bindscope.studies.concepts.vectors import object_vectors

STARTS = 4  # of the rule's fit


def measured(
    z: Floats, slots: Integers, sizes: Sequence[int], split: Split, queries: Readout, seed: int
) -> dict[str, Any]:
    """Return the measures of one encoder, a row of `concept_models` without its names.

    Embeddings (n, d) are of scenes of two different objects, int64 (n, 2), of the whole space; the
    seed splits them for bits.
    """
    bits = pairing_bits(z, slots, sizes, seed)
    return {
        "product_accuracy": _rule_accuracy(z, Scenes(slots, tuple(sizes)), split, queries),
        "pairing_lower_bound_bits": bits.bits,
        "pairing_lower_bound_bits_low": bits.low,
        "pairing_lower_bound_bits_high": bits.high,
        "pairing_entropy_bits": bits.entropy_bits,
        "pairing_ratio": bits.bits / bits.entropy_bits,
        "n_scenes": len(slots),
        "measure_flags": ";".join(
            name
            for name, holds in (
                ("prior", bits.prior),
                ("probe_not_converged", not bits.converged),
            )
            if holds
        ),
    }


def _rule_accuracy(z: Floats, scenes: Scenes, split: Split, queries: Readout) -> float:
    """Return the accuracy of the rule on held-out objects.

    Of large spaces the scenes that were drawn do not show every object: the rule is fitted to those
    that they show.
    """
    vectors = object_vectors(z, scenes, "avg")
    visible: Flags = np.asarray(np.isfinite(vectors.without_slots).all(axis=1), np.bool_)
    table = np.where(visible[:, None], vectors.without_slots, 0)
    train, validation, test = (
        part[visible[part]] for part in (split.train, split.validation, split.test)
    )
    objects = ObjectSplit(0, train, train, validation, test, split.missing_values)
    alone = Scenes(np.arange(len(table))[:, None], scenes.sizes)
    test_scenes = pairs(split.test, scenes.sizes, ordered=False, max_scenes=MOST_SCENES, seed=0)
    rule = Approximator(kind="per_object", rank=0, starts=STARTS)
    ((_, fit),) = approximate(rule, table, alone, [objects])
    predicted, mean = fit.predicted[0], vectors.mean
    scores = evaluate(
        lambda slots: mean + predicted[slots].sum(1), queries, test_scenes, split.train, 0
    )
    (accuracy,) = (
        float(row["accuracy"]) for row in scores
        if (row["target"], row["candidates"], row["stratum"]) == ("object", "full", "all")
    )  # fmt: skip
    return accuracy


def rows(
    runs: Iterable[tuple[EncoderRun, DualEncoder]], max_scenes: int | None
) -> Iterator[dict[str, Any]]:
    """Yield a row of `concept_models`, without the job's names, for each run of a job."""
    most = min(max_scenes or MOST_SCENES, MOST_SCENES)
    for run, encoder in runs:
        scenes, _ = pairs(
            np.arange(prod(encoder.sizes)), encoder.sizes, ordered=not encoder.order_free,
            max_scenes=most, seed=run.seed,
        )  # fmt: skip
        z = encoder.embed(scenes.slots)
        measures = measured(z, scenes.slots, encoder.sizes, run.split, encoder.queries(), run.seed)
        yield {"coverage": run.coverage, "seed": run.seed, **measures}
