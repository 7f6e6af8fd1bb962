"""Toys that learn where an item's thing is: what they are asked, training, gates, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from bindscope.config.loading import load_config
from bindscope.core.errors import ConfigError, ModelError
from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.experiments.interventions import CONTROL
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.tasks.prompts import Form, prompts
from bindscope.studies.binding_id.tasks.scenes import Rule
from bindscope.studies.binding_id.tasks.task import question
from bindscope.studies.binding_id.toys import evaluation, loading, stored, training
from bindscope.studies.binding_id.toys.images import images
from bindscope.studies.binding_id.toys.kinds import KINDS, kinds_of
from bindscope.studies.binding_id.toys.model import build
from bindscope.studies.binding_id.toys.objectives import item_token, lookup_loss
from bindscope.studies.binding_id.toys.passes import Passes
from bindscope.studies.binding_id.toys.recipe import recipe
from bindscope.studies.binding_id.toys.scenes import draw
from bindscope.studies.binding_id.toys.vocabulary import Vocabulary
from bindscope.studies.binding_id.toys_config import Toy
from bindscope.studies.build import build as build_graph

VOCABULARY = Vocabulary.of_splits()
FEW = {"steps": 6, "batch_size": 4, "naming_until": 1, "grounding_until": 2,
       "copying_until": 3, "gates": False}  # fmt: skip
PLACES = Reading(Rule("sprites", order="independent"), "short", answer="slot")


def test_two_hops_are_asked_in_the_words_of_suites() -> None:
    """The tokens are those of the short template, and the answer is the place of the thing."""
    assert kinds_of(["slot"])[:2] == ("two_hops", "place_of_colour")
    scenes = draw("test", rng(1), 3, 3)
    tokens, answers = VOCABULARY.questions(scenes, ["two_hops", "place_of_colour"])
    for role in range(3):
        texts = prompts(scenes, [question(scenes, role, "item")], PLACES.form)
        for row, prompt in enumerate(texts):
            assert VOCABULARY.ids(prompt.questions[0]) == tokens[row, role].tolist()
            place = scenes.words.places[scenes.slot[row, role]]
            assert VOCABULARY.tokens[answers[row, role]] == place
            colour = scenes.words.colours[scenes.colour[row, role]]
            assert [VOCABULARY.tokens[i] for i in tokens[row, 3 + role]] == ["?", colour, "at"]
    assert (answers[:, :3] == answers[:, 3:]).all()  # both ask for the same places
    assert PLACES.form == Form("short", answer="slot")


def test_easy_questions_come_first() -> None:
    assert kinds_of(["item"]) == KINDS
    assert kinds_of(["item", "slot"]) == (*KINDS, "two_hops", "place_of_colour")
    of_images = ("place_of_colour", "colour_of_shape", "shape_of_colour")
    assert kinds_of(["slot"]) == ("two_hops", *of_images)
    assert kinds_of(["slot"], "image") == kinds_of(["slot"], "image", "text") == of_images
    assert kinds_of(["item"], "image", "text") == KINDS[1:]


@torch.no_grad()
def test_what_is_hidden_from_a_question_does_not_change_its_answer() -> None:
    """Two contexts that differ at hidden tokens only give one answer; else another."""
    passes = Passes(build(Toy(name="t", seed=1), VOCABULARY))
    scenes, other = draw("test", rng(1), 3, 2), draw("test", rng(2), 3, 2)
    read, elsewhere = (
        passes.contexts(images(one, rng(3)), VOCABULARY.context(one)) for one in (scenes, other)
    )
    asked, _ = VOCABULARY.questions(scenes, ["two_hops"])
    hidden = np.zeros((2, read.keys[0].shape[2]), bool)
    hidden[0] = True
    hidden[0, item_token(passes, 1)] = False
    mixed = read.replaced(torch.from_numpy(hidden[:1]).expand(3, -1), elsewhere)
    one, same = (passes.answers(context, asked, hidden).logits for context in (read, mixed))
    torch.testing.assert_close(one[:, 0], same[:, 0])
    assert not torch.allclose(one[:, 1], same[:, 1])
    seen = passes.answers(read, asked).logits
    torch.testing.assert_close(one[:, 1], seen[:, 1])  # nothing is hidden from it
    assert not torch.allclose(one[:, 0], seen[:, 0])


def test_the_first_hop_is_learnt_in_the_layers_before_it_is_read() -> None:
    """So that there is a layer left for the second."""
    passes = Passes(build(Toy(name="t"), VOCABULARY))
    scenes = draw("test", rng(1), 4, 2)
    contexts = passes.contexts(images(scenes, rng(3)), VOCABULARY.context(scenes))
    lookup_loss(passes, scenes, contexts).backward()  # type: ignore[no-untyped-call]
    moved = {
        name for name, p in passes.toy.network.named_parameters()
        if p.grad is not None and p.grad.abs().sum() > 0
    }  # fmt: skip
    assert any("layers.1.self_attn.q_proj" in name for name in moved)
    assert not any("layers.2" in name or "lm_head" in name for name in moved)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("EVALUATED", 4), ("EVALUATED_AT_END", 4), ("EVALUATIONS", 3)):
        monkeypatch.setattr(training, name, value)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("answers", [["slot"], ["slot", "item"]])
def test_a_toy_that_is_asked_for_places(
    answers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is trained, stored with what it can be asked for, and given to suites that ask that."""
    config = Toy.model_validate({"name": "t", "answers": answers, "training": FEW})
    asked = []
    monkeypatch.setattr(training, "free_loss", lambda *args, real=training.free_loss, **more: (
        asked.append((args[3], more["lookup"])) or real(*args, **more)
    ))  # fmt: skip
    made = training.train(config)
    assert {"two_hops_2", "held_out_two_hops_3", "place_of_colour_3"} <= set(made.accuracies)
    assert ("cross_2" in made.accuracies) == ("item" in answers)
    assert ((*kinds_of(config.answers, "image"),), True) in asked
    assert (kinds_of(config.answers), False) in asked
    paths = (tmp_path / "t.safetensors", tmp_path / "t.json")
    stored.write(made, config, *paths, code="c")
    assert stored.answers(paths[1]) == config.answers == tuple(sorted(answers))
    _engines_answer_as_training_asks(paths[1])
    single = Reading(PLACES.rule, "short")
    if "item" in answers:
        loading.load({"name": "t"}, single, paths[1])
    else:
        with pytest.raises(ConfigError, match=r"asked for items of things.*\n.*answer: slot"):
            loading.load({"name": "t"}, single, paths[1])


def _engines_answer_as_training_asks(manifest: Path) -> None:
    """Log-probabilities of all places are those of the passes that training has."""
    engine, pictures = loading.load({"name": "t"}, PLACES, manifest)
    scenes = draw("test", rng(5), 3, 2)
    asked = [question(scenes, role, "item") for role in (0, 1)]
    every = np.tile(np.arange(9), (3, 1))
    state = engine.contexts(scenes, pictures(scenes))
    found = engine.answers(state, None, [CONTROL], asked, every)[:, 0]
    passes = Passes(stored.load(manifest))
    read = passes.contexts(pictures(scenes), VOCABULARY.context(scenes))
    logits = passes.answers(read, VOCABULARY.questions(scenes, ["two_hops"])[0]).logits
    places = torch.from_numpy(VOCABULARY.of(scenes.words, "slot", every))
    expected = logits.log_softmax(-1).gather(2, places[:, None].expand(-1, 2, -1))
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


def test_a_toy_that_was_not_trained_on_places_is_not_asked_for_them() -> None:
    model = {"name": "t", "source": "zoo:toy-free-0"}
    with pytest.raises(ConfigError, match="was trained on items of things alone") as caught:
        loading.load(model, PLACES, None)
    assert "zoo:toy-two-hop-0" in caught.value.remedy


@pytest.mark.usefixtures("quick")
def test_a_toy_that_has_not_learnt_to_read_places_fails_half_way() -> None:
    config = Toy.model_validate(
        {"name": "t", "answers": ["slot", "item"], "training": {**FEW, "gates": True}}
    )
    with pytest.raises(ModelError, match=r"from the text and .* from the image \(gate 0.7"):
        training.train(config)


def test_gates_of_two_hops() -> None:
    """All that are missed are named; a toy that learns items alone has none of them."""
    good = {name: 1.0 for name in evaluation.GATES if "hops" in name or "place" in name}
    assert {name: evaluation.GATES[name] for name in good} == {
        "two_hops_2": 0.95, "two_hops_3": 0.95, "place_of_colour_2": 0.95,
        "place_of_colour_3": 0.95, "held_out_two_hops_2": 0.90, "held_out_two_hops_3": 0.90,
    }  # fmt: skip
    evaluation.check("toy", good, "-")
    missed = {**good, "two_hops_3": 0.94, "held_out_two_hops_2": 0.89}
    with pytest.raises(
        ModelError, match=r"two_hops_3 is 0.940 .*0.95\), held_out_two_hops_2 is 0.890 \(gate 0.9"
    ):
        evaluation.check("toy", missed, "-")


def _section(answer: str, *toys: dict[str, Any]) -> dict[str, Any]:
    suite = {"name": "s", "tasks": ["nine"], "toys": [toy["name"] for toy in toys],
             "template": "short", "answer": answer}  # fmt: skip
    task = {"name": "nine", "layout": "sprites", "order": "independent"}
    section = {"tasks": [task], "toys": toys, "suites": [suite]}
    return {"datasets": [], "studies": {"binding_id": section}}


@pytest.mark.parametrize(
    ("answer", "toy", "said"),
    [
        ("slot", {"name": "a"}, "'a': it is asked for places of items' things"),
        ("slot", {"name": "b", "source": "zoo:toy-interchange-0"}, "items of things alone"),
        ("item", {"name": "c", "answers": ["slot"]}, "places of items' things alone"),
    ],
)
def test_suites_ask_toys_for_what_they_learnt(answer: str, toy: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(_section(answer, toy), "c.yaml")


def test_keys_of_toys_that_answer_items_stay() -> None:
    """What they learn is in the key where it is not the default, in whatever order it is given."""

    def key(**fields: object) -> str:
        graph = build_graph(load_config(_section("item", {"name": "a", **fields}), "c.yaml"))
        return str(graph.of("toy_vlm")[0].path())

    assert "answers" not in recipe(Toy(name="a"))
    assert key() == key(answers=["item"])
    assert key(answers=["item", "slot"]) == key(answers=["slot", "item"]) != key()


def test_interchange_training_has_no_two_hops() -> None:
    with pytest.raises(ValidationError, match="no such demand of places"):
        Toy.model_validate({"name": "t", "objective": "interchange", "answers": ["slot"]})
