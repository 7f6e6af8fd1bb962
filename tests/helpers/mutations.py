"""Configurations with one value changed, and whether the graph of products follows."""

import copy
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import bindscope
from bindscope.config.root import Config
from bindscope.config.structure import NAME, Schema, choose, items, members, root, sections
from bindscope.config.structure import Path as KeyPath
from bindscope.config.yaml_files import read_yaml
from bindscope.core.errors import BindscopeError
from bindscope.core.graph import Graph
from bindscope.core.registries import STUDIES
from bindscope.studies.build import build

PACKAGE = Path(bindscope.__file__).parent
Key = tuple[str, str]
"""A section's name in the schema, and one of its keys."""
Identity = tuple[str, str, str, str]


@dataclass(frozen=True)
class Occurrence:
    """Where a value of a configuration stands, and the JSON schema of its key."""

    path: KeyPath
    field: Schema
    owners: tuple[Key, ...]
    """Its key, after the keys of the sections around it."""


def example() -> dict[str, Any]:
    """Return a configuration with an entry of every kind, from what the studies give of theirs."""
    raw = read_yaml(PACKAGE / "config" / "example.yaml")
    of_studies = {name: PACKAGE / "studies" / name / "example.yaml" for name in STUDIES}
    raw["studies"] = {name: read_yaml(path) for name, path in of_studies.items() if path.is_file()}
    # What YAML repeats by an alias is one object, and a change must not show in several places.
    separate: dict[str, Any] = json.loads(json.dumps(raw))
    return separate


def without_effect(raw: Mapping[str, Any], keys: Collection[Key]) -> set[Key]:
    """Return the keys of which no valid change of a configuration changes what is made.

    Parameters
    ----------
    raw
        A configuration.
    keys
        Which keys of it to try; of sections that it does not have none is found.
    """
    config = Config.model_validate(raw)
    search = _Search(config.model_dump(mode="json"))
    before = identities(build(config))
    remaining = set(keys)
    for at in search.occurrences:
        for changed in search.changes(at) if remaining.intersection(at.owners) else ():
            after = graph_of(changed)
            if after is not None and products(identities(after) - before):
                remaining -= set(at.owners)
                break
    return remaining


def occurrences(
    schema: Schema, value: Mapping[str, Any], path: KeyPath = (), owners: tuple[Key, ...] = ()
) -> Iterator[Occurrence]:
    """Walk over all values of a configuration, those of sections before what is in them."""
    section = choose(schema, value)
    for key, field in section["properties"].items():
        here = (*path, key)
        chained = (*owners, (section.get(NAME, "Config"), key))
        yield Occurrence(here, field, chained)
        inner = value.get(key)
        if inner is None or not sections(field):
            continue
        entry = items(field)
        for i, element in enumerate(inner if entry else ()):
            yield from occurrences(entry or {}, element, (*here, i), chained)
        if not entry:
            yield from occurrences(field, inner, here, chained)


def identities(graph: Graph) -> set[Identity]:
    """Return what decides whether a product is made: rule, path, spec and code."""
    return {(p.rule, p.path(), p.spec, p.code) for p in graph.products.values()}


def products(changed: set[Identity]) -> set[Identity]:
    """Leave the report out: it shows the whole configuration and follows any change."""
    return {identity for identity in changed if identity[0] != "report"}


def graph_of(raw: Mapping[str, Any]) -> Graph | None:
    """Return the graph of a configuration, None where it is not valid."""
    try:
        return build(Config.model_validate(raw))
    except (ValidationError, BindscopeError):
        return None


def _list_of(at: Occurrence) -> str:
    """Return the key of the list that a key would name entries of: `datasets` for `dataset` too."""
    key = str(at.path[-1])
    return key if key.endswith("s") else f"{key}s"


def _value(full: Any, path: KeyPath) -> Any:
    for part in path:
        full = full.get(part) if isinstance(full, Mapping) else full[part]
    return full


def _with(full: Any, path: KeyPath, value: Any) -> Any:
    """Copy a configuration with another value at one place; what is beside it is shared."""
    if not path:
        return value
    copied = copy.copy(full)
    copied[path[0]] = _with(_value(full, path[:1]), path[1:], value)
    return copied


class _Search:
    """The changes that are tried.

    Attributes
    ----------
    full
        The configuration, with all defaults.
    occurrences
        Its values.
    names
        Names of entries by the key of their list (`datasets`).
    values
        What it has for each key; of a list of sections, its entries.
    """

    def __init__(self, full: dict[str, Any]) -> None:
        self.full = full
        self.occurrences = list(occurrences(root(), full))
        self.names: dict[str, list[str]] = {}
        self.values: dict[Key, list[Any]] = {}
        for at in self.occurrences:
            value = _value(full, at.path)
            several = isinstance(value, list) and bool(sections(at.field))
            self.values.setdefault(at.owners[-1], []).extend(value if several else [value])
            if several:
                names = [entry["name"] for entry in value if "name" in entry]
                self.names.setdefault(str(at.path[-1]), []).extend(names)

    def changes(self, at: Occurrence) -> Iterator[dict[str, Any]]:
        """Yield copies of the configuration with one value changed; some are invalid."""
        key, value = at.path[-1], _value(self.full, at.path)
        if sections(at.field):
            return  # what is in them is changed
        if key == "name" and isinstance(at.path[-2], int):
            yield self._renamed(at.path, f"{value}-x")
        elif "const" in at.field:  # another section instead
            section = _value(self.full, at.path[:-1])
            same_name = {"name": section["name"]} if "name" in section else {}
            for candidate in self.values[at.owners[-2]]:
                if isinstance(candidate, Mapping) and candidate.get(key) not in (None, value):
                    yield _with(self.full, at.path[:-1], {**candidate, **same_name})
        elif "enum" not in at.field and (names := self.names.get(_list_of(at))):
            for name in dict.fromkeys(names):
                yield _with(self.full, at.path, [*value, name] if items(at.field) else name)
        else:
            for candidate in _others(at.field, value, self.values[at.owners[-1]]):
                yield _with(self.full, at.path, candidate)

    def _renamed(self, path: KeyPath, new: str) -> dict[str, Any]:
        """Rename an entry, and wherever it is referred to."""
        old, changed = _value(self.full, path), _with(self.full, path, new)
        for at in self.occurrences:
            value = _value(self.full, at.path)
            if _list_of(at) != path[-3] or sections(at.field):
                continue
            several = isinstance(value, list)
            names = [new if name == old else name for name in (value if several else [value])]
            changed = _with(changed, at.path, names if several else names[0])
        return dict(changed)


def _others(field: Schema, value: Any, known: list[Any]) -> Iterator[Any]:
    """Yield other values for a key, by its type; some are invalid."""
    tried = {_json(None)}
    for member in members(field):
        for candidate in chain(_of_type(member, value, known), known):
            if candidate != value and (text := _json(candidate)) not in tried:
                tried.add(text)
                yield candidate
    if value is not None and {"type": "null"} in field.get("anyOf", ()):
        yield None


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _of_type(kind: Schema, value: Any, known: list[Any]) -> Iterator[Any]:
    match kind:
        case {"enum": choices}:
            yield from choices
        case {"const": choice}:
            yield choice
        case {"type": "boolean"}:
            yield not value
        case {"type": "integer"}:
            whole = value if isinstance(value, int) else 8
            yield from (whole + 1, 2 * whole, whole // 2, whole - 1, whole)
        case {"type": "number"}:
            real = value if isinstance(value, float) else 1.0
            yield from (real / 2, 2 * real, real + 0.5, real)
        case {"type": "string"} if isinstance(value, str):
            yield from (f"{value}x", value[::-1], value.rpartition("/")[0])
        case {"type": "array"}:
            yield from _lists(items(kind) or {}, value or [], known)
        case {"type": "object"} if isinstance(value, Mapping):
            for key, inner in value.items():
                of_any_key = kind.get("additionalProperties")
                if isinstance(of_any_key, dict):
                    yield from (
                        {**value, key: candidate} for candidate in _others(of_any_key, inner, [])
                    )
            yield {**value, "a": 1}


def _lists(item: Schema, value: Any, known: list[Any]) -> Iterator[list[Any]]:
    entries = list(value) if isinstance(value, list) else []
    for candidate in _others(item, entries[-1] if entries else None, known):
        if candidate not in entries:
            yield [*entries, candidate]
            yield [*entries[:-1], candidate]
    if len(entries) > 1:
        yield from (entries[:-1], entries[::-1])
