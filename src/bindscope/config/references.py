"""What one section of the configuration must find in another: names, images, patches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from bindscope.config.base import ConfigModel, NameOf
from bindscope.config.codes import Dataset, endless
from bindscope.config.models import Controlled
from bindscope.config.wording import instead
from bindscope.core.registries import studies

if TYPE_CHECKING:
    from bindscope.config.root import Config


def problems(config: Config) -> Iterator[str]:
    """Yield what does not fit together as ``path: what is wrong``.

    Names come first: where one is wrong, nothing else is looked at.
    """
    if wrong := [*_names("", config, ())]:
        yield from wrong
        return
    datasets = {dataset.name: dataset for dataset in config.datasets}
    for i, model in enumerate(config.models):
        if isinstance(model, Controlled):
            yield from _training(f"models.{i}", model, datasets[model.training.dataset])
    for name, study in studies().items():
        section = section_of(config, name)
        if section is not None and study.problems:
            for line in study.problems(config, section):
                yield f"studies.{name}.{line}"
    figures = [entry.name for study in studies().values() for entry in study.figures]
    for i, figure in enumerate(config.report.figures or ()):
        if figure not in figures:
            yield f"report.figures.{i}: there is no figure {figure!r}{instead(figure, figures)}"


def _names(where: str, section: ConfigModel, within: tuple[ConfigModel, ...]) -> Iterator[str]:
    """Yield names that are given twice, or that nothing has.

    `within` is what holds the section, the innermost first.
    """
    for key in type(section).model_fields:
        value, path = getattr(section, key), f"{where}{key}"
        entries = value if isinstance(value, tuple) else (value,)
        if reference := _reference(type(section), key):
            names = [name for name in entries if name is not None]
            yield from repeated(path, names)
            yield from unknown(path, names, _known(reference, within))
            continue
        models = [entry for entry in entries if isinstance(entry, ConfigModel)]
        yield from repeated(path, [entry.name for entry in models if hasattr(entry, "name")])
        for i, entry in enumerate(models):
            inner = f"{path}.{i}." if isinstance(value, tuple) else f"{path}."
            yield from _names(inner, entry, (section, *within))


@cache
def _reference(section: type[ConfigModel], key: str) -> NameOf | None:
    """Return what the names in a field are names of."""
    field = section.model_fields[key]
    marks = [*field.metadata, *_marks(field.annotation)]
    return next((mark for mark in marks if isinstance(mark, NameOf)), None)


def _marks(annotation: Any) -> Iterator[object]:
    yield from getattr(annotation, "__metadata__", ())
    for inner in get_args(annotation):
        yield from _marks(inner)


def _known(reference: NameOf, within: Sequence[ConfigModel]) -> list[str]:
    """Return the names that the innermost section gives that has such a list."""
    known: list[str] = []
    for key in reference.lists:
        homes = (section for section in within if key in type(section).model_fields)
        home = next(section for section in homes if not _reference(type(section), key))
        known += [entry.name for entry in getattr(home, key)]
    return known


def unknown(where: str, names: Iterable[str], known: Sequence[str]) -> Iterator[str]:
    """Yield a line for each name that is not defined."""
    for name in names:
        if name not in known:
            yield f"{where}: {name!r} is not defined{instead(name, known)}"


def section_of(config: Config, study: str) -> Any:
    """Return a study's section; None where it does not take part.

    A study without a section of its own always takes part, with an empty one.
    """
    return getattr(config.studies, study, None) if studies()[study].section else ConfigModel()


def repeated(where: str, names: Iterable[str]) -> Iterator[str]:
    """Yield a line for each name that is used twice."""
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{where}: the name {name!r} is used {count} times"


def _training(where: str, model: Controlled, dataset: Dataset) -> Iterator[str]:
    name, render = dataset.name, dataset.render
    if render is None:
        yield f"{where}.training.dataset: dataset {name!r} has no render section"
        return
    if model.training.scenes == "fresh" and not endless(dataset):
        yield (
            f"{where}.training.scenes: only shapes and clutter draw fresh scenes, of splits that "
            f"are not enumerated, and {name!r} has {render.kind!r}, {dataset.split.rule!r}; "
            "use `scenes: dataset`"
        )
    patch = model.architecture.patch_px
    trained = model.training.input_px
    if trained is None and render.size_px % patch:
        yield (
            f"{where}.architecture.patch_px: {patch} px patches do not "
            f"divide the {render.size_px} px images of {name!r}"
        )
    for key, side in (("training.input_px", trained), ("input_px", model.input_px)):
        if side is not None and side % patch:
            below = max(side // patch, 1) * patch
            yield (
                f"{where}.{key}: {patch} px patches do not divide an input of {side} px; "
                f"choose {below} or {below + patch}"
            )
