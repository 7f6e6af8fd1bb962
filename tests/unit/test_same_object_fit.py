"""Rows of a fit are rows of the study's tables."""

import pytest
from pair_problems import planted_splits
from pydantic import TypeAdapter

from bindscope.studies.same_object.columns import (
    ROW_KEY,
    SAME_OBJECT_COLUMNS,
    SAME_OBJECT_RULES,
    STRATA_COLUMNS,
    STRATA_KEY,
    STRATA_RULES,
)
from bindscope.studies.same_object.fit import fit_probe
from bindscope.studies.same_object.probes_config import AnyScorer
from bindscope.studies.same_object.registry import FAMILIES
from bindscope.studies.same_object.strata import Stratum
from bindscope.tables.schema import TableSchema, table_of

ROWS = TableSchema("same_object", 1, "", SAME_OBJECT_COLUMNS, ROW_KEY, SAME_OBJECT_RULES)
STRATA = TableSchema("same_object_strata", 1, "", STRATA_COLUMNS, STRATA_KEY, STRATA_RULES)
NAMES = {
    "dataset": "blobs", "model": "planted", "layer": "0", "probe": "p",
    "spec_key": "0" * 8, "code_key": "0" * 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def splits():
    return planted_splits(n=(20, 10, 10))


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_every_family_obey_the_schemas(splits, family):
    probe = TypeAdapter(AnyScorer).validate_python({"name": "p", "family": family})
    results = fit_probe(probe, *splits, bootstrap_samples=20)
    table = table_of([NAMES | result.row for result in results], ROWS)
    assert len(table) == len(results)
    strata = table_of([NAMES | row for result in results for row in result.strata], STRATA)
    whole = strata[(strata[list(Stratum._fields)] == "all").all(axis=1)]
    assert whole["accuracy"].tolist() == pytest.approx(table["accuracy"].tolist())
    assert whole["n_pairs"].tolist() == table["n_pairs"].tolist()
