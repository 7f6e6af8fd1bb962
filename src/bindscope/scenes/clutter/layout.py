"""What stands where in cluttered scenes, and what hides what: a function of (seed, split, index).

The objects of the code are put anywhere. Then some scenes get an object with a bar across it, some
an exact copy of an object, some two objects edge to edge; these are put where they fit. What is
drawn later hides what is drawn earlier: the objects in random order, then the one that a bar
crosses, the bar, and last an object and its copy, so that these two are always seen whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bindscope.config.clutter import ClutterRenderer
from bindscope.core.array_types import Bools, Indices
from bindscope.core.errors import ConfigError
from bindscope.scenes.clutter.looks import TEXTURES, Stamps, reaches, sizes_of
from bindscope.scenes.placement import RandomWords, Words64

GAP = 2  # pixels between an object and its copy: two equal squares would look like one
ATTEMPTS = 100  # random places with a bar in the scene before it is taken away
LAST_ATTEMPTS = 1000  # random places before a scene is given up
# Independent streams of random words; other ones than those of `scenes.placement`.
(
    SMALL,
    SIZE,
    TEXTURE,
    SECOND,
    TWO,
    PLACE,
    DEPTH,
    COPY,
    COPIED,
    BAR,
    BARRED,
    TOUCH,
    FIRST,
    PARTNER,
    BAR_LOOK,
    COPY_PLACE,
    COPY_ALONE,
    TOUCH_PLACE,
) = range(16, 34)


@dataclass(frozen=True)
class Things:
    """Things of scenes; the one in column j has id j + 1, and columns behind the last are empty.

    Arrays are int (n, T): `cell` is the object-code index, ascending, -1 = a bar, or none; `stamp`
    the number of its outline in `Stamps`, `texture` that in `looks.texture_pairs`; `corner` (n, T,
    2) is x and y of its canvas in the image, maybe outside; `order` are columns in the order of
    drawing; `copy_of` is the id of the thing that is its exact copy, 0 = none. `count` (n,) are the
    things.
    """

    cell: Indices
    stamp: Indices
    texture: Indices
    color: Indices
    corner: Indices
    order: Indices
    copy_of: Indices
    count: Indices

    @property
    def there(self) -> Bools:
        """Whether there is such a thing, bool (n, T)."""
        return np.asarray(np.arange(self.cell.shape[1]) < self.count[:, None])


class Composer:
    """Arrange consecutive scenes of a split, whose dataset and split messages name (`where`)."""

    def __init__(
        self,
        config: ClutterRenderer,
        stamps: Stamps,
        n_colors: int,
        words: RandomWords,
        where: str,
    ) -> None:
        self.config, self.stamps, self.words, self.where = config, stamps, words, where
        self.n_colors = n_colors
        self.sizes = np.array(sizes_of(config))

    def compose(self, cells: Indices) -> Things:
        """Arrange scenes of objects `cells`, int (n, K), ascending, -1 behind the last one."""
        there = cells >= 0
        n, most = cells.shape
        size, texture = self._looks(there)
        stamp = size * self.stamps.n_shapes + np.maximum(cells, 0) % self.stamps.n_shapes
        small = self.sizes[size] < self.config.patch_px

        original, copied = self._pick(COPY, COPIED, self.config.duplicates, there, small)
        rest = there & ~_marked(original, copied, most)
        barred, crossed = self._pick(BAR, BARRED, self.config.occluders, rest, small)
        rest &= ~_marked(barred, crossed, most)

        # Columns: the objects, the copy, the bar.
        cell = _widened(cells, _column_of(cells, original), -1)
        stamp = _widened(stamp, _column_of(stamp, original), self._bar(_column_of(size, barred)))
        bar_color = self._numbers(BAR_LOOK, n, 2, self.n_colors)[:, 1]
        copied_color = _column_of(cells, original) // self.stamps.n_shapes
        color = _widened(cell[:, :most] // self.stamps.n_shapes, copied_color, bar_color)
        texture = _widened(texture, _column_of(texture, original), 0)

        corner = np.zeros((n, most + 2, 2), np.intp)
        corner[:, :most] = self._anywhere(size)
        corner[:, most + 1] = _column_of(corner, barred)
        self._touch(corner, stamp[:, :most], cells, rest)
        self._copy(corner, stamp, original, copied, barred, crossed)
        there = np.concatenate([there, copied[:, None], crossed[:, None]], axis=1)
        rank = self._ranks(there, original, copied, barred, crossed)
        return self._ordered(there, original, cell, stamp, texture, color, corner, rank)

    def _numbers(self, stream: int, n: int, per_scene: int, below: int) -> Indices:
        """Return uniform numbers in 0 .. below - 1, int (n, per_scene)."""
        return _below(self.words.draw((stream,), 0, n, per_scene), below)

    def _chance(self, stream: int, n: int, per_scene: int, share: float) -> Bools:
        """Return bools (n, per_scene), each true with probability `share`."""
        words = self.words.draw((stream,), 0, n, per_scene) >> np.uint64(11)
        return np.asarray(words < np.uint64(round(share * 2**53)))

    def _looks(self, there: Bools) -> tuple[Indices, Indices]:
        """Draw the size and the texture of every object."""
        n, most = there.shape
        size = self._numbers(SIZE, n, most, len(self.config.object_px))
        size[self._chance(SMALL, n, most, self.config.small)] = len(self.sizes) - 1
        known = np.array([TEXTURES.index(name) for name in self.config.textures])
        upper = self._numbers(TEXTURE, n, most, len(known))
        others = max(len(known) - 1, 1)
        lower = (upper + 1 + self._numbers(SECOND, n, most, others)) % len(known)
        two = self._chance(TWO, n, most, self.config.two_textures)
        return size, known[upper] * len(TEXTURES) + known[np.where(two, lower, upper)]

    def _pick(
        self, stream: int, which: int, share: float, among: Bools, last: Bools
    ) -> tuple[Indices, Bools]:
        """Pick an object in a share of scenes, one of `last` only where there is no other.

        Returns its column, int (n,), and whether one was picked, bool (n,).
        """
        keys = self.words.draw((which,), 0, *among.shape) >> np.uint64(2)
        keys = np.where(among, keys | (last.astype(np.uint64) << np.uint64(62)), _NEVER)
        chosen = self._chance(stream, len(among), 1, share)[:, 0]
        return keys.argmin(axis=1), chosen & among.any(axis=1)

    def _bar(self, size: Indices) -> Indices:
        """Return the stamps of bars, lying or standing, across objects of these sizes."""
        lying = self._numbers(BAR_LOOK, len(size), 2, 2)[:, 0]
        return self.stamps.first_bar + 2 * size + lying

    def _anywhere(self, size: Indices) -> Indices:
        """Return corners of canvases of objects anywhere inside the image, int (n, K, 2)."""
        side = self.sizes[size]
        free = (self.config.size_px - side + 1).astype(np.uint64)[:, :, None]
        places = self.words.numbers((PLACE,), 0, size.shape, free).astype(np.intp)
        return np.asarray(places - ((self.stamps.side - side) // 2)[:, :, None])

    def _search(
        self,
        stream: int,
        pending: Indices,
        attempt: Callable[[Indices, Words64], Bools],
        most: int = LAST_ATTEMPTS,
    ) -> Indices:
        """Try random places until all `pending` scenes have one; return those that have none.

        `attempt` is given scenes and six words for each; it says where it found a place.
        """
        for number in range(most):
            if not len(pending):
                break
            first, last = int(pending[0]), int(pending[-1])
            words = self.words.draw((stream, number), first, last - first + 1, 6)
            pending = pending[~attempt(pending, words[pending - first])]
        return pending

    def _refuse(self, pending: Indices, what: str) -> None:
        """Refuse to draw if a scene is left without a place for `what`."""
        if len(pending):
            raise ConfigError(
                f"{self.where}, scene {self.words.start + int(pending[0])}",
                f"found no room for {what} at {LAST_ATTEMPTS} random places",
                "raise size_px, or lower object_px",
            )

    def _touch(self, corner: Indices, stamp: Indices, cells: Indices, among: Bools) -> None:
        """Put two objects of a share of scenes edge to edge; changes `corner`."""
        shape = cells % self.stamps.n_shapes
        akin = (shape[:, :, None] == shape[:, None]) & (cells[:, :, None] != cells[:, None])
        akin &= among[:, :, None] & among[:, None]
        first, has_first = self._pick(TOUCH, FIRST, self.config.touching, among, ~akin.any(axis=2))
        others = among & ~_marked(first, has_first, cells.shape[1])
        near = akin[np.arange(len(cells)), first]
        second, paired = self._pick(TOUCH, PARTNER, self.config.touching, others, ~near)
        reach, boxes = reaches(self.stamps), self.stamps.boxes

        def attempt(scenes: Indices, words: Words64) -> Bools:
            a, b = stamp[scenes, first[scenes]], stamp[scenes, second[scenes]]
            place = self._inside(boxes[a], words[:, :2])
            axis, side = _below(words[:, 2], 2), _below(words[:, 3], 2)
            step = np.where(side == 1, reach[axis, a, b], -reach[axis, b, a])
            second_place = place + step[:, None] * (axis[:, None] == [0, 1])
            fits = self._fits(second_place, boxes[b])
            rows = scenes[fits]
            corner[rows, first[rows]], corner[rows, second[rows]] = place[fits], second_place[fits]
            return fits

        failed = self._search(TOUCH_PLACE, np.flatnonzero(has_first & paired), attempt)
        self._refuse(failed, "two objects that touch")

    def _copy(
        self,
        corner: Indices,
        stamp: Indices,
        original: Indices,
        copied: Bools,
        barred: Indices,
        crossed: Bools,
    ) -> None:
        """Put an object and its copy where they hide neither each other nor what a bar crosses.

        That object and its bar are put elsewhere too; where there is no room for all of them, the
        bar is taken away. Changes `corner` and `crossed`.
        """
        boxes, patch, bar = self.stamps.boxes, self.config.patch_px, stamp.shape[1] - 1

        def attempt(scenes: Indices, words: Words64) -> Bools:
            original_box = boxes[stamp[scenes, original[scenes]]]
            place = self._inside(original_box, words[:, :2])
            back = (place + original_box[:, :2]) // patch
            ahead = (self.config.size_px - place - original_box[:, 2:]) // patch
            copy_place = place + patch * (_below(words[:, 2:4], back + ahead + 1) - back)
            under, over = (boxes[stamp[scenes, column]] for column in (barred[scenes], bar))
            crossing = self._inside(under, words[:, 4:])
            fits = _apart(
                place, original_box, copy_place, original_box + GAP * np.array([-1, -1, 1, 1])
            )
            for mine in (place, copy_place):
                for box in (under, over):
                    fits &= ~crossed[scenes] | _apart(mine, original_box, crossing, box)
            rows = scenes[fits]
            corner[rows, original[rows]], corner[rows, bar - 1] = place[fits], copy_place[fits]
            with_bar = fits & crossed[scenes]
            rows = scenes[with_bar]
            corner[rows, barred[rows]] = corner[rows, bar] = crossing[with_bar]
            return fits

        failed = self._search(COPY_PLACE, np.flatnonzero(copied), attempt, ATTEMPTS)
        crossed[failed] = False
        failed = self._search(COPY_ALONE, failed, attempt)
        self._refuse(failed, "an object and its copy")

    def _inside(self, box: Indices, words: Words64) -> Indices:
        """Return random corners of canvases, int (n, 2), with their boxes inside the image."""
        return _below(words, self.config.size_px - (box[:, 2:] - box[:, :2]) + 1) - box[:, :2]

    def _fits(self, corner: Indices, box: Indices) -> Bools:
        """Tell whether boxes on canvases at these corners are inside the image."""
        low, high = corner + box[:, :2], corner + box[:, 2:]
        return np.asarray((low >= 0).all(axis=1) & (high <= self.config.size_px).all(axis=1))

    def _ranks(
        self, there: Bools, original: Indices, copied: Bools, barred: Indices, crossed: Bools
    ) -> Words64:
        """Return keys by which things are drawn, uint64 (n, T); what is not there comes last."""
        n, width = there.shape
        keys = self.words.draw((DEPTH,), 0, n, width) >> np.uint64(4)
        above = np.zeros(there.shape, np.uint64)
        above[_marked(barred, crossed, width)] = 1
        above[:, -1] = 2
        above[_marked(original, copied, width)] = 3
        above[:, -2] = 3
        return np.where(there, keys | (above << np.uint64(60)), _NEVER)

    def _ordered(
        self,
        there: Bools,
        original: Indices,
        cell: Indices,
        stamp: Indices,
        texture: Indices,
        color: Indices,
        corner: Indices,
        rank: Words64,
    ) -> Things:
        """Give things their ids: by their cell, a copy behind its original, then the bar."""
        number = 3 * cell + _marked(original, there[:, -2], there.shape[1])
        number[:, -2] += 2
        number[:, -1] = np.iinfo(np.intp).max - 1
        number[~there] = np.iinfo(np.intp).max
        by_id = np.argsort(number, axis=1, kind="stable")
        count = there.sum(axis=1)
        present = np.arange(there.shape[1]) < count[:, None]

        def dealt(values: Indices, empty: int) -> Indices:
            return np.where(present, np.take_along_axis(values, by_id, axis=1), empty)

        cells = dealt(cell, -1)
        copy_of = np.zeros_like(cells)
        scene, column = np.nonzero((by_id == there.shape[1] - 2) & present)
        copy_of[scene, column], copy_of[scene, column - 1] = column, column + 1
        order = np.argsort(np.take_along_axis(rank, by_id, axis=1), axis=1, kind="stable")
        return Things(
            cells,
            dealt(stamp, 0),
            dealt(texture, 0),
            dealt(color, 0),
            np.take_along_axis(corner, by_id[:, :, None], axis=1),
            order,
            copy_of,
            count,
        )


_NEVER = np.iinfo(np.uint64).max


def _below(words: Words64, below: int | Indices) -> Indices:
    """Turn words into numbers in 0 .. below - 1."""
    high = words >> np.uint64(32)
    return ((high * np.asarray(below).astype(np.uint64)) >> np.uint64(32)).astype(np.intp)


def _marked(column: Indices, has_column: Bools, width: int) -> Bools:
    """Return bools (n, width), true in one column of each scene where one was found."""
    return np.asarray((np.arange(width) == column[:, None]) & has_column[:, None])


def _column_of(values: Indices, column: Indices) -> Indices:
    """Take one column of each scene."""
    return values[np.arange(len(values)), column]


def _widened(values: Indices, copy: Indices, bar: Indices | int) -> Indices:
    """Add the columns of the copy and of the bar."""
    bars = np.broadcast_to(bar, copy.shape)
    return np.concatenate([values, copy[:, None], bars[:, None]], axis=1)


def _apart(corner: Indices, box: Indices, other_corner: Indices, other_box: Indices) -> Bools:
    """Tell whether boxes on canvases at these corners have no pixel in common."""
    before = corner + box[:, 2:] <= other_corner + other_box[:, :2]
    behind = other_corner + other_box[:, 2:] <= corner + box[:, :2]
    return np.asarray((before | behind).any(axis=1))
