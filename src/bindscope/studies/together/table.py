"""The study's table: a row per place, with what each study measured there."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pandas as pd

from bindscope.core.files import canonical_json, sha256
from bindscope.core.interfaces import Inputs
from bindscope.studies.together.names import PLACE, TOKENS
from bindscope.studies.together.sides import SIDES
from bindscope.tables.rules import is_ratio, layer_number
from bindscope.tables.schema import DATASET, KEYS, MODEL, SLUG, TableSchema, count, label, table_of
from bindscope.tables.write import read_table

SCHEMA = TableSchema(
    name="together",
    version=1,
    description="One row per dataset, model and layer that a study read, of those models that all "
    "joined studies measured on the same scenes. Numbers are those of the other tables; one whose "
    "fit has a flag that forbids to quote it is not repeated.",
    columns=(
        DATASET,
        MODEL,
        label("group", "Its group, or the model itself.", "config `groups[].name`", pattern=SLUG),
        count(
            "training_seed",
            "",
            "Seed of the model's training; empty where it is not known.",
            "config `models[].seed`, or the zoo",
            null="allowed",
        ),
        label(
            "layer",
            "Layer that was read, see the other tables.",
            "`fits[].layers` of the studies",
            pattern=r"^(0|[1-9][0-9]*|final)$",
        ),
        *(column for side in SIDES for column in side.columns),
        *KEYS,
    ),
    key=("dataset", "model", "layer"),
    rules=tuple(
        is_ratio(f"{name}_pairing_ratio", f"{name}_pairing_bits", "pairing_entropy_bits")
        for name in TOKENS
    ),
    order={"layer": layer_number},
)


class TogetherTable:
    """What several studies say of the same models on the same scenes."""

    schema = SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Join the tables; as content come `datasets`, and `models` with group and seed."""
        read = [
            side.rows(read_table(inputs.paths(side.table)[0])).rename(columns={"keys": side.table})
            for side in SIDES
        ]
        about = pd.DataFrame(inputs.content["models"])
        pair = PLACE[:2]
        both = reduce(lambda a, b: a.merge(b), (rows[pair].drop_duplicates() for rows in read))
        both = both[both["dataset"].isin(inputs.content["datasets"])].merge(about)
        joined = reduce(lambda a, b: a.merge(b, how="outer", on=PLACE), read)
        rows = both.merge(joined, on=pair).astype(object)
        found = rows.where(rows.notna(), None).to_dict("records")
        return table_of([_with_keys(row) for row in found], self.schema)


def _with_keys(row: dict[Any, Any]) -> dict[str, Any]:
    """Put hashes of the keys of all rows that a row was joined from in their place."""
    keys = [key for side in SIDES for key in row.pop(side.table) or ()]
    spec, code = ([key[i] for key in keys] for i in (0, 1))
    return {
        **row,
        "spec_key": sha256(canonical_json(spec)),
        "code_key": sha256(canonical_json(code)),
    }


TOGETHER = TogetherTable()
