"""A synthetic release in the format of Visual Genome: drawn pictures and simulated annotations.

Everything from the reader on runs as it would on the release, and the distribution of the object
codes is known (`code_distribution`), so that what is estimated from the scenes can be checked. The
simulated annotators use synonyms, plurals and shades, leave attributes out, annotate a thing twice,
and name things that are no category; a part of the pictures is not in COCO.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import numpy.typing as npt
from PIL import Image

from bindscope.config.genome import SyntheticRelease
from bindscope.core.files import write_atomic
from bindscope.core.progress import Progress
from bindscope.sources.genome.pictures import CELLS, COLOR_NAMES, KINDS, SHADES, Thing, paint, sides
from bindscope.sources.genome.vocabulary import COLOR_WORDS

# Other words for the things; object_alias.txt says that they are.
OTHER_WORDS = {
    "ball": ("balls", "sphere"), "box": ("boxes", "crate"), "tent": ("tents",), "star": ("stars",),
    "cross": ("crosses",), "kite": ("kites",), "house": ("houses", "hut"), "nut": ("nuts",),
}  # fmt: skip
RARE = ("shadow", "reflection", "speck", "corner", "smudge", "texture", "scratch", "glare")
ATTRIBUTE_ALIASES = "striped,stripy,with stripes\n"

IN_COCO = 0.85  # share of the pictures
OTHER_WORD = 0.25  # share of words that are a synonym
SHADE_NAMED = 0.5  # share of dark and light colors whose shade is in the annotation
TWICE = 0.04  # share of things that are annotated twice
MERGED = 0.03  # share of things whose attributes stand under a number merged into theirs
RARE_SHARE = 0.15  # share of pictures in which something rare is named
FAVOURITE = 3.0  # how much likelier a kind's favourite color is than another
HALF = 0.5

_QUALITY = 92
_AT = (1980, 1, 1, 0, 0, 0)  # the same for the same content


class CodeDistribution(NamedTuple):
    """The distribution of the object codes: objects are independent draws.

    `numbers` of objects of a scene are equally likely; `shares`, float64 (C, V), add up to 1: the
    probability of each category and value as annotated. The last value is no color.
    """

    numbers: tuple[int, ...]
    categories: tuple[str, ...]
    values: tuple[str, ...]
    shares: npt.NDArray[np.float64]


def code_distribution(config: SyntheticRelease) -> CodeDistribution:
    """Return the distribution of category and color in the annotations.

    Rarer kinds come later; every kind has a favourite color. A thing has no color because it is
    of glass, or because the annotation has no attribute (`unannotated`).
    """
    shares = _joint_shares(config) * (1.0 - config.unannotated)
    shares[:, -1] += config.unannotated * _joint_shares(config).sum(axis=1)
    return CodeDistribution(
        numbers=tuple(range(2, config.max_objects + 1)),
        categories=tuple(KINDS)[: config.n_categories],
        values=(*COLOR_NAMES[: config.n_colors], "no_color"),
        shares=shares,
    )


@cache
def _joint_shares(config: SyntheticRelease) -> npt.NDArray[np.float64]:
    """Probability of each kind and color (the last is none) in the pictures, (C, V); read-only."""
    kinds = np.arange(config.n_categories)
    colors = np.ones((config.n_categories, config.n_colors + 1))
    colors[kinds, kinds % config.n_colors] = FAVOURITE
    shares: npt.NDArray[np.float64]
    shares = colors / colors.sum(axis=1, keepdims=True) / (kinds + 2.0)[:, None]
    shares /= shares.sum()
    shares.flags.writeable = False
    return shares


def write_release(config: SyntheticRelease, files: Mapping[str, Path | str]) -> None:
    """Draw the pictures and write the release's files.

    `objects`, `attributes` and `image_data` are archives of one JSON file each, beside
    `object_alias` and `attribute_alias`; `images` is an archive with the folders VG_100K and
    VG_100K_2.
    """
    entries: dict[str, list[str]] = {"objects": [], "attributes": [], "image_data": []}
    pictures = io.BytesIO()
    progress = Progress(config.n_images, "pictures")
    with ZipFile(pictures, "w") as archive:
        for number in range(1, config.n_images + 1):
            name, pixels, entries_of = picture(config, number)
            jpeg = io.BytesIO()
            Image.fromarray(pixels).save(jpeg, "JPEG", quality=_QUALITY, subsampling=0)
            archive.writestr(_member(name, ZIP_STORED), jpeg.getvalue())
            for file, entry in entries_of.items():
                entries[file].append(json.dumps(entry))
            progress.advance()
    write_atomic(files["images"], pictures.getvalue())
    for file, texts in entries.items():
        write_atomic(files[file], _zipped(f"{file}.json", f"[{', '.join(texts)}]"))
    kinds = tuple(KINDS)[: config.n_categories]
    lines = [",".join((kind, *OTHER_WORDS[kind])) for kind in kinds]
    write_atomic(files["object_alias"], "\n".join(lines) + "\n")
    write_atomic(files["attribute_alias"], ATTRIBUTE_ALIASES)


def picture(
    config: SyntheticRelease, number: int
) -> tuple[str, npt.NDArray[np.uint8], dict[str, dict[str, Any]]]:
    """Draw one picture: its file's name, pixels, and its entries in the release.

    It does not depend on how many there are.
    """
    random = np.random.default_rng([config.seed, number])
    things = _compose(config, random)
    pixels = paint(config.size_px, things, random)
    name = f"VG_100K{'_2' if number % 2 else ''}/{number}.jpg"
    in_coco = random.random() < IN_COCO
    annotated = list(_annotate(config, things, number, random))
    about = {
        "image_id": number, "url": f"drawn:///{name}", "width": config.size_px,
        "height": config.size_px, "coco_id": number + 1_000_000 if in_coco else None,
        "flickr_id": None,
    }  # fmt: skip
    return name, pixels, {
        "objects": {"image_id": number, "image_url": about["url"],
                    "objects": [thing for thing, _ in annotated]},
        "attributes": {"image_id": number, "attributes": [entry for _, entry in annotated]},
        "image_data": about,
    }  # fmt: skip


def _compose(config: SyntheticRelease, random: np.random.Generator) -> tuple[Thing, ...]:
    """Draw what is in a picture, and where: each thing in a cell of its own."""
    n = int(random.integers(2, config.max_objects + 1))
    cells = random.permutation(CELLS**2)[:n].tolist()
    looks = random.choice(_joint_shares(config).size, n, p=_joint_shares(config).ravel()).tolist()
    coins = (random.random((n, 2)) < HALF).tolist()
    shades = random.integers(len(SHADES), size=n).tolist()
    shifts = random.random((n, 2)).tolist()
    cell_px, side_of = config.size_px // CELLS, sides(config.size_px)
    things = []
    for cell, look, (large, striped), shade, shift in zip(
        cells, looks, coins, shades, shifts, strict=True
    ):
        kind, color = divmod(look, config.n_colors + 1)
        color = color if color < config.n_colors else -1
        side = side_of[large]
        y, x = (
            at * cell_px + int(s * (cell_px - side + 1))
            for at, s in zip(divmod(cell, CELLS), shift, strict=True)
        )
        things.append(Thing(kind, color, large, striped and color >= 0, shade, x, y, side))
    return tuple(things)


def _annotate(
    config: SyntheticRelease, things: tuple[Thing, ...], number: int, random: np.random.Generator
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield, per annotation, its entries in objects and in attributes."""
    numbers = iter(range(100 * number, 100 * (number + 1)))
    for thing in things:
        attributes = [] if random.random() < config.unannotated else _attributes(thing, random)
        for _ in range(2 if random.random() < TWICE else 1):
            name = _word(tuple(KINDS)[thing.kind], OTHER_WORDS, random)
            # The second box of a thing is a pixel off.
            box = {"x": thing.x + _, "y": thing.y, "w": thing.side, "h": thing.side}
            yield _entries(name, box, attributes, numbers, random.random() < MERGED)
    if random.random() < RARE_SHARE:
        name = RARE[int(random.integers(len(RARE)))]
        everywhere = {"x": 0, "y": 0, "w": config.size_px, "h": config.size_px}
        yield _entries(name, everywhere, [], numbers, merged=False)


def _entries(
    name: str, box: Mapping[str, int], attributes: list[str], numbers: Iterator[int], merged: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One annotation in the format of the two files; the second has the attributes, if any."""
    object_id = next(numbers)
    attribute_id = next(numbers) if merged else object_id
    about = {**box, "names": [name], "synsets": []}
    thing = {**about, "object_id": object_id, "merged_object_ids": [attribute_id] if merged else []}
    return thing, {**about, "object_id": attribute_id} | (
        {"attributes": attributes} if attributes else {}
    )


def _attributes(thing: Thing, random: np.random.Generator) -> list[str]:
    """Return the annotated attributes of a thing, in an annotator's words and a random order."""
    attributes = []
    if thing.color >= 0:
        color = _word(COLOR_NAMES[thing.color], COLOR_WORDS, random)
        shade = ("dark ", "", "light ")[thing.shade] if random.random() < SHADE_NAMED else ""
        attributes.append(shade + color)
    if thing.large:
        attributes.append("large" if random.random() < HALF else "big")
    if thing.striped:
        attributes.append("striped" if random.random() < HALF else "stripy")
    random.shuffle(attributes)
    return attributes


def _word(word: str, others: Mapping[str, tuple[str, ...]], random: np.random.Generator) -> str:
    if random.random() >= OTHER_WORD:
        return word
    return others[word][int(random.integers(len(others[word])))]


def _member(name: str, method: int) -> ZipInfo:
    info = ZipInfo(name, _AT)
    info.compress_type = method
    return info


def _zipped(name: str, text: str) -> bytes:
    content = io.BytesIO()
    with ZipFile(content, "w") as archive:
        archive.writestr(_member(name, ZIP_DEFLATED), text)
    return content.getvalue()
