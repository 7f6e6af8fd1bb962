"""Entries of `models` that stand for one model per seed, and the groups that these make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bindscope.config.yaml_files import KeyPath
from bindscope.core.registries import resolve, studies

SEED = "{seed}"
_WITHOUT_SEED = ("zoo:", "toy:")  # models whose source alone says which seed they are of
Origins = dict[KeyPath, KeyPath]
"""Of entries of lists that were written out: where they are, and where their file has them."""


class SeedsError(ValueError):
    """A list of seeds that stands for no models, or not for these alone."""

    def __init__(self, path: KeyPath, problem: str) -> None:
        super().__init__(f"{'.'.join(map(str, path))}: {problem}")
        self.path, self.problem = path, problem


def write_out(raw: Mapping[str, Any]) -> tuple[dict[str, Any], Origins]:
    """Replace each entry of `models` that has `seeds` by one model per seed.

    ``{name: objects, source: "zoo:matching-objects-{seed}", seeds: [0, 1]}`` becomes `objects-0`
    and `objects-1`. A source without ``{seed}`` gets a key `seed`. Lists of `models` in `studies`
    may name `objects` for both, and a study that reads both and gives no `groups` has them as one.

    Raises
    ------
    SeedsError
        If an entry has `seed` and `seeds`, its source cannot take a seed, or its name is also that
        of a model.
    """
    entries = raw.get("models")
    if not isinstance(entries, list | tuple) or not any(_has_seeds(entry) for entry in entries):
        return dict(raw), {}
    models: list[Any] = []
    origins: Origins = {}
    members: dict[str, list[str]] = {}
    for i, entry in enumerate(entries):
        seeded = _of_each_seed(("models", i), entry) if _has_seeds(entry) else [entry]
        origins |= {("models", len(models) + j): ("models", i) for j in range(len(seeded))}
        models += seeded
        if _has_seeds(entry):
            members[entry["name"]] = [model["name"] for model in seeded]
    for path, at in origins.items():
        entry = models[int(path[1])]
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if isinstance(name, str) and name in members:
            raise SeedsError((*at, "name"), f"{name!r} is also the name of a list of seeds")
    written = {**raw, "models": models}
    if isinstance(studies := raw.get("studies"), Mapping):
        sections = {
            name: _with_groups(name, section, members) if isinstance(section, Mapping) else section
            for name, section in studies.items()
        }
        written["studies"] = _replace(sections, members, ("studies",), origins)
    return written, origins


def to_file(path: KeyPath, origins: Origins) -> KeyPath:
    """Return the path that a file has for a path of what was written out."""
    for end in range(len(path), 0, -1):
        if path[:end] in origins:
            return (*origins[path[:end]], *path[end:])
    return path


def _has_seeds(entry: Any) -> bool:
    """Whether an entry is to be written out; wrong types are left for the check of all keys."""
    return (
        isinstance(entry, Mapping)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("source"), str)
        and isinstance(entry.get("seeds"), list | tuple)
        and bool(entry["seeds"])
        and all(type(seed) is int and seed >= 0 for seed in entry["seeds"])
    )


def _of_each_seed(path: KeyPath, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    source, seeds = entry["source"], entry["seeds"]
    if "seed" in entry:
        raise SeedsError((*path, "seeds"), "give `seed` or `seeds`, not both")
    if SEED not in source and source.startswith(_WITHOUT_SEED):
        raise SeedsError(
            (*path, "seeds"),
            f"the source has no place for a seed: write `{source}-{SEED}`",
        )
    if len(set(seeds)) < len(seeds):
        raise SeedsError((*path, "seeds"), "names a seed twice")
    plain = {key: value for key, value in entry.items() if key != "seeds"}
    return [
        {**plain, "name": f"{entry['name']}-{seed}"}
        | ({"source": source.replace(SEED, str(seed))} if SEED in source else {"seed": seed})
        for seed in seeds
    ]


def _with_groups(
    study: str, section: Mapping[str, Any], members: Mapping[str, Sequence[str]]
) -> Mapping[str, Any]:
    """Add the groups of a section that gives none: lists of seeds that it reads."""
    known = studies().get(study)
    if "groups" in section or known is None or not known.section:
        return section
    if "groups" not in resolve(known.section).model_fields:
        return section
    used = _mentioned(section)
    groups = [
        {"name": name, "models": list(models)}
        for name, models in members.items()
        if len(models) > 1 and (name in used or used.issuperset(models))
    ]
    return {**section, "groups": groups} if groups else section


def _mentioned(value: Any) -> set[str]:
    """Return all names in lists of models."""
    names: set[str] = set()
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "models" and isinstance(inner, list | tuple):
                names |= {name for name in inner if isinstance(name, str)}
            else:
                names |= _mentioned(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            names |= _mentioned(inner)
    return names


def _replace(
    value: Any, members: Mapping[str, Sequence[str]], path: KeyPath, origins: Origins
) -> Any:
    """Copy a part of a configuration; lists of models name each model of a list of seeds."""
    if isinstance(value, Mapping):
        return {
            key: _names(inner, members, (*path, key), origins)
            if key == "models" and isinstance(inner, list | tuple)
            else _replace(inner, members, (*path, key), origins)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_replace(inner, members, (*path, i), origins) for i, inner in enumerate(value)]
    return value


def _names(
    names: Sequence[Any], members: Mapping[str, Sequence[str]], path: KeyPath, origins: Origins
) -> list[Any]:
    replaced: list[Any] = []
    for i, name in enumerate(names):
        several = members.get(name, [name]) if isinstance(name, str) else [name]
        origins |= {(*path, len(replaced) + j): (*path, i) for j in range(len(several))}
        replaced += several
    return replaced
