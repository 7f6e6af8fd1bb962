"""The shape of the configuration, read off the models' annotations.

Error messages and documentation both have to walk from a key to the model that owns it, through
lists, optional sections and unions; this is the one place that knows how.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import Tag
from pydantic.fields import FieldInfo

from bindscope.config.base import Model


class Place(NamedTuple):
    """Where a pydantic error lies.

    Attributes
    ----------
    path
        The keys and list positions as a user wrote them, without pydantic's union labels.
    owner
        The model whose key the last part of the path is, or None below plain values.
    siblings
        The other members of the union that the owner was chosen from, by label.
    """

    path: tuple[str | int, ...]
    owner: type[Model] | None
    siblings: dict[str, type[Model]]


def is_model(annotation: Any) -> bool:
    """Whether an annotation is a configuration model."""
    return isinstance(annotation, type) and issubclass(annotation, Model)


def alternatives(annotation: Any) -> list[Any]:
    """Return the members of a union, with None and annotations peeled off; else the type itself."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return alternatives(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [
            inner
            for member in get_args(annotation)
            if member is not NoneType
            for inner in alternatives(member)
        ]
    return [annotation]


def item(annotation: Any) -> Any | None:
    """Return what a list of any length holds, or None if the annotation is no such list."""
    for member in alternatives(annotation):
        if get_origin(member) is tuple:
            return get_args(member)[0]
    return None


def variants(annotation: Any) -> list[type[Model]]:
    """Return the models that an annotation stands for: none, one, or the members of a union."""
    inner = item(annotation)
    members = alternatives(annotation if inner is None else inner)
    return [member for member in members if is_model(member)]


def literals(annotation: Any) -> tuple[Any, ...]:
    """Return the values of a Literal annotation, or nothing."""
    for member in alternatives(annotation):
        if get_origin(member) is Literal:
            return get_args(member)
    return ()


def discriminator(model: type[Model]) -> tuple[str, str] | None:
    """Return the key and value that select a model in its union (`family`, `linear`)."""
    for name, field in model.model_fields.items():
        if field.is_required() and len(values := literals(field.annotation)) == 1:
            return name, values[0]
    return None


def labels(annotation: Any) -> dict[str, Any]:
    """Map pydantic's union labels to the members of a union."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        for entry in metadata:
            if isinstance(entry, Tag):
                return {entry.tag: inner}
        return labels(inner)
    if get_origin(annotation) in (Union, UnionType):
        found: dict[str, Any] = {}
        for member in get_args(annotation):
            found |= labels(member)
        return found
    if is_model(annotation) and (chosen := discriminator(annotation)):
        return {chosen[1]: annotation}
    if get_origin(annotation) is tuple:
        return {"tuple": annotation}
    return {}


def locate(root: type[Model], location: Sequence[str | int]) -> Place:
    """Translate the location of a pydantic error into the path that a user wrote.

    Parameters
    ----------
    root
        The model that was validated.
    location
        ``error["loc"]``: keys, list positions, and between them the labels of union members.
    """
    path: list[str | int] = []
    here: Any = root
    owner: type[Model] | None = None
    siblings: dict[str, type[Model]] = {}
    for part in location:
        members = alternatives(here)
        if len(members) == 1 and is_model(members[0]):
            owner = members[0]
            path.append(part)
            field = owner.model_fields.get(str(part))
            siblings = siblings if part == location[-1] else {}
            here = field.annotation if field else None
        elif isinstance(part, int):
            owner, siblings = None, {}
            path.append(part)
            here = item(here)
        else:
            label = part.partition("[")[0]
            members_by_label = labels(here)
            here = members_by_label.get(label)
            siblings = {
                other: member
                for other, member in members_by_label.items()
                if is_model(member) and member is not here
            }
    return Place(tuple(path), owner, siblings)


def keys(root: type[Model], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Walk over every key that a configuration can have.

    Yields
    ------
    tuple
        A path such as ``models[]<controlled>.training.steps`` (`[]` any entry of a list, `<...>`
        the member of a union) and the field.
    """
    for name, field in root.model_fields.items():
        path = f"{prefix}.{name}" if prefix else name
        yield path, field
        models = variants(field.annotation)
        if models and item(field.annotation):
            path += "[]"
        by_label = {model: label for label, model in labels_of(field.annotation).items()}
        for model in models:
            label = f"<{by_label[model]}>" if len(models) > 1 else ""
            yield from keys(model, path + label)


def labels_of(annotation: Any) -> dict[str, Any]:
    """Map union labels to the models that an annotation, or the list it is, can hold."""
    found = labels(item(annotation) or annotation)
    return {label: member for label, member in found.items() if is_model(member)}


def dotted(path: Sequence[str | int]) -> str:
    """Write a path as `probes.0.rank`."""
    return ".".join(str(part) for part in path)
