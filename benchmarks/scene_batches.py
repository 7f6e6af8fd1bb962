"""Batches of symbolic scenes: all of a step at once against a loop over its scenes.

The loop (``tests/unit/dual_twins.py``) is what a first version is: a list of tuples for each scene,
a set of what is asked, and a question per scene and query. Both draw 512 scenes of two objects, ask
about all of them and a swap of each among the training objects, and mark what is in which scene.
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
SCENES, COVERAGE = 512, 0.5
TRAINING = DualTraining(batch_size=SCENES, queries="batch")


def entries(options: Options) -> list[Entry]:
    """Time batches of the paper's spaces."""
    return [loop_entry((20, 20), options), loop_entry((50, 50, 50), options)]


def loop_entry(sizes: tuple[int, ...], options: Options) -> Entry:
    """Time a batch beside the loop over its scenes."""
    split = split_objects(sizes, COVERAGE, 0, every_value=True)
    drawn = Batches(sizes, split.train, 0, "train_only", TRAINING)
    train, steps, generator = split.train.tolist(), count(), random.Random(0)

    def loop() -> object:
        return scene_by_scene(sizes, train, SCENES, 2, 1, generator)

    times = side_by_side({"at once": lambda: drawn.batch(next(steps)), "loop": loop}, options)
    return Entry(
        f"{SCENES} scenes, {' x '.join(map(str, sizes))} values",
        times["at once"],
        [Other("loop over scenes", times["loop"], PROMISED)],
    )
