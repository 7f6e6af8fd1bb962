"""Reading one YAML file: its values, or what is wrong with it and where, and lines of its keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bindscope.core.errors import ConfigError, first_line

KeyPath = tuple[str | int, ...]
_DEEPEST, _LARGEST = 50, 200_000  # of a YAML file: levels, and entries with aliases written out
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path | str) -> dict[str, Any]:
    """Read a YAML file that holds a mapping.

    Raises
    ------
    ConfigError
        If the file is missing, is no YAML, or is empty.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        _check_shape(text)
        value = yaml.load(text, Loader=_LOADER)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(str(path), f"line {line}: is not UTF-8", "save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(
            str(path), f"cannot be read ({error.strerror})", "check the path"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(str(path), _syntax(error), "correct the file at that place") from None
    except ValueError as error:  # a date or a number that is none
        problem = f"holds a value that cannot be read ({first_line(error)})"
        raise ConfigError(str(path), problem, "put it into quotes, or correct it") from None
    if not isinstance(value, dict):
        raise ConfigError(str(path), "holds no keys", "copy config/config.yaml and change it")
    return value


def _syntax(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not valid YAML"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)


def _check_shape(text: str) -> None:
    """Refuse YAML that is nested too deep, holds itself, or grows large by its aliases.

    Goes over the events of the parser, each once: nothing is built yet.
    """
    around: list[tuple[str | None, int]] = []  # anchor and size of the nodes that are open
    sizes: dict[str, int] = {}

    def refuse(problem: str, event: yaml.Event) -> None:
        mark: Any = event.start_mark
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)

    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            around.append((event.anchor, 1))
            if len(around) > _DEEPEST:
                refuse(f"is nested more than {_DEEPEST} deep", event)
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = around.pop()
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size = event.anchor, 1
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in (outer for outer, _ in around):
                refuse(f"*{event.anchor} refers to a part that it is in", event)
            anchor, size = None, sizes.get(str(event.anchor), 1)
        else:
            continue
        if anchor:
            sizes[anchor] = size
        if around:
            outer, total = around[-1]
            around[-1] = outer, total + size
            if total + size > _LARGEST:
                refuse(f"its aliases make more than {_LARGEST:,} entries", event)


class YamlLines:
    """Line numbers of a YAML file's keys, and keys that stand twice; empty for anything else."""

    def __init__(self, source: Path | str) -> None:
        self.duplicates: list[tuple[str, str]] = []
        self._lines: dict[KeyPath, int] = {}
        self._lists: set[KeyPath] = set()
        try:
            text = Path(source).read_text(encoding="utf-8")
            _check_shape(text)
            node = yaml.compose(text, Loader=_LOADER)
        except (OSError, ValueError, yaml.YAMLError):
            return
        if node is not None:
            self._walk(node, ())

    def _walk(self, node: yaml.Node, path: KeyPath) -> None:
        if isinstance(node, yaml.SequenceNode):
            self._lists.add(path)
            for i, child in enumerate(node.value):
                self._lines[*path, i] = child.start_mark.line + 1
                self._walk(child, (*path, i))
        elif isinstance(node, yaml.MappingNode):
            lines_by_key: dict[str, int] = {}
            for key, child in node.value:
                line = key.start_mark.line + 1
                if key.value in lines_by_key:
                    where = dotted((*path, key.value))
                    self.duplicates.append(
                        (where, f"given twice, in lines {lines_by_key[key.value]} and {line}")
                    )
                lines_by_key[key.value] = self._lines[*path, key.value] = line
                self._walk(child, (*path, key.value))

    def nearest(self, path: Sequence[str | int]) -> tuple[int, int]:
        """Return how much of a path the file has, and the line of that part; (0, 0) for none."""
        for end in range(len(path), 0, -1):
            if line := self._lines.get(tuple(path[:end])):
                return end, line
        return 0, 0

    def decides(self, path: Sequence[str | int]) -> bool:
        """Whether a list of the file holds the path; of files it includes, none does then."""
        return any(tuple(path[:end]) in self._lists for end in range(1, len(path)))


def dotted(path: Sequence[str | int]) -> str:
    """Write a path as `models.0.seed`."""
    return ".".join(str(part) for part in path)
