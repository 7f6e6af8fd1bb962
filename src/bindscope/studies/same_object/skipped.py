"""The table of images that take no part: which, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from bindscope.core.interfaces import Given, Inputs
from bindscope.core.store.reader import open_store
from bindscope.sources.metadata import read_about
from bindscope.tables.schema import DATASET, KEYS, TableSchema, label, table_of

SKIPPED_SCHEMA = TableSchema(
    name="same_object_skipped",
    version=1,
    description="One row per image that takes no part, with its reason: left out when the scenes "
    "were read, or without a pair of patches to ask about on a patch grid. Only of datasets that "
    "are read; of drawn ones `n_skipped` of `same_object` counts the images.",
    columns=(
        DATASET,
        label("grid", "Rows x columns of patches; empty of images that were left out when they "
              "were read.", "`patch_samples`", pattern=r"^([0-9]+x[0-9]+)?$"),
        label("split", "Its split; empty likewise.", "`patch_samples`"),
        label("image", "Number of the image in its split; of those that were left out when they "
              "were read, the name of its file.", "`patch_samples`, `records`"),
        label("reason", "Why it takes no part.", "`patch_samples`, `records`"),
        *KEYS,
    ),
    key=("dataset", "grid", "split", "image", "spec_key"),
)  # fmt: skip


class SkippedTable:
    """Images that take no part, of the datasets that are read."""

    schema = SKIPPED_SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Build the table of the `samples` and of the `records`."""
        rows = [row for given in inputs.of("samples") for row in _of_samples(given)]
        rows += [row for given in inputs.of("records") for row in _of_records(given)]
        return table_of(rows, self.schema)


def _of_samples(given: Given) -> Iterator[dict[str, Any]]:
    for one in open_store(given.path).attributes["skipped"]:
        row = {name: given.names[name] for name in ("grid", "split")}
        yield _row(given, one, **row)


def _of_records(given: Given) -> Iterator[dict[str, Any]]:
    for one in read_about(given.path)["skipped"]:
        yield _row(given, one, grid="", split="")


def _row(given: Given, one: dict[str, Any], **where: str) -> dict[str, Any]:
    named = {name: given.names[name] for name in ("dataset", "spec_key", "code_key")}
    return {**named, **where, "image": str(one["image"]), "reason": one["reason"]}


SKIPPED = SkippedTable()
