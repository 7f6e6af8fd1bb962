"""What one section of the configuration must find in another: names, images, patches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bindscope.config.base import Model
from bindscope.config.codes import Dataset, endless
from bindscope.config.grid import unknown
from bindscope.config.models import Controlled
from bindscope.config.wording import instead
from bindscope.core.registries import studies

if TYPE_CHECKING:
    from bindscope.config.root import Config


def problems(config: Config) -> Iterator[str]:
    """Yield every broken reference as ``path: what is wrong``."""
    yield from repeated("datasets", [dataset.name for dataset in config.datasets])
    yield from repeated("models", [model.name for model in config.models])
    datasets = {dataset.name: dataset for dataset in config.datasets}
    for i, model in enumerate(config.models):
        if isinstance(model, Controlled):
            yield from _training(f"models.{i}", model, datasets)
    for name, study in studies().items():
        section = section_of(config, name)
        if section is not None and study.problems:
            for line in study.problems(config, section):
                yield f"studies.{name}.{line}"
    figures = [entry.name for study in studies().values() for entry in study.figures]
    for i, figure in enumerate(config.report.figures or ()):
        if figure not in figures:
            yield f"report.figures.{i}: there is no figure {figure!r}{instead(figure, figures)}"


def section_of(config: Config, study: str) -> Any:
    """Return a study's section; None where it does not take part.

    A study without a section of its own always takes part, with an empty one.
    """
    return getattr(config.studies, study, None) if studies()[study].section else Model()


def repeated(where: str, names: list[str]) -> Iterator[str]:
    """Yield a line for each name that is used twice."""
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{where}: the name {name!r} is used {count} times"


def _training(where: str, model: Controlled, datasets: Mapping[str, Dataset]) -> Iterator[str]:
    name = model.training.dataset
    if name not in datasets:
        yield from unknown(f"{where}.training.dataset", [name], datasets)
        return
    render = datasets[name].render
    if render is None:
        yield f"{where}.training.dataset: dataset {name!r} has no render section"
        return
    if model.training.scenes == "fresh" and not endless(datasets[name]):
        yield (
            f"{where}.training.scenes: only shapes and clutter draw fresh scenes, of splits that "
            f"are not enumerated, and {name!r} has {render.kind!r}, {datasets[name].split.rule!r}; "
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
