"""Parts of the study's tables that figures and the report read.

Correlations over trained encoders: models that differ in their seed alone are one group
(`statistics.rank_correlation`). Coverage and the kind of encoder move most measures and most
accuracies, so that a correlation over everything may be that of both with these (Simpson). Claims
are judged by what is left of both properties after the mean of each coverage, and of each kind in
each space with each query pool, is subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from bindscope.statistics.rank_correlation import rank_correlation
from bindscope.tables.quantities import Quantity
from bindscope.tables.quoted import average
from bindscope.tables.rows import rows_with

# --- Controlled dual encoders -------------------------------------------------------------------

PLANTED = " (planted)"  # after a name: its structure was chosen, not learned
GROUP = ["encoder", "space", "query_pool", "coverage"]
OUTCOME = "held_out_accuracy"
ACCURACY: Final = Quantity(
    name="accuracy",
    value="accuracy",
    low="accuracy_low",
    high="accuracy_high",
    least=0.0,
    most=1.0,
)
VALUE: Final = Quantity(
    name="value", value="value", low="value_low", high="value_high", least=0.0, most=1.0
)
GAIN: Final = Quantity(
    name="gain", value="gain", low="gain_low", high="gain_high", least=-1.0, most=1.0
)
FEWEST = 3  # groups of a stratum
WITHIN = "of one kind and coverage"
# How the report calls the objects that are queries in training.
POOLS: Final = {"train_only": "training objects", "all": "all objects"}
# Columns of a run, as figures and correlations call them.
_RUN = {
    "analysis": "encoder",
    "dataset": "space",
    "trained_coverage": "coverage",
    "trained_seed": "seed",
    "value": "accuracy",
    "bag_of_concepts_floor": "floor",
}


def recognized(table: pd.DataFrame, **conditions: Any) -> pd.DataFrame:
    """Return held-out pairs that dual encoders recognize among all objects, a row per run.

    Conditions ask for other scenes or candidates. Runs have `encoder`, `space`, `query_pool`,
    `coverage` and `seed`, and `accuracy`, `floor` and `chance`. Encoders whose products are planted
    are called that, and come last; `configured` is the name without that.
    """
    usual = {
        "analysis_kind": "generalization",
        "measure": "object",
        "split": "test",
        "n_slots": 2,
        "stratum": "all",
        "variant": "full",
    }
    rows = rows_with(table, **{**usual, **conditions}).drop(columns="coverage").rename(columns=_RUN)
    pools = [
        name.removeprefix(f"{encoder}-")
        for name, encoder in zip(rows["embedding"], rows["encoder"], strict=True)
    ]
    is_planted = rows["kind"] == "product"
    names = rows["encoder"].mask(is_planted, rows["encoder"] + PLANTED)
    rows = rows.assign(query_pool=pools, configured=rows["encoder"], encoder=names)
    return pd.concat([rows[~is_planted], rows[is_planted]])


def encoder_models(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per run of a dual encoder and approximator of it, for correlations.

    Columns of `recognized`, and `held_out_accuracy`, `held_out_concept_accuracy`, the `floor`, and
    `rule_accuracy`: pairs that the encoder's queries recognize in what the `approximator` of an
    `analysis` predicts of objects that it was not fitted to, at its largest coverage.
    """
    run = [*GROUP, "seed"]
    runs = recognized(table)[["embedding", *run, "floor", "accuracy"]]
    concepts = recognized(table, measure="concept")[[*run, "accuracy"]]
    runs = runs.rename(columns={"accuracy": OUTCOME}).merge(
        concepts.rename(columns={"accuracy": "held_out_concept_accuracy"}), on=run
    )
    rules = rows_with(
        table,
        analysis_kind="approximators",
        vectors="dual",
        measure="object",
        stratum="all",
        split="test",
    )
    largest = rules.groupby(["analysis", "variant"])["coverage"].transform("max")
    rules = rules[rules["value"].notna() & rules["coverage"].eq(largest)]
    names = {
        "dataset": "space",
        "trained_coverage": "coverage",
        "trained_seed": "seed",
        "variant": "approximator",
        "value": "rule_accuracy",
    }
    rules = rules[["analysis", "embedding", *names]].rename(columns=names)
    return runs.merge(rules, on=["embedding", "space", "coverage", "seed"], validate="1:m")


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds of `accuracy` with t intervals, which are empty for one seed."""
    return _over_runs(rows, [*GROUP, "configured", "kind"], (ACCURACY,))


def _over_runs(
    rows: pd.DataFrame, keys: Sequence[str], quantities: Sequence[Quantity]
) -> pd.DataFrame:
    """Average quantities, `floor` and `chance` over runs, which `n` counts."""
    names = [name for quantity in quantities for name in quantity.interval if name in rows]
    runs = rows.groupby([*keys], sort=False)
    means = average(runs, [*names, "floor", "chance"], quantities)
    return means.assign(n=runs.size()).reset_index()


def measures(models: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the runs with each measure of them as column `measure`, by its words.

    Measures are recognition in what each approximator predicts, and that of held-out values.
    """
    several = models["analysis"].nunique() > 1
    frames = {}
    for (analysis, name), rows in models.groupby(["analysis", "approximator"], sort=False):
        words = f"recognized in what {name}{f' of {analysis}' if several else ''} predicts"
        frames[words] = rows.assign(measure=rows["rule_accuracy"])
    runs = models.drop_duplicates([*GROUP, "seed"])
    values = runs.assign(measure=runs["held_out_concept_accuracy"])
    return {**frames, "values of held-out pairs recognized": values}


def _without_kind_and_coverage(models: pd.DataFrame) -> pd.DataFrame:
    """Return measure and outcome without what coverage, and encoder, space and pool, explain."""
    columns = ["measure", OUTCOME]
    kinds = models["encoder"] + " " + models["space"] + " " + models["query_pool"]
    design = np.concatenate(
        [pd.get_dummies(names).to_numpy(float) for names in (models["coverage"], kinds)], axis=1
    )
    values = models[columns].to_numpy(float)
    rest = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    rest[np.abs(rest) < 1e-9 * values.std(axis=0)] = 0  # rounding has no order
    return models.assign(**dict(zip(columns, rest.T, strict=True)))


def _strata(models: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    yield "all", models
    yield WITHIN, _without_kind_and_coverage(models)
    for coverage, part in models.groupby("coverage"):
        yield f"coverage {coverage:g}", part
    for (encoder, space, pool), part in models.groupby(GROUP[:3], sort=False):
        yield f"{encoder}, {space}, queries: {POOLS[str(pool)]}", part


def correlated(models: pd.DataFrame, only: str | None = None) -> pd.DataFrame:
    """Correlate `measure` with the recognition of held-out pairs in each stratum, or in one.

    Rank correlations over model groups: `correlation` and its ends, which are NaN for fewer
    than five groups; `pearson`, NaN where one side is constant.
    """
    rows = []
    for stratum, part in _strata(models):
        if only not in (None, stratum):
            continue
        groups = [
            group[["measure", OUTCOME]].to_numpy(float)
            for _, group in part.groupby(GROUP, sort=False)
        ]
        if len(groups) < FEWEST:
            continue
        value, low, high = rank_correlation(groups)
        means = np.array([group.mean(0) for group in groups])
        constant = (np.ptp(means, axis=0) == 0).any()
        pearson = np.nan if constant else float(np.corrcoef(means.T)[0, 1])
        rows.append((stratum, value, low, high, pearson, len(part), len(groups)))
    columns = [
        "stratum",
        "correlation",
        "correlation_low",
        "correlation_high",
        "pearson",
        "n_models",
        "n_groups",
    ]
    return pd.DataFrame(rows, columns=columns)


# --- Embeddings ---------------------------------------------------------------------------------

EMBEDDING = ["analysis", "dataset", "embedding", "vectors"]
# How figures and the report call estimators of vectors, and parts that are subtracted.
ESTIMATORS: Final = {
    "avg": "mean, any slot",
    "avg_pos": "mean, by slot",
    "ols": "least squares, by slot",
    "single": "single object",
}
PARTS: Final = {
    "nothing": "nothing",
    "concept": "values",
    "object": "objects",
    "permuted_concept": "control: exchanged values",
    "permuted_object": "control: exchanged objects",
}


def named(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with what figures distinguish: `vectors_of`, `scenes`, and `name`, both.

    `scenes` is the data set, with the analysis where a data set has several. Planted embeddings
    come last.
    """
    is_planted = table["vectors"] == "planted"
    table = pd.concat([table[~is_planted], table[is_planted]])
    names = table["embedding"] + PLANTED
    real = table["vectors"] != "planted"
    names[real] = table["embedding"][real] + ", " + table["vectors"][real]
    scenes = table["dataset"].copy()
    several = table.groupby("dataset")["analysis"].transform("nunique") > 1
    scenes[several] += ", " + table["analysis"][several]
    both = names + "\n" + scenes if scenes.nunique() > 1 else names
    return table.assign(vectors_of=names, scenes=scenes, name=both)


def edits_by_strength(edits: pd.DataFrame) -> pd.DataFrame:
    """Return how edits come out, over feature groups in proportion to their edits.

    A row per embedding, estimator, measure, stratum and strength: `value`, `floor`, `n_scenes`.
    """
    rows = edits[edits["n_scenes"] > 0]
    weighted = rows.assign(
        hits=rows["value"] * rows["n_scenes"],
        floors=rows["bag_of_concepts_floor"] * rows["n_scenes"],
    )
    keys = [*EMBEDDING, "analysis_kind", "split_by", "protocol"]
    keys += ["variant", "measure", "stratum", "strength"]
    summed = weighted.groupby(keys, sort=False)[["hits", "floors", "n_scenes"]].sum(min_count=1)
    means = summed.reset_index()
    value, floor = (means[name] / means["n_scenes"] for name in ("hits", "floors"))
    return means.assign(value=value, floor=floor)


def approximated(
    table: pd.DataFrame, measure: str, stratum: str = "all", *, dual: bool = False
) -> pd.DataFrame:
    """Return what is predicted of scenes of unseen objects, with `floor`.

    Of models and planted encoders a row each. Of dual encoders (`dual`) means over training runs at
    the approximators' largest coverage: `value` and `gain` have t intervals over runs where there
    are several; where there is one, those of the run, over objects. `n` says how many.
    """
    rows = rows_with(
        table, analysis_kind="approximators", measure=measure, stratum=stratum, split="test"
    )
    rows = rows[(rows["n_scenes"] > 0) & ((rows["vectors"] == "dual") == dual)]
    rows = rows.rename(columns={"bag_of_concepts_floor": "floor"})
    if not dual:
        return rows
    rows = rows[rows["coverage"] == rows["coverage"].max()]
    keys = [*EMBEDDING, "variant", "kind", "trained_coverage"]
    value = replace(VALUE, least=None) if measure.startswith("r2") else VALUE
    fewest = rows.groupby(keys)[["n_scenes", "n_resampled"]].min().reset_index()
    return _over_runs(rows, keys, (value, GAIN)).merge(fewest, on=keys)


def wide(rows: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Put measures side by side, floor and guess of objects beside them; NaN if missing."""
    values = rows.pivot(index=names, columns="measure", values="value")
    objects = rows_with(rows, measure="object").set_index(names)
    floor, guess = (objects[f"bag_of_concepts_{name}"] for name in ("floor", "guess"))
    return values.assign(floor=floor, guess=guess).reset_index()
