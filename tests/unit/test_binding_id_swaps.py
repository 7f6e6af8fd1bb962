"""Swapped answers (illusory conjunctions), the sign test, and suites that no model can answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from test_binding_id_study import run, section

from bindscope.config.loading import load_config
from bindscope.core.errors import ConfigError
from bindscope.studies.binding_id.answers.metrics import Answers, sign_test, swaps

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tasks": []}, "nothing to ask about"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_nobody_can_answer_is_refused(fields: dict[str, Any], words: str) -> None:
    content = section(**fields) | {"toys": [{"name": "free"}]}
    with pytest.raises(ConfigError, match=words):
        load_config({"datasets": [], "studies": {"binding_id": content}}, "c.yaml")


def test_swaps_are_wrong_answers_that_are_there() -> None:
    """Counted cell by cell, with the other context's items as what is not there."""
    logs = np.random.default_rng(0).normal(size=(30, 2, 3, 6))
    names = [f"I{i}" for i in range(3)] + [f"I{i}'" for i in range(3)]
    expected = [{f"O{i}": f"I{i}" for i in range(3)}, {"O0": "I0'", "O1": "I1", "O2": "I2"}]
    answers = Answers(logs, ["O0", "O1", "O2"], names, expected)
    for trial, there in ((0, {0, 1, 2}), (1, {3, 1, 2})):
        right = [names.index(expected[trial][f"O{i}"]) for i in range(3)]
        reference = [
            np.mean([int(row[i].argmax() in there - {right[i]}) for i in range(3)])
            for row in logs[:, trial]
        ]
        counted, guessed = swaps(answers.logs[:, trial], answers.places(trial))
        np.testing.assert_allclose(counted, reference)
        assert guessed == 2 / 5
    # Random answers: of the wrong ones, as many are there as chance says.
    wrong = 1 - 1 / 6
    assert counted.mean() == pytest.approx(wrong * guessed, abs=0.1)


def test_things_that_nothing_ties_are_swapped(tmp_path: Path) -> None:
    """Half of the answers of a model that binds nothing are swaps, a third of them by guessing."""
    oracles = ["by-slot", "by-none"]
    table = run(tmp_path, tasks=["alike"], experiments=["factorizability"], oracles=oracles)[
        "binding_id"
    ]
    rows = table[table["query"].eq("all") & table["condition"].eq("none")].set_index("model")
    assert rows.loc["by-slot", ["share", "swap", "swap_chance"]].tolist() == [1.0, 0.0, 0.0]
    assert rows.loc["by-none", "swap"] == pytest.approx(1 - rows.loc["by-none", "share"])
    assert rows.loc["by-none", "swap"] > 0.3
    assert rows.loc["by-none", "swap_chance"] == pytest.approx(
        (1 - rows.loc["by-none", "share"]) / 3
    )


@pytest.mark.parametrize(("up", "down"), [(0, 0), (0, 1), (3, 3), (2, 9), (40, 11), (0, 50)])
def test_the_sign_test_is_the_binomial_test_of_rows_that_move(up: int, down: int) -> None:
    before = np.zeros(up + down + 4)
    after = np.concatenate([np.ones(up), -np.ones(down), np.zeros(4)])
    expected = binomtest(up, up + down).pvalue if up + down else 1.0
    assert sign_test(after, before) == pytest.approx(expected, rel=1e-12)
