"""Questions of two hops (from the item to the place of its thing), and swapped answers.

What each account predicts is worked out in docs/studies/binding_id_two_hops.md; oracles of known
mechanism show it, through the experiments that models go through.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_binding_id_study import MECHANISMS, run, section, share

from bindscope.config.loading import load_config
from bindscope.core.errors import ConfigError
from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_id.answers.mechanisms import accounts, judged
from bindscope.studies.binding_id.answers.metrics import Answers, swaps
from bindscope.studies.binding_id.experiments.interventions import CONTROL
from bindscope.studies.binding_id.findings import chapter
from bindscope.studies.binding_id.oracles.oracle import load
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.tasks.prompts import Form, answers
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_scenes
from bindscope.studies.binding_id.tasks.task import question
from bindscope.studies.binding_id.tasks.vocabulary import words_of


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """All oracles, asked where the things of items are."""
    folder = tmp_path_factory.mktemp("places")
    experiments = ["factorizability", "mean", "signatures"]
    return run(folder, answer="slot", experiments=experiments)["binding_id"]


@pytest.mark.parametrize("layout", ["pair", "sprites"])
def test_an_oracle_looks_up_twice(layout: Any) -> None:
    """Its answer is the place that the scene has, whatever the order of mention."""
    rule = Rule(layout, order="independent")
    scenes = draw_scenes(rule, words_of("test", layout), 40, np.random.default_rng(0))
    reading = Reading(rule, answer="slot")
    every = np.tile(np.arange(len(scenes.words.places)), (len(scenes), 1))
    for mechanism in ("slot", "colour", "gather"):
        oracle, _ = load({"mechanism": mechanism, "noise": 0.05, "seed": 0}, reading, None)
        for role in (0, 1):
            asked = question(scenes, role, reading.by)
            logs = oracle.answers(oracle.contexts(scenes), None, [CONTROL], [asked], every)
            found = [scenes.words.places[i] for i in logs[:, 0, 0].argmax(axis=-1)]
            assert found == answers(scenes, Form(answer="slot"), "item", asked)


def test_replaced_objects_leave_the_place_and_replaced_items_take_it_over(
    places: pd.DataFrame,
) -> None:
    """If slots tie: the place is that of the slot, whoever stands there, whichever item it is."""
    for condition in ("none", "O0", "O1", "O all", "I0", "I1", "I all", "C0", "C all"):
        assert share(places, "slot", "factorizability", condition) == 1.0
    cells = places[places["experiment"].eq("factorizability") & places["model"].eq("by-slot")]
    cells = cells[cells["query"] != "all"].set_index(["condition", "query", "candidate"])
    assert set(cells.index.get_level_values("query")) == {"I0", "I1", "I0'", "I1'"}
    assert cells.loc[("I all", "I0'", "P0"), "share"] == 1.0
    # The item of before is in the text no more, and nothing is expected of it.
    assert 0.2 < cells.loc[("I all", "I0", "P0"), "share"] < 0.8
    assert cells.loc["I all"].query("expected == 1").index.get_level_values(0).tolist() == [
        "I0'", "I1'",
    ]  # fmt: skip
    # Whoever goes by content finds nothing there, or goes by what is there no more.
    for model in ("colour", "gather"):
        assert share(places, model, "factorizability", "none") == 1.0
        assert share(places, model, "factorizability", "O all") < 0.75
        assert share(places, model, "factorizability", "I all") < 0.75


def test_the_mean_difference_of_items_exchanges_places_and_that_of_objects_does_not(
    places: pd.DataFrame,
) -> None:
    """Of single hops both exchange answers, and both together cancel."""
    for condition in ("O", "I", "O+I", "C"):
        assert share(places, "slot", "mean", condition) == 1.0
    expected = places[places["experiment"].eq("mean") & places["expected"].eq(1)]
    expected = expected[expected["model"].eq("by-slot") & expected["query"].eq("I0")]
    answer = expected.set_index("condition")["candidate"]
    assert answer[["none", "O", "I", "O+I", "C"]].tolist() == ["P0", "P0", "P1", "P1", "P0"]
    # Who finds the thing by content reads its place off, which the difference exchanged.
    for model in ("colour", "gather", "order"):
        assert share(places, model, "mean", "O") == 0.0
        assert share(places, model, "mean", "I") == 0.0


def test_accounts_and_claims_are_told_apart_by_places_too(places: pd.DataFrame) -> None:
    judgements = accounts(places)
    held = {(one.model, one.account) for one in judgements if one.verdict == "holds"}
    assert held == {(f"by-{one} (oracle), two hops", one) for one in MECHANISMS[:-1]}
    claims = {one.claim: one.verdict for one in judged(places) if one.model.startswith("by-slot")}
    assert set(claims.values()) == {"holds"}
    assert "adding the mean difference to objects leaves the places of items" in claims
    denied = {one.claim: one.verdict for one in judged(places) if "by-colour" in one.model}
    assert denied["items stay tied to places whose objects are replaced"] == "does not"
    assert not any(one.papers for one in judged(places))  # the paper asks for items alone


def test_the_chapter_says_what_toys_of_two_hops_were_taught(places: pd.DataFrame) -> None:
    (lead,) = chapter({"binding_id": places.assign(origin="toy")}, Inputs()).lead
    assert "were taught the first of the two hops" in lead
    for other in ({"origin": "oracle"}, {"origin": "toy", "asked": "item"}):
        (lead,) = chapter({"binding_id": places.assign(**other)}, Inputs()).lead
        assert "were taught" not in lead


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"text_only": True}, "oracles have tokens of things"),
    ({"answer": "colour"}, "must be item or slot"),
    ({"tasks": []}, "nothing to ask about"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_nobody_can_answer_is_refused(fields: dict[str, Any], words: str) -> None:
    given = section(**fields) | {"toys": [{"name": "free"}]}
    with pytest.raises(ConfigError, match=words):
        load_config({"datasets": [], "studies": {"binding_id": given}}, "c.yaml")


def test_swaps_are_wrong_answers_that_are_there() -> None:
    """Counted cell by cell, with the other context's items as what is not there."""
    logs = np.random.default_rng(0).normal(size=(30, 2, 3, 6))
    names = [f"I{i}" for i in range(3)] + [f"I{i}'" for i in range(3)]
    expected = [{f"O{i}": f"I{i}" for i in range(3)}, {"O0": "I0'", "O1": "I1", "O2": "I2"}]
    found = Answers(logs, ["O0", "O1", "O2"], names, expected)
    for trial, there in ((0, {0, 1, 2}), (1, {3, 1, 2})):
        right = [names.index(expected[trial][f"O{i}"]) for i in range(3)]
        wanted = [
            np.mean([int(row[i].argmax() in there - {right[i]}) for i in range(3)])
            for row in logs[:, trial]
        ]
        counted, guessed = swaps(found, trial, expected[trial])
        np.testing.assert_allclose(counted, wanted)
        assert guessed == 2 / 5
    # Random answers: of the wrong ones, as many are there as chance says.
    wrong = 1 - 1 / 6
    assert counted.mean() == pytest.approx(wrong * guessed, abs=0.1)


def test_things_that_share_what_ties_them_are_swapped(tmp_path: Path) -> None:
    """Of two things of one shape, content by shape says nothing: half of the answers are swaps."""
    oracles = ["by-slot", "by-gather"]
    table = run(tmp_path, tasks=["alike"], experiments=["factorizability"], oracles=oracles)[
        "binding_id"
    ]
    rows = table[table["query"].eq("all") & table["condition"].eq("none")].set_index("model")
    assert rows.loc["by-slot", ["share", "swap", "swap_chance"]].tolist() == [1.0, 0.0, 0.0]
    assert rows.loc["by-gather", "swap"] == pytest.approx(1 - rows.loc["by-gather", "share"])
    assert rows.loc["by-gather", "swap"] > 0.3
    assert rows.loc["by-gather", "swap_chance"] == pytest.approx(
        (1 - rows.loc["by-gather", "share"]) / 3
    )
