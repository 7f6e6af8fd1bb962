"""The shape of the configuration, read off its JSON schema: the one that editors read too.

Messages, the page about all keys and the search for what a key recomputes all have to walk from a
key to the section that owns it, through lists, optional sections and unions; this is the one place
that knows how.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from bindscope.config.root import Config

Schema = dict[str, Any]
Path = tuple[str | int, ...]
NAME = "$name"  # under it a section has its name in the schema


class Place(NamedTuple):
    """Where a pydantic error lies.

    Attributes
    ----------
    path
        The keys and list positions as a user wrote them, without pydantic's labels of unions.
    owner
        The section whose key the last part of the path is; empty below plain values.
    siblings
        The other sections of the union that the owner was chosen from.
    schema
        What should stand there.
    """

    path: Path
    owner: Schema
    siblings: list[Schema]
    schema: Schema


@cache
def root() -> Schema:
    """Return the JSON schema of a configuration, without the titles that pydantic makes of keys."""
    schema: Schema = _without_titles(Config.model_json_schema())
    return schema


def _without_titles(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_titles(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        key: inner if key == "default" else _without_titles(inner)
        for key, inner in value.items()
        if not (key == "title" and isinstance(inner, str))
    }


def members(schema: Schema) -> list[Schema]:
    """Return what a schema allows, references followed and null left out: one, or a union's."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return [_section(name)]
    union = schema.get("anyOf") or schema.get("oneOf")
    if not union:
        return [] if schema.get("type") == "null" else [schema]
    return [member for inner in union for member in members(inner)]


@cache
def _section(name: str) -> Schema:
    return {**root()["$defs"][name], NAME: name}


def items(schema: Schema) -> Schema | None:
    """Return what a list holds, or None where the schema allows no list."""
    for member in members(schema):
        if member.get("type") == "array":
            item_schema: Schema = member["items"] if "items" in member else member["prefixItems"][0]
            return item_schema
    return None


def sections(schema: Schema) -> list[Schema]:
    """Return the sections that a value, or each entry of a list, can be."""
    return [member for member in members(items(schema) or schema) if NAME in member]


def tag(union: Sequence[Schema]) -> str:
    """Return the key that says which section of a union an entry is (`family`, `source`)."""
    for key in union[0].get("required", ()) if len(union) > 1 else ():
        if len({_allowed(section, key) for section in union}) == len(union):
            return str(key)
    return ""


def tag_values(section: Schema, key: str) -> list[str]:
    """Return what selects a section: `linear`; of sources the beginnings, `timm:` and `hf:`."""
    allowed = _allowed(section, key)
    beginnings = allowed.partition(":")[0].strip("^()").split("|")
    return [f"{beginning}:" for beginning in beginnings] if ":" in allowed else [allowed]


def _allowed(section: Schema, key: str) -> str:
    field = section.get("properties", {}).get(key, {})
    return str(field.get("const", field.get("pattern")))


def choose(schema: Schema, value: Any) -> Schema:
    """Return the member of a union that a value is meant to be; empty where none is."""
    options = members(schema)
    if len(options) == 1:
        return options[0]
    if isinstance(value, list | tuple):
        return next((member for member in options if member.get("type") == "array"), {})
    named = [member for member in options if "properties" in member]
    if isinstance(value, Mapping) and len(named) == 1:
        return named[0]
    if isinstance(value, Mapping) and (key := tag(options)):
        for section in options:
            tag_value = str(value.get(key))
            if any(
                re.match(f"{re.escape(t)}{'' if t.endswith(':') else '$'}", tag_value)
                for t in tag_values(section, key)
            ):
                return section
    return {}


def locate(location: Sequence[str | int], raw: Any) -> Place:
    """Translate the location of a pydantic error in `raw` into the path that a user wrote.

    A location has keys, list positions, and between them the labels of a union's members.
    """
    path: list[str | int] = []
    schema, value, owner, siblings = root(), raw, {}, []
    for i, part in enumerate(location):
        union = members(schema)
        if len(union) > 1 and isinstance(part, str):  # a label
            schema = choose(schema, value)
            siblings = [member for member in union if NAME in member and member != schema]
            continue
        path.append(part)
        siblings = siblings if i == len(location) - 1 else []
        here = union[0] if len(union) == 1 else {}
        owner = here if "properties" in here else {}
        if isinstance(part, int):
            schema = items(schema) or {}
            value = value[part] if isinstance(value, list | tuple) else None
        else:
            schema = here.get("properties", {}).get(part, {})
            if isinstance(of_any_key := here.get("additionalProperties"), dict):
                schema = of_any_key
            value = value.get(part) if isinstance(value, Mapping) else None
    return Place(tuple(path), owner, siblings, schema)


def keys(schema: Schema | None = None, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Walk over every key that a configuration can have.

    Yields
    ------
    tuple
        The path of the key's section, such as ``models[].training`` (`[]` is any entry of a list);
        the section's name in the schema; the key.
    """
    schema = schema or {**root(), NAME: "Config"}
    for key, field in schema["properties"].items():
        yield prefix, schema[NAME], key
        path = below(prefix, key, field)
        for section in sections(field):
            yield from keys(section, path)


def below(prefix: str, key: str, field: Schema) -> str:
    """Return the path of a key's sections: ``models[]`` where it is a list."""
    path = f"{prefix}.{key}" if prefix else key
    return f"{path}[]" if sections(field) and items(field) else path
