"""Places of objects in 2-D scenes: a function of (seed, split, index), without overlap.

Random words come from Philox used as what it is, a function of (key, counter): the words of scene
i are the block of counters that belongs to i. A scene's places therefore do not depend on the
shard it is drawn in, on its neighbours or on the number of workers, and all scenes of a shard are
drawn with one call.

Places are found without regard to which object will stand there and are assigned by a random
permutation, so a place carries no information about an object's index.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from bindscope.core.array_types import Indices
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SPLITS, SplitName

ATTEMPTS = 20  # empty images to start from before a scene is given up
BLOCKS = 8  # blocks of candidates per attempt
CANDIDATES_PER_OBJECT = 4  # in a block
FAR = -(1 << 13)  # where an object that is not placed stands: out of everyone's reach
STREAM = int.from_bytes(b"scenes", "big")  # apart from the codes' words of the same seed
ORDER, JITTER, PLACES = range(3)  # independent streams of random words

Int16 = NDArray[np.int16]
Words64 = NDArray[np.uint64]


@dataclass(frozen=True)
class Canvas:
    """Pixels: sides of the image and of an object's box, distances of boxes and edge.

    `margin` is the distance from the edge, `gap` that of two boxes (None: as large). `capacity` is
    the largest number of objects in a scene of the dataset.
    """

    size: int
    box: int
    margin: int
    capacity: int
    gap: int | None = None

    @property
    def pitch(self) -> int:
        """Smallest distance of the corners of two boxes along an axis."""
        return self.box + (self.margin if self.gap is None else self.gap)

    @property
    def span(self) -> int:
        """Pixels along an axis that boxes with a gap after each of them may take."""
        return self.size - 2 * self.margin + self.pitch - self.box

    @property
    def n_grid(self) -> int:
        """Cells per side of the smallest square grid that holds `capacity` objects."""
        return isqrt(self.capacity - 1) + 1

    @property
    def n_fitting(self) -> int:
        """Boxes per side of the densest packing; no arrangement holds more than its square."""
        return self.span // self.pitch

    def check(self, where: str) -> None:
        """Refuse with ConfigError a canvas that cannot hold `capacity` objects."""
        if self.n_fitting < self.n_grid:
            least = self.size - self.span + self.n_grid * self.pitch
            raise ConfigError(
                where,
                f"{self.capacity} objects of {self.box} px with margins of {self.margin} px do not "
                f"fit an image of {self.size} px, however they are placed",
                f"set size_px to at least {least} (a good deal more for uniform placement), or "
                "lower object_px, margin_px or the space's number of objects",
            )


@dataclass(frozen=True)
class RandomWords:
    """The random words of consecutive scenes of a split, from `start` on."""

    seed: int
    split: SplitName
    start: int

    def draw(self, stream: tuple[int, ...], first: int, n: int, per_scene: int) -> Words64:
        """Return the words of n scenes from ``start + first``, uint64 (n, per_scene).

        Streams are independent. `per_scene` is part of the address, so the same for all of a
        dataset.
        """
        seeds = np.random.SeedSequence([self.seed, STREAM, SPLITS.index(self.split), *stream])
        blocks = -(-per_scene // 4)  # a Philox counter gives four words
        philox = np.random.Philox(
            key=seeds.generate_state(2, np.uint64), counter=(self.start + first) * blocks
        )
        words: Words64 = philox.random_raw(n * blocks * 4)
        return words.reshape(n, blocks * 4)[:, :per_scene]

    def numbers(
        self, stream: tuple[int, ...], first: int, shape: tuple[int, int], below: int | Words64
    ) -> Int16:
        """Return pairs of numbers in 0 .. below - 1, int16 (scenes, pairs, 2).

        `shape` is (scenes, pairs); an array `below` broadcasts against the result.
        """
        words = self.draw(stream, first, *shape)
        halves = np.stack([words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)], axis=-1)
        return ((halves * np.asarray(below, np.uint64)) >> np.uint64(32)).astype(np.int16)


def place(rule: str, canvas: Canvas, words: RandomWords, counts: Indices, where: str) -> Int16:
    """Find a place for every object.

    ``"uniform"``: one object after the other, each uniform among the places that are left (random
    sequential adsorption); ``"grid"``: jittered inside distinct cells of a grid. Counts, intp (n,),
    are objects of each scene, at most ``canvas.capacity``. Returned are x and y in pixels of the
    upper left corner of the j-th object, int16 (n, capacity, 2), in order of object-code index;
    `FAR` where a scene has no j-th object. A scene that cannot be placed is a ConfigError.
    """
    canvas.check(where)
    if rule == "grid":
        places = _on_grid(canvas, words, len(counts))
        available = np.full(len(counts), places.shape[1])
    else:
        places = _uniform(canvas, words, counts, where)
        available = counts
    keys = words.draw((ORDER,), 0, *places.shape[:2]).copy()
    keys[np.arange(places.shape[1]) >= available[:, None]] = np.iinfo(np.uint64).max
    order = np.argsort(keys, axis=1, kind="stable")[:, : canvas.capacity]
    dealt = np.take_along_axis(places, order[:, :, None], axis=1)
    dealt[np.arange(canvas.capacity) >= counts[:, None]] = FAR
    return dealt


def _on_grid(canvas: Canvas, words: RandomWords, n: int) -> Int16:
    """Return a jittered place in every cell of the grid, int16 (n, n_grid^2, 2)."""
    edges = canvas.margin + np.arange(canvas.n_grid + 1) * canvas.span // canvas.n_grid
    free = (np.diff(edges) - canvas.pitch + 1).astype(np.uint64)
    pairs = np.stack(np.meshgrid(np.arange(len(free)), np.arange(len(free))), axis=-1)
    cells = pairs.reshape(-1, 2)
    return edges[cells].astype(np.int16) + words.numbers((JITTER,), 0, (n, len(cells)), free[cells])


def _uniform(canvas: Canvas, words: RandomWords, counts: Indices, where: str) -> Int16:
    """Fill scenes from streams of candidates, starting again where one jams.

    Returns int16 (n, capacity, 2), `FAR` beyond a scene's number of objects.
    """
    n_candidates = CANDIDATES_PER_OBJECT * canvas.capacity
    free = canvas.size - 2 * canvas.margin - canvas.box + 1
    places = np.full((len(counts), canvas.capacity, 2), FAR, np.int16)
    pending = np.flatnonzero(counts)
    for attempt in range(ATTEMPTS):
        accepted = np.full((2, canvas.capacity, len(pending)), FAR, np.int16)
        filled = np.zeros(len(pending), np.intp)
        for block in range(BLOCKS):
            if not len(pending):
                return places
            first, last = int(pending[0]), int(pending[-1])
            candidates = canvas.margin + words.numbers(
                (PLACES, attempt, block), first, (last - first + 1, n_candidates), free
            )
            _scan(accepted, filled, counts[pending], candidates[pending - first], canvas)
            done = filled == counts[pending]
            places[pending[done]] = accepted[:, :, done].transpose(2, 1, 0)
            pending, accepted, filled = pending[~done], accepted[:, :, ~done], filled[~done]
    if len(pending):
        scene = int(pending[0])
        raise ConfigError(
            f"{where}, scene {words.start + scene}",
            f"found no room for its {counts[scene]} objects of {canvas.box} px with margins of "
            f"{canvas.margin} px in {canvas.size} px after {ATTEMPTS} attempts at random places",
            "use `placement: grid`, raise size_px, or lower object_px, margin_px or the space's "
            "number of objects",
        )
    return places


def _scan(
    accepted: Int16, filled: Indices, counts: Indices, candidates: Int16, canvas: Canvas
) -> None:
    """Accept every candidate, (n, candidates, 2), that keeps its distance from those taken.

    Places taken, int16 (2, capacity, n), and how many they are (n,) are changed in place; `counts`
    (n,) are wanted.
    """
    reach = canvas.pitch
    columns = np.ascontiguousarray(candidates.transpose(1, 2, 0))
    for x, y in columns:
        most = int(filled.max())
        near = np.abs(accepted[0, :most] - x) < reach
        near &= np.abs(accepted[1, :most] - y) < reach
        rows = np.flatnonzero(~near.any(axis=0) & (filled < counts))
        accepted[0, filled[rows], rows] = x[rows]
        accepted[1, filled[rows], rows] = y[rows]
        filled[rows] += 1
        if (filled == counts).all():
            return
