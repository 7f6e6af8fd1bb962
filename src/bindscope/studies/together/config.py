"""The study's section of the configuration: which models on which scenes, and seeds of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from bindscope.config.base import ConfigModel, DatasetName, ModelName, Slug
from bindscope.config.grid import ModelGroup, group_problems
from bindscope.config.models import ToyVision
from bindscope.config.references import unknown
from bindscope.studies.together.names import BINDING_ID, BITS, SAME_OBJECT, TOKENS

if TYPE_CHECKING:
    from bindscope.config.root import Config

DECIDES_NOTHING = True

LayerPairs = set[tuple[str, str]]


class ReadAndUsed(ConfigModel):
    """Toys of which both is known: what can be read of their image tokens, and what is used."""

    dataset: DatasetName = Field(
        description="Name of a dataset of `render: {kind: sprites}`, whose patches study one reads."
    )
    task: Slug = Field(
        description="Name of a task of the study of binding IDs, on which a suite runs the "
        "experiment `pairing`."
    )
    models: tuple[ModelName, ...] = Field(
        min_length=1, description="Names of models of `source: toy:<name>`, read and asked."
    )


class Together(ConfigModel):
    """What is joined: models that several studies measured on the same scenes."""

    datasets: tuple[DatasetName, ...] = Field((), description="Names of datasets.")
    models: tuple[ModelName, ...] = Field((), description="Names of models.")
    uses: tuple[ReadAndUsed, ...] = Field(
        (),
        description="Whether what can be read of what goes with what is also used, by toys; "
        "needs neither `datasets` nor `models`.",
    )
    groups: tuple[ModelGroup, ...] = Field(
        (),
        description=(
            "Models that differ only in training seed. Figures and the report show their means, "
            "with intervals over seeds."
        ),
    )


def _read_for_bits(section: Any, tokens: Iterable[str] = TOKENS) -> LayerPairs:
    """Datasets and models of which study one has rows to join, of some tokens."""
    return {
        (dataset, model)
        for block in section.fits
        if set(tokens) & set(block.tokens) and "none" in block.controls
        for dataset in block.datasets
        for model in block.models
    }


def _read_for_objects(section: Any) -> LayerPairs:
    """Datasets and models with a quadratic probe of pairs, and one of positions to be ahead of."""
    families = {probe.name: probe.family for probe in section.probes}
    pairs_by_family: dict[str, LayerPairs] = {"quadratic": set(), "position": set()}
    for block in section.fits:
        for family in pairs_by_family.keys() & {families.get(name) for name in block.probes}:
            pairs_by_family[family] |= {(d, m) for d in block.datasets for m in block.models}
    places = {dataset for dataset, _ in pairs_by_family["position"]}  # its models share it
    return {pair for pair in pairs_by_family["quadratic"] if pair[0] in places}


# Study -> what it measured, and what an entry of its `fits` needs for that.
_MEASURED: Final[dict[str, tuple[Callable[[Any], LayerPairs], str]]] = {
    BITS: (_read_for_bits, f"tokens {' or '.join(TOKENS)}"),
    SAME_OBJECT: (_read_for_objects, "a quadratic probe, and one of family position"),
}


def problems(config: Config, section: Together) -> Iterator[str]:
    """Yield what in the section does not fit the rest of the configuration."""
    for i, use in enumerate(section.uses):
        yield from _use_problems(f"uses.{i}", use, config)
    if not (section.datasets or section.models or section.groups) and section.uses:
        return
    if not (section.datasets and section.models):
        yield "datasets: name datasets and models that several studies measured, or give `uses`"
    for i, group in enumerate(section.groups):
        yield from unknown(f"groups.{i}.models", group.models, section.models)
    yield from group_problems(section.groups, section.models)
    measured: dict[str, LayerPairs] = {}
    for study, (pairs, _) in _MEASURED.items():
        if (study_config := getattr(config.studies, study)) is None:
            yield (
                f"datasets: the study {study!r} takes no part, and its table is joined here; "
                f"configure studies.{study}, or leave studies.together out"
            )
            return
        measured[study] = {
            pair
            for pair in pairs(study_config)
            if pair[0] in section.datasets and pair[1] in section.models
        }
    yield from _not_joined("datasets", section.datasets, measured, 0)
    yield from _not_joined("models", section.models, measured, 1)


def _use_problems(where: str, use: ReadAndUsed, config: Config) -> Iterator[str]:
    """Yield what a join of bits and interventions lacks."""
    models = {model.name: model for model in config.models}
    reader, asker = (getattr(config.studies, name) for name in (BITS, BINDING_ID))
    for name, section in ((BITS, reader), (BINDING_ID, asker)):
        if section is None:
            yield f"{where}: the study {name!r} takes no part, and its table is joined here"
    if reader is None or asker is None:
        return
    read = _read_for_bits(reader, ["patches"])
    suites = {
        (task, toy)
        for suite in asker.suites
        if "pairing" in suite.experiments
        for task in suite.tasks
        for toy in suite.toys
    }
    for name in use.models:
        toy = models[name].source.removeprefix("toy:")
        if not isinstance(models[name], ToyVision):
            yield f"{where}.models: {name!r} is no toy ({models[name].source})"
        elif (use.dataset, name) not in read:
            yield (
                f"{where}.models: the patches of {name!r} on {use.dataset!r} are in no `fits` of "
                f"studies.{BITS} (`tokens: [patches]`)"
            )
        elif (use.task, toy) not in suites:
            yield (
                f"{where}.task: no suite of studies.{BINDING_ID} runs `pairing` on {use.task!r} "
                f"with the toy {toy!r}"
            )


def _not_joined(
    key: str, names: Sequence[str], measured: Mapping[str, LayerPairs], i: int
) -> Iterator[str]:
    """Yield a line for each dataset (or model) that not all studies measured with one partner."""
    both = {pair[i] for pair in set.intersection(*measured.values())}
    for name in (name for name in names if name not in both):
        lacking = [s for s, pairs in measured.items() if name not in {pair[i] for pair in pairs}]
        missing = " and ".join(f"{s} ({_MEASURED[s][1]})" for s in lacking or measured)
        yield (
            f"{key}: {name!r} is not measured together: add it to `fits` of {missing}, with "
            f"{'a model' if i == 0 else 'a dataset'} that is named here, or leave it out"
        )
