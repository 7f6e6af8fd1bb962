"""Training of controlled models: every objective, scenes, and going on after a stop."""

from dataclasses import dataclass
from itertools import islice
from math import cos, log, pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killed_jobs import KilledError
from small_models import EASY, configured, trained
from torch import Tensor

from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import feature_code
from bindscope.config.codes import SceneDistribution
from bindscope.core.errors import ModelError
from bindscope.core.registries import OBJECTIVES
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.schedules import warm_up_and_cosine
from bindscope.models.objectives import self_distillation as distillation
from bindscope.models.objectives.masked import Masked
from bindscope.models.objectives.self_distillation import spread, view
from bindscope.models.training import VAL_SCENES, train, untrained
from bindscope.models.training_scenes import FIRST, FreshScenes, StoredScenes
from bindscope.scenes.render import render_scenes

FRESH = FreshScenes(EASY, 32, 0)


# Steps, and the share of the first validation loss that is left at most.
ENOUGH = {
    "objects": (120, 0.3),
    "features": (100, 0.3),
    "captions": (160, 0.7),
    "captions_unpaired": (160, 0.7),
    "masked": (100, 0.3),
    "self_distillation": (100, 0.8),
}


@pytest.fixture
def _few_validation_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else 21 validations take longer than the training."""
    monkeypatch.setattr("bindscope.models.training.VAL_SCENES", 64)


@pytest.mark.usefixtures("_few_validation_scenes")
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_training_learns_an_easy_set(objective: str) -> None:
    steps, share = ENOUGH[objective]
    training = trained(configured(objective, steps=steps))
    loss = {(line["split"], line["step"]): line["loss_bits"] for line in training.history}
    assert loss["val", steps] < share * loss["val", 0]
    steps_logged = [line["step"] for line in training.history if line["split"] == "val"]
    assert steps_logged == [0, *(steps * i // 20 for i in range(1, 21))]


@pytest.mark.usefixtures("_few_validation_scenes")
@pytest.mark.parametrize("objective", ["objects", "self_distillation"])
def test_seeds_reproduce_weights_bitwise(objective: str) -> None:
    torch.manual_seed(1)
    first = trained(configured(objective))
    torch.manual_seed(2)
    again, reseeded = trained(configured(objective)), trained(configured(objective, seed=1))
    assert first.history == again.history
    assert first.weights.keys() == again.weights.keys()
    assert all(torch.equal(value, again.weights[name]) for name, value in first.weights.items())
    assert not torch.equal(first.weights["embed.weight"], reseeded.weights["embed.weight"])


@pytest.mark.usefixtures("_few_validation_scenes")
@pytest.mark.parametrize("objective", ["objects", "masked"])
def test_random_init_is_where_the_trained_twins_started(objective: str) -> None:
    initial = untrained(configured("none", seed=3), EASY)
    assert initial.history == []
    assert not any(name.startswith("objective.") for name in initial.weights)
    still = trained(configured(objective, seed=3, learning_rate=1e-30, steps=2))
    assert initial.weights.keys() == {n for n in still.weights if not n.startswith("objective.")}
    for name, value in initial.weights.items():
        torch.testing.assert_close(still.weights[name], value, rtol=0, atol=1e-20)


@pytest.mark.parametrize("objective", ["objects", "features"])
def test_the_readout_starts_at_the_log_odds_of_training_scenes(objective: str) -> None:
    def label(objects: np.ndarray) -> np.ndarray:
        return objects if objective == "objects" else feature_code(objects, (2, 2))

    codes, labels = label(FRESH.sample()), label(FRESH.validation(VAL_SCENES)[1])
    p = (codes.sum(0) + 0.5) / (len(codes) + 1)
    surprise = -np.where(labels, np.log2(p), np.log2(1 - p)).sum(1)
    history = trained(configured(objective, steps=1)).history
    assert history[0]["loss_bits"] == pytest.approx(surprise.mean(), rel=1e-6)


def test_rates_rise_in_a_line_and_fall_as_a_cosine() -> None:
    rates = [warm_up_and_cosine(2.0, step, 100) for step in range(100)]
    assert rates[:6] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0, 2.0])
    assert rates[5:] == pytest.approx([1 + cos(pi * i / 95) for i in range(95)])
    assert 0 < rates[-1] < 1e-3
    assert warm_up_and_cosine(2.0, 0, 1) == 2.0


# --- Scenes -------------------------------------------------------------------------------------


def test_fresh_scenes_follow_from_seed_and_step() -> None:
    steps = list(islice(FRESH.batches(0), 70))  # a block is 32 steps
    assert [batch.step for batch in steps] == list(range(70))
    for first in (0, 1, 31, 32, 69):
        again = next(FRESH.batches(first))
        assert again.step == first
        np.testing.assert_array_equal(again.images, steps[first].images)
        np.testing.assert_array_equal(again.objects, steps[first].objects)
    assert len({batch.images.tobytes() for batch in steps}) == 70
    assert next(FreshScenes(EASY, 32, 1).batches(0)).images.tobytes() != steps[0].images.tobytes()


def test_fresh_scenes_are_those_of_the_split_and_not_of_a_store() -> None:
    halves = SceneDistribution.model_validate(
        EASY.model_dump()
        | {
            "split": {
                "rule": "ranked_feature_codes",
                "n_feature_codes": {"train": 3, "val": 3, "test": 3},
            },
        }
    )
    fresh = FreshScenes(halves, 64, 0)

    def codes_of(objects: np.ndarray) -> set[bytes]:
        return {row.tobytes() for row in feature_code(objects, (2, 2))}

    stored = {split: codes_of(sample_codes(halves, split, 0, 500)) for split in ("train", "val")}
    assert stored["train"].isdisjoint(stored["val"])
    assert codes_of(fresh.sample()) == codes_of(next(fresh.batches(7)).objects) == stored["train"]
    images, objects = fresh.validation(40)
    assert codes_of(objects) == stored["val"]
    drawn = render_scenes(halves, "val", FIRST, objects)["images"]
    np.testing.assert_array_equal(images, drawn)


def test_stored_scenes_are_passed_over_again_and_again() -> None:
    objects = {split: sample_codes(EASY, split, 0, 50) for split in ("train", "val")}
    images = {split: render_scenes(EASY, split, 0, o)["images"] for split, o in objects.items()}
    images["train"][:, 0, 0, 0] = np.arange(50)  # a mark
    stored = StoredScenes(images, objects, 20, 0)
    steps = list(islice(stored.batches(0), 5))
    marks = np.concatenate([batch.images[:, 0, 0, 0] for batch in steps])
    assert sorted(marks[:50]) == sorted(marks[50:]) == list(range(50))
    later = next(stored.batches(3))
    assert later.step == 3
    np.testing.assert_array_equal(later.objects, steps[3].objects)
    np.testing.assert_array_equal(stored.validation(7)[0], images["val"][:7])
    training = train(configured(), EASY, stored)
    assert training.history[-1]["loss_bits"] < training.history[0]["loss_bits"]


# --- Objectives ---------------------------------------------------------------------------------


def test_the_caption_of_unpaired_words_is_the_same_for_other_pairs() -> None:
    """Red square and blue circle, red circle and blue square: one bag of words, two captions."""
    from bindscope.models.objectives.base import Setting
    from bindscope.models.objectives.captions import CaptionsUnpaired, PairedCaptions
    from bindscope.models.vit import build

    pairs = torch.tensor([[1.0, 0, 0, 1], [0, 1, 1, 0]])
    for objective, same in ((CaptionsUnpaired, True), (PairedCaptions, False)):
        setting = Setting((2, 2), FRESH.sample(), torch.Generator().manual_seed(0))
        vit = build(configured().architecture, 32, torch.Generator().manual_seed(0))
        task = objective(vit, setting)
        first, second = task.text(pairs, task.values).detach()
        assert torch.allclose(first, second, atol=1e-6) == same


def test_teachers_answers_are_spread_evenly() -> None:
    scores = 2 * torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    scores[:, 0] += 9  # one answer is liked by all
    shares = spread(scores)
    torch.testing.assert_close(shares.sum(1), torch.ones(64))
    assert float(shares.sum(0).min()) > 3
    assert float(shares.sum(0).max()) < 16
    liked = scores.softmax(1)
    assert float(liked[:, 0].sum()) > 40  # as it was


def test_the_student_is_asked_for_the_teachers_answer_to_the_other_view(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bindscope.models.objectives.base import Setting
    from bindscope.models.vit import build

    generator = torch.Generator().manual_seed(0)
    vit = build(configured().architecture, 32, generator)
    task = distillation.SelfDistillation(vit, Setting((2, 2), FRESH.sample(), generator))
    first, second = torch.randn(2, 6, 3, 32, 32, generator=generator)
    views = iter((first, second))
    monkeypatch.setattr(distillation, "view", lambda pixels, generator: next(views))
    with torch.no_grad():
        loss = task.loss_bits(first, first, generator)
        teacher, head = task.teacher
        swapped = head(teacher.final_cls(torch.cat([second, first])))
        answers = distillation.spread(swapped / distillation.TEACHER_TEMPERATURE)
        scores = task.head(vit.final_cls(torch.cat([first, second])))
        logs = (scores / distillation.STUDENT_TEMPERATURE).log_softmax(-1)
    expected = -(answers * logs).sum(-1).mean() / log(2)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)


def test_a_view_keeps_hues_and_size() -> None:
    grey = torch.full((3, 3, 16, 16), -0.2)
    views = view(grey, torch.Generator().manual_seed(0))
    assert views.shape == grey.shape
    assert not torch.equal(views[0], views[1])
    torch.testing.assert_close(views[:, 0], views[:, 1])
    torch.testing.assert_close(views[:, 0], views[:, 2])


# --- Resuming -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoppingScenes(FreshScenes):
    """Scenes that end with an error."""

    def batches(self, first: int) -> Any:
        """Raise after 12 steps of 20."""
        yield from islice(super().batches(first), 12)
        raise KilledError


@pytest.mark.usefixtures("_few_validation_scenes")
@pytest.mark.parametrize("objective", ["captions", "masked", "self_distillation"])
def test_a_training_that_stops_goes_on_and_ends_in_the_same_weights(
    objective: str, tmp_path: Path
) -> None:
    """Masks, views and a teacher that is a moving average included."""
    config, checkpoint = configured(objective, steps=20), Checkpoint(tmp_path / "state", "key")
    with pytest.raises(KilledError):
        train(config, EASY, StoppingScenes(EASY, 32, 0), None, checkpoint)
    progress = checkpoint.read()
    assert progress is not None
    assert progress[1]["step"] == 12
    resumed, whole = train(config, EASY, FRESH, None, checkpoint), trained(config)
    assert resumed.history == whole.history
    for name, value in whole.weights.items():
        assert torch.equal(resumed.weights[name], value), name


def test_each_step_draws_its_own_masks_and_every_validation_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: dict[bool, list[bytes]] = {True: [], False: []}
    halves = Masked._halves

    def noted(self: Masked, pixels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        visible, hidden = halves(self, pixels, generator)
        drawn[torch.is_grad_enabled()].append(visible.numpy().tobytes())
        return visible, hidden

    monkeypatch.setattr(Masked, "_halves", noted)
    monkeypatch.setattr("bindscope.models.training.VAL_SCENES", 32)  # one batch
    trained(configured("masked", steps=4))
    assert len(drawn[True]) == len(set(drawn[True])) == 4
    assert len(drawn[False]) > 1 == len(set(drawn[False]))


def test_divergence_is_reported() -> None:
    with pytest.raises(ModelError, match=r"diverged at step \d+(.|\n)*learning_rate"):
        trained(configured(learning_rate=1e30, steps=50))
