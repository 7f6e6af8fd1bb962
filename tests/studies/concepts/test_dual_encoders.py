"""Controlled dual encoders: what they are shown and asked, that runs share nothing, the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dual_twins import loss_of_one
from hypothesis import given, settings
from hypothesis import strategies as st

from bindscope.core.errors import BindscopeError
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.schedules import warm_up_and_line
from bindscope.studies.concepts.config import DualEncoders, DualTraining
from bindscope.studies.concepts.dual import batches as batches_module
from bindscope.studies.concepts.dual.batches import Batches, split_objects
from bindscope.studies.concepts.dual.encoders import ENCODERS
from bindscope.studies.concepts.dual.runs import encoder_of as encoder_from
from bindscope.studies.concepts.dual.runs import rows, stored_runs, weights_file
from bindscope.studies.concepts.dual.training import (
    Trainee,
    _plan,
    contrastive,
    draw_runs,
    to_queries,
    train,
)
from bindscope.studies.concepts.inputs import read_dual
from bindscope.studies.concepts.scenes import Scenes, values_of
from bindscope.studies.concepts.scenes import split_objects as approximated_on
from bindscope.studies.concepts.set_separation import swaps

quick = settings(max_examples=25, deadline=None, derandomize=True)
SIZES = st.lists(st.integers(2, 4), min_size=2, max_size=3).map(tuple)
OPTIONS: dict[str, dict[str, int]] = {
    "product": {"dim": 8},
    "mlp_set": {"dim": 8, "hidden": 12},
    "transformer": {"width": 8, "layers": 2, "heads": 2, "hidden": 12, "dim": 6},
}


def entry(kind: str = "product", **fields: Any) -> DualEncoders:
    """Return an entry of the configuration with small values."""
    content = {
        "name": "e",
        "encoder": {"kind": kind, **OPTIONS[kind]},
        "spaces": [[5, 4]],
        "coverages": [0.5],
        "training": {"steps": 20, "batch_size": 6, "learning_rate": 0.02},
    }
    return DualEncoders.model_validate(content | fields)


def encoder_of(kind: str, sizes: tuple[int, ...], seed: int = 0) -> Any:
    return ENCODERS[kind](sizes, entry(kind).encoder, seed)


# --- Objects ------------------------------------------------------------------------------------


@quick
@given(st.integers(0, 50), st.sampled_from([0.3, 0.5, 0.8]))
def test_a_split_has_every_object_once_and_trains_on_every_value(seed: int, share: float) -> None:
    split = split_objects((5, 6), share, seed, every_value=True)
    assert len(split.train) == int(share * 30)
    assert sorted([*split.train, *split.test]) == list(range(30))
    values = values_of(split.train, (5, 6))
    assert [len(np.unique(column)) for column in values.T] == [5, 6]
    assert split.missing_values == 0


def test_values_that_no_training_object_has_are_counted_where_they_are_allowed() -> None:
    split = split_objects((10, 10), 0.02, 0, every_value=False)
    assert len(split.train) == 2
    present = [len(np.unique(column)) for column in values_of(split.train, (10, 10)).T]
    assert split.missing_values == 20 - sum(present)
    with pytest.raises(BindscopeError, match=r"10x10(.|\n)*2 objects(.|\n)*raise the coverage"):
        split_objects((10, 10), 0.02, 0, every_value=True)


def test_a_share_that_is_a_whole_number_but_for_rounding_is_that_number() -> None:
    assert len(split_objects((10, 10), 0.29, 0, every_value=True).train) == 29


def test_an_approximator_is_not_tested_on_what_the_encoder_of_its_seed_never_saw() -> None:
    scenes = Scenes.all_of((8, 8))
    shares = []
    for seed in range(20):
        unseen = split_objects((8, 8), 0.5, seed, every_value=True).test
        tested = scenes.slots[approximated_on(scenes, 0.8, seed).test]
        shares.append(np.isin(np.unique(tested), unseen).mean())
    assert 0.4 < np.mean(shares) < 0.6


def test_the_papers_schedule_is_that_of_its_code() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.5)
    released = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: step / 4 if step < 4 else (40 - step) / 36
    )
    for step in range(40):
        assert warm_up_and_line(0.5, step, 40) == pytest.approx(released.get_last_lr()[0])
        optimizer.step()
        released.step()


@pytest.mark.parametrize("decays", [True, False])
def test_the_scale_decays_where_it_is_asked_to(decays: bool) -> None:
    options = {"weight_decay": 0.1, "decays_scale": decays, "clip_norm": None}
    plan = _plan(DualTraining.model_validate(options))
    trainee = Trainee(encoder_of("product", (5, 4)), 10.0)
    decay = dict(zip(dict(trainee.named_parameters()), plan.optimiser(trainee).decays, strict=True))
    assert decay.pop("log_scale") == (0.1 if decays else 0.0)
    assert set(decay.values()) == {0.1}
    assert plan.clip_norm is None


# --- Batches ------------------------------------------------------------------------------------


def batches(pool: str = "train_only", seed: int = 0, **changes: Any) -> Batches:
    split = split_objects((5, 4), 0.5, seed, every_value=True)
    options = DualTraining.model_validate({"batch_size": 7, **changes})
    return Batches((5, 4), split.train, seed, pool, options)  # type: ignore[arg-type]


ASKED: dict[str, dict[str, Any]] = {
    "pool": {},
    "pool of all": {"pool": "all"},
    "batch": {"queries": "batch"},
    "few": {"queries": "batch", "max_objects": 4},
    "few values": {"queries": "batch", "max_values": 3},
    "scenes of one to three": {"queries": "batch", "objects_per_scene": [1, 2, 3]},
}


@pytest.mark.parametrize("name", ASKED)
def test_a_batch_says_what_a_loop_over_its_scenes_finds(name: str) -> None:
    drawn = batches(**ASKED[name])
    n_tokens, offset = 9, np.array([0, 5])
    for step in range(5):
        batch = drawn.batch(step)
        queries = batch.queries.tolist()
        assert queries == sorted(set(queries))
        assert set(queries) <= set(np.flatnonzero(drawn.pool[:-1]).tolist())
        for slots, objects, concepts in zip(
            batch.slots, batch.objects, batch.concepts, strict=True
        ):
            there = [int(o) for o in slots if o >= 0]
            assert objects.tolist() == [q in there for q in queries]
            tokens = {int(t) for o in there for t in values_of(np.array(o), (5, 4)) + offset}
            assert concepts.tolist() == [t in tokens for t in batch.values]
        present = {
            int(t)
            for row in batch.slots
            for o in row
            if o >= 0
            for t in values_of(o, (5, 4)) + offset
        }
        if most := drawn.training.max_values:
            assert batch.values.tolist() == sorted(set(batch.values.tolist()) & present)
            assert len(batch.values) == min(most, len(present))
        else:
            assert batch.values.tolist() == list(range(n_tokens))


def test_the_pool_is_asked_whole_and_a_batch_asks_its_objects_and_swaps_alone() -> None:
    for pool in ("train_only", "all"):
        drawn = batches(pool)
        np.testing.assert_array_equal(drawn.batch(3).queries, np.flatnonzero(drawn.pool[:-1]))
    drawn = batches(queries="batch", batch_size=3)
    swapped = 0
    for step in range(10):
        batch = drawn.batch(step)
        present = set(batch.slots.ravel().tolist())
        possible = set(swaps(batch.slots, (5, 4)).ravel().tolist())
        queries = set(batch.queries.tolist())
        assert present <= queries <= possible
        swapped += len(queries - present)
    assert swapped


def test_few_objects_are_asked_where_there_is_a_limit_and_others_of_a_scene_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches_module, "SWAPS", 0)
    batch = batches(queries="batch", max_objects=4).batch(0)
    assert len(batch.queries) == 4
    assert (batch.objects.sum(1) == 0).any()


def test_scenes_are_of_training_objects_each_as_likely_and_of_numbers_each_as_likely() -> None:
    drawn = batches(batch_size=4000, objects_per_scene=[1, 3])
    slots = drawn.batch(0).slots
    n = (slots >= 0).sum(1)
    assert set(n.tolist()) == {1, 3}
    assert abs((n == 1).mean() - 0.5) < 5 * 0.5 / 4000**0.5
    first = np.bincount(slots[:, 0], minlength=20)[drawn.train]
    assert first.sum() == 4000
    expected = 4000 / len(drawn.train)
    assert ((first - expected) ** 2 / expected).sum() < 40  # chi squared of 9


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    first, again = batches(), batches()
    ahead = first.batch(7)
    for step in (3, 7):
        np.testing.assert_array_equal(first.batch(step).slots, again.batch(step).slots)
    np.testing.assert_array_equal(ahead.slots, first.batch(7).slots)
    assert (first.batch(7).slots != first.batch(8).slots).any()
    places = [np.searchsorted(each.train, each.batch(0).slots) for each in (first, batches(seed=1))]
    assert (places[0] != places[1]).any()


# --- Encoders -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ENCODERS)
def test_first_weights_follow_from_the_seed(kind: str) -> None:
    states = [encoder_of(kind, (3, 4), seed).state_dict() for seed in (5, 5, 6)]
    assert all(torch.equal(states[1][name], value) for name, value in states[0].items())
    assert any((states[2][name] != value).any() for name, value in states[0].items())


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_place_without_an_object_counts_for_nothing_and_the_order_only_in_sequences(
    kind: str,
) -> None:
    encoder = encoder_of(kind, (3, 4))
    alone = encoder.scenes(torch.tensor([[7]]))
    padded = encoder.scenes(torch.tensor([[7, -1, -1], [1, 2, 3]]))[:1]
    torch.testing.assert_close(alone, padded, rtol=1e-4, atol=1e-6)
    two, turned = encoder.scenes(torch.tensor([[2, 9], [9, 2]]))
    assert torch.allclose(two, turned) == (kind != "transformer")
    assert not torch.allclose(two, encoder.scenes(torch.tensor([[2, 8]]))[0])


def test_a_product_of_three_types_is_what_it_is_called() -> None:
    options = entry(encoder={"kind": "product", "dim": 3}).encoder
    encoder: Any = ENCODERS["product"]((2, 3, 2), options, 4)
    (a, b, c) = (encoder.scene_objects.table[row] for row in (1, 2 + 2, 5 + 0))
    (embedding,) = encoder.scenes(torch.tensor([[1 * 6 + 2 * 2 + 0]]))
    torch.testing.assert_close(embedding, a * b * c)


def test_a_scene_is_a_sequence_and_padding_changes_nothing() -> None:
    encoder = encoder_of("transformer", (3, 4))
    slots = torch.tensor([[0, 7], [3, -1], [11, 1]])
    states = encoder.scenes(slots)
    tokens, lengths = encoder.sequences(slots)
    n = 7  # values
    assert tokens[0].tolist() == [n, 0, 3, n + 1, n, 1, 3 + 3, n + 1, n + 2]
    assert tokens[1].tolist() == [n, 0, 3 + 3, n + 1, n + 2, *[n + 3] * 4]
    assert lengths.tolist() == [9, 5, 9]
    for scene, length in enumerate(lengths):  # without padding, one by one
        row = encoder.scene_tower(tokens[scene, :length][None], length[None])
        torch.testing.assert_close(states[scene], row[0], rtol=1e-4, atol=1e-5)


def test_a_transformer_starts_from_the_published_distribution() -> None:
    for name, weight in encoder_of("transformer", (3, 4)).named_parameters():
        if weight.ndim > 1:  # Glorot's uniform one
            bound = (6 / sum(weight.shape)) ** 0.5
            assert 0.8 * bound < weight.abs().max() <= bound, name


# --- The loss -----------------------------------------------------------------------------------


def test_the_loss_is_that_of_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 6, generator=generator)
    positives = torch.rand(5, 6, generator=generator) < 0.4
    positives[0] = False  # a scene without any, which is left out
    there, back = loss_of_one(logits, positives), loss_of_one(logits.T, positives.T)
    assert float(to_queries(logits, positives)) == pytest.approx(there, rel=1e-5)
    both = float(contrastive(logits, positives, symmetric=True))
    assert both == pytest.approx((there + back) / 2, rel=1e-5)


# --- Training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ENCODERS)
def test_no_run_depends_on_another_and_its_loss_falls(kind: str) -> None:
    sizes, slots = (5, 4), torch.tensor([[0, 7], [3, -1], [19, 4]])
    both, single = entry(kind, coverages=[0.4, 0.7], seeds=[0, 1]), entry(kind, coverages=[0.7])
    together = train(both, sizes, "all", draw_runs(both, sizes))
    (alone,) = train(single, sizes, "all", draw_runs(single, sizes))
    assert together[2].losses == alone.losses
    assert all(
        torch.equal(together[2].weights[name], value) for name, value in alone.weights.items()
    )
    assert encoder_from(single.encoder, sizes, 0, alone.weights).scenes(slots).isfinite().all()
    assert alone.losses[-1][1] < alone.losses[0][1]


class KilledError(Exception):
    """Stands for the death of a job."""


def test_a_training_that_was_killed_ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, sizes = entry("mlp_set", coverages=[0.4, 0.7]), (5, 4)
    runs = draw_runs(config, sizes)
    whole = train(config, sizes, "train_only", runs)
    file = Checkpoint(tmp_path / "checkpoint", "key")
    batch = Batches.batch

    def dying(self: Batches, step: int, *stream: int) -> Any:
        if step == 13:
            raise KilledError
        return batch(self, step, *stream)

    monkeypatch.setattr(Batches, "batch", dying)
    with pytest.raises(KilledError):
        train(config, sizes, "train_only", runs, checkpoint=file)
    monkeypatch.setattr(Batches, "batch", batch)
    resumed = train(config, sizes, "train_only", runs, checkpoint=file)
    for again, first in zip(resumed, whole, strict=True):
        assert again.losses == first.losses
        assert all(torch.equal(again.weights[name], value) for name, value in first.weights.items())


def test_a_fit_that_has_not_ended_is_flagged() -> None:
    sizes = (5, 4)
    early = entry(training={"steps": 10, "batch_size": 6, "learning_rate": 0.02})
    runs = draw_runs(early, sizes)
    trained = train(early, sizes, "train_only", runs)
    assert trained[0].flags == ["not_converged"]
    scores = list(rows(early, sizes, runs, trained))
    assert {row["flags"] for row in scores} == {"not_converged;not_fitted"}


def test_an_encoder_that_diverged_recognizes_nothing_and_is_not_approximated(
    tmp_path: Path,
) -> None:
    wild = entry(training={"steps": 10, "batch_size": 6, "learning_rate": 1e30})
    sizes, runs = (5, 4), draw_runs(wild, (5, 4))
    trained = train(wild, sizes, "train_only", runs)
    assert trained[0].flags == ["diverged"]
    scores = list(rows(wild, sizes, runs, trained))
    assert {row["flags"] for row in scores} == {"diverged;not_fitted"}
    assert {row["value"] for row in scores if row["n_scenes"]} == {0.0}
    (tmp_path / "weights").write_bytes(weights_file(trained, runs))
    dual = {"encoder": wild.encoder.model_dump(), "objects": 20}
    spec = {"sizes": sizes, "dual": dual, "split_by": "objects", "protocol": "converged"}
    with pytest.raises(BindscopeError, match=r"training of every encoder diverged(.|\n)*lower"):
        list(read_dual(str(tmp_path / "weights"), spec))
    config = entry()
    both = [*trained, *train(config, sizes, "train_only", runs)]
    (tmp_path / "weights").write_bytes(weights_file(both, runs * 2))
    assert len(list(read_dual(str(tmp_path / "weights"), spec))) == 1


def test_a_job_leaves_a_file_that_gives_its_encoders_back(tmp_path: Path) -> None:
    config, sizes = entry("mlp_set", coverages=[0.4, 0.7], seeds=[3, 4]), (5, 4)
    runs = draw_runs(config, sizes)
    trained = train(config, sizes, "train_only", runs)
    (tmp_path / "weights").write_bytes(weights_file(trained, runs))
    stored = list(stored_runs(tmp_path / "weights", config.encoder.model_dump(), sizes))
    assert [run[:2] for run in stored] == [(0.4, 3), (0.4, 4), (0.7, 3), (0.7, 4)]
    slots = np.array([[0, 7], [19, 4]])
    *_, third = stored[2]
    queries = third.queries()
    assert [part.shape for part in (queries.objects, *queries.concepts)] == [
        (20, 8),
        (5, 8),
        (4, 8),
    ]
    table = trained[2].weights["scene_objects.table"]
    np.testing.assert_array_equal(third.scene_objects.table.detach(), table)  # type: ignore[union-attr]
    embeddings = third.scenes(torch.from_numpy(slots)).detach()
    np.testing.assert_array_equal(third.embed(slots), embeddings)
