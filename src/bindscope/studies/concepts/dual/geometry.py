"""What the embeddings of a trained encoder hold: rules of object vectors, bits of pairing.

An object's vector is the mean of the embeddings of scenes that hold it. A *rule* predicts it from
its values; it is fitted to the training objects of the encoder, and told by the objects that were
held out, of which no training scene has shown the encoder any: R2 of their vectors, and how many
pairs of them the encoder's own queries recognise in sums of foretold vectors (the quality of a
probe in Fig. 9 of arXiv 2605.31503, here with one product per object).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bindscope.studies.concepts.approximators import Approximator, Kind, approximate
from bindscope.studies.concepts.decomposition import r_squared
from bindscope.studies.concepts.dual.batches import Split
from bindscope.studies.concepts.dual.evaluation import evaluate, pairs
from bindscope.studies.concepts.dual.runs import StoredRun
from bindscope.studies.concepts.pairing_bits import pairing_bits
from bindscope.studies.concepts.recognition import Readout
from bindscope.studies.concepts.scenes import Doubles, Flags, Floats, Integers, Scenes
from bindscope.studies.concepts.splits import ObjectSplit
from bindscope.studies.concepts.vectors import object_vectors

MOST_SCENES = 12_000  # pairs that are measured, drawn at random where there are more
RULES: dict[str, Kind] = {"additive": "additive", "product": "per_object"}
STARTS = 4


def measured(
    z: Floats, slots: Integers, sizes: Sequence[int], split: Split, queries: Readout, seed: int
) -> dict[str, Any]:
    """Return the measures of one encoder, a row of `concept_models` without its names.

    Parameters
    ----------
    z, slots
        Embeddings (n, d) of scenes of two different objects, int64 (n, 2), of the whole space.
    sizes
        Number of values of each concept type.
    split
        Objects that the encoder was trained on, and that it was not.
    queries
        The encoder's queries.
    seed
        Seed of the split of scenes for bits.
    """
    bits = pairing_bits(z, slots, sizes, seed)
    return {
        **_rules(z, Scenes(slots, tuple(sizes)), split, queries),
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


def _rules(z: Floats, scenes: Scenes, split: Split, queries: Readout) -> dict[str, float]:
    """Return R2 and accuracy of each rule on held-out objects.

    Of large spaces the scenes that were drawn do not show every object: a rule is fitted to those
    that they show, and its R2 is theirs.
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
    measures = {}
    for name, kind in RULES.items():
        ((_, fit),) = approximate(Approximator(kind, starts=STARTS), table, alone, [objects])
        predicted = fit.predicted[0]
        measures[f"{name}_r2"] = r_squared(table[test], predicted[test])
        embed = _summed(predicted, vectors.mean)
        measures[f"{name}_accuracy"] = next(
            score.accuracy.value
            for score in evaluate(embed, queries, test_scenes, split.train, (), 0)
            if (score.target, score.candidates, score.accuracy.stratum) == ("object", "full", "all")
        )
    return measures


def _summed(table: Floats, mean: Doubles) -> Any:
    return lambda slots: mean + table[slots].sum(1)


def rows(runs: Iterable[StoredRun], max_scenes: int | None) -> Iterator[dict[str, Any]]:
    """Yield a row of `concept_models`, without the job's names, for each run of a job."""
    most = min(max_scenes or MOST_SCENES, MOST_SCENES)
    for run in runs:
        sizes = run.encoder.sizes
        scenes, _ = pairs(
            np.arange(int(np.prod(sizes))), sizes, ordered=not run.encoder.order_free,
            max_scenes=most, seed=run.seed,
        )  # fmt: skip
        z = run.encoder.embed(scenes.slots)
        about = {"coverage": run.coverage, "seed": run.seed}
        yield {
            **about,
            **measured(z, scenes.slots, sizes, run.split, run.encoder.queries(), run.seed),
        }
