"""Toy vision-language models: answers against the library's own, training, gates, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bindscope.core.errors import ConfigError, InputError, ModelError
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.descent import Run
from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.config import Toy, ToyTraining
from bindscope.studies.binding_id.engine import CONTROL
from bindscope.studies.binding_id.tasks.prompts import Form, prompts
from bindscope.studies.binding_id.tasks.scenes import Rule, Scenes, question
from bindscope.studies.binding_id.toys import adapter, training
from bindscope.studies.binding_id.toys import model as stored
from bindscope.studies.binding_id.toys.adapter import engine_of
from bindscope.studies.binding_id.toys.model import LOOK_BACK, ToyModel, build
from bindscope.studies.binding_id.toys.tasks import KINDS, Vocabulary, draw, draw_pairs, images
from bindscope.studies.binding_id.toys.training import (
    SlotProbes,
    ToyAnswers,
    answered,
    interchange_loss,
    interchanged,
    naming_loss,
)
from bindscope.studies.binding_id.vlm.edits import Edits, Frozen
from bindscope.studies.binding_id.vlm.engine import edited

FEW = {"steps": 9, "batch_size": 4, "gates": False}


@pytest.fixture(scope="module")
def plain() -> ToyModel:
    return build(0, VOCABULARY)


VOCABULARY = Vocabulary.of_splits()


def _scenes(n: int = 3, k: int = 2) -> Scenes:
    return draw("test", rng(1), n, k)


def _read(toy: ToyModel, scenes: Scenes) -> Frozen:
    return engine_of("t", toy).read(scenes, images(scenes, rng(2)))


def _words(text: str) -> list[int]:
    return [VOCABULARY.tokens.index(word) for word in text.split()]


def _context(scenes: Scenes) -> torch.Tensor:
    """The tokens of "green has J . red has Q .", int64 (n, 4 k)."""
    built = prompts(scenes, [], Form(template="short"))
    return torch.tensor([_words(prompt.context.removeprefix("<image>")) for prompt in built])


@torch.no_grad()
def test_questions_side_by_side_are_answered_as_one_by_one_by_the_library(plain: ToyModel) -> None:
    scenes = _scenes(k=3)
    questions, _ = VOCABULARY.questions(scenes, KINDS)
    result = answered(engine_of("t", plain), Edits(_read(plain, scenes)), questions)
    embed = plain.network.get_input_embeddings()
    visual, text = plain.see(images(scenes, rng(2))), embed(_context(scenes))
    assert visual.shape == (3, 9, 96)
    for number in range(questions.shape[1]):
        words = embed(torch.from_numpy(questions[:, number]))
        whole = torch.cat([visual, text, words], 1)
        hidden = plain.network.model.language_model(
            inputs_embeds=whole, attention_mask=torch.ones(whole.shape[:2])
        ).last_hidden_state
        expected = plain.network.lm_head(hidden[:, -1])
        torch.testing.assert_close(result.logits[:, number], expected, atol=2e-4, rtol=1e-4)


def test_first_heads_look_back_as_planted() -> None:
    network = build(0, VOCABULARY).network
    network.set_attn_implementation("eager")
    words = torch.from_numpy(rng(3).integers(len(VOCABULARY.tokens), size=(4, 20)))
    with torch.no_grad():
        read = network.model.language_model(
            inputs_embeds=network.get_input_embeddings()(words),
            output_attentions=True,
            attention_mask=torch.ones(4, 20),
        )
    for attention in read.attentions[:2]:
        for head, offset in enumerate(LOOK_BACK):
            back = torch.diagonal(attention[:, head], -offset, 1, 2)[:, 2:]
            assert back.median() > 0.9
        assert torch.diagonal(attention[:, 2], -1, 1, 2).median() < 0.9  # others do not


def test_weights_follow_from_the_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, same, reseeded = (build(seed, VOCABULARY).trained_parameters() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], same[name]) for name in first)
    differ = [name for name, value in first.items() if not torch.equal(value, reseeded[name])]
    assert len(differ) == sum(v.ndim > 1 for v in first.values())  # biases and norms start alike
    assert 2 * sum(value.numel() for value in first.values()) < 1e6  # bytes as float16


def test_tokens_are_the_words_of_the_short_template(plain: ToyModel) -> None:
    scenes = _scenes()
    text = prompts(scenes, [question(scenes, 1)], Form(template="short"))
    questions, engine = VOCABULARY.questions(scenes, ["cross"])[0], engine_of("t", plain)
    for row, prompt in enumerate(text):
        assert _words(prompt.questions[0]) == questions[row, 1].tolist()
        ((tokens, _),) = engine.adapter.tokenize([prompt.questions[0]])
        assert tokens == questions[row, 1].tolist()
    with pytest.raises(InputError, match="teapot"):
        engine.adapter.tokenize(["? teapot has"])


def test_answers_are_those_of_the_scene() -> None:
    scenes = _scenes()
    tokens, answers = VOCABULARY.questions(scenes, KINDS)
    words = [[VOCABULARY.tokens[i] for i in row] for row in (*tokens[0], answers[0])]
    shape, color, item = (
        [scenes.words.get(name)[i] for i in getattr(scenes, name)[0]]
        for name in ("shape", "color", "item")
    )
    assert words[0] == ["?", shape[0], "has"]
    assert words[3] == ["?", color[1], "has"]
    assert words[5] == ["?", shape[1], "is"]
    assert words[6] == ["?", color[0], "is"]
    assert words[8] == [*item, *item, *color, *shape]


def test_naming_reads_the_tokens_of_each_things_slot() -> None:
    """The gradient of the image tokens: what shows no thing has none."""
    toy, scenes = build(0, VOCABULARY), _scenes()
    captured: list[torch.Tensor] = []

    def keep(_: object, __: object, output: torch.Tensor) -> None:
        output.retain_grad()
        captured.append(output)

    handle = toy.network.model.multi_modal_projector.register_forward_hook(keep)
    naming_loss(engine_of("t", toy), toy, scenes, images(scenes, rng(2)), ["shape"]).backward()  # type: ignore[no-untyped-call]
    handle.remove()
    assert captured[0].grad is not None
    read = captured[0].grad.abs().sum(-1) > 0
    assert np.array_equal(read.nonzero()[:, 1].reshape(-1, 2), np.sort(scenes.slot, axis=1))


@torch.no_grad()
def test_replacements_are_answered_by_slot(plain: ToyModel) -> None:
    pairs = draw_pairs("test", rng(4), 5)
    base, source = (_read(plain, scenes) for scenes in (pairs.base, pairs.source))

    def changed(edits: Edits, layer: int) -> NDArray[np.bool_]:
        values = edited(engine_of("t", plain).adapter, edits)[layer][1]
        return np.asarray((values != base.cache[layer][1]).any(-1).any(1))

    edits, tokens, answers = interchanged(plain, "object", base, source, [1])
    questions = VOCABULARY.ask(pairs.base.words, "shape", pairs.source.shape)
    assert np.array_equal(tokens[:, 1], questions[:, 1])
    assert not np.array_equal(tokens[:, 0], questions[:, 0])
    items = VOCABULARY.encode(pairs.base.words, "item", pairs.base.item)
    assert np.array_equal(answers, items)
    there = changed(edits, 0)
    assert np.array_equal(there[:, :9], np.eye(9, dtype=bool)[pairs.base.slot[:, 1]])
    assert not there[:, 9:].any()

    edits, _, answers = interchanged(plain, "item", base, source, [0])
    new = VOCABULARY.encode(pairs.base.words, "item", pairs.source.item)
    assert np.array_equal(answers, np.stack([new[:, 0], items[:, 1]], 1))
    assert (np.flatnonzero(changed(edits, 1).any(0)) == [9 + 2]).all()


def test_interchange_reaches_tower_text_and_probes(plain: ToyModel) -> None:
    pairs = draw_pairs("estimation", rng(4), 4)
    probes = SlotProbes(96, torch.Generator().manual_seed(0))
    engine = engine_of("t", plain)
    base, source = (engine.read(each, images(each, rng(1))) for each in (pairs.base, pairs.source))
    loss = interchange_loss(engine, plain, probes, base, source, [0, 1])
    loss.backward()  # type: ignore[no-untyped-call]
    reached = [name for name, p in plain.network.named_parameters() if p.grad is not None]
    assert len(reached) == len(list(plain.network.parameters()))
    for probe in (probes.item, probes.question):
        assert probe.weight.grad is not None
        assert probe.weight.grad.abs().sum() > 0
    plain.network.zero_grad()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "EVALUATED", 4)
    monkeypatch.setattr(training, "EVALUATIONS", 3)


@pytest.mark.usefixtures("quick")
def test_killed_training_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Toy.model_validate({"name": "t", "objective": "interchange", "training": FEW})
    whole = training.train(config)
    checkpoint = Checkpoint(tmp_path / "state", "key")
    backward = training._Task.backward

    def dying(task: training._Task, run: Run, batch: int, share: float) -> float:
        if batch == 5:
            raise KeyboardInterrupt
        return backward(task, run, batch, share)

    monkeypatch.setattr(training._Task, "backward", dying)
    with pytest.raises(KeyboardInterrupt):
        training.train(config, checkpoint=checkpoint)
    monkeypatch.setattr(training._Task, "backward", backward)
    resumed = training.train(config, checkpoint=checkpoint)
    parameters, expected = (t.toy.trained_parameters() for t in (resumed, whole))
    assert all(torch.equal(parameters[name], expected[name]) for name in expected)
    assert resumed.history == whole.history
    assert resumed.accuracies == whole.accuracies
    splits = [entry["split"] for entry in whole.history]
    assert splits.count("val") == 4
    assert splits.count("train") == 3
    assert {"object_all_replaced", "held_out_cross_3"} <= set(whole.accuracies)


@pytest.mark.usefixtures("quick")
def test_toy_that_has_not_learnt_fails() -> None:
    config = Toy(name="t", training=ToyTraining(**{**FEW, "gates": True}))
    with pytest.raises(ModelError, match=r"misses its gates: copy_2 is .*\n.*training.steps \(9\)"):
        training.train(config)


def test_gates_name_all_that_is_missed() -> None:
    good = dict.fromkeys([*training.GATES, *training.INTERCHANGE_GATES], 1.0)
    training.check_gates("toy", good, "train")
    with pytest.raises(
        ModelError, match=r"cross_3 is 0.940 \(gate 0.95\), item_all_replaced is nan"
    ):
        training.check_gates(
            "toy", {**good, "cross_3": 0.94, "item_all_replaced": float("nan")}, "-"
        )


def test_accuracies_count_what_is_right(plain: ToyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that knows the answers of one kind gets those right, one that knows none nothing."""
    real = Vocabulary.questions
    known: list[np.ndarray] = []

    def remember(self: Vocabulary, scenes: Scenes, kinds: object) -> object:
        tokens, answers = real(self, scenes, kinds)  # type: ignore[arg-type]
        known.append(answers)
        return tokens, answers

    def oracle(engine: object, contexts: object, questions: object) -> ToyAnswers:
        partly = known[-1].copy()
        partly[:, partly.shape[1] // len(KINDS) :] += 1
        logits = torch.nn.functional.one_hot(torch.from_numpy(partly % 90), 90).float()
        return ToyAnswers(logits, logits)

    monkeypatch.setattr(Vocabulary, "questions", remember)
    with monkeypatch.context() as patch:
        patch.setattr(training, "answered", oracle)
        accuracies = training.measure_accuracies(plain, 0, 8, interchange=False)
    assert {name for name, share in accuracies.items() if share == 1.0} == {
        f"{split}{KINDS[0]}_{k}" for split in ("", "held_out_") for k in (2, 3)
    }
    assert len(accuracies) == 16
    wrong = training.measure_accuracies(plain, 0, 8, interchange=True)
    assert max(wrong.values()) < 0.5
    assert len(wrong) == 20


def _stored(folder: Path) -> Path:
    config = Toy(name="t", training=ToyTraining(**FEW))
    trained = training.TrainedToy(build(0, VOCABULARY), [], {})
    stored.write(trained, config, folder / "t.safetensors", folder / "t.json", code="c")
    return folder / "t.json"


def test_a_stored_toy_answers_as_in_training(tmp_path: Path) -> None:
    path, scenes = _stored(tmp_path), _scenes()
    rule = Rule("sprites", 2, "independent")
    engine, pictures = adapter.load({"name": "t"}, rule, path)
    answers = engine.answers(
        engine.contexts(scenes, pictures(scenes)),
        None,
        [CONTROL],
        [question(scenes, 0)],
        scenes.item,
    )
    toy = stored.load(path)
    questions, _ = VOCABULARY.questions(scenes, ["cross"])
    reference = engine_of("t", toy)
    with torch.no_grad():
        contexts = reference.read(scenes, pictures(scenes))
        result = answered(reference, Edits(contexts), questions[:, :1])
    logs = result.logits[:, 0].log_softmax(-1)
    items = torch.from_numpy(VOCABULARY.encode(scenes.words, "item", scenes.item))
    np.testing.assert_allclose(answers[:, 0, 0], logs.gather(1, items), atol=1e-4)


def test_scenes_that_a_toy_cannot_read_are_refused() -> None:
    with pytest.raises(ConfigError, match="layout: sprites"):
        adapter.load({"name": "t"}, Rule(), None)
