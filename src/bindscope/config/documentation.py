"""config/schema.json and config/README.md, written from the configuration models.

`bindscope.commands.documentation` puts them into their files.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bindscope.config.base import SLUG
from bindscope.config.structure import (
    NAME,
    Schema,
    below,
    items,
    members,
    root,
    sections,
    tag,
    tag_values,
)
from bindscope.config.wording import either

HEADER = """\
<!-- Generated from src/bindscope/config by `make docs`; a test fails when it drifts. -->
# Configuration

One YAML file decides everything that decides the results. Plain `snakemake --cores all` reads
[`config.yaml`](config.yaml); any other complete file is named on the command line and replaces it:

```
snakemake --cores all --configfile config/presets/ci.yaml
```

A second file after `--configfile` is laid over the first, key by key; lists are replaced whole. A
file can also name others to start from, by paths from its own folder:

```yaml
include: ../parts/objectives.yaml  # its `models`; what stands below is laid over it
```

An entry of `models` can stand for several training seeds. Lists of models then name all of them by
one name, and studies show them as one group (give `groups` to have others):

```yaml
models:
  - {name: objects, source: "zoo:matching-objects-{seed}", seeds: [0, 1, 2]}  # objects-0, -1, -2
```

Threads, memory, partitions and the like belong to a profile (`profiles/`, `workflow/profiles/`).

`datasets` and `models` are shared by all studies; what is measured of them stands under `studies`,
in a section for each study that is to take part. Datasets, models, probes and fits are lists of
entries with a `name`: lower-case letters, digits and hyphens, unique in its list, part of paths and
tables. A fit names the entries that it combines. Entries of every kind, to copy from, are in
[`src/bindscope/config/example.yaml`](../src/bindscope/config/example.yaml) and, for a study, in
`src/bindscope/studies/<name>/example.yaml`.

Unknown keys are errors, and every problem of a file is listed with its line:

```
my.yaml: models.0.training.stps: unknown key; did you mean 'steps'? (line 21)
  remedy: correct the configuration; config/README.md lists every key with its type and default
```

Files whose first line names [`schema.json`](schema.json) are completed and checked by editors that
have a YAML language server.
"""
TABLES = """
`bindscope plan` says what a change of a key makes anew, and why.
"""
BAR = "\\|"
COLUMNS = "| key | type | default | meaning |\n|---|---|---|---|"


def json_schema() -> str:
    """Return config/schema.json: what editors complete and check."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "bindscope"}
    # A file that includes others, or is included, may leave out what is required.
    whole = {key: value for key, value in root().items() if key != "required"}
    return json.dumps({**head, **whole}, indent=1) + "\n"


def readme() -> str:
    """Return config/README.md: a table of every key."""
    parts = [HEADER, "## Keys", TABLES]
    page = _Page()
    for name, field in root()["properties"].items():
        if sections(field):
            parts += page.section(below("", name, field), field, 3)
        else:
            parts.append(f"\n### `{name}`\n\n{_description(field)} Type: {words(field)}.")
    return "\n".join(part.rstrip("\n") for part in parts) + "\n"


def presets_table(folder: Path) -> str:
    """Return a section with a table of presets: the first paragraph of each file's comment.

    Parameters
    ----------
    folder
        Folder with the presets; the default configuration is in the folder above it.
    """
    rows = []
    for path in [folder.parent / "config.yaml", *sorted(folder.glob("*.yaml"))]:
        lines = path.read_text(encoding="utf-8").splitlines()[1:]
        comment = itertools.takewhile(lambda line: line.startswith("# "), lines)
        link = f"../config/{path.relative_to(folder.parent)}"
        rows.append(f"| [`{path.stem}`]({link}) | {' '.join(line[2:] for line in comment)} |")
    return "\n".join(["## All presets", "", "| preset | content |", "|---|---|", *rows]) + "\n"


class _Page:
    """The tables; each section has one, where it is first met."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}  # heading by section

    def section(self, path: str, field: Schema, depth: int) -> Iterator[str]:
        """Write the tables of one section, or of what a union's members share and add."""
        union = sections(field)
        yield f"\n{'#' * min(depth, 6)} `{path}`\n\n{_description(field)}"
        if len(union) == 1:
            yield from self._table(path, union, list(union[0]["properties"]), depth)
            return
        shared = _shared(union)
        if shared:
            yield "\nEvery entry has:"
            yield from self._table(path, union, shared, depth)
        selects = tag(union)
        for section in union:
            own = [key for key in section["properties"] if key not in shared]
            own.sort(key=lambda key: key != selects)
            values = [v.replace(":", ":...") for v in tag_values(section, selects)]
            chosen = either([f"`{selects}: {value}`" for value in values])
            yield f"\n{'#' * min(depth + 1, 6)} `{path}`: {chosen}\n\n{_description(section)}"
            yield from self._table(path, [section], own, depth + 1)

    def _table(self, path: str, union: list[Schema], keys: list[str], depth: int) -> Iterator[str]:
        """Write a table of keys, then the sections below those that are sections themselves."""
        found, rows = [], []
        for key in keys:
            field = union[0]["properties"][key]
            inner = [section for section in sections(field) if not _is_record(section)]
            kind = words(field)
            if inner:
                name, heading = inner[0][NAME], below(path, key, field)
                if name not in self._seen:
                    found.append((heading, field))
                    self._seen.update({section[NAME]: heading for section in inner})
                kind = f"{kind}, see [`{self._seen[name]}`](#{_anchor(self._seen[name])})"
            meaning = _description(field) or "Decides which other keys there are."
            cells = (f"`{key}`", kind, _default(union[0], key), meaning)
            rows.append(f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |")
        if rows:
            yield "\n" + COLUMNS + "\n" + "\n".join(rows)
        for heading, field in found:
            yield from self.section(heading, field, depth + 1)


def _shared(union: list[Schema]) -> list[str]:
    """Return the keys that all sections of a union have with the same meaning and default."""
    first, *others = (section["properties"] for section in union)
    return [key for key in first if all(other.get(key) == first[key] for other in others)]


def _is_record(section: Schema) -> bool:
    """Whether a section is so plain (one number per split) that its type says all."""
    return not any(
        "description" in field or "const" in field for field in section["properties"].values()
    )


def _description(field: Schema) -> str:
    """Return the first line; pydantic leaves out what only repeats what a section says itself."""
    found = next((s["description"] for s in (field, *sections(field)) if "description" in s), "")
    return str(found).partition("\n")[0]


def _anchor(heading: str) -> str:
    """Return GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def words(field: Schema) -> str:
    """Describe what a value may be."""
    if found := sections(field):
        if items(field):
            return "list of sections"
        return _record(found[0]) if _is_record(found[0]) else "section"
    return either([_plain(member) for member in members(field)])


def _record(section: Schema) -> str:
    first = next(iter(section["properties"].values()))
    return f"`{{{', '.join(section['properties'])}}}`, each a {words(first)}"


def _plain(kind: Schema) -> str:
    if choices := kind.get("enum") or [kind[key] for key in ("const",) if key in kind]:
        return either([f"`{choice}`" for choice in choices])
    match kind["type"]:
        case "array":
            return f"list: {words(items(kind) or {})}"
        case "string":
            return "name" if kind.get("pattern") == SLUG else "text"
        case "boolean":
            return "`true` or `false`"
        case "object":
            return "section of any keys"
    noun = {"integer": "whole number", "number": "number"}[kind["type"]]
    return noun + _bounds(kind)


def _bounds(kind: Schema) -> str:
    low, high = kind.get("minimum"), kind.get("maximum")
    if low is not None and high is not None:
        return f", {low:g} to {high:g}"
    if low is not None:
        return f", {low:g} or more"
    above, under = kind.get("exclusiveMinimum"), kind.get("exclusiveMaximum")
    if above is None:
        return ""
    return f", above {above:g}" + (f" and below {under:g}" if under is not None else "")


def _default(section: Schema, key: str) -> str:
    field = section["properties"][key]
    if key in section.get("required", ()):
        return "required"
    value = field.get("default", {})
    found = sections(field)
    if found and isinstance(value, list) and value:
        return f"{len(value)} entries, see schema.json"
    if found and isinstance(value, dict):
        changed = _changed(field, value)
        return f"`{_yaml(changed)}` and its defaults" if changed else "its defaults"
    return "none" if value is None else f"`{_yaml(value)}`"


def _changed(field: Schema, value: dict[str, Any]) -> dict[str, Any]:
    """Return what a section that is a default has other than its own defaults."""
    own = next(s for s in sections(field) if value.keys() <= s["properties"].keys())["properties"]
    return {key: inner for key, inner in value.items() if inner != own[key].get("default")}


def _yaml(value: Any) -> str:
    """Write a value as YAML would, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return value if isinstance(value, str) else json.dumps(value)
