"""Scenes from Visual Genome's annotations: objects of one category with one value each.

The release is read twice: once to count words and choose the vocabulary, once to make the scenes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bindscope.config.genome import GenomeRules
from bindscope.sources.base import Box
from bindscope.sources.genome import vocabulary as words
from bindscope.sources.genome.files import Annotated, Image, read_annotations, read_images

NO_VALUE = {"color": "no_color", "attribute": "no_attribute"}


@dataclass(frozen=True)
class Release:
    """The release's files, each .json or .json.zip, and its lists of aliases where given."""

    objects: Path
    attributes: Path
    image_data: Path
    object_aliases: Path | None = None
    attribute_aliases: Path | None = None


@dataclass(frozen=True)
class MinedVocabulary:
    """Categories and values in the order of the object code; the last value is "none of them".

    Commonest come first; aliases lead from a word of an annotator to that which it stands for.
    """

    categories: tuple[str, ...]
    values: tuple[str, ...]
    category_aliases: words.Aliases
    value_aliases: words.Aliases


class MinedScene(NamedTuple):
    """One image and its objects: category and value as indices into the vocabulary, int64 (n, 2).

    Boxes, float64 (n, 4), are left, top, right, bottom edge in pixels, inside the image.
    """

    image_id: int
    image: Image
    objects: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.float64]


class _Thing(NamedTuple):
    """An object of the vocabulary: its category, values in order, and edges."""

    category: str
    values: tuple[str, ...]
    box: Box


class Miner:
    """Turns a release into scenes by rules.

    `left_out` says what was left out of the last `scenes()`: reason -> how many images or objects.
    """

    def __init__(self, release: Release, rules: GenomeRules) -> None:
        self.release, self.rules = release, rules
        self.images = read_images(release.image_data)
        self.left_out: Counter[str] = Counter()
        self.vocabulary = self._choose()

    def _choose(self) -> MinedVocabulary:
        """Count in how many images each word occurs, and choose."""
        release, rules = self.release, self.rules
        category_aliases = _aliases(release.object_aliases, words.CATEGORY_WORDS)
        value_aliases = _aliases(release.attribute_aliases, words.ATTRIBUTE_WORDS)
        categories: Counter[str] = Counter()
        values: Counter[str] = Counter()
        for _, things in self._annotations():
            categories.update(
                {words.canonical(n, category_aliases) for t in things for n in t.names}
            )
            values.update({v for t in things for v in self._values(t, value_aliases)})
        del categories[""]
        chosen = words.commonest(
            categories,
            rules.n_categories,
            rules.min_category_images,
            "categories",
            str(release.objects),
        )
        common = words.commonest(
            values,
            rules.n_values,
            rules.min_value_images,
            f"{rules.feature}s",
            str(release.attributes),
        )
        values_of_code = (*common, NO_VALUE[rules.feature])
        return MinedVocabulary(chosen, values_of_code, category_aliases, value_aliases)

    def scenes(self) -> Iterator[MinedScene]:
        """Read the release again and yield its scenes, in the order of objects.json."""
        self.left_out.clear()
        for number, things in self._annotations(self.left_out):
            image = self.images[number]
            objects = self._objects(things, image)
            if not self.rules.min_objects <= len(objects) <= self.rules.max_objects:
                few = len(objects) < self.rules.min_objects
                self.left_out[f"images with too {'few' if few else 'many'} objects"] += 1
                continue
            codes = [self._code(thing) for thing in objects]
            if None in codes:
                self.left_out["images with an object of several values"] += 1
                continue
            edges = np.array([thing.box for thing in objects])
            yield MinedScene(number, image, np.array(codes), edges)

    def _annotations(
        self, left_out: Counter[str] | None = None
    ) -> Iterator[tuple[int, list[Annotated]]]:
        """Yield the images that the rules allow."""
        left_out = Counter() if left_out is None else left_out
        for number, things in read_annotations(self.release.objects, self.release.attributes):
            if number not in self.images:
                left_out["images that image_data lacks"] += 1
            elif self.rules.coco_only and self.images[number].coco_id is None:
                left_out["images that are not in COCO"] += 1
            else:
                yield number, things

    def _values(self, thing: Annotated, aliases: words.Aliases) -> list[str]:
        """Return an object's values in order, each once, whether in the vocabulary or not."""
        color = self.rules.feature == "color"
        values = (
            value
            for text in thing.attributes
            for value in (words.colors_of(text) if color else words.attributes_of(text, aliases))
        )
        return list(dict.fromkeys(values))

    def _objects(self, annotated: Sequence[Annotated], image: Image) -> list[_Thing]:
        """Return the objects of the vocabulary that the image shows, duplicates merged."""
        objects: list[_Thing] = []
        for thing in annotated:
            names = (words.canonical(n, self.vocabulary.category_aliases) for n in thing.names)
            category = next((name for name in names if name in self.vocabulary.categories), None)
            if category is None:
                self.left_out["objects outside the vocabulary"] += 1
                continue
            box = _edges(thing.box, image)
            if not (box[0] < box[2] and box[1] < box[3]):
                self.left_out["objects whose box is empty or outside the image"] += 1
                continue
            new = _Thing(category, tuple(self._values(thing, self.vocabulary.value_aliases)), box)
            twin = next((i for i, old in enumerate(objects) if self._same(old, new)), None)
            if twin is None:
                objects.append(new)
            else:
                self.left_out["objects that were annotated twice"] += 1
                old = objects[twin]
                objects[twin] = old._replace(values=tuple(dict.fromkeys(old.values + new.values)))
        return objects

    def _same(self, a: _Thing, b: _Thing) -> bool:
        return a.category == b.category and iou(a.box, b.box) >= self.rules.duplicate_iou

    def _code(self, thing: _Thing) -> tuple[int, int] | None:
        """Return the indices of an object; None if it has several values and must not."""
        known = self.vocabulary.values[:-1]
        values = [value for value in thing.values if value in known]
        if len(values) > 1 and self.rules.several == "drop_image":
            return None
        if self.rules.several == "commonest":
            values.sort(key=known.index)
        value = known.index(values[0]) if values else len(known)
        return self.vocabulary.categories.index(thing.category), value


def _aliases(path: Path | None, synonyms: words.Synonyms) -> words.Aliases:
    table = words.invert(synonyms)
    return words.read_aliases(path, table) if path else table


def iou(a: Box, b: Box) -> float:
    """Intersection over union of two boxes given by their edges, neither of them empty."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return width * height / (sum(areas) - width * height)


def _edges(box: Box, image: Image) -> Box:
    """Turn corner and size into edges, cut off where the image ends."""
    x, y, width, height = box
    right, bottom = min(x + width, image.width), min(y + height, image.height)
    return max(x, 0.0), max(y, 0.0), right, bottom
