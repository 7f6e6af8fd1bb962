"""Visual Genome as a source of scenes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from bindscope.config.genome import GenomeSource
from bindscope.core.errors import InputError
from bindscope.sources.base import Roots, Scene
from bindscope.sources.genome.mining import Miner, Release

log = logging.getLogger(__name__)


class GenomeReader:
    """Reads the scenes that a release's annotations make, in the order of objects.json.

    Without `images`, they are in the archives ``images*.zip`` beside the annotations; a release has
    no splits.
    """

    def __init__(self, source: GenomeSource, split_column: str | None = None) -> None:
        assert split_column is None
        assert source.path is not None
        self.source, self.path = source, source.path
        self.images: Roots = source.images or find_images(Path(source.path))

    @cached_property
    def _miner(self) -> Miner:
        return Miner(find_release(Path(self.path).expanduser()), self.source)

    @property
    def vocabulary(self) -> Mapping[str, Sequence[str]]:
        """Categories and values, commonest first; "none of them" is the last value."""
        chosen = self._miner.vocabulary
        return {"category": chosen.categories, self.source.feature: chosen.values}

    def scenes(self) -> Iterator[Scene]:
        """Read the release.

        InputError if a file is missing, damaged or not the release's, its words are rarer than
        asked for, or it makes no scene.
        """
        chosen, n_scenes = self._miner.vocabulary, 0
        for scene in self._miner.scenes():
            n_scenes += 1
            yield Scene(
                scene.image.file,
                tuple(
                    {"category": chosen.categories[c], self.source.feature: chosen.values[v]}
                    for c, v in scene.objects
                ),
                f"image {scene.image_id}",
                tuple(map(tuple, scene.boxes.tolist())),
                upright=False,  # annotated in browsers that did not turn photos
                size=(scene.image.width, scene.image.height),
            )
        for reason, number in sorted(self._miner.left_out.items()):
            log.info("left out: %d %s", number, reason)
        if not n_scenes:
            raise InputError(
                self.path,
                f"makes no scene ({dict(self._miner.left_out)})",
                "check `coco_only`, `min_objects` and `max_objects` of the source",
            )


def find_release(folder: Path) -> Release:
    """Find a release's files in a folder, unpacked or not."""

    def data(name: str) -> Path:
        archive = folder / f"{name}.zip"
        return archive if archive.exists() else folder / name

    def aliases(name: str) -> Path | None:
        return path if (path := folder / name).exists() else None

    return Release(
        data("objects.json"),
        data("attributes.json"),
        data("image_data.json"),
        aliases("object_alias.txt"),
        aliases("attribute_alias.txt"),
    )


def find_images(folder: Path) -> tuple[str, ...]:
    """Find the archives of a release's images in a folder; InputError if there is none."""
    archives = tuple(sorted(map(str, folder.glob("images*.zip"))))
    if not archives:
        raise InputError(
            str(folder),
            "holds no images*.zip",
            "add the archives of images to `source.downloads`, or give `path` and `images`",
        )
    return archives
