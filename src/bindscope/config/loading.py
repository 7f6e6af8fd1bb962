"""From a YAML mapping to a checked configuration, and from pydantic's errors to plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bindscope.config.base import SLUG
from bindscope.config.composition import Locations, read_configuration
from bindscope.config.root import Config
from bindscope.config.seeds import SeedsError, to_file, write_out
from bindscope.config.structure import Place, Schema, keys, locate, members, tag, tag_values
from bindscope.config.wording import either, instead, show, suggest
from bindscope.config.yaml_files import KeyPath
from bindscope.core.errors import ConfigError

REMEDY = "correct the configuration; config/README.md lists every key with its type and default"
_FEW = 3  # places that a message names
_NAME = "a name: lower-case letters, digits and hyphens, at most 32, the first one no hyphen"
# The value of the key that selects a section is missing or unknown.
_TAG_ERRORS = ("union_tag_invalid", "union_tag_not_found", "unknown_source")

# What a value must be, by the type of pydantic's error; the braces take the error's context.
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a finite number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "a section of keys",
    "model": "a section of keys",
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "less than {lt:g}",
}


def load_config(raw: Mapping[str, Any], source: str) -> Config:
    """Check a configuration.

    Parameters
    ----------
    raw
        The configuration as read from YAML, as Snakemake hands it over.
    source
        The file it came from, for messages; if it can be read, they name the line too.

    Raises
    ------
    ConfigError
        With every problem that was found, one a line.
    """
    places = Locations(source)
    problems = places.duplicates
    try:
        written, origins = write_out(raw)
        config = Config.model_validate(written)
    except ValidationError as error:
        problems += [
            places.name(to_file(path, origins), what) for path, what in explain(error, written)
        ]
    except SeedsError as error:
        problems.append(places.name(error.path, error.problem))
    if problems:
        raise _error(source, problems)
    return config


def load_file(path: Path | str) -> Config:
    """Read and check a configuration file."""
    return load_config(read_configuration(path), str(path))


def explain(error: ValidationError, raw: Any) -> Iterator[tuple[KeyPath, str]]:
    """Put pydantic's errors about a configuration into words.

    Yields
    ------
    tuple
        Path of the offending key, and what is wrong with it.
    """
    errors: dict[KeyPath, list[dict[str, Any]]] = {}
    for entry in error.errors(include_url=False):
        place = locate(entry["loc"], raw)
        path = place.path
        if entry["type"] in _TAG_ERRORS:
            path += (tag(members(place.schema)),)
        errors.setdefault(path, []).append({**entry, "place": place})
    # A list with a wrong entry also fails as a literal (`all | last | list`), and counts as too
    # short without that entry: keep what lies deeper.
    outer = {path[:i] for path in errors for i in range(len(path))}
    for path, entries in errors.items():
        if path in outer and all(e["type"] == "too_short" or _expected(e) for e in entries):
            continue
        if path:
            yield path, _merge(path, entries)
        else:  # The checks across sections (config.references) name their places themselves.
            for line in _merge(path, entries).splitlines():
                where, _, what = line.partition(": ")
                yield tuple(int(p) if p.isdigit() else p for p in where.split(".")), what


def _merge(path: KeyPath, entries: Sequence[Mapping[str, Any]]) -> str:
    """Join what several members of a union said about one value."""
    expected = list(dict.fromkeys(text for entry in entries for text in _expected(entry)))
    sentences = [_sentence(path, entry) for entry in entries if not _expected(entry)]
    if expected:
        value = entries[0]["input"]
        choices = [choice for entry in entries for choice in _choices(entry)]
        sentences.append(f"must be {either(expected)}, not {show(value)}{suggest(value, choices)}")
    return "; ".join(dict.fromkeys(sentences))


def _choices(entry: Mapping[str, Any]) -> list[str]:
    """Return the values that a Literal allows."""
    expected = entry["ctx"]["expected"] if entry["type"] == "literal_error" else ""
    return re.findall(r"'([^']*)'", expected)


def _expected(entry: Mapping[str, Any]) -> list[str]:
    """Return what the value could have been, for errors about its type or range."""
    if choices := _choices(entry):
        return choices
    kind = str(entry["type"])
    stem = re.sub(r"_(type|parsing|parsing_size|from_float|attributes_type)$", "", kind)
    text = _EXPECTED.get(kind) or _EXPECTED.get(stem)
    return [text.format(**entry.get("ctx", {}))] if text else []


def _sentence(path: KeyPath, entry: Mapping[str, Any]) -> str:
    """Say what is wrong, for errors that are not about a value's type or range."""
    kind, value, context = entry["type"], entry["input"], entry.get("ctx", {})
    place: Place = entry["place"]
    if kind == "extra_forbidden" and place.owner:
        return _unknown_key(path, place)
    if kind == "missing" and place.owner:
        return f"missing; {_description(place.owner, str(path[-1]))}"
    if kind in _TAG_ERRORS:
        return _unknown_tag(str(path[-1]), members(place.schema), value)
    if kind == "string_pattern_mismatch":
        return _bad_pattern(str(path[-1]), place.owner, value, context["pattern"])
    if kind in ("too_short", "too_long"):
        bound = "at least" if kind == "too_short" else "at most"
        count = context["min_length" if kind == "too_short" else "max_length"]
        return f"needs {bound} {count} {'entry' if count == 1 else 'entries'}, has {len(value)}"
    return str(entry["msg"]).removeprefix("Value error, ")


def _description(owner: Schema, key: str) -> str:
    field = owner["properties"].get(key, {})
    if values := field.get("enum"):
        return f"one of {', '.join(map(str, values))}"
    text = field.get("description", "it has no default").rstrip(".")
    return str(text[0].lower() + text[1:])


def _unknown_key(path: KeyPath, place: Place) -> str:
    """Say what to write instead of a key, or where it stands."""
    key, allowed = str(path[-1]), list(place.owner["properties"])
    of_others = [sibling for sibling in place.siblings if key in sibling["properties"]]
    if of_others:
        selects = tag([place.owner, *place.siblings])
        chosen = [value for sibling in of_others for value in tag_values(sibling, selects)]
        return f"no key here, only for {either(chosen)}; there are {', '.join(allowed)}"
    known = list(dict.fromkeys(section for section, _, name in keys() if name == key))
    homes = [home for home in known if not any(home.startswith(f"{outer}.") for outer in known)]
    near = [home for home in homes if len(path) > 1 and home.startswith(str(path[0]))]
    if "" in homes:
        return "unknown key; it stands at the top of the file, not in a section"
    if not near and (meant := suggest(key, allowed)):
        return f"unknown key{meant}"
    if 1 <= len(near or homes) <= _FEW:
        return f"unknown key; it stands under {either(near or homes)}"
    return f"unknown key{instead(key, allowed)}"


def _unknown_tag(key: str, union: Sequence[Schema], section: Any) -> str:
    """Say what the key that selects a section can be, of sources how they begin."""
    tag = section.get(key) if isinstance(section, Mapping) else None
    if tag is None:
        return "missing; it decides which other keys there are"
    known = [value for member in union for value in tag_values(member, key)]
    if not known[0].endswith(":"):
        return f"unknown {key} {show(tag)}{instead(tag, known)}"
    beginning, _, rest = str(tag).partition(":")
    meant = suggest(f"{beginning}:", known).replace(":'?", f":{rest}'?")
    return f"unknown {key} {show(tag)}{meant or instead('', known)}"


def _bad_pattern(key: str, owner: Schema, value: Any, pattern: str) -> str:
    if pattern == SLUG:
        return f"{show(value)} is not {_NAME}"
    beginning, listed, choices = pattern.strip("^$").partition(":(")
    if listed:
        known = [f"{beginning}:{choice}" for choice in choices.rstrip(")").split("|")]
        return f"unknown {key} {show(value)}{instead(value, known)}"
    return f"{show(value)} does not fit; {_description(owner, key)}"


def _error(source: str, problems: Sequence[str]) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(source, problems[0], REMEDY)
    listed = "".join(f"\n  {problem}" for problem in problems)
    return ConfigError(source, f"{len(problems)} problems{listed}", REMEDY)
