"""The IsSameObject loss beside an objective: value, gradient, and what it does to tokens."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, islice
from math import exp, log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from small_models import EASY, configured, trained
from torch import Tensor

from bindscope.codes.sampling import sample_codes
from bindscope.config.codes import SceneDistribution
from bindscope.config.models import Controlled
from bindscope.config.training import SameObjectLoss
from bindscope.core.errors import InputError, ModelError
from bindscope.core.files import canonical_json
from bindscope.core.registries import OBJECTIVES
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.rows import ArrayRows
from bindscope.graph.activations import trained_as
from bindscope.models.objectives.base import TokenSources
from bindscope.models.objectives.same_object import SameObject, things
from bindscope.models.pretraining_loss import load as load_loss
from bindscope.models.training import VAL_SCENES, train, write_training
from bindscope.models.training_scenes import FreshScenes, Masks, StoredScenes
from bindscope.models.vit import ViT, transform
from bindscope.scenes.render import render_scenes
from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.fit import fit_probe
from bindscope.studies.same_object.probes_config import AnyScorer

torch.set_num_threads(1)

BESIDE = {"weight": -1.0, "layer": 1}


def head(weight: float = 1.0, width: int = 6, seed: int = 0) -> SameObject:
    """Return a head that says something."""
    loss_head = SameObject(width, SameObjectLoss(weight=weight, layer=1))
    drawn = torch.randn(width, width, generator=torch.Generator().manual_seed(seed))
    loss_head.load_state_dict({"matrix": drawn, "bias": torch.tensor(0.3)})
    return loss_head


def tokens_and_labels(seed: int = 1) -> tuple[Tensor, Tensor]:
    tokens = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(seed))
    return tokens, torch.tensor([[1, 1, 0, 2, 2], [0, 0, 3, 0, 0], [1, 2, 3, 1, 0]])


# --- The loss -----------------------------------------------------------------------------------


def test_the_loss_is_that_of_every_pair_of_one_image_written_out() -> None:
    loss_head, (tokens, labels) = head(), tokens_and_labels()
    matrix = loss_head.matrix.detach().numpy().astype(float)
    symmetric = (matrix + matrix.T) / 2  # a pair is given in one order alone
    pair_losses = []
    for x, of in zip(tokens.numpy().astype(float), labels.tolist(), strict=True):
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        for i, j in combinations([i for i, label in enumerate(of) if label], 2):
            logit = x[i] @ symmetric @ x[j] / 6 + 0.3
            pair_losses.append(log2(1 + exp(-logit if of[i] == of[j] else logit)))
    assert len(pair_losses) == 12
    assert loss_head.loss_bits(tokens, labels).item() == pytest.approx(
        np.mean(pair_losses), rel=1e-5
    )


def test_the_order_of_tokens_does_not_matter() -> None:
    loss_head, (tokens, labels) = head(), tokens_and_labels()
    order = torch.tensor([4, 2, 0, 3, 1])
    torch.testing.assert_close(
        loss_head.loss_bits(tokens[:, order], labels[:, order]), loss_head.loss_bits(tokens, labels)
    )


def test_a_new_head_says_nothing_and_scenes_without_pairs_cost_nothing() -> None:
    loss_head, (tokens, labels) = (
        SameObject(6, SameObjectLoss(weight=1, layer=0)),
        tokens_and_labels(),
    )
    assert loss_head.loss_bits(tokens, labels).item() == pytest.approx(1)
    assert loss_head.loss_bits(tokens, torch.zeros_like(labels)).item() == 0


@pytest.mark.parametrize("weight", [-2.0, -0.5, 3.0])
def test_the_head_learns_and_the_tokens_are_given_lambda_times_the_gradient(weight: float) -> None:
    def gradients(weight: float) -> tuple[Tensor, Tensor]:
        loss_head, (tokens, labels) = head(weight), tokens_and_labels()
        loss_head.loss_bits(tokens.requires_grad_(), labels).backward()
        assert loss_head.matrix.grad is not None
        assert tokens.grad is not None
        return loss_head.matrix.grad, tokens.grad

    (of_head, of_tokens), (head_plain, plain) = gradients(weight), gradients(1.0)
    torch.testing.assert_close(of_head, head_plain)
    torch.testing.assert_close(of_tokens, weight * plain)


# --- Labels -------------------------------------------------------------------------------------


def test_patches_have_the_thing_of_most_of_their_pixels() -> None:
    ids = np.array(
        [[[1, 1, 2, 2],
          [1, 0, 2, 2],
          [3, 3, 0, 1],
          [3, 3, 2, 0]]]
    )  # fmt: skip
    stuff = np.array([[0, 0, 1]], np.uint8)
    # id 3 is stuff; in the last patch nothing has half of the pixels but background
    assert things(Masks(ids, stuff), 2, "here").tolist() == [[1, 2, 0, 0]]
    assert things(Masks(ids, np.zeros_like(stuff)), 2, "here").tolist() == [[1, 2, 3, 0]]
    with pytest.raises(InputError, match="here"):
        things(Masks(ids, stuff), 3, "here")
    ids[0, 2:, 2:] = [[1, 2], [3, 0]]
    assert things(Masks(ids, stuff), 2, "here").tolist() == [[1, 2, 0, 0]]  # impure


def test_tokens_are_labelled_by_what_they_show() -> None:
    """In another order, twice, or not at all, as masks and views have it."""
    ids = np.array([[[1, 2], [0, 1]], [[2, 2], [1, 0]]])
    masks = Masks(ids, np.zeros((2, 2), np.uint8))
    loss_head, (tokens, _) = head(), tokens_and_labels()
    visible = TokenSources(
        torch.tensor([1, 0, 1]), torch.tensor([[-1, 3, 2, 1, 0], [-1, 0, 0, 3, 1], [-1] * 5])
    )
    ((layer, listen),) = loss_head.listener(masks, 2, "here")(visible).items()
    assert layer == 1
    assert listen(tokens) is tokens
    labels = torch.tensor([[0, 0, 1, 2, 2], [0, 1, 1, 1, 2], [0] * 5])
    torch.testing.assert_close(loss_head.take(), loss_head.loss_bits(tokens, labels))
    with pytest.raises(ModelError, match=r"no masks(.|\n)*leave training.same_object out"):
        loss_head.listener(None, 2, "here")


def test_masks_belong_to_the_scenes_of_their_step() -> None:
    """They are those that the same codes and places are drawn with, fresh or stored."""
    fresh = FreshScenes(EASY, 32, 0)
    batch = next(islice(fresh.batches(33), 1))
    assert batch.masks is not None
    assert ((batch.masks.ids > 0) == (batch.images != 255).any(-1)).mean() > 0.99
    n_objects = [len(np.unique(ids)) - 1 for ids in batch.masks.ids]
    assert n_objects == batch.objects.sum(1).tolist()
    images, objects = fresh.validation(8)
    masks = fresh.validation_masks(8)
    assert [len(np.unique(ids)) - 1 for ids in masks.ids] == objects.sum(1).tolist()
    splits = {"train": images, "val": images}, {"train": objects, "val": objects}
    stored = StoredScenes(*splits, 4, 0, {"train": masks, "val": masks})
    first = next(stored.batches(0))
    assert first.masks is not None
    for image, ids in zip(first.images, first.masks.ids, strict=True):
        (which,) = [i for i, stored_image in enumerate(images) if (stored_image == image).all()]
        np.testing.assert_array_equal(ids, masks.ids[which])
    validation = stored.validation_masks(3)
    assert validation is not None
    np.testing.assert_array_equal(validation.ids, masks.ids[:3])


# --- Training -----------------------------------------------------------------------------------


def test_without_it_nothing_changes() -> None:
    """Weight 0 is no such loss: same keys, same bytes."""
    plain, zero = configured(), configured(same_object={"weight": 0, "layer": 1})
    assert "same_object" not in trained_as(plain)["training"]
    assert canonical_json(trained_as(plain)) == canonical_json(trained_as(zero))
    assert trained_as(configured(same_object=BESIDE))["training"]["same_object"] == BESIDE
    first, second = trained(plain), trained(zero)
    assert first.history == second.history
    assert first.weights.keys() == second.weights.keys()
    assert all(torch.equal(value, second.weights[name]) for name, value in first.weights.items())


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_model_starts_as_its_twin_without_and_its_own_loss_can_be_measured(
    objective: str, tmp_path: Path
) -> None:
    config = configured(objective, same_object=BESIDE)
    training, plain = trained(config), trained(configured(objective))
    losses = {(line["split"], line["step"]): line["loss_bits"] for line in training.history}
    assert losses["same_object", 0] == pytest.approx(1)
    assert losses["val", 0] == pytest.approx(plain.history[0]["loss_bits"], rel=1e-5)
    assert losses["same_object", 4] < 1
    assert training.weights.keys() - plain.weights.keys() == {
        "objective.added.matrix", "objective.added.bias",
    }  # fmt: skip
    spec = {"model": trained_as(config), "dataset": EASY.model_dump(mode="json")}
    paths = [tmp_path / f"vit{end}" for end in (".safetensors", ".history.json", ".json")]
    write_training(training, *paths, spec=canonical_json(spec), code="own:chained")
    scenes = FreshScenes(EASY, 32, 0).validation(VAL_SCENES)
    loss = load_loss(config, paths[-1], "cpu").bits(*scenes).mean()
    assert loss == pytest.approx(losses["val", 4], rel=1e-5)


def test_a_training_with_it_that_stops_goes_on_and_ends_in_the_same_weights(
    tmp_path: Path,
) -> None:
    class StoppedError(Exception):
        pass

    class Stopping(FreshScenes):
        def batches(self, first: int) -> Any:
            yield from islice(super().batches(first), 5)
            raise StoppedError

    config = configured(steps=8, same_object=BESIDE)
    checkpoint = Checkpoint(tmp_path / "state", "key")
    with pytest.raises(StoppedError):
        train(config, EASY, Stopping(EASY, 32, 0), None, checkpoint)
    assert checkpoint.read() is not None
    resumed = train(config, EASY, FreshScenes(EASY, 32, 0), None, checkpoint)
    whole = trained(config)
    assert resumed.history == whole.history
    assert all(torch.equal(value, resumed.weights[name]) for name, value in whole.weights.items())


def test_a_layer_that_is_not_there_and_a_model_that_is_not_trained_are_refused() -> None:
    with pytest.raises(ValidationError, match="there is no layer 3; choose 0 to 2"):
        configured(same_object={"weight": 1, "layer": 3})
    with pytest.raises(ValidationError, match="`none` is not trained"):
        configured("none", same_object=BESIDE)
    with pytest.raises(ValidationError, match="finite"):
        configured(same_object={"weight": float("nan"), "layer": 1})


# --- What it does -------------------------------------------------------------------------------

PAIRS = SceneDistribution.model_validate(
    EASY.model_dump()
    | {"name": "pairs", "space": EASY.space.model_dump() | {"min_objects": 2}}
)  # fmt: skip
LAYER, STEPS = 1, 250


def outcome(weight: float) -> tuple[float, float]:
    """Train with a weight; return the head's loss of validation scenes, and a probe's accuracy.

    The probe is quadratic, and is fitted afterwards.
    """
    config = configured(steps=STEPS, same_object={"weight": weight, "layer": LAYER})
    config = Controlled.model_validate(
        config.model_dump() | {"architecture": config.architecture.model_dump() | {"patch_px": 4}}
    )
    training = train(config, PAIRS, FreshScenes(PAIRS, 32, 0))
    vit = ViT(config.architecture, training.input_px)
    vit.load_state_dict(
        {n: v for n, v in training.weights.items() if not n.startswith("objective.")}
    )
    splits = [of_split(vit, split, n) for split, n in (("train", 300), ("val", 60), ("test", 150))]
    probe = TypeAdapter(AnyScorer).validate_python({"name": "p", "family": "quadratic"})
    test_accuracy: float = fit_probe(probe, *splits, bootstrap_samples=10)[0].row["accuracy"]
    losses = [line["loss_bits"] for line in training.history if line["split"] == "same_object"]
    return losses[-1], test_accuracy


def of_split(vit: ViT, split: Any, n: int) -> PairData:
    """Return labelled patches of `n` scenes with their tokens of the layer."""
    drawn = render_scenes(PAIRS, split, 0, sample_codes(PAIRS, split, 0, n))
    labels = things(Masks.from_arrays(drawn), vit.rows, split)
    patches = np.tile(np.arange(labels.shape[1]), (n, 1))
    with torch.no_grad():
        tokens = vit.tokens(transform(32)(drawn["images"], torch.device("cpu"), split))
        for block in vit.blocks[:LAYER]:
            tokens = block(tokens)
    sample = {"patches": patches, "instances": labels, "classes": (labels > 0).astype(int)}
    sample = {name: values.astype(np.int16) for name, values in sample.items()}
    data = PairData.from_arrays(sample, None, (vit.rows, vit.rows))
    return replace(data, tokens=ArrayRows(tokens[:, 1:].numpy()))


@pytest.mark.slow
def test_lambda_above_0_writes_what_a_new_probe_reads_and_below_0_hides_some_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The head reads more above 0 and less below 0 than where it only listens.

    So does a probe that is fitted afterwards, which reads more than the head was hidden from. A
    weight of 1e-9 leaves the transformer alone.
    """
    monkeypatch.setattr("bindscope.models.training.VAL_SCENES", 64)
    (helped, above), (listening, without), (against, below) = map(outcome, (3.0, 1e-9, -30.0))
    assert helped < listening - 0.05
    assert against > listening + 0.05
    assert above > without + 0.02
    assert below < without - 0.01
