"""Exact priors: H(O), H(F), H(O|F) of every preset's datasets, and of re-assigned attributes.

Every preset is computed in a fresh interpreter, because counts are remembered within one.

Re-assigned attributes are Visual Genome's case: images of 10 to 20 objects with 1 to 8 distinct
values, of which "none" is the commonest, categories and values by Zipf's law. The plain dynamic
program of ``tests/helpers/assignments_by_hand.py`` (object by object over a dictionary of supplies)
runs on the first few of the same images; both must give the same bits.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from measure import ROOT, Entry, Options, Other

TITLE = "Priors"
PROMISED_S = 1.0
PRESETS = sorted((ROOT / "config" / "presets").glob("*.yaml"))
IMAGES = {"full": 10_000, "ci": 500}
PLAIN_IMAGES = 50
# Categories, values, share of "none", exponents of Zipf's law of categories and values.
CORPORA: dict[str, tuple[int, int, float, float, float]] = {
    "natural": (50, 13, 0.5, 1, 1),
    "few without a value": (50, 13, 0.1, 1, 1),
    "categories hardly repeat": (100, 9, 0.1, 0, 0),
    "eight categories": (8, 8, 0.3, 0.5, 0.5),
}


def entries(options: Options) -> list[Entry]:
    """Time every preset whose laws are known without a look at scenes, and every corpus."""
    fresh = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1)
    with fresh:
        runs = [list(fresh.map(time_preset, PRESETS)) for _ in range(options.repetitions)]
    timed = []
    for path, times in zip(PRESETS, zip(*runs, strict=True), strict=True):
        if seconds := statistics.median(times):
            timed.append(Entry(path.stem, seconds, limits={"s": (seconds, PROMISED_S)}))
    return timed + [time_corpus(corpus, options) for corpus in CORPORA]


def time_preset(path: Path) -> float:
    """Return the seconds that the entropies of a preset's datasets take, 0 where it has none."""
    from bindscope.config.loading import load_file
    from bindscope.config.observed import CountedSpace
    from bindscope.priors.entropies import entropies

    known = [d for d in load_file(path).datasets if not isinstance(d.space, CountedSpace)]
    start = time.perf_counter()
    for dataset in known:
        entropies(dataset)
    return time.perf_counter() - start if known else 0.0


def time_corpus(corpus: str, options: Options) -> Entry:
    """Time all images once and the plain program on some, as time for as many images."""
    from assignments_by_hand import assignment_bits_object_by_object

    from bindscope.priors.assignments import assignment_entropies, corpus_log_weights

    scenes = draw(corpus, IMAGES[options.size])
    log_weights = corpus_log_weights(scenes, *CORPORA[corpus][:2])
    start = time.perf_counter()
    entropies = assignment_entropies(scenes, log_weights)
    ours = time.perf_counter() - start
    some = scenes[:PLAIN_IMAGES]
    start = time.perf_counter()
    plain = [assignment_bits_object_by_object(scene, log_weights) for scene in some]
    theirs = (time.perf_counter() - start) * len(scenes) / len(some)
    if not np.allclose(plain, entropies.assignment_bits[: len(some)], rtol=0, atol=1e-6):
        raise SystemExit(f"{corpus}: the plain program finds other entropies")
    return Entry(
        f"re-assigned attributes, {len(scenes):,} images, {corpus}",
        ours,
        [Other(f"plain program (from {len(some)} images)", theirs)],
        notes={"assignment_bits": float(entropies.assignment_bits.mean())},
    )


def draw(corpus: str, n_images: int) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Draw images of 10 to 20 objects with at most 8 distinct values: (n, 2) category and value."""
    n_categories, n_values, none, by_category, by_value = CORPORA[corpus]
    rng = np.random.default_rng(0)
    categories = _zipf(n_categories, by_category)
    values = np.append((1 - none) * _zipf(n_values - 1, by_value), none)
    scenes: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    while len(scenes) < n_images:
        n = rng.integers(10, 21)
        pairs = rng.choice(n_categories, n, p=categories), rng.choice(n_values, n, p=values)
        if len(np.unique(pairs[1])) <= 8:
            scenes.append(np.stack(pairs, axis=1))
    return scenes


def _zipf(n: int, exponent: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    weights = 1 / np.arange(1, n + 1) ** exponent
    return np.asarray(weights / weights.sum())
