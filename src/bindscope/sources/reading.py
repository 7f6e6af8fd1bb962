"""Scenes are read from a source, checked and assigned to splits; all problems are listed."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite

import numpy as np
import numpy.typing as npt

from bindscope.codes.space import build_space, feature_code, feature_counts
from bindscope.config.codes import HashedSplit, SceneDistribution
from bindscope.config.observed import ColumnSplit, CountedSpace, DrawsSpace
from bindscope.config.wording import instead
from bindscope.core.errors import ConfigError
from bindscope.core.interfaces import Reader
from bindscope.sources.base import (
    Box,
    Roots,
    Scene,
    Skipped,
    SourceFiles,
    build_reader,
    check_segments,
    is_listed,
)
from bindscope.sources.image_checks import ImageChecks, check_present
from bindscope.sources.problems import Problems
from bindscope.sources.records import Record, objects_of
from bindscope.sources.splits import assign

log = logging.getLogger(__name__)

_NAMED = 12  # values that a message lists


def read_source(
    dataset: SceneDistribution, downloaded: Sequence[str] = (), *, decode: bool = True
) -> tuple[Roots, dict[str, list[Record]], dict[str, tuple[str, ...]], tuple[Skipped, ...]]:
    """Read the scenes of a dataset's source, check all of them, and assign them to splits.

    `downloaded` is what was downloaded or drawn for a source without a `path`: a file or folder, or
    several files of one folder, whose common path takes its place. `decode`: images and masks are
    decoded, where the source has that done at all. Returned are where image names start, the scenes
    of each split, the names of every group's values, and images that were left out. InputError or
    ConfigError for everything that is wrong, each with its file, row and column.
    """
    source = dataset.source
    assert source is not None
    column = dataset.split.column if isinstance(dataset.split, ColumnSplit) else None
    at = {"path": os.path.commonpath(downloaded)} if downloaded else {}
    reader = build_reader(source.model_copy(update=at), column)
    scenes = list(reader.scenes())
    problems = Problems()
    if of_reader := getattr(reader, "problems", None):  # most readers stop at the first
        problems.errors += of_reader.errors
    _check_vocabulary(dataset, reader)
    skipped = list(getattr(reader, "skipped", ()))  # most readers leave nothing out
    listed = [scene for scene in scenes if is_listed(scene.image, source.skip)]
    skipped += [Skipped(scene.image, "source.skip") for scene in listed]
    scenes = [scene for scene in scenes if not is_listed(scene.image, source.skip)]
    check = _Check(dataset, reader, problems)
    records = {scene.image: record for scene in scenes if (record := check.record(scene))}
    absent = check_present(SourceFiles(reader.images), scenes, problems, source.bad_images)
    bad = absent if source.bad_images == "skip" else {}
    if decode and (source.decodes or source.bad_images == "skip"):
        present = [scene for scene in scenes if scene.image not in absent]
        checks = ImageChecks(reader.images, boxes=source.decodes)
        bad |= checks.run(present, problems, source.bad_images)
    skipped += [Skipped(image, reason) for image, reason in bad.items()]
    scenes = [scene for scene in scenes if scene.image not in bad]
    check.counts([records[s.image] for s in scenes if s.image in records])
    if not scenes and not problems.errors:
        problems.add(str(source.path), "no scene is left", "see what was left out: `source.skip`")
    splits: dict[str, list[Record]] = {}
    if not (of_reader and of_reader.errors):  # scenes that it could not read may fill a split
        splits = _assign(dataset, scenes, records, check.n_cells, problems)
    problems.check(str(source.path or source.kind))
    _log(splits, skipped)
    values = {group.name: tuple(reader.vocabulary[group.name]) for group in dataset.space.groups}
    return reader.images, splits, values, tuple(skipped)


def _log(splits: Mapping[str, Sequence[Record]], skipped: Sequence[Skipped]) -> None:
    for reason, number in sorted(Counter(image.reason for image in skipped).items()):
        log.info("left out: %d images (%s)", number, reason)
    counts = ", ".join(f"{len(records)} {name}" for name, records in splits.items())
    log.info("%d scenes: %s", sum(map(len, splits.values())), counts)


def _assign(
    dataset: SceneDistribution,
    scenes: Sequence[Scene],
    records: Mapping[str, Record],
    n_cells: int,
    problems: Problems,
) -> dict[str, list[Record]]:
    """Assign scenes to splits; where a scene has problems, only look for more of them."""
    with problems.collect():
        if not problems.errors:
            mine = [records[scene.image] for scene in scenes]
            sizes = [group.size for group in dataset.space.groups]
            features = feature_code(objects_of(mine, n_cells), sizes)
            bits = ["".join(map(str, row)) for row in features.tolist()]
            splits = assign(dataset, scenes, bits)
            return {split: [mine[i] for i in chosen] for split, chosen in splits.items()}
        if scenes and not isinstance(dataset.split, HashedSplit):
            assign(dataset, scenes, [""] * len(scenes))
    return {}


def _check_vocabulary(dataset: SceneDistribution, reader: Reader) -> None:
    for group in dataset.space.groups:
        values = reader.vocabulary.get(group.name)
        if values is None or len(values) != group.size:
            has = f"has {len(values)} values" if values else "is not among its groups"
            names = list(values or reader.vocabulary)
            more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
            raise ConfigError(
                f"datasets.{dataset.name}.space.groups",
                f"{group.name!r} has size {group.size}, but in the source it {has} "
                f"({', '.join([*names[:_NAMED], *more])})",
                "make groups and source agree",
            )


class _Check:
    """Turns scenes into records, and notes what is wrong with one."""

    def __init__(self, dataset: SceneDistribution, reader: Reader, problems: Problems) -> None:
        self.space, self.n_slots, self.problems = dataset.space, dataset.slots, problems
        self.groups = dataset.space.groups
        self.sizes = tuple(group.size for group in self.groups)
        self.n_cells = int(np.prod(self.sizes))
        # CLEVR and natural images hold the same kind of object twice; other sources say so.
        self.repeats = bool(getattr(dataset.source, "repeats", True))
        self.index = {
            group.name: {value: i for i, value in enumerate(reader.vocabulary[group.name])}
            for group in self.groups
        }
        self.seen: dict[str, str] = {}

    def record(self, scene: Scene) -> Record | None:
        """Check one scene; None where something is wrong with it."""
        before = len(self.problems.errors)
        if scene.image in self.seen:
            self.problems.add(
                scene.where,
                f"image {scene.image} is also in {self.seen[scene.image]}",
                "an image is one scene: join them, or take one out",
            )
        self.seen[scene.image] = scene.where
        cells = [self._cell(scene, values) for values in scene.objects]
        if not self.repeats and len(set(cells)) < len(cells) and None not in cells:
            twice = next(i for i, cell in enumerate(cells) if cell in cells[:i])
            values = scene.objects[twice]
            self.problems.add(
                scene.where,
                f"{scene.image} has {', '.join(values[g.name] for g in self.groups)} twice",
                "correct the label; or, if the scene does hold two of them, set `source.repeats: "
                "true` (the object code says which types occur, not how often)",
            )
        for box in scene.boxes or ():
            self._box(scene, box)
        if scene.segments is not None:
            with self.problems.collect():
                check_segments(scene.segments, len(cells), f"{scene.image} ({scene.where})")
        slots = self._slots(scene) if self.n_slots else None
        if len(self.problems.errors) > before:
            return None
        known = tuple(cell for cell in cells if cell is not None)
        return Record(
            scene.image,
            scene.where,
            known,
            scene.boxes,
            scene.segments,
            slots,
            scene.upright,
            scene.size,
        )

    def _slots(self, scene: Scene) -> tuple[int, ...] | None:
        """Return the slot of each object."""
        n = len(scene.objects)
        slots = tuple(range(n)) if scene.slots is None else scene.slots
        if len(set(slots)) < len(slots) or len(slots) != n:
            problem = f"puts {n} objects into slots {', '.join(map(str, slots))}"
        elif not all(0 <= slot < (self.n_slots or 0) for slot in slots):
            problem = (
                f"has an object in slot {max(slots)}, and the dataset's slots are {self.n_slots}"
            )
        else:
            return slots
        self.problems.add(
            scene.where,
            f"{scene.image} {problem}",
            "give every object a slot of its own below `slots`, counted from 0",
        )
        return None

    def _cell(self, scene: Scene, values: Mapping[str, str]) -> int | None:
        place = []
        for group in self.groups:
            known = self.index[group.name]
            value = values.get(group.name, "")
            if value in known:
                place.append(known[value])
            else:
                self.problems.add(
                    f"{scene.where}, {group.name}",
                    f"{value!r} is not in the vocabulary{instead(value, list(known))}",
                    f"correct the label, or add it to the values of {group.name!r}",
                )
        if len(place) < len(self.groups):
            return None
        return int(np.ravel_multi_index(place, self.sizes))

    def _box(self, scene: Scene, box: Box) -> None:
        left, top, right, bottom = box
        if not (all(map(isfinite, box)) and left < right and top < bottom):
            self.problems.add(
                scene.where,
                f"box {box} of {scene.image} is empty or not finite",
                "give left, top, right and bottom edge, left < right and top < bottom; a table's "
                "`boxes.format` says which numbers it has",
            )

    def counts(self, records: Sequence[Record]) -> None:
        """Note scenes that are not in the declared space."""
        remedy = "leave the image out, or use a `counted` space, which holds any scene"
        if isinstance(self.space, CountedSpace):
            largest = self.space.max_objects
            bad = [len(r.cells) > largest or not r.cells for r in records]
            remedy = f"raise `space.max_objects` ({largest}), or leave the image out"
        elif isinstance(self.space, DrawsSpace):
            bad = [len(r.cells) != self.space.n_objects for r in records]
        else:
            bad = self._outside(records)
        for record, outside in zip(records, bad, strict=True):
            if outside:
                self.problems.add(
                    record.where,
                    f"{record.image} has {len(record.cells)} objects, which is not in the "
                    "dataset's space",
                    remedy,
                )

    def _outside(self, records: Sequence[Record]) -> list[bool]:
        space = build_space(self.space)
        known = space.covers()
        present = [len(set(r.cells)) for r in records]
        features: npt.NDArray[np.uint8] = feature_code(
            objects_of(records, self.n_cells), list(self.sizes)
        )
        rows = feature_counts(features, self.sizes).tolist()
        return [
            not space.min_objects <= n <= space.max_objects or tuple(row) not in known
            for n, row in zip(present, rows, strict=True)
        ]
