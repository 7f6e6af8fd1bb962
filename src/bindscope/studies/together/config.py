"""The study's section of the configuration: which models on which scenes, and seeds of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug
from bindscope.config.grid import unknown
from bindscope.config.references import repeated
from bindscope.studies.together.names import BITS, SAME_OBJECT, TOKENS

if TYPE_CHECKING:
    from bindscope.config.root import Config

Pairs = set[tuple[str, str]]


class JoinedGroup(Model):
    """Models that differ in their training seed alone: one point of the figure."""

    name: Slug = Field(description="Name in figures and in the report.")
    models: tuple[Slug, ...] = Field(min_length=1, description="Names of models.")


class Together(Model):
    """What is joined: models that several studies measured on the same scenes."""

    datasets: tuple[Slug, ...] = Field(min_length=1, description="Names of datasets.")
    models: tuple[Slug, ...] = Field(min_length=1, description="Names of models.")
    groups: tuple[JoinedGroup, ...] = Field(
        (),
        description="Models that differ in their training seed alone; the rank correlation is one "
        "of groups. A model in no group stands for itself.",
    )
    bootstrap_samples: PositiveInt = Field(
        1000, description="Resamples of groups and of their models, for the rank correlation."
    )
    bootstrap_seed: NonNegativeInt = Field(0, description="Seed of the resamples.")


def _read_for_bits(section: Any) -> Pairs:
    """Datasets and models of which study one has rows to join."""
    return {
        (dataset, model)
        for block in section.fits
        if set(TOKENS) & set(block.tokens) and "none" in block.controls
        for dataset in block.datasets
        for model in block.models
    }


def _read_for_objects(section: Any) -> Pairs:
    """Datasets and models with a quadratic probe of pairs, and one of positions to be ahead of."""
    families = {probe.name: probe.family for probe in section.probes}
    found: dict[str, Pairs] = {"quadratic": set(), "position": set()}
    for block in section.fits:
        for family in found.keys() & {families.get(name) for name in block.probes}:
            if "none" in block.controls:
                found[family] |= {(d, m) for d in block.datasets for m in block.models}
    places = {dataset for dataset, _ in found["position"]}  # all models of a dataset share it
    return {pair for pair in found["quadratic"] if pair[0] in places}


# Study -> what it measured, and what an entry of its `fits` needs for that.
_MEASURED: Final[dict[str, tuple[Callable[[Any], Pairs], str]]] = {
    BITS: (_read_for_bits, f"tokens {' or '.join(TOKENS)}"),
    SAME_OBJECT: (_read_for_objects, "a quadratic probe, and one of family position"),
}


def problems(config: Config, section: Together) -> Iterator[str]:
    """Yield what in the section does not fit the rest of the configuration."""
    datasets = {dataset.name: dataset for dataset in config.datasets}
    models = {model.name: model for model in config.models}
    yield from unknown("datasets", section.datasets, datasets)
    yield from unknown("models", section.models, models)
    yield from repeated("groups", [group.name for group in section.groups])
    yield from repeated("groups", [name for group in section.groups for name in group.models])
    for i, group in enumerate(section.groups):
        yield from unknown(f"groups.{i}.models", group.models, dict.fromkeys(section.models))
        if group.name in set(section.models) - set(group.models):
            yield f"groups.{i}.name: {group.name!r} is also a model, which is not in the group"
    measured: dict[str, Pairs] = {}
    for study, (pairs, _) in _MEASURED.items():
        other = getattr(config.studies, study)
        if other is None:
            yield (
                f"datasets: the study {study!r} takes no part, and its table is joined here; "
                f"configure studies.{study}, or leave studies.together out"
            )
        else:
            measured[study] = pairs(other)
    if len(measured) == len(_MEASURED):
        there = [name for name in section.datasets if name in datasets]
        read = [name for name in section.models if name in models]
        yield from _not_joined("datasets", there, read, measured, 0)
        yield from _not_joined("models", read, there, measured, 1)


def _not_joined(
    key: str, names: Sequence[str], partners: Sequence[str], measured: Mapping[str, Pairs], i: int
) -> Iterator[str]:
    """Yield a line for each dataset (or model) that not all studies measured with one partner."""
    for name in names:
        found = {
            study: {pair[1 - i] for pair in pairs if pair[i] == name}.intersection(partners)
            for study, pairs in measured.items()
        }
        if set.intersection(*found.values()):
            continue
        lacking = [study for study, there in found.items() if not there] or list(found)
        wanted = " and ".join(f"{study} ({_MEASURED[study][1]})" for study in lacking)
        yield (
            f"{key}: {name!r} is not measured together: add it to `fits` of {wanted}, with "
            f"{'a model' if i == 0 else 'a dataset'} that is named here, or leave it out"
        )
