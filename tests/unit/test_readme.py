"""The table of the README holds the numbers of the committed reference, written as the report does.

Where this fails after `make write-reference`, the message shows the line to put there.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from bindscope.statistics.means import mean_interval
from bindscope.studies.binding_information.quotes import (
    PAIRING,
    WHAT,
    Part,
    at_least,
    between,
)

ROOT = Path(__file__).parents[2]
LABELS = {
    "objects": "naming the objects",
    "features": "saying which features occur",
    "captions": "captions that pair the words",
    "unpaired-captions": "captions of the same words, unpaired",
    "untrained": "nothing (untrained)",
}
CELLS = (("cls", WHAT), ("cls", PAIRING), ("mean", PAIRING))


def quoted(models: list[str], tokens: str, part: Part) -> str:
    """Write what the best probes read of a group's last layers, as the report does."""
    table = pd.read_csv(ROOT / "resources/reference/binding_information.csv", dtype={"layer": str})
    rows = table[table["model"].isin(models) & (table["dataset"] == "matching")]
    rows = rows[(rows["probe"] == "best") & (rows["control"] == "none")]
    rows = rows[(rows["tokens"] == tokens) & (rows["layer"] == rows["n_layers"].astype(str))]
    assert len(rows) == len(models)
    mean, low, high = mean_interval(rows[part.bound])
    return f"≥ {at_least(mean)} ({between(low, high)})"


@pytest.mark.parametrize("name", LABELS)
def test_the_table_of_the_readme_holds_the_references_numbers(name: str) -> None:
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    groups = config["studies"]["binding_information"]["groups"]
    (models,) = [group["models"] for group in groups if group["name"] == name]
    cells = [quoted(models, tokens, part) for tokens, part in CELLS]
    line = f"| {' | '.join([LABELS[name], *cells])} |"
    assert line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines(), line
