"""What scenes are called in words."""

from __future__ import annotations

from collections.abc import Iterable
from string import Formatter

from pydantic import Field

from bindscope.config.base import ConfigModel, Groups, Slug


class CaptionTemplate(ConfigModel):
    """How a scene is put into words, object by object in the order of its slots."""

    name: Slug = Field("plain", description="Name of the template, in tables.")
    object: str = Field(
        "a {color} {shape}",
        description="One object; `{color}` stands for its value in the feature group `color`.",
    )
    join: str = Field(" and ", description="What stands between two objects.")
    scene: str = Field("{objects}", description="The whole caption; `{objects}` are the objects.")
    concept: str = Field(
        "{value}",
        description="A value of a feature group alone, for queries such as `a red object`.",
    )


class Captions(ConfigModel):
    """Captions of a dataset's scenes, and queries for its objects and their values."""

    templates: tuple[CaptionTemplate, ...] = Field(
        (CaptionTemplate(),), min_length=1, description="Each scene gets a caption from each."
    )
    words: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description=(
            "Names of the values of a feature group, in order. Default: those of the renderer or "
            "the source."
        ),
    )


def captions_problem(captions: Captions, groups: Groups, slots: int | None) -> str | None:
    """Say what of the captions does not fit the dataset; None if all does."""
    if slots is None:
        return "captions name objects in their order: give `slots`"
    sizes = {group.name: group.size for group in groups}
    for name, words in captions.words.items():
        if name not in sizes:
            return f"captions.words is for {name!r}; the feature groups are {', '.join(sizes)}"
        if len(set(words)) < len(words) or len(words) != sizes[name]:
            return f"captions.words.{name} needs {sizes[name]} different words, has {len(words)}"
    names = [template.name for template in captions.templates]
    if len(set(names)) < len(names):
        return "captions.templates has a name twice"
    for template in captions.templates:
        for key, placeholders in (
            ("object", sizes),
            ("scene", ["objects"]),
            ("concept", ["value"]),
        ):
            if problem := _placeholders(getattr(template, key), placeholders):
                return f"captions.templates, {template.name!r}, {key}: {problem}"
    return None


def _placeholders(text: str, required: Iterable[str]) -> str | None:
    """Say how the names in braces are not those wanted, each at least once."""
    try:
        present = {name for _, name, _, _ in Formatter().parse(text) if name is not None}
    except ValueError as error:
        return f"{text!r} is no template ({error})"
    if present == set(required):
        return None
    listed = ", ".join(f"{{{name}}}" for name in sorted(present)) or "nothing"
    return f"has {listed} in braces, needs {', '.join(f'{{{name}}}' for name in required)}"
