"""Words for people are read by nobody: other ones leave every number of the study."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from test_concept_models import run_rows

from bindscope.core.interfaces import Inputs
from bindscope.statistics.claims import judge
from bindscope.studies.concepts import claims, figures, findings, views
from bindscope.studies.concepts import planted_encoders as planted
from bindscope.studies.concepts.measure import concepts
from bindscope.studies.concepts.scenes import Scenes
from bindscope.studies.concepts.tables import CONCEPTS_SCHEMA
from bindscope.tables.schema import table_of

SCENES = Scenes.all_of((4, 3))
KEYS = {"spec_key": "0" * 8, "code_key": "0" * 8}
FIGURES = (
    "concept_coverage",
    "concept_models",
    "concept_geometry",
    "concept_removal",
    "concept_edits",
    "concept_editing",
    "binding_complexity",
    "dual_complexity",
)
WORDS = ("POOLS", "SUMS", "ESTIMATORS", "EDITS", "AT_STRENGTH_1", "PARTS", "APPROXIMATED")
RATES = Inputs(resources={"claims": "resources/reference/claims.csv"})


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return all analyses of an embedding of a model and a planted one, and of dual encoders."""
    rows: list[dict[str, Any]] = []
    for name, vectors in (("lookup", "planted"), ("additive", "cls")):
        z = planted.ENCODERS[name](SCENES, planted.PlantedVectors(16, slot_effect=0.3))
        about = {"analysis": "a", "dataset": "pairs", "embedding": name, "vectors": vectors}
        analyses = [
            "recognition",
            "decomposition",
            "removal",
            {"analysis": "editing", "strengths": [0.0, 0.5, 1.0]},
            {
                "analysis": "approximators",
                "approximators": ["additive"],
                "coverages": [0.4, 0.6, 0.8],
            },
        ]
        result = concepts(z.astype(np.float32), SCENES.values, analyses=analyses)
        rows += [{**about, **row, **KEYS} for row in result.rows["concepts"]]
    runs = product((0.2, 0.5, 0.8), (0, 1, 2), (("product", 1.0), ("mlp", 0.5)))
    for coverage, seed, (encoder, scale) in runs:
        runs_rows = run_rows(coverage, seed, encoder, coverage * scale + 0.01 * seed)
        rows += [{"kind": "per_object", "n_resampled": 4, **row} for row in runs_rows]
    return table_of(rows, CONCEPTS_SCHEMA)


def numbers_of(table: pd.DataFrame) -> dict[str, Any]:
    """Return all numbers that readers see of a table, without any words."""
    page = findings.chapter({"concepts": table}, RATES)
    return {
        "claims": [
            (j.claim.name, j.effect.value, j.effect.low, j.effect.high, j.effect.n, j.verdict)
            for j in judge(claims.CLAIMS, claims.effects({"concepts": table}))
        ],
        "page": sorted(
            cell.text
            for section in page.sections
            for part in section.tables
            for row in part.rows
            for cell, column in zip(row, part.columns, strict=True)
            if column.kind == "number"
        ),  # rows are sorted by name
        "drawn": {name: [*drawn(getattr(figures, name).draw(table=table))] for name in FIGURES},
    }


def drawn(figure: Any) -> Iterator[list[Any]]:
    """Yield what the lines and areas of a figure show."""
    for axes in figure.axes:
        yield [np.asarray(line.get_xydata(), float).tolist() for line in axes.get_lines()]
        yield [path.vertices.tolist() for area in axes.collections for path in area.get_paths()]
    plt.close(figure)


def test_random_words_leave_every_number(
    table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, random = numbers_of(table), Random(0)

    def word(*_: Any) -> str:
        return "".join(random.choices("abcdefghij", k=12))

    for name in WORDS:
        monkeypatch.setattr(figures, name, {key: word() for key in getattr(figures, name)})
    monkeypatch.setattr(claims, "place", word)  # another word each time
    suffix = word()
    for module in (views, figures):
        monkeypatch.setattr(module, "PLANTED", suffix)
    names = {name: word() for name in ("lookup", "additive", "a", "pairs", "rules")}
    renamed = table.assign(
        **{column: table[column].replace(names) for column in ("analysis", "embedding", "dataset")}
    )
    for name, values in numbers_of(renamed).items():
        np.testing.assert_equal(values, expected[name], err_msg=name)


def test_the_lead_quotes_the_same_numbers_whatever_the_words(
    table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    embeddings = table[table["vectors"] != "dual"]
    plain = findings.chapter({"concepts": embeddings}, RATES).lead
    assert len(plain) == 1
    monkeypatch.setattr(claims, "place", lambda row: "elsewhere")
    (lead,) = findings.chapter({"concepts": embeddings}, RATES).lead
    assert lead != plain[0]
    assert lead.replace("elsewhere", "additive cls on pairs") == plain[0]
