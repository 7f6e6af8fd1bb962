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

from bindscope.config.base import MOST, SLUG
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

One YAML file decides all results. `make run` and plain `snakemake --cores all` read
[`config.yaml`](config.yaml). Name any other complete file on the command line;
[presets](../docs/presets.md) lists those that exist:

```
make run CONFIG=config/presets/ci.yaml
snakemake --cores all --configfile config/presets/ci.yaml
```

A second file after `--configfile` replaces keys of the first one. Lists are replaced whole. A
file can include others, by paths from its own folder:

```yaml
include: ../parts/objectives.yaml  # its `models`; keys below replace its keys
```

- `datasets` and `models` are shared. `studies` has a section for each study that takes part.
- Datasets, models, probes and fits are lists of entries with a `name`: lower-case letters, digits
  and hyphens. A fit names the entries that it combines.
- No count is above 1e9.
- Threads, memory and partitions of jobs belong to a profile (`profiles/`, `workflow/profiles/`).
- Entries of every kind are in
  [`src/bindscope/config/example.yaml`](../src/bindscope/config/example.yaml), and in
  `src/bindscope/studies/<name>/example.yaml`.
- `bindscope plan` lists what a change of a key recomputes, and why.

An entry of `models` can stand for several training seeds. Lists of models then use its name, and
studies show the models as one model group:

```yaml
models:
  - {name: objects, source: "zoo:matching-objects-{seed}", seeds: [0, 1, 2]}  # objects-0 ...
```

Unknown keys are errors, and every problem of a file is listed with its line:

```
my.yaml: models.0.training.stps: unknown key; did you mean 'steps'? (line 21)
  remedy: correct the configuration; config/README.md lists every key with its type and default
```

Editors with a YAML language server complete and check files whose first line names
[`schema.json`](schema.json).
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
    parts = [HEADER, "## Keys"]
    page = _Page()
    for name, field in root()["properties"].items():
        if sections(field):
            parts += page.section(below("", name, field), field, 3)
        else:
            parts.append(f"\n### `{name}`\n\n{_description(field)} Type: {type_words(field)}.")
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

    def section(self, path: str, field: Schema, depth: int, text: str = "") -> Iterator[str]:
        """Write the tables of one section, or of what a union's members share and add.

        Parameters
        ----------
        path
            Keys that lead to it.
        field
            Its schema.
        depth
            Of its heading.
        text
            Description that the page has already.
        """
        union = sections(field)
        about = _description(field)
        yield f"\n{'#' * min(depth, 6)} `{path}`" + (f"\n\n{about}" if about != text else "")
        if len(union) == 1:
            yield from self._table(path, union, list(union[0]["properties"]), depth)
            return
        shared = _shared(union)
        selects = tag(union)
        if shared:
            yield "\nEvery entry has:"
            yield from self._table(path, union, shared, depth)
        described: dict[str, tuple[str, Schema]] = {}  # first member of the union with a key
        for section in union:
            values = [v.replace(":", ":...") for v in tag_values(section, selects)]
            heading = f"`{path}`: {either([f'`{selects}: {value}`' for value in values])}"
            yield f"\n{'#' * min(depth + 1, 6)} {heading}\n\n{_description(section)}"
            above: dict[str, list[str]] = {}
            keys = []
            for key, inner in section["properties"].items():
                first, same = described.setdefault(key, (heading, inner))
                if key in shared or key == selects:
                    continue
                if first != heading and same == inner:
                    above.setdefault(first, []).append(f"`{key}`")
                else:
                    keys.append(key)
            yield from self._table(path, [section], keys, depth + 1)
            for first, names in above.items():
                words = first.partition(": ")[2]
                yield f"\nAs for [{words}](#{_anchor(first)}): {', '.join(names)}."

    def _table(self, path: str, union: list[Schema], keys: list[str], depth: int) -> Iterator[str]:
        """Write a table of keys, then the sections below those that are sections themselves."""
        below_it, rows = [], []
        for key in keys:
            field = union[0]["properties"][key]
            inner = [section for section in sections(field) if not _is_record(section)]
            kind, meaning = type_words(field), _description(field)
            if inner:
                name, heading = inner[0][NAME], below(path, key, field)
                if name not in self._seen:
                    below_it.append((heading, field, meaning))
                    self._seen.update({section[NAME]: heading for section in inner})
                kind = f"[{kind}](#{_anchor(self._seen[name])})"
            cells = (f"`{key}`", kind, _default(union[0], key), meaning)
            rows.append(f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |")
        if rows:
            yield "\n" + COLUMNS + "\n" + "\n".join(rows)
        for heading, field, text in below_it:
            yield from self.section(heading, field, depth + 1, text)


def _shared(union: list[Schema]) -> list[str]:
    """Return the keys that all sections of a union have with the same meaning and default."""
    first, *others = (section["properties"] for section in union)
    return [key for key in first if all(row.get(key) == first[key] for row in others)]


def _is_record(section: Schema) -> bool:
    """Whether a section is so plain (one number per split) that its type says all."""
    return not any(
        "description" in field or "const" in field for field in section["properties"].values()
    )


def _description(field: Schema) -> str:
    """Return the first line; pydantic leaves out what only repeats what a section says itself."""
    description = next(
        (s["description"] for s in (field, *sections(field)) if "description" in s), ""
    )
    return str(description).partition("\n")[0]


def _anchor(heading: str) -> str:
    """Return GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def type_words(field: Schema) -> str:
    """Describe what a value may be."""
    if inner := sections(field):
        if items(field):
            return "list"
        return _record(inner[0]) if _is_record(inner[0]) else "section"
    return either([_plain(member) for member in members(field)])


def _record(section: Schema) -> str:
    first = next(iter(section["properties"].values()))
    return f"`{{{', '.join(section['properties'])}}}` of {type_words(first)}"


def _plain(kind: Schema) -> str:
    if choices := kind.get("enum") or [kind[key] for key in ("const",) if key in kind]:
        return either([f"`{choice}`" for choice in choices])
    match kind["type"]:
        case "array":
            return f"list of {type_words(items(kind) or {})}"
        case "string":
            return "name" if kind.get("pattern") == SLUG else "text"
        case "object":
            return "mapping"
    return str(kind["type"]) + _bounds(kind)


def _bounds(kind: Schema) -> str:
    """Return the limits of a number, as ` ≥ 0, < 1`; but for the one that all counts have."""
    kind = {key: value for key, value in kind.items() if (key, value) != ("maximum", MOST)}
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {kind[key]:g}" for key, sign in signs.items() if key in kind]
    return f" {', '.join(limits)}" if limits else ""


def _default(section: Schema, key: str) -> str:
    field = section["properties"][key]
    if key in section.get("required", ()):
        return "required"
    value = field.get("default", {})
    subsections = sections(field)
    if subsections and isinstance(value, list) and value:
        return f"{len(value)} entries (schema.json)"
    if subsections and isinstance(value, dict):
        changed = _changed(field, value)
        return f"`{_yaml(changed)}`" if changed else "its defaults"
    return "none" if value is None else f"`{_yaml(value)}`"


def _changed(field: Schema, value: dict[str, Any]) -> dict[str, Any]:
    """Return what a section that is a default has other than its own defaults."""
    properties = next(s for s in sections(field) if value.keys() <= s["properties"].keys())[
        "properties"
    ]
    return {key: inner for key, inner in value.items() if inner != properties[key].get("default")}


def _yaml(value: Any) -> str:
    """Write a value as YAML would, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return value if isinstance(value, str) else json.dumps(value)
