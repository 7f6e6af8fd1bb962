"""What the README says of the default run holds the numbers of the committed reference.

They are written as the report writes them. Where this fails after `make write-reference`, the
message shows the text to put there.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from bindscope.config.seeds import write_out
from bindscope.statistics.means import mean_interval
from bindscope.studies.binding_information.quantities import FEATURES, PAIRING
from bindscope.tables.numbers import at_least, between
from bindscope.tables.quantities import Quantity

ROOT = Path(__file__).parents[2]
LABELS = {
    "paired-captions": "captions that pair the words",
    "unpaired-captions": "captions of the same words, unpaired",
    "feature-classification": "feature classification",
    "masked-patches": "masked patches",
    "self-distillation": "self-distillation",
    "untrained": "nothing (untrained)",
    "object-classification": "object classification (positive control)",
}
CELLS = (FEATURES, PAIRING)


def groups() -> dict[str, list[str]]:
    """Models by the name of their group."""
    config, _ = write_out(yaml.safe_load((ROOT / "config/config.yaml").read_text("utf-8")))
    listed = config["studies"]["binding_information"]["groups"]
    return {group["name"]: group["models"] for group in listed}


def last_layers(tokens: str) -> pd.DataFrame:
    """Rows of the headline's probes of `matching` after the last layers."""
    table = pd.read_csv(ROOT / "resources/reference/binding_information.csv", dtype={"layer": str})
    rows = table[table["probe"].isin(["linear", "pooled"]) & (table["control"] == "none")]
    rows = rows[(rows["tokens"] == tokens) & (rows["dataset"] == "matching")]
    return rows[rows["layer"] == rows["n_layers"].astype(str)]


def bounds(name: str, part: Quantity) -> pd.Series:
    """What a linear probe reads of the [CLS] tokens of a group's models."""
    rows = last_layers("cls")
    rows = rows[rows["model"].isin(groups()[name])]
    assert len(rows) == 3
    return rows[part.value]


def entropy(part: Quantity) -> float:
    """What there is to know of a part, the same in all rows."""
    return float(last_layers("cls")[part.entropy].iloc[0])


def readme() -> str:
    """The README as one line, without marks for bold words."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return " ".join(text.replace("**", "").split())


@pytest.mark.parametrize("name", LABELS)
def test_the_table_of_the_readme_holds_the_references_numbers(name: str) -> None:
    cells = []
    for part in CELLS:
        mean, *ends = mean_interval(bounds(name, part))
        low, high = (min(max(end, 0.0), entropy(part)) for end in ends)
        cells.append(f"≥ {at_least(mean)} ({between(low, high)})")
    line = f"| {' | '.join([LABELS[name], *cells])} |"
    assert line in readme()


@pytest.mark.parametrize("name", ["paired-captions", "unpaired-captions", "untrained"])
def test_the_lead_of_the_readme_holds_the_references_bounds(name: str) -> None:
    lead = readme().split("## What the default run finds")[1].split("The models are those")[0]
    bound = at_least(mean_interval(bounds(name, PAIRING))[0])
    assert f"≥ {bound}" in lead
    assert "less" not in lead.replace("unless", ""), "bounds have no differences of information"


def test_the_readme_compares_patches_and_cls_of_the_same_models() -> None:
    patches = last_layers("patches").set_index("model")[PAIRING.value]
    cls = last_layers("cls").set_index("model")[PAIRING.value]
    text = readme().split("From the patches, more")[1].split("The models are those")[0]
    assert len(patches) == 3
    for model, bound in patches.items():
        assert f"≥ {at_least(bound)}" in text
        assert f"≥ {at_least(cls[model])}" in text
        assert bound > cls[model]
