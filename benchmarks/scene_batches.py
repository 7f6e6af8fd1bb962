"""Batches of symbolic scenes: all of a step at once against a loop over its scenes.

The loop (``tests/unit/dual_twins.py``) is what a first version is: a list of tuples for each scene,
a set of what is asked, and a question per scene and query. Both draw 512 scenes of two objects, ask
about all of them and a swap of each among the training objects, and mark what is in which scene. A
batch of many runs (coverages and seeds) stands beside as many batches of one run.
"""

from __future__ import annotations

import random
from itertools import count

from dual_twins import scene_by_scene
from measure import Entry, Options, Other, side_by_side

from bindscope.studies.concepts.config import DualTraining
from bindscope.studies.concepts.dual.batches import Batches, split_objects

TITLE = "Batches of symbolic scenes"
PROMISED = 20
SCENES, COVERAGE, RUNS = 512, 0.5, 12
TRAINING = DualTraining(batch_size=SCENES, queries="batch")


def entries(options: Options) -> list[Entry]:
    """Time batches of the paper's spaces, and those of several runs."""
    return [loop_entry((20, 20), options), loop_entry((50, 50, 50), options), runs_entry(options)]


def batches(sizes: tuple[int, ...], n_runs: int) -> Batches:
    """Return what draws the batches of some runs, a seed each."""
    seeds = range(n_runs)
    splits = [split_objects(sizes, COVERAGE, seed, every_value=True) for seed in seeds]
    return Batches(sizes, splits, seeds, "train_only", TRAINING)


def loop_entry(sizes: tuple[int, ...], options: Options) -> Entry:
    """Time a batch of one run beside the loop over its scenes."""
    drawn, steps, generator = batches(sizes, 1), count(), random.Random(0)
    train = drawn.train[0].tolist()

    def loop() -> object:
        return scene_by_scene(sizes, train, SCENES, 2, 1, generator)

    times = side_by_side({"at once": lambda: drawn.batch(next(steps)), "loop": loop}, options)
    return Entry(
        f"{SCENES} scenes, {' x '.join(map(str, sizes))} values",
        times["at once"],
        [Other("loop over scenes", times["loop"], PROMISED)],
    )


def runs_entry(options: Options) -> Entry:
    """Time a batch of several runs beside as many batches of one."""
    together, single, steps = batches((20, 20), RUNS), batches((20, 20), 1), count()

    def one_by_one() -> object:
        return [single.batch(next(steps)) for _ in range(RUNS)]

    runs = {"at once": lambda: together.batch(next(steps)), "one by one": one_by_one}
    times = side_by_side(runs, options)
    return Entry(
        f"{SCENES} scenes of {RUNS} runs", times["at once"],
        [Other("one run after the other", times["one by one"])],
    )  # fmt: skip
