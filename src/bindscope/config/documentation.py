"""config/schema.json and config/README.md, written from the configuration models.

Run ``python -m bindscope.config.documentation`` (or ``make docs``) after a change of the models or
of a preset; a test fails until that is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from bindscope.config.base import Model
from bindscope.config.effects import effect
from bindscope.config.root import Config
from bindscope.config.structure import (
    alternatives,
    discriminator,
    item,
    labels_of,
    literals,
    variants,
)
from bindscope.config.wording import either
from bindscope.core.files import write_atomic

HEADER = """\
<!-- Generated from src/bindscope/config by `make docs`; a test fails when it drifts. -->
# Configuration

One YAML file decides everything that decides the results. Plain `snakemake --cores all` reads
[`config.yaml`](config.yaml); any other complete file is named on the command line and replaces it:

```
snakemake --cores all --configfile config/presets/ci.yaml
```

A second file after `--configfile` is laid over the first, key by key; lists are replaced whole.
Threads, memory, partitions and the like belong to a profile (`profiles/`, `workflow/profiles/`).

Datasets, models, probes and fits are lists of entries with a `name`: lower-case letters, digits and
hyphens, unique in its list, part of paths and tables. A fit names the entries that it combines.
Unknown keys are errors, and every problem of a file is listed with its line:

```
config/config.yaml: probes.1.rankk: unknown key; did you mean 'rank'? (line 49)
  remedy: correct the configuration; config/README.md lists every key with its type and default
```

Files whose first line names [`schema.json`](schema.json) are completed and checked by editors that
have a YAML language server.
"""
TABLES = """
The last column says what is made anew when a key changes; tables, figures and the report always
follow. `bindscope plan` tells it for the change at hand, and why.
"""
BAR = "\\|"
COLUMNS = "| key | type | default | meaning | recomputed |\n|---|---|---|---|---|"


def json_schema() -> str:
    """Return config/schema.json: what editors complete and check."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "bindscope"}
    return json.dumps({**head, **_strip(Config.model_json_schema())}, indent=1) + "\n"


def _strip(value: Any) -> Any:
    """Remove the titles that pydantic makes of names; descriptions say more."""
    if isinstance(value, list):
        return [_strip(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        key: inner if key == "default" else _strip(inner)
        for key, inner in value.items()
        if not (key == "title" and isinstance(inner, str))
    }


def readme(presets: Path) -> str:
    """Return config/README.md: a table of every key.

    Parameters
    ----------
    presets
        Folder whose files are listed with the comment at their top.
    """
    parts = [HEADER, *_presets(presets), "## Keys", TABLES]
    seen: dict[type[Model], str] = {}
    for name, field in Config.model_fields.items():
        path = f"{name}[]" if item(field.annotation) else name
        parts += _section(path, field.annotation, field.description or "", 3, seen)
    return "\n".join(part.rstrip("\n") for part in parts) + "\n"


def _presets(folder: Path) -> Iterator[str]:
    yield "\n## Presets\n\n| file | what it is |\n|---|---|"
    for path in [folder.parent / "config.yaml", *sorted(folder.glob("*.yaml"))]:
        comment = []
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            if not line.startswith("#"):
                break
            comment.append(line.lstrip("# "))
        link = path.relative_to(folder.parent)
        yield f"| [`{link}`]({link}) | {' '.join(comment)} |"
    yield ""


def _section(
    path: str, annotation: Any, description: str, depth: int, seen: dict[type[Model], str]
) -> Iterator[str]:
    """Write the tables of one section: of its model, or of what a union's members share and add."""
    by_label = {model: label for label, model in labels_of(annotation).items()}
    models = by_label or dict.fromkeys(variants(annotation), "")
    shown = _without_labels(path)
    yield f"\n{'#' * depth} `{shown}`\n\n{description}"
    if len(models) == 1:
        model = next(iter(models))
        yield from _table(path, model, list(model.model_fields), seen, depth)
        return
    shared = _shared(list(models))
    if shared:
        yield "\nEvery entry has:"
        yield from _table(path, next(iter(models)), shared, seen, depth)
    for model, label in models.items():
        chosen = discriminator(model)
        selected = f"`{chosen[0]}: {chosen[1]}`" if chosen else f"{label} models"
        own = [name for name in model.model_fields if name not in shared]
        own.sort(key=lambda name: not (chosen and name == chosen[0]))
        yield f"\n{'#' * (depth + 1)} `{shown}`: {selected}\n\n{_first_line(model)}"
        yield from _table(f"{path}<{label}>", model, own, seen, depth + 1)


def _shared(models: list[type[Model]]) -> list[str]:
    """Return the fields that all members of a union have with the same meaning and default."""
    first, *others = models
    return [
        name
        for name, field in first.model_fields.items()
        if all(repr(other.model_fields.get(name)) == repr(field) for other in others)
    ]


def _table(
    path: str, model: type[Model], names: list[str], seen: dict[type[Model], str], depth: int
) -> Iterator[str]:
    """Write a table of fields, then the sections below those that are sections themselves."""
    below = []
    rows = []
    for name in names:
        field = model.model_fields[name]
        inner = [m for m in variants(field.annotation) if not _is_record(m)]
        kind = words(_annotated(field))
        if inner:
            section = f"{path}.{name}" + ("[]" if item(field.annotation) else "")
            if inner[0] not in seen:
                below.append((section, field))
                seen.update(dict.fromkeys(inner, _without_labels(section)))
            kind = f"{kind}, see [`{seen[inner[0]]}`](#{_anchor(seen[inner[0]])})"
        meaning = field.description or "Decides which other keys there are."
        recomputed = effect(f"{path}.{name}").words
        cells = (f"`{name}`", kind, _default(field), meaning, recomputed)
        rows.append(f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |")
    if rows:
        yield "\n" + COLUMNS + "\n" + "\n".join(rows)
    for section, field in below:
        yield from _section(section, field.annotation, field.description or "", depth + 1, seen)


def _without_labels(path: str) -> str:
    return re.sub(r"<[^>]*>", "", path)


def _is_record(model: type[Model]) -> bool:
    """Whether a model is so plain (one number per split) that its type says all."""
    described = any(field.description for field in model.model_fields.values())
    return not described and discriminator(model) is None


def _first_line(model: type[Model]) -> str:
    return (model.__doc__ or "").partition("\n")[0]


def _anchor(heading: str) -> str:
    """Return GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _annotated(field: FieldInfo) -> Any:
    """Return a field's annotation with the bounds that pydantic has taken off it."""
    annotation: Any = field.annotation
    for bound in field.metadata:
        annotation = Annotated[annotation, bound]
    return annotation


def words(annotation: Any) -> str:
    """Describe what a value may be."""
    if found := variants(annotation):
        if item(annotation):
            return "list of sections"
        return _record(found[0]) if _is_record(found[0]) else "section"
    members = _members(annotation)
    if len(members) > 1:
        return either([words(member) for member in members])
    if choices := literals(annotation):
        return either([f"`{choice}`" for choice in choices])
    if inner := item(annotation):
        return f"list: {words(inner)}"
    return _plain(alternatives(annotation)[0], _bounds(annotation))


def _members(annotation: Any) -> list[Any]:
    """Return the members of a plain union, bounds kept, without None."""
    if get_origin(annotation) in (Union, UnionType):
        return [
            inner
            for member in get_args(annotation)
            if member is not NoneType
            for inner in _members(member)
        ]
    return [annotation]


def _record(model: type[Model]) -> str:
    keys = ", ".join(model.model_fields)
    return f"`{{{keys}}}`, each a {words(_annotated(next(iter(model.model_fields.values()))))}"


def _plain(kind: Any, bounds: dict[str, Any]) -> str:
    if kind is str:
        pattern = bounds.get("pattern", "")
        return "name" if pattern.startswith("^[a-z0-9]") else "text"
    if kind is bool:
        return "`true` or `false`"
    if get_origin(kind) is dict:
        return "section of any keys"
    noun = {int: "whole number", float: "number"}[kind]
    low, high = bounds.get("ge"), bounds.get("le")
    if low is not None and high is not None:
        return f"{noun}, {low:g} to {high:g}"
    if low is not None:
        return f"{noun}, {low:g} or more"
    return f"{noun}, above {bounds['gt']:g}" if "gt" in bounds else noun


def _bounds(annotation: Any) -> dict[str, Any]:
    """Collect the bounds and patterns in the layers of an annotation."""
    if get_origin(annotation) is not Annotated:
        inner = [a for a in get_args(annotation) if a is not type(None)]
        return _bounds(inner[0]) if len(inner) == 1 else {}
    kind, *metadata = get_args(annotation)
    found = _bounds(kind)
    for entry in metadata:
        for bound in entry.metadata if isinstance(entry, FieldInfo) else [entry]:
            for key in ("ge", "gt", "le", "pattern"):
                if (value := getattr(bound, key, None)) is not None:
                    found[key] = value
    return found


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, Model):
        changed = value.model_dump(mode="json", exclude_defaults=True)
        return f"`{_yaml(changed)}` and its defaults" if changed else "its defaults"
    if isinstance(value, tuple) and any(isinstance(entry, Model) for entry in value):
        return f"{len(value)} entries, see schema.json"
    return "none" if value is None else f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    """Write a value as YAML would, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return value if isinstance(value, str) else json.dumps(value)


def generated(folder: Path) -> dict[Path, str]:
    """Return the generated files of a config folder and what they should hold."""
    return {
        folder / "schema.json": json_schema(),
        folder / "README.md": readme(folder / "presets"),
    }


def main() -> None:
    """Write both files into config/."""
    for path, text in generated(Path("config")).items():
        write_atomic(path, text)


if __name__ == "__main__":
    main()
