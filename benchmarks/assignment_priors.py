"""Measure the exact priors of re-assigned attributes on images of realistic size.

``python benchmarks/assignment_priors.py`` draws images (10 to 20 objects; 1 to 8 distinct values,
of which "none" is the commonest; categories and values by Zipf's law), computes all their
entropies, and times the plain dynamic program of ``tests/unit/assignments_by_hand.py`` (object by
object over a dictionary of supplies, assignments only) on the first few of the same images in the
same run, where both must give the same bits. CPU seconds; prints a table and writes JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "unit")]

from assignments_by_hand import assignment_bits_by_supply  # noqa: E402

from bindscope.priors.assignments import (  # noqa: E402
    Scene,
    assignment_entropies,
    corpus_log_weights,
)

# Categories, values, share of "none", exponents of Zipf's law of categories and values.
CORPORA: dict[str, tuple[int, int, float, float, float]] = {
    "natural": (50, 13, 0.5, 1, 1),
    "few without a value": (50, 13, 0.1, 1, 1),
    "categories hardly repeat": (100, 9, 0.1, 0, 0),
    "eight categories": (8, 8, 0.3, 0.5, 0.5),
}


def main() -> int:
    """Time all corpora, print the table, write JSON."""
    arguments = _arguments()
    print(f"{'corpus':26}{'images':>8}{'CPU s':>8}{'ms each':>9}{'plain':>9}{'ratio':>7}", end="")
    print(f"{'assignments':>13}{'multisets':>11}{'codes':>8}{'peak MB':>9}")
    rows = []
    for name in arguments.corpora:
        row = measure(name, arguments)
        rows.append(row)
        print(
            f"{name:26}{row['images']:8}{row['cpu_s']:8.1f}{row['image_ms']:9.2f}"
            f"{row['plain_image_ms']:9.1f}{row['ratio']:7.1f}{row['assignment_bits']:13.3f}"
            f"{row['multiset_bits']:11.3f}{row['code_bits']:8.3f}{row['peak_mb']:9.0f}",
            flush=True,
        )
    record = {"rows": rows, "cpu": platform.processor(), "numpy": np.__version__}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    print(f"written to {arguments.json}")
    return 0


def draw(name: str, n_images: int, seed: int) -> list[Scene]:
    """Draw images of 10 to 20 objects with at most 8 distinct values."""
    n_categories, n_values, none, by_category, by_value = CORPORA[name]
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


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return times, mean entropies and the process's peak memory."""
    scenes = draw(name, arguments.images, arguments.seed)
    log_weights = corpus_log_weights(scenes, *CORPORA[name][:2])
    start = time.process_time()
    found = assignment_entropies(scenes, log_weights)
    ours = time.process_time() - start
    start = time.process_time()
    plain = [assignment_bits_by_supply(scene, log_weights) for scene in scenes[: arguments.plain]]
    theirs = (time.process_time() - start) / arguments.plain
    if not np.allclose(plain, found.assignment_bits[: arguments.plain], rtol=0, atol=1e-6):
        raise SystemExit(f"{name}: the plain program finds other entropies")
    return {
        "corpus": name,
        "images": len(scenes),
        "cpu_s": ours,
        "image_ms": 1e3 * ours / len(scenes),
        "plain_image_ms": 1e3 * theirs,
        "ratio": theirs * len(scenes) / ours,
        "assignment_bits": found.assignment_bits.mean(),
        "multiset_bits": found.multiset_bits.mean(),
        "code_bits": found.code_bits.mean(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(CORPORA), choices=CORPORA)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--plain", type=int, default=50, help="images of the plain program")
    parser.add_argument("--seed", type=int, default=0)
    default = ROOT / "results" / "benchmarks" / "assignment_priors.json"
    parser.add_argument("--json", type=Path, default=default, help="where the record goes")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
