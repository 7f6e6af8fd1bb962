"""The descent loop and its checkpoints, on learners that are neither probes nor models."""

from itertools import count, islice

import numpy as np
import pytest
import torch
from killed_jobs import KilledError
from safetensors.torch import load_file
from torch import nn

from bindscope.fitting import descent
from bindscope.fitting.adam import Adam
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.descent import Descent, DescentPlan, Run

STEPS = 40


class Lines:
    """Least squares: each run fits its own line through noisy points."""

    def __init__(self, dies_at=None):
        rng = np.random.default_rng(0)
        self.x = torch.from_numpy(rng.normal(size=(64, 3)).astype(np.float32))
        self.noise = torch.from_numpy(rng.normal(size=(64, 9)).astype(np.float32))
        self.dies_at, self.begun, self.seen = dies_at, [], []

    def target(self, run):
        """What a run is to predict, (64, 1)."""
        column = int(run.name)
        return self.x.sum(1, keepdim=True) + column * self.noise[:, column : column + 1]

    def batches(self, first):
        """Eight scenes each, by the number of the batch."""
        self.begun.append(first)
        for i in islice(count(), first, None):
            if i == self.dies_at:
                raise KilledError
            self.seen.append(i)
            yield torch.from_numpy(np.random.default_rng(i).integers(0, 32, 8))

    def backward(self, run, batch, share):
        """Squared error."""
        loss = (run.module(self.x[batch]) - self.target(run)[batch]).square().mean()
        (share * loss).backward()
        return loss.detach()

    def validate(self, runs):
        """Squared error of the second half."""
        rest = slice(32, None)
        with torch.no_grad():
            losses = [(run.module(self.x[rest]) - self.target(run)[rest]).square() for run in runs]
        return [float(loss.mean()) for loss in losses]


def plan(**fields):
    defaults = {
        "steps": STEPS,
        "rate": lambda step: 0.3 * (1 - step / STEPS),
        "optimiser": lambda module: Adam(module.parameters(), 0.01),
        "evaluate": lambda step: step % 4 == 0,
    }
    return DescentPlan(**{**defaults, **fields})


def runs(n=3):
    lines = []
    for i in range(n):
        torch.manual_seed(i)
        lines.append(Run(str(i), nn.Linear(3, 1)))
    return lines


def state(run):
    weights = {name: value.tolist() for name, value in run.module.state_dict().items()}
    best = {name: value.tolist() for name, value in run.best.items()}
    rest = (run.history, run.evaluations, run.best_loss, run.best_step, run.steps, run.stopped)
    return weights, best, rest


@pytest.mark.parametrize("dies_at", [1, 8, 30])
@pytest.mark.parametrize("fields", [{}, {"patience": 2, "accumulate": 2, "epoch": 3}])
def test_what_is_killed_goes_on_and_ends_in_the_same_bits(tmp_path, dies_at, fields):
    whole = runs()
    Descent(whole, Lines(), plan(**fields)).fit()
    checkpoint = Checkpoint(tmp_path / "state", "key")
    task, interrupted = Lines(dies_at), False
    try:
        Descent(runs(), task, plan(**fields), checkpoint).fit()
    except KilledError:
        interrupted = True
    assert interrupted or dies_at > 8
    again, resumed = Lines(), runs()
    Descent(resumed, again, plan(**fields), checkpoint).fit()
    assert [state(run) for run in resumed] == [state(run) for run in whole]
    if interrupted:
        assert again.begun[0] <= dies_at
        assert again.begun[0] > dies_at - 8  # at most the batches since the last evaluation
    assert checkpoint.path.is_file()  # until the results are written
    checkpoint.remove()
    assert list(tmp_path.iterdir()) == []


def test_between_distant_evaluations_a_state_is_kept_by_the_clock(tmp_path, monkeypatch):
    """A death loses seconds, not an epoch; losses since the evaluation before are kept too."""
    distant = plan(evaluate=lambda step: step % 20 == 0)
    whole = runs()
    Descent(whole, Lines(), distant).fit()
    monkeypatch.setattr(descent, "KEEP_S", 2.5)
    monkeypatch.setattr(descent, "monotonic", count().__next__)  # a second a look
    checkpoint, again, resumed = Checkpoint(tmp_path / "state", "key"), Lines(), runs()
    with pytest.raises(KilledError):
        Descent(runs(), Lines(19), distant, checkpoint).fit()
    Descent(resumed, again, distant, checkpoint).fit()
    assert again.begun[0] > 19 - 4
    assert [state(run) for run in resumed] == [state(run) for run in whole]


def test_a_checkpoint_of_another_key_or_a_damaged_one_is_not_read(tmp_path):
    def killed(key):
        task = Lines(20)
        with pytest.raises(KilledError):
            Descent(runs(), task, plan(), Checkpoint(tmp_path / "state", key)).fit()
        return task.begun

    assert killed("one") == [0]
    assert killed("one") == [20]
    assert killed("two") == [0]
    (tmp_path / "state").write_bytes(b"no safetensors")
    assert killed("two") == [0]
    content = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(content[: len(content) // 2])
    assert killed("two") == [0]


def test_a_checkpoint_of_many_kinds_of_numbers_is_read_as_written(tmp_path):
    tensors = {
        "mask": torch.tensor([True, False, True]),
        "none": torch.zeros(0, 4),
        "turned": torch.arange(6.0).view(2, 3).t(),
        "step": torch.tensor([2**40]),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "number": torch.ones((), dtype=torch.float64),
    }
    checkpoint = Checkpoint(tmp_path / "state", "key")
    checkpoint.write(tensors, {"step": 3})
    again, record = checkpoint.read()
    assert record == {"step": 3}
    assert again.keys() == tensors.keys() == load_file(tmp_path / "state").keys()
    for name, value in tensors.items():
        assert again[name].dtype == value.dtype
        assert torch.equal(again[name], value)


def test_a_descent_that_has_ended_takes_no_step_more(tmp_path):
    checkpoint, task = Checkpoint(tmp_path / "state", "key"), Lines()
    Descent(runs(), Lines(), plan(), checkpoint).fit()
    Descent(runs(), task, plan(), checkpoint).fit()
    assert task.seen == []


def test_each_run_stops_on_its_own_and_keeps_its_best_weights():
    lines = runs(9)
    Descent(lines, Lines(), plan(steps=400, patience=3)).fit()
    assert len({run.steps for run in lines}) > 1
    for run in lines:
        losses = dict(run.evaluations)
        assert run.best_loss == min(losses.values()) == losses[run.best_step]
        assert run.stopped == (run.steps < 400)
        run.restore()
        assert Lines().validate([run]) == [run.best_loss]


def test_a_run_does_not_depend_on_those_beside_it():
    alone, together = runs(2)[1:], runs(2)
    Descent(alone, Lines(), plan(patience=2)).fit()
    Descent(together, Lines(), plan(patience=2)).fit()
    assert state(alone[0]) == state(together[1])


def test_a_run_that_diverges_stops_and_says_so():
    (run,) = runs(1)
    Descent([run], Lines(), plan(rate=lambda _: 1e30)).fit()
    assert run.diverged
    assert run.steps < STEPS
    assert all(np.isfinite(entry.loss_bits) for entry in run.history)


def test_steps_end_with_the_epoch():
    task = Lines()
    Descent(runs(1), task, plan(accumulate=2, epoch=3, steps=5)).fit()
    assert task.seen == list(range(8))  # 2, 1, 2, 1, 2 batches


def test_the_train_loss_is_the_mean_since_the_last_evaluation():
    class Steps(Lines):
        def backward(self, run, batch, share):
            """Return the number of the batch for its loss."""
            super().backward(run, batch, share)
            return float(len(self.seen))

    (run,) = runs(1)
    Descent([run], Steps(), plan(steps=8)).fit()
    assert [entry for entry in run.history if entry.split == "train"] == [
        (4, "train", 2.5),
        (8, "train", 6.5),
    ]


def test_progress_names_the_unit_of_the_validation_loss(monkeypatch):
    notes = []
    monkeypatch.setattr(descent.Progress, "advance", lambda self, n=1, note="": notes.append(note))
    for fields, unit in (({}, "bits"), ({"unit": "errors"}, "errors")):
        Descent(runs(1), Lines(), plan(steps=1, **fields)).fit()
        assert notes.pop().endswith(f" {unit} on validation")
