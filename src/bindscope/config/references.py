"""What one section of the configuration must find in another: names, layers, images, patches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from bindscope.config.codes import Dataset
from bindscope.config.models import AnyModel, Controlled, KnownAnswer
from bindscope.config.probes import PATCH_FAMILIES, AnyProbe
from bindscope.config.wording import instead

if TYPE_CHECKING:
    from bindscope.config.root import Config, FitBlock


def problems(config: Config) -> Iterator[str]:
    """Yield every broken reference as ``path: what is wrong``."""
    families = config.report.families
    for section, entries in (
        ("datasets", config.datasets), ("models", config.models), ("probes", config.probes),
        ("fits", config.fits), ("report.families", families),
    ):  # fmt: skip
        for name, count in Counter(entry.name for entry in entries).items():
            if count > 1:
                yield f"{section}: the name {name!r} is used {count} times"
    datasets = {dataset.name: dataset for dataset in config.datasets}
    models = {model.name: model for model in config.models}
    probes = {probe.name: probe for probe in config.probes}
    for i, block in enumerate(config.fits):
        where = f"fits.{i}"
        yield from _unknown(f"{where}.datasets", block.datasets, datasets)
        yield from _unknown(f"{where}.models", block.models, models)
        yield from _unknown(f"{where}.probes", block.probes, probes)
        used = [datasets[name] for name in block.datasets if name in datasets]
        for model in (models[name] for name in block.models if name in models):
            yield from _layers(where, model, block)
            yield from _images(where, model, used)
        for probe in (probes[name] for name in block.probes if name in probes):
            yield from _tokens(where, probe, block)
            yield from _groups(where, probe, used)
    for i, model in enumerate(config.models):
        if isinstance(model, Controlled):
            yield from _training(f"models.{i}", model, datasets)
    for i, family in enumerate(families):
        yield from _unknown(f"report.families.{i}.models", family.models, models)


def depth(model: AnyModel) -> int:
    """Return the number of blocks; known-answer encoders have none."""
    if isinstance(model, KnownAnswer):
        return 0
    return model.architecture.n_layers if isinstance(model, Controlled) else model.n_layers


def _unknown(where: str, names: Iterable[str], known: Mapping[str, object]) -> Iterator[str]:
    for name in names:
        if name not in known:
            yield f"{where}: {name!r} is not defined{instead(name, list(known))}"


def _layers(where: str, model: AnyModel, block: FitBlock) -> Iterator[str]:
    if isinstance(block.layers, str):
        return
    has_final = not isinstance(model, KnownAnswer)
    for layer in block.layers:
        if not has_final if layer == "final" else layer > depth(model):
            yield (
                f"{where}.layers: model {model.name!r} has layers 0 to {depth(model)}, "
                f"not {layer!r}"
            )


def _images(where: str, model: AnyModel, datasets: Iterable[Dataset]) -> Iterator[str]:
    if isinstance(model, KnownAnswer):
        for dataset in datasets:
            if dataset.source:
                yield (
                    f"{where}: {model.name!r} draws the codes that it encodes, but the scenes of "
                    f"{dataset.name!r} are read; use it with a dataset that is drawn"
                )
        return
    for dataset in datasets:
        if dataset.render is None:
            yield (
                f"{where}: model {model.name!r} sees images, but dataset {dataset.name!r} has no "
                "render section"
            )


def _tokens(where: str, probe: AnyProbe, block: FitBlock) -> Iterator[str]:
    wants_patches = probe.family in PATCH_FAMILIES
    for tokens in block.tokens:
        if wants_patches != (tokens == "patches"):
            yield (
                f"{where}.tokens: probe {probe.name!r} ({probe.family}) "
                f"{'needs' if wants_patches else 'cannot read'} patch tokens, but tokens lists "
                f"{tokens!r}; put it in a block with "
                f"tokens: [{'patches' if wants_patches else 'cls'}]"
            )


def _groups(where: str, probe: AnyProbe, datasets: Iterable[Dataset]) -> Iterator[str]:
    if probe.family != "quadratic_reuse":
        return
    for dataset in datasets:
        if len(dataset.space.groups) != 2:
            yield (
                f"{where}.probes: {probe.name!r} (quadratic_reuse) is defined for two feature "
                f"groups, {dataset.name!r} has {len(dataset.space.groups)}; use multilinear_reuse"
            )


def _training(where: str, model: Controlled, datasets: Mapping[str, Dataset]) -> Iterator[str]:
    name = model.training.dataset
    if name not in datasets:
        yield from _unknown(f"{where}.training.dataset", [name], datasets)
        return
    render = datasets[name].render
    if render is None:
        yield f"{where}.training.dataset: dataset {name!r} has no render section"
        return
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
