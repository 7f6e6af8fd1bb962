"""Reading and checking a user's table of cut-outs; their images are opened by `composites`.

Source of what is asked for: the specification's E15, "composited real cut-outs". Experiments
exchange nouns and colours of things, so there must be a thing of every noun in every colour.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bindscope.core.contents import combined_hash, file_sha256, list_files
from bindscope.core.errors import InputError
from bindscope.core.files import canonical_json, sha256

COLUMNS = ("file", "noun", "colour", "split")
SPLITS = ("test", "estimation")
PHOTOS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp"})
_WORD = re.compile(r"[^\W\d_]+([ '-][^\W\d_]+)*")
_GUIDE = 'see "Your own cut-outs" in docs/studies/binding_id_task.md'


@dataclass(frozen=True, order=True)
class Cutout:
    """A row of the table: an image with alpha, the words for what it shows, and their split."""

    noun: str
    colour: str
    split: str
    file: str


@dataclass(frozen=True)
class Manifest:
    """A checked table of cut-outs.

    Attributes
    ----------
    path
        Its file.
    cutouts
        Its rows, sorted, so that their order in the file does not matter.
    """

    path: Path
    cutouts: tuple[Cutout, ...]

    def words(self, name: str) -> dict[str, tuple[str, ...]]:
        """Return the nouns (`noun`) or colours of each split, sorted."""
        return {
            split: tuple(sorted({getattr(c, name) for c in self.cutouts if c.split == split}))
            for split in SPLITS
        }

    def files(self) -> dict[tuple[str, str], tuple[Path, ...]]:
        """Return the images of each noun and colour, sorted by name."""
        found: dict[tuple[str, str], tuple[Path, ...]] = {}
        for one in self.cutouts:
            key = (one.noun, one.colour)
            found[key] = (*found.get(key, ()), self.path.parent / one.file)
        return found

    def sha256(self) -> str:
        """Hash all words and images; the order of the rows and other columns do not enter it."""
        rows = [
            [c.noun, c.colour, c.split, c.file, file_sha256(self.path.parent / c.file)]
            for c in self.cutouts
        ]
        return sha256(canonical_json(rows))


def backgrounds(folder: Path | str) -> list[Path]:
    """Return the photos of a folder and of folders in it, sorted by name; hidden ones are left out.

    Raises
    ------
    InputError
        If there is none.
    """
    root = Path(folder).expanduser()
    inside = [path.relative_to(root) for path in root.rglob("*") if path.suffix.lower() in PHOTOS]
    names = sorted(
        path.as_posix() for path in inside if not any(part.startswith(".") for part in path.parts)
    )
    if not names:
        raise InputError(
            f"backgrounds, {root}",
            "there is no photo" if root.is_dir() else "there is no such folder",
            f"give a folder of photos ({', '.join(sorted(PHOTOS))}), or leave `backgrounds` out",
        )
    return [root / name for name in names]


def backgrounds_sha256(folder: Path | str) -> str:
    """Hash the names and contents of the photos of a folder."""
    root = Path(folder).expanduser()
    names = [path.relative_to(root).as_posix() for path in backgrounds(folder)]
    return combined_hash(list_files(root, names))


def read_manifest(path: Path | str) -> Manifest:
    """Read and check a table of cut-outs.

    Raises
    ------
    InputError
        Names the file, the line and the remedy: if it is no such table, an image is missing, a
        split has no things, splits share a word, or a noun is missing in some colour.
    """
    file = Path(path)
    found: dict[str, tuple[int, Cutout]] = {}
    for line, row in _rows(file):
        cutout = _cutout(f"{file}, row {line}", file.parent, row)
        if cutout.file in found:
            raise InputError(
                f"{file}, row {line}", f"{cutout.file} is in row {found[cutout.file][0]}, too",
                "give each image one row, with what it shows",
            )  # fmt: skip
        found[cutout.file] = line, cutout
    manifest = Manifest(file, tuple(sorted(cutout for _, cutout in found.values())))
    _check_words(manifest)
    _check_combinations(manifest)
    return manifest


def _rows(file: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the number of each row, by line, the header being line 1, and its cells."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle, strict=True)
            names = reader.fieldnames or ()
            if missing := [name for name in COLUMNS if name not in names]:
                raise InputError(
                    str(file), f"has no column {missing[0]!r} (its first line is {list(names)})",
                    f"begin it with the line {','.join(COLUMNS)}; {_GUIDE}",
                )  # fmt: skip
            for row in reader:
                if None in row or None in row.values():
                    raise InputError(
                        f"{file}, row {reader.line_num}",
                        f"has not the {len(names)} cells of the first line",
                        'put text that holds a comma into quotes ("a, b")',
                    )
                yield reader.line_num, {name: row[name].strip() for name in COLUMNS}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            str(file), f"cannot be read ({error})",
            f"give a table of cut-outs as CSV in UTF-8: `cutouts: {{folder, file}}`; {_GUIDE}",
        ) from error  # fmt: skip


def _cutout(where: str, folder: Path, row: Mapping[str, str]) -> Cutout:
    for name in ("noun", "colour"):
        if not _WORD.fullmatch(row[name]):
            raise InputError(
                f"{where}, column {name!r}", f"{row[name]!r} is no word",
                "give a word of letters, as it is to stand in the text",
            )  # fmt: skip
    if row["split"] not in SPLITS:
        raise InputError(
            f"{where}, column 'split'", f"is {row['split']!r}", "give `test` or `estimation`"
        )
    if not row["file"] or not (folder / row["file"]).is_file():
        raise InputError(
            f"{where}, column 'file'", f"there is no file {folder / row['file']}",
            "name images relative to the table",
        )  # fmt: skip
    return Cutout(**row)


def _check_words(manifest: Manifest) -> None:
    """Refuse splits without things, and words that stand for two kinds of things."""
    seen: dict[str, tuple[str, str]] = {}
    for kind, split in product(("noun", "colour"), SPLITS):
        words = manifest.words(kind)[split]
        if not words:
            raise InputError(
                str(manifest.path), f"holds no cut-out of split `{split}`",
                "give both splits things of their own: mean differences are estimated on one and "
                "tested on the other",
            )  # fmt: skip
        for word in words:
            before, was = seen.get(word.casefold(), ("", ""))
            if was:
                raise InputError(
                    str(manifest.path),
                    f"{word!r} is a {kind} of split `{split}`, and {before!r} a {was}",
                    "give every noun and every colour to one split, and spell it in one way",
                )
            seen[word.casefold()] = (word, f"{kind} of split `{split}`")


def _check_combinations(manifest: Manifest) -> None:
    there = manifest.files()
    nouns, colours = manifest.words("noun"), manifest.words("colour")
    for split in SPLITS:
        missing = [
            f"a {colour} {noun}"
            for noun, colour in product(nouns[split], colours[split])
            if (noun, colour) not in there
        ]
        if missing:
            raise InputError(
                str(manifest.path), f"of split `{split}` there is no cut-out of {some(missing)}",
                "add one of each, or leave out that noun or that colour: experiments exchange the "
                "nouns and colours of things",
            )  # fmt: skip


def some(names: Sequence[str], most: int = 5) -> str:
    """Return names for a message, of many the first ones."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
