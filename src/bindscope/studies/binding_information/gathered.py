"""What the report's sentences on binding information are made from, and the words that they share.

Every number is a lower bound out of a row that may be quoted (`quotes`), rounded down and written
with its sign; where the prior is estimated it is no bound, and "about" is said instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from bindscope.statistics.claims import Judgment, judge
from bindscope.studies.binding_information.claims import CLAIMS, effects
from bindscope.studies.binding_information.names import (
    CONTROL,
    OBJECTIVES,
    is_positive_control,
    label_family,
    objective_of,
)
from bindscope.studies.binding_information.quantities import Quantity
from bindscope.studies.binding_information.quotes import Quotes, Record, quotes
from bindscope.studies.binding_information.views import name_order, shown_names
from bindscope.tables.groups import with_groups
from bindscope.tables.numbers import at_least

Config = Mapping[str, Any]
_NETWORK = "vision transformer"
_BASELINE = "baseline:"  # source of what reads the image without a network


class Measurements(NamedTuple):
    """What the sentences are made from.

    `table` has groups, `quotes` is what may be quoted of it: last layers. `models` are the names
    that are shown (`views.shown_names`), in order, `sources` by name that of a model, or of a
    group's first one; `datasets` those with something to say, in order, `kinds` names of their
    feature groups.
    """

    table: pd.DataFrame
    quotes: Quotes
    models: list[str]
    sources: dict[str, str]
    datasets: list[str]
    kinds: dict[str, list[str]]
    judgments: list[Judgment]


def gather(table: pd.DataFrame, config: Config) -> Measurements:
    """Gather what the sentences are made from, by the configuration's models, groups and orders."""
    groups = groups_of(config)
    sources = {str(model["name"]): str(model["source"]) for model in config.get("models", ())}
    controls = [name for name, source in sources.items() if is_positive_control(source)]
    models = shown_names(sources, groups, controls)
    table = with_groups(table, groups).assign(is_control=table["model"].isin(controls))
    for group in groups:
        members = [name for name in group["models"] if name in sources]
        if members:
            sources[str(group["name"])] = sources[members[0]]
    quoted = quotes(table, models)
    kinds = {
        str(dataset["name"]): [str(group["name"]) for group in dataset["space"]["groups"]]
        for dataset in config.get("datasets", ())
    }
    datasets = name_order([*quoted.rows["dataset"], *quoted.refused["dataset"]], list(kinds))
    judgments = judge(CLAIMS, effects(table, quoted, models))
    return Measurements(table, quoted, models, sources, datasets, kinds, judgments)


def groups_of(config: Config) -> list[Mapping[str, Any]]:
    """Return the study's groups of models that differ in their training seed alone."""
    section = config.get("studies", {}).get("binding_information") or {}
    return list(section.get("groups") or ())


def dataset_rows(about: Measurements, dataset: str) -> pd.DataFrame:
    """Return the rows of a dataset that may be quoted."""
    return about.quotes.rows[about.quotes.rows["dataset"] == dataset]


def source_of(about: Measurements, name: str) -> str:
    """Return the source of a model, or of a group's first one, by the name that is shown."""
    return about.sources.get(name.removesuffix(CONTROL), "")


def by_role(
    about: Measurements, rows: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Separate rows of models that need a measurement, of baselines, and of positive controls."""
    is_control = rows["model"].str.endswith(CONTROL)
    is_baseline = rows["model"].map(lambda name: source_of(about, name).startswith(_BASELINE))
    is_baseline = is_baseline.astype(bool)
    return rows[~is_control & ~is_baseline], rows[is_baseline], rows[is_control]


def write_bound(row: Record, part: Quantity) -> str:
    """Write a bound as one: at least so much; or, where the prior is estimated, about so much."""
    sign = "about " if row["assumed_prior"] else "\u2265\u00a0"
    return f"{sign}{at_least(row[part.bound])}"


def write_percent(row: Record, part: Quantity) -> str:
    """Write a bound as a share of the entropy in whole percent, rounded down."""
    return f"\u2265\u00a0{at_least(100 * row[part.bound] / row[part.entropy], 0)}\u00a0%"


def probe_words(rows: pd.DataFrame) -> str:
    """Name the probes that some rows were chosen from; "the best of" where they are several."""
    sets = {str(families) for families in rows["fitted"]}
    if len(sets) > 1:
        return "the best fitted probe"
    words = [label_family(family).words for family in sets.pop().split(";")]
    return words[0] if len(words) == 1 else f"the best of {listed(words)}"


def model_words(source: str, n: int) -> str:
    """Say what models are, by the source of the first; a file of the user's has no words."""
    kind, _, name = source.partition(":")
    if kind in ("zoo", "controlled"):
        objective = objective_of(source)
        trained = OBJECTIVES.get(objective, f"trained with the objective {objective or name}")
        alone = f"a {_NETWORK} {trained}, one training seed"
        return f"{n} {_NETWORK}s {trained}" if n > 1 else alone
    name = name.partition("@")[0]
    return "" if name.startswith("path:") else name


def describe_model(about: Measurements, row: Record) -> str:
    """Say what the models of a row are, and their name."""
    name = str(row["model"]).removesuffix(CONTROL)
    words = model_words(source_of(about, name), row["n_models"])
    return f"{words} ({name})" if words else name


def listed(names: Sequence[str]) -> str:
    """Write names as a list in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
