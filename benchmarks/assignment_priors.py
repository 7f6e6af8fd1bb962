"""Exact priors of re-assigned attributes (Visual Genome's) on images of realistic size.

Images of 10 to 20 objects with 1 to 8 distinct values, of which "none" is the commonest; categories
and values by Zipf's law. The plain dynamic program of ``tests/unit/assignments_by_hand.py`` (object
by object over a dictionary of supplies, assignments only) runs on the first few of the same images;
both must give the same bits.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from assignments_by_hand import assignment_bits_object_by_object
from measure import Entry, Options

from bindscope.priors.assignments import Scene, assignment_entropies, corpus_log_weights

TITLE = "Priors of re-assigned attributes"
IMAGES = {"full": 10_000, "ci": 1_000}
PLAIN_IMAGES = 50

# Categories, values, share of "none", exponents of Zipf's law of categories and values.
CORPORA: dict[str, tuple[int, int, float, float, float]] = {
    "natural": (50, 13, 0.5, 1, 1),
    "few without a value": (50, 13, 0.1, 1, 1),
    "categories hardly repeat": (100, 9, 0.1, 0, 0),
    "eight categories": (8, 8, 0.3, 0.5, 0.5),
}


def entries(options: Options) -> list[Entry]:
    """Time every corpus."""
    return [assignment_entry(options, corpus) for corpus in CORPORA]


def assignment_entry(options: Options, corpus: str = "natural", seed: int = 0) -> Entry:
    """Time all images once and the plain program on some, as time for as many images.

    Raises
    ------
    SystemExit
        If the two differ by more than 1e-6 bits.
    """
    scenes = draw(corpus, IMAGES[options.size], seed)
    log_weights = corpus_log_weights(scenes, *CORPORA[corpus][:2])
    start = time.perf_counter()
    found = assignment_entropies(scenes, log_weights)
    ours = time.perf_counter() - start
    some = scenes[:PLAIN_IMAGES]
    start = time.perf_counter()
    plain = [assignment_bits_object_by_object(scene, log_weights) for scene in some]
    theirs = (time.perf_counter() - start) * len(scenes) / len(some)
    if not np.allclose(plain, found.assignment_bits[: len(some)], rtol=0, atol=1e-6):
        raise SystemExit(f"{corpus}: the plain program finds other entropies")
    return Entry(
        f"Visual Genome, {len(scenes):,} images, {corpus}", ours,
        against=f"plain program (from {len(some)} images)", against_s=theirs,
        notes={
            "assignment_bits": float(found.assignment_bits.mean()),
            "multiset_bits": float(found.multiset_bits.mean()),
            "code_bits": float(found.code_bits.mean()),
        },
    )  # fmt: skip


def draw(corpus: str, n_images: int, seed: int) -> list[Scene]:
    """Draw images of 10 to 20 objects with at most 8 distinct values."""
    n_categories, n_values, none, by_category, by_value = CORPORA[corpus]
    rng = np.random.default_rng(seed)
    categories = _zipf(n_categories, by_category)
    values = np.append((1 - none) * _zipf(n_values - 1, by_value), none)
    scenes: list[Scene] = []
    while len(scenes) < n_images:
        n = rng.integers(10, 21)
        pairs = rng.choice(n_categories, n, p=categories), rng.choice(n_values, n, p=values)
        if len(np.unique(pairs[1])) <= 8:
            scenes.append(np.stack(pairs, axis=1))
    return scenes


def _zipf(n: int, exponent: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    weights = 1 / np.arange(1, n + 1) ** exponent
    return np.asarray(weights / weights.sum())
