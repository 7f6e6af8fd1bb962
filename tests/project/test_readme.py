"""What the README says of the default run holds the numbers of the committed reference.

They are written as the report writes them. Where this fails after `make write-reference`, the
message shows the text to put there.
"""

from functools import cache
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest
import yaml

from bindscope.config.seeds import write_out
from bindscope.statistics.claims import TRAINING_SEEDS, Effect, judge
from bindscope.statistics.means import mean_interval, welch_freedom, welch_interval
from bindscope.studies.binding_information.claims import CLAIMS, MORE
from bindscope.studies.binding_information.quantities import PAIRING
from bindscope.tables.numbers import at_least, between

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
VERDICTS = {"holds": "yes", "not significant": "no significant difference"}


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


def bounds(name: str) -> pd.Series:
    """Return the pairing that a linear probe decodes from [CLS] of a group's models, in bits."""
    rows = last_layers("cls")
    rows = rows[rows["model"].isin(groups()[name])]
    assert len(rows) == 3
    return rows[PAIRING.value]


def entropy() -> float:
    """Return the entropy of the pairing in bits, the same in all rows."""
    return float(last_layers("cls")[PAIRING.entropy].iloc[0])


def readme() -> str:
    """The README as one line, without marks for bold words."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return " ".join(text.replace("**", "").split())


@pytest.mark.parametrize("name", LABELS)
def test_the_table_of_the_readme_holds_the_references_numbers(name: str) -> None:
    mean, *ends = mean_interval(bounds(name))
    low, high = (min(max(end, 0.0), entropy()) for end in ends)
    cells = [LABELS[name], f"≥ {at_least(mean)} ({between(low, high)})", verdicts()[name]]
    assert f"| {' | '.join(cells)} |".replace("|  |", "| |") in readme()


@cache
def verdicts() -> dict[str, str]:
    """Whether more is decoded from a group than from untrained models, of all comparisons."""
    names = [name for name in LABELS if "control" not in LABELS[name]]
    values = {name: bounds(name).to_numpy(float) for name in names}
    names.sort(key=lambda name: -values[name].mean())
    effects = [
        Effect(
            MORE,
            f"{more} over {less}",
            *welch_interval(values[more], values[less]),
            6,
            TRAINING_SEEDS,
            freedom=welch_freedom(values[more], values[less]),
            directions=2,
            about=(more, less),
        )
        for more, less in combinations(names, 2)
    ]
    words = dict.fromkeys(LABELS, "not compared") | {"untrained": ""}
    for judgment in judge(CLAIMS, effects):
        more, less = judgment.effect.about
        if "untrained" in (more, less):
            verdict = VERDICTS[judgment.verdict]
            words[more if less == "untrained" else less] = (
                "less" if verdict == "yes" and more == "untrained" else verdict
            )
    return words


def test_the_readme_compares_patches_and_cls_of_the_same_model() -> None:
    text = readme().split("From patches, more")[1].split("Colors may name")[0]
    patches, cls = (
        last_layers(tokens).set_index("model")[PAIRING.value]["untrained-0"]
        for tokens in ("patches", "cls")
    )
    assert f"≥ {at_least(patches)} bits from an untrained model" in text
    assert f"linear probe ≥ {at_least(cls)}." in text
    assert patches > cls
