"""Images and masks of a source, decoded before anything is made from them.

What was found is remembered until a file or its labels change: a start of Snakemake does not decode
thousands of photos again.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bindscope.core.errors import InputError, StoreError
from bindscope.core.files import cache_folder, canonical_json, sha256, write_json
from bindscope.core.progress import Progress
from bindscope.sources.base import LEAVE_OUT, Roots, Scene, SourceFiles, check_name
from bindscope.sources.masks import (
    find_objects,
    image_size,
    read_numbers,
    refuse_other_size,
    refuse_size,
)
from bindscope.sources.problems import Problems

log = logging.getLogger(__name__)

_VERSION = 2  # of what is checked
_SLACK_PX = 1  # that a box may end outside its image
_VOID = (0, 255)  # numbers that mean "no object" in common masks
_Result = dict[str, Any]


def check_present(
    files: SourceFiles, scenes: Sequence[Scene], problems: Problems, bad_images: str
) -> dict[str, str]:
    """Return images that are not there, or lack a mask, with the reason; note those that stop."""
    absent: dict[str, str] = {}
    for scene in scenes:
        named = {"image": scene.image}
        if scene.segments:
            named["mask"] = scene.segments.file
        with problems.collect():
            for kind, name in named.items():
                check_name(name, scene.where)
                if files.exists(name):
                    continue
                absent.setdefault(scene.image, f"{kind}: there is no such {kind}")
                if bad_images == "stop":
                    problems.add(
                        scene.where,
                        f"there is no {kind} {files.path(name)}",
                        f"correct its name or `source.images`, or {LEAVE_OUT}",
                    )
    return absent


class ImageChecks:
    """Decodes images and masks below folders or archives, and compares them with their labels.

    `boxes`: whether a box that ends outside its image is an error.
    """

    def __init__(self, roots: Roots, *, boxes: bool) -> None:
        self.files, self.boxes = SourceFiles(roots), boxes
        places = [str(Path(root).expanduser().resolve()) for root in _several(roots)]
        self.note = cache_folder() / "images" / f"{sha256(canonical_json(places))}.json"

    def run(self, scenes: Sequence[Scene], problems: Problems, bad_images: str) -> dict[str, str]:
        """Check scenes; note what is wrong, or return those that are left out, with the reason."""
        known, results = self._remembered(), dict[str, _Result]()
        progress, bad = Progress(len(scenes), "images"), dict[str, str]()
        for scene in scenes:
            state = self._state(scene)
            result = known.get(scene.image)
            if not result or result["state"] != state:
                result = {**self._check(scene), "state": state}
            results[scene.image] = result
            progress.advance()
            if "problem" not in result:
                continue
            if bad_images == "skip" and result["of"] != "box":
                bad[scene.image] = f"{result['of']}: {result['problem']}"
            else:
                name = scene.segments.file if result["of"] == "mask" and scene.segments else ""
                where = f"{self.files.path(name or scene.image)} ({scene.where})"
                problems.add(where, result["problem"], result["remedy"])
        _note_unnamed(results)
        if any(known.get(image) != result for image, result in results.items()):
            with contextlib.suppress(OSError, StoreError):  # no place to write costs only time
                write_json(self.note, {**known, **results})
        return bad

    def _remembered(self) -> Mapping[str, _Result]:
        try:
            results: dict[str, _Result] = json.loads(self.note.read_text())
        except (OSError, ValueError):
            return {}
        return results if isinstance(results, dict) else {}

    def _state(self, scene: Scene) -> str:
        """Describe what a check depends on."""
        segments = scene.segments
        states = [self.files.state(scene.image), segments and self.files.state(segments.file)]
        frame = [scene.upright, scene.size]
        labels = [segments and asdict(segments), scene.boxes, frame, self.boxes, _VERSION]
        return sha256(json.dumps([states, labels]))

    def _check(self, scene: Scene) -> _Result:
        kind = "image"
        try:
            size = image_size(self.files, scene.image, scene.where)
            width, height = size.upright if scene.upright else size.stored
            if scene.size:
                refuse_other_size((width, height), scene.size, scene.where)
            if outside := self._outside(scene, width, height):
                return {
                    "of": "box",
                    "problem": outside,
                    "remedy": "correct the box; `boxes.format` and `orientation` of the source say "
                    "what its numbers mean",
                }
            kind = "mask"
            if scene.segments is None:
                return {}
            numbers = read_numbers(self.files, scene.segments, scene.where, scene.upright)
            place = self.files.path(scene.segments.file)
            refuse_size((numbers.shape[1], numbers.shape[0]), (width, height), place)
            find_objects(numbers, scene.segments, place)
        except InputError as error:
            return {"of": kind, "problem": error.problem, "remedy": error.remedy}
        unnamed = set(np.unique(numbers).tolist()) - {*scene.segments.ids, *_VOID}
        return {"unnamed": sorted(unnamed)[:1]} if unnamed else {}

    def _outside(self, scene: Scene, width: int, height: int) -> str | None:
        """Say which box ends outside an image; None if none does."""
        for left, top, right, bottom in (scene.boxes or ()) if self.boxes else ():
            least, most = min(left, top), max(right - width, bottom - height)
            if least < -_SLACK_PX or most > _SLACK_PX:
                return (
                    f"box {(left, top, right, bottom)} (left, top, right, bottom) ends outside "
                    f"the image of {width} x {height} pixels"
                )
        return None


def _several(roots: Roots) -> Sequence[str]:
    return [roots] if isinstance(roots, str) else roots


def _note_unnamed(results: Mapping[str, _Result]) -> None:
    """Log masks with numbers of no row: a forgotten row looks like background."""
    unnamed = {
        image: result["unnamed"][0] for image, result in results.items() if result.get("unnamed")
    }
    if unnamed:
        image, number = next(iter(unnamed.items()))
        log.warning(
            "%d masks have pixels with a number of no row, as %d in that of %s: they count as "
            "background",
            len(unnamed),
            number,
            image,
        )
