"""Fits as the IsSameObject paper's code makes them: the step, the start, the map to our forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from pair_problems import planted_splits
from planted_patches import Planted

from bindscope.fitting.rows import ArrayRows
from bindscope.studies.same_object.config import (
    ClassScorer,
    CosineScorer,
    DiagonalScorer,
    DotScorer,
    LinearScorer,
    QuadraticScorer,
)
from bindscope.studies.same_object.data import PairData, PatchPairs
from bindscope.studies.same_object.fit import fit_probe
from bindscope.studies.same_object.scorers import released
from bindscope.studies.same_object.scorers.base import FitTask
from bindscope.studies.same_object.scorers.classes import fit_classes
from bindscope.studies.same_object.scorers.convex import fit_form, fit_similarity
from bindscope.studies.same_object.scorers.released import (
    DRAWN,
    EPOCHS,
    DrawnPatches,
    ReleasedForm,
    _Epochs,
    class_losses,
    pair_losses,
    train_form,
)

FAMILIES = {"linear": LinearScorer, "diagonal": DiagonalScorer, "quadratic": QuadraticScorer}


@pytest.fixture(scope="module")
def splits() -> list[PairData]:
    """Shifted and scaled tokens, one constant column: the scaling must be undone exactly."""
    return shifted((60, 20, 20))


def shifted(n: tuple[int, int, int]) -> list[PairData]:
    data_splits = planted_splits(Planted(noise=0.3, dim=24, rank=8, place_dims=4), n=n)
    scale = np.linspace(0.5, 3, 24, dtype=np.float32)
    return [
        replace(
            data,
            tokens=ArrayRows(np.where(np.arange(24) == 5, 1.5, data.tokens.values * scale + 2)),
        )
        for data in data_splits
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_form_of_raw_tokens_is_the_same_form_of_standardized_ones(
    splits: list[PairData], family: str
) -> None:
    config = FAMILIES[family](name="p", family=family, fit="released")
    task = FitTask(splits[0], splits[1])
    [fitted] = fit_form(config, task)
    assert not fitted.calibrate
    assert fitted.columns["steps"] == EPOCHS  # one step an epoch: fewer images than a step takes
    trained, [raw] = train_form(family, task), list(PatchPairs(splits[2]).blocks())
    module = ReleasedForm(family, 24, torch.Generator())
    if family == "quadratic":  # the matrix of a symmetric weight is weight / sqrt(d)
        module.weight.data = trained.weights["matrix"].float() * 24**0.5
        module.bias.data = trained.weights["bias"].float()
    else:
        name = "linear" if family == "linear" else "diagonal"
        module.weight.data = trained.weights[name].float()
        module.bias.data = trained.weights["bias"].float() / (2 if family == "linear" else 1)
    [scaled] = PatchPairs(splits[2], fitted.scaling).blocks()
    expected = raw.packed(module(raw.x)).detach()
    torch.testing.assert_close(fitted.scorer.logits(scaled), expected, atol=1e-3, rtol=1e-3)


def test_a_step_counts_ordered_pairs_and_each_patch_with_itself() -> None:
    form = ReleasedForm("quadratic", 3, torch.Generator().manual_seed(0))
    assert float(form.weight.detach().abs().max()) <= 3**-0.5
    x = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(1))
    instances = torch.tensor([[1, 1, 2, 9]])
    valid = torch.tensor([[True, True, True, False]])
    drawn = DrawnPatches(x, valid, instances[:, :, None] == instances[:, None], instances)
    loss, right, upper = pair_losses(form, drawn)
    w, total = (form.weight + form.weight.t()) / (2 * 3**0.5), []
    for i in range(3):
        for j in range(3):
            g = float((x[0, i] @ w @ x[0, j] + form.bias[0]).detach())
            p = 1 / (1 + np.exp(-g))
            total.append(-np.log(p if instances[0, i] == instances[0, j] else 1 - p))
    assert float(loss.detach()) == pytest.approx(np.mean(total), rel=1e-5)
    assert (len(right), int(upper.sum())) == (3, 3)


def test_an_epoch_reads_every_image_once_and_draws_patches_anew(splits: list[PairData]) -> None:
    shape = (600, 80)
    draw = np.random.default_rng(0)
    number = np.arange(600)[:, None].repeat(80, 1)
    data = PairData.from_arrays(
        {
            "patches": np.arange(80)[None].repeat(600, 0),
            "instances": draw.integers(0, 4, shape),
            "classes": np.ones(shape, int),
        },
        np.stack([number, np.arange(80)[None].repeat(600, 0)], -1).astype(np.float32),
        (8, 10),
    )
    pairs = PatchPairs(data)
    epochs = _Epochs((pairs, pairs), pair_losses, torch.zeros(1, dtype=torch.int64))
    assert epochs.steps == 3
    batches, drawn = epochs.batches(0), []
    for epoch in range(2):
        steps = [next(batches) for _ in range(3)]
        images = torch.cat([step.x[:, 0, 0] for step in steps])
        counts = torch.cat([step.valid.sum(1) for step in steps])
        assert sorted(images.tolist()) != images.tolist() or epoch
        counted = torch.from_numpy(data.valid.sum(1))[images.long()].clamp_max(DRAWN)
        assert len(set(images[counts > 0].tolist())) == 600
        assert torch.equal(counts, counted)
        drawn.append(
            {int(i): step.x[k, :, 1] for step in steps for k, i in enumerate(step.x[:, 0, 0])}
        )
    assert not torch.equal(drawn[0][3], drawn[1][3])
    resumed = _Epochs((pairs, pairs), pair_losses, torch.zeros(1, dtype=torch.int64)).batches(4)
    assert torch.equal(next(resumed).x, steps[1].x)


def test_a_released_quadratic_probe_learns_and_a_linear_one_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(released, "IMAGES", 8)
    splits, accuracy = shifted((240, 40, 60)), {}
    for family in ("quadratic", "linear"):
        config = FAMILIES[family](name="p", family=family, fit="released")
        row = fit_probe(config, *splits, bootstrap_samples=2)[-1].row
        assert row["steps"] == EPOCHS * 30
        assert '"fit":"released"' in row["options"]
        accuracy[family] = row["accuracy"] - row["majority_accuracy"]
    assert accuracy["quadratic"] > 0.05
    assert accuracy["linear"] < 0.02


def test_released_classes_are_chosen_and_graded_by_pairs_of_equal_names(
    splits: list[PairData],
) -> None:
    config = ClassScorer(name="c", family="class_pointwise", fit="released")
    row = fit_probe(config, *splits, bootstrap_samples=2)[-1].row
    [fitted] = fit_classes(config, FitTask(splits[0], splits[1]))
    [block] = PatchPairs(splits[2], fitted.scaling).blocks()
    named = fitted.scorer.values(block).argmax(-1)  # type: ignore[attr-defined]
    both = block.valid[:, :, None] & block.valid[:, None, :]
    alike, equal = (a[:, :, None] == a[:, None, :] for a in (named, block.classes))
    expected = float((alike == equal)[both].float().mean())
    assert row["class_pair_accuracy"] == pytest.approx(expected, abs=1e-6)
    module = torch.nn.Linear(24, int(block.classes.max()) + 1)
    drawn = DrawnPatches(block.x, block.valid, equal, block.classes)
    _, right, of = class_losses(module, drawn)
    assert (len(right), int(of.sum())) == (int(both.sum()), int(both.sum()))
    optimum = ClassScorer(name="c", family="class_pointwise")
    assert "class_pair_accuracy" not in fit_probe(optimum, *splits, bootstrap_samples=2)[-1].row


def test_released_classes_score_the_product_of_probabilities(splits: list[PairData]) -> None:
    config = ClassScorer(name="c", family="class_pointwise", fit="released")
    [fitted] = fit_classes(config, FitTask(splits[0], splits[1]))
    [block] = PatchPairs(splits[2], fitted.scaling).blocks()
    p = fitted.scorer.values(block).double().softmax(-1)  # type: ignore[attr-defined]
    expected = block.packed(torch.bmm(p, p.mT)).logit().float()
    torch.testing.assert_close(fitted.scorer.logits(block), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("scorer", [CosineScorer, DotScorer])
def test_a_released_similarity_fits_its_offset_alone(
    splits: list[PairData], scorer: type[CosineScorer | DotScorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    family = "cosine" if scorer is CosineScorer else "dot"
    monkeypatch.setattr(released, "IMAGES", 8)
    config = scorer.model_validate({"name": "p", "family": family, "fit": "released"})
    [fitted] = fit_similarity(config, FitTask(splits[0], splits[1]))
    assert not fitted.calibrate
    assert fitted.columns["steps"] == EPOCHS * 8
    assert fitted.weights["slope"] == 1
    [block] = PatchPairs(splits[2]).blocks()
    x = torch.nn.functional.normalize(block.x, dim=-1) if family == "cosine" else block.x
    expected = block.packed(torch.bmm(x, x.mT)) + float(fitted.weights["bias"][0])
    torch.testing.assert_close(fitted.scorer.logits(block), expected, atol=1e-4, rtol=1e-4)


def test_the_dot_product_reads_lengths_which_the_cosine_does_not(splits: list[PairData]) -> None:
    task = FitTask(splits[0], splits[1])
    [block] = PatchPairs(splits[2]).blocks()
    products = block.packed(torch.bmm(block.x, block.x.mT))
    orders = {}
    for scorer in (DotScorer(name="d", family="dot"), CosineScorer(name="c", family="cosine")):
        [fitted] = fit_similarity(scorer, task)
        logits = fitted.scorer.logits(block)
        slope = np.polyfit(products.numpy(), logits.numpy(), 1)
        orders[scorer.family] = np.abs(np.polyval(slope, products.numpy()) - logits.numpy()).max()
    assert orders["dot"] < 1e-3 < orders["cosine"]
