"""A configuration in several files: what each includes, and files laid over one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bindscope.config.yaml_files import KeyPath, YamlLines, dotted, read_yaml
from bindscope.core.errors import ConfigError

INCLUDE = "include"
_BETWEEN = " + "


def read_configuration(*files: Path | str) -> dict[str, Any]:
    """Read configuration files, each laid over those before it, with what they include.

    Raises
    ------
    ConfigError
        If a file is missing, is no YAML, or includes itself.
    """
    raw: dict[str, Any] = {}
    for file in files:
        lay_over(raw, read_yaml(file))
    return add_included(raw, files)


def add_included(raw: Mapping[str, Any], files: Iterable[Path | str]) -> dict[str, Any]:
    """Lay a configuration over what its files include.

    Parameters
    ----------
    raw
        Keys of all files, as `read_configuration` or Snakemake lays them over one another.
    files
        The files, the later ones over the earlier.
    """
    merged: dict[str, Any] = {}
    including = False
    for file in files:
        for path in _included(Path(file)):
            including = True
            lay_over(merged, read_yaml(path), leave=INCLUDE)
    lay_over(merged, raw, leave=INCLUDE if including else "")
    return merged


def lay_over(below: dict[str, Any], above: Mapping[str, Any], leave: str = "") -> None:
    """Change a section key by key; lists are replaced whole."""
    for key, value in above.items():
        if key == leave:
            continue
        if isinstance(value, Mapping):
            inner = below.get(key)
            below[key] = dict(inner) if isinstance(inner, Mapping) else {}
            lay_over(below[key], value)
        else:
            below[key] = value


def join_names(files: Iterable[Path | str]) -> str:
    """Return the name of a configuration in messages: that of its file, or of all of them."""
    return _BETWEEN.join(map(str, files))


def _included(file: Path, around: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the files below a file, the lowest first."""
    included = read_yaml(file).get(INCLUDE, ())
    names = [included] if isinstance(included, str) else included
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            str(file),
            f"{INCLUDE} must be a file or a list of files{_line(file)}",
            "write `include: other.yaml`; paths start from the folder of the file that includes",
        )
    around = (*around, file.resolve())
    for name in names:
        path = file.parent / name
        if path.resolve() in around:
            raise ConfigError(
                str(file),
                f"{INCLUDE}: {name} includes this file again{_line(file)}",
                "take one of the two lines out",
            )
        if not path.is_file():
            raise ConfigError(
                str(file),
                f"{INCLUDE}: there is no file {path}{_line(file)}",
                "correct the path; it starts from the folder of the file that includes",
            )
        yield from _included(path, around)
        yield path


def _line(file: Path) -> str:
    return f" (line {YamlLines(file).nearest((INCLUDE,))[1]})"


class Locations:
    """Where the keys of a configuration stand: file and line."""

    def __init__(self, source: str) -> None:
        self._files: list[tuple[str, YamlLines]] = []  # what decides first
        self.duplicates: list[str] = []
        named = [Path(name) for name in source.split(_BETWEEN)]
        for file in named if all(path.is_file() for path in named) else ():
            read_yaml(file)  # what its aliases blow up would take minutes to check
        below = [path for file in named if file.is_file() for path in _included(file)]
        for path in reversed([*below, *named]):
            lines = YamlLines(path)
            self._files.append((str(path), lines))
            self.duplicates += [f"{where}: {what}" for where, what in lines.duplicates]
        self._main = source

    def name(self, path: KeyPath, problem: str) -> str:
        """Write a problem with the place of its key."""
        return f"{dotted(path)}: {problem}{self._suffix(path)}"

    def _suffix(self, path: Sequence[str | int]) -> str:
        """Return `` (line 12)`` for a path, or for the nearest section around it that exists."""
        best, where = 0, ""
        for file, lines in self._files:
            depth, line = lines.nearest(path)
            if depth > best:
                best = depth
                where = f" (line {line})" if file == self._main else f" ({file}:{line})"
            if lines.decides(path):
                break
        return where
