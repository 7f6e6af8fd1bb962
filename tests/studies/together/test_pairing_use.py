"""What can be read beside what is used: planted mechanisms of known answer, through the table.

The image tokens of all oracles hold what goes with what in every layer, as a decoder of two words
shows exactly. `color` uses it in the question, `slot` and `gather` only in the text, `order`
nowhere: what can be read is used by some, and not by others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import reason
from mutations import example
from sample_tables import KEYS, pairing_row, write_rows

from bindscope.config.loading import load_config
from bindscope.core.errors import ConfigError
from bindscope.core.interfaces import Inputs
from bindscope.statistics.claims import judge
from bindscope.studies.binding_id import names
from bindscope.studies.binding_id.oracle import PART, OracleEngine, word_vector
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA, labeled
from bindscope.studies.binding_id.suite import run
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.studies.together import tables
from bindscope.studies.together.claims import CLAIMS, use_effects
from bindscope.studies.together.figures import pairing_use as figure
from bindscope.studies.together.findings import chapter
from bindscope.studies.together.names import BINDING_ID, BITS
from bindscope.studies.together.tables import PAIRING_USE

MECHANISMS = ("slot", "color", "gather", "order")
DEPTH = 6  # tower, what enters four layers, and what the last one leaves
SPEC: dict[str, Any] = {
    "task": {
        "layout": "pair",
        "things": 2,
        "order": "left_first",
        "rows": 400,
        "estimation_rows": 20,
        "seed": 0,
    },
    "experiments": ["pairing"],
    "window": 1,
    "resamples": 50,
    "batch_size": 100,
    "seed": 0,
}

RATES = {"claims": str(Path(__file__).parents[3] / "resources/reference/claims.csv")}


def bits(model: str, layer: int, value: float) -> dict[str, Any]:
    """A row of study one: `value` of 1 bit, within 0.05."""
    names = {"dataset": "sprites", "model": model, "layer": str(layer), "tokens": "patches"}
    return pairing_row(value, 0.05, 1.0, n_test=500, **names)


@pytest.fixture(scope="module")
def oracle_rows() -> list[dict[str, Any]]:
    """The experiment on oracles, rows as its job writes them."""
    names = {"suite": "known", "task": "pairs", "origin": "oracle", **KEYS}
    return [
        {**names, "model": f"by-{mechanism}", **row}
        for mechanism in MECHANISMS
        for row in run(OracleEngine(mechanism, 0.05, 0), None, SPEC)["binding_id"]
    ]


def joined(
    folder: Path,
    oracle_rows: list[dict[str, Any]],
    bits_by_layer: dict[int, float],
    *mechanisms: str,
) -> pd.DataFrame:
    """Join the oracles' rows with bits by layer, as if they were toys."""
    read = [
        bits(mechanism, layer, value)
        for mechanism in mechanisms
        for layer, value in bits_by_layer.items()
    ]
    joins = [
        {"dataset": "sprites", "task": "pairs", "model": name, "toy": f"by-{name}", "depth": DEPTH}
        for name in mechanisms
    ]
    inputs = {
        BITS: [write_rows(folder, BINDING_SCHEMA, read)],
        BINDING_ID: [write_rows(folder, BINDING_ID_SCHEMA, labeled(oracle_rows))],
    }
    return PAIRING_USE.build(Inputs(inputs, {"joins": joins}))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_pairs_can_be_read_of_all_oracles_in_every_layer(mechanism: str) -> None:
    scenes = draw_pairs(Rule(), "test", 50, 0).base
    oracle = OracleEngine(mechanism, 0.05, 0)
    state = oracle.contexts(scenes, None)
    words = scenes.words
    pairs = [(c, s) for c in range(len(words.colors)) for s in range(len(words.shapes))]
    vectors = np.stack(
        [
            np.concatenate(
                [word_vector("color", words.colors[c]), word_vector("shape", words.shapes[s])]
            )
            for c, s in pairs
        ]
    )
    for layer in range(oracle.layers):
        for role in range(2):
            token = state.parts[layer, np.arange(50), state.tokens("object", role)[:, 0]]
            pair_parts = np.concatenate([token[:, PART["color"]], token[:, PART["shape"]]], axis=1)
            best = [pairs[i] for i in (pair_parts @ vectors.T).argmax(axis=1)]
            assert best == list(zip(scenes.color[:, role], scenes.shape[:, role], strict=True))


def test_what_can_be_read_is_used_where_it_was_planted(
    tmp_path: Path, oracle_rows: list[dict[str, Any]]
) -> None:
    every = dict.fromkeys(range(1, DEPTH + 1), 1.0 - 0.05)
    table = joined(tmp_path, oracle_rows, every, *MECHANISMS)
    verdicts = {
        model: dict(zip(part["layer"], part["verdict"], strict=True))
        for model, part in table.groupby("model")
    }
    used, unused = "read and used", "read, not used"
    # Layer 2 enters decoder layer 0. The question of `color` looks at the image in layer 2, the
    # texts of `slot` and `gather` in layer 0, and nobody after the last layer.
    assert verdicts["color"] == {
        1: "read, not replaced here",
        2: used,
        3: used,
        4: used,
        5: unused,
        6: unused,
    }
    for model in ("slot", "gather"):
        rest = dict.fromkeys(range(3, 7), unused)
        assert verdicts[model] == {1: "read, not replaced here", 2: used, **rest}
    assert verdicts["order"] == {1: "read, not replaced here", **dict.fromkeys(range(2, 7), unused)}
    rows = table.set_index(["model", "layer"])
    assert rows.loc[("color", 4), "frozen_at"] == 1
    assert rows.loc[("color", 3), "frozen_at"] == 0
    assert rows.loc[("slot", 2), "frozen_from"] == 0
    assert rows.loc[("order", 6), "used"] == "nothing reads it"
    assert np.isnan(rows.loc[("order", 6), "anew_from"])
    assert (table["answered"] == 1).all()


def test_few_bits_are_not_shown_to_be_read(
    tmp_path: Path, oracle_rows: list[dict[str, Any]]
) -> None:
    """0.54 bits within 0.05: not above a half; 0.6: above it, of six claims judged together."""
    table = joined(tmp_path, oracle_rows, {2: 0.54, 3: 0.60, 5: 0.1}, "color").set_index("layer")
    assert list(table["verdict"]) == [
        "used, not shown to be read",
        "read and used",
        "neither shown",
    ]
    assert list(table["read"]) == ["not shown", "yes", "not shown"]


def test_other_words_leave_every_number_and_claim(
    tmp_path: Path, oracle_rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conditions, layers and verdicts in random words: numbers, claims and figure stay."""

    def measure(folder: Path) -> tuple[pd.DataFrame, list[Any], list[Any], list[str]]:
        folder.mkdir()
        table = joined(folder, oracle_rows, dict.fromkeys(range(1, 7), 0.95), *MECHANISMS)
        judgments = judge(CLAIMS, use_effects(table))
        drawn = figure.draw(table)
        curves = [line.get_xydata().tolist() for axes in drawn.axes for line in axes.lines]
        ticks = [text.get_text() for axes in drawn.axes for text in axes.get_xticklabels()]
        judged = [(j.claim.name, j.effect.value, j.verdict, j.p_value) for j in judgments]
        return table, judged, curves, ticks

    table, judged, curves, ticks = measure(tmp_path / "before")
    assert ticks[:6] == ["tower", "0", "1", "2", "3", "end"]
    drawn = np.random.default_rng(0).permutation(10**5).tolist()
    monkeypatch.setattr(names, "label", lambda row: f"word {drawn.pop()}")
    monkeypatch.setattr(tables, "place_of", lambda layer, depth: f"word {drawn.pop()}")
    verdicts = {key: f"word {drawn.pop()}" for key in tables.VERDICTS}
    monkeypatch.setattr(tables, "VERDICTS", verdicts)
    other_table, *others = measure(tmp_path / "after")
    words = ["place", "verdict"]
    assert (table[words] != other_table[words]).all(axis=None)
    pd.testing.assert_frame_equal(
        table.drop(columns=[*words, *KEYS]), other_table.drop(columns=[*words, *KEYS])
    )
    np.testing.assert_equal(others, [judged, curves, ticks])


def test_who_cannot_answer_shows_nothing_unused(
    tmp_path: Path, oracle_rows: list[dict[str, Any]]
) -> None:
    guessed = [{**row, **({"share": 0.5} if row["how"] == "none" else {})} for row in oracle_rows]
    guessed = [{**row, "share_low": 0.0, "share_high": 1.0} for row in guessed]
    table = joined(tmp_path, guessed, {3: 0.9}, "order")
    assert list(table["used"]) == ["does not answer"]
    assert list(table["verdict"]) == ["not testable"]


def test_figure_and_report_say_it_of_every_toy(
    tmp_path: Path, oracle_rows: list[dict[str, Any]]
) -> None:
    table = joined(tmp_path, oracle_rows, dict.fromkeys(range(1, 7), 0.9), "color", "order")
    drawn = figure.draw(table)
    assert [axes.get_title("left") for axes in drawn.axes] == ["color (toy)", "order (toy)"]
    pairing_chapter = chapter({"pairing_use": table}, Inputs(resources=RATES))
    (points,) = (finding.points for finding in pairing_chapter.findings)
    words = dict(points)
    assert words["order (toy)"].startswith("read, not used: input of decoder layer 0")
    assert words["color (toy)"].startswith("read and used: input of decoder layer 0")
    (claims,) = (part for part in pairing_chapter.sections if part.name == "claims-use")
    assert claims.summary.startswith(
        f"{2 * len(table)} effects tested, corrected for all of them (Holm): "
    )
    assert f"over the {2 * len(table)} effects;" in claims.tables[1].text
    assert reason(figure, table.iloc[:0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"models": ["kept"]}, "'kept' is no toy"),
        ({"task": "two-things"}, "no suite of studies.binding_id runs `pairing` on 'two-things'"),
        ({"dataset": "sprites-for-all"}, "are in no `fits` of studies.binding_information"),
    ],
)
def test_what_was_not_measured_is_named(change: dict[str, Any], words: str) -> None:
    raw = example()
    raw["studies"]["together"]["uses"][0] |= change
    with pytest.raises(ConfigError) as raised:
        load_config(raw, "c.yaml")
    assert words in str(raised.value)
