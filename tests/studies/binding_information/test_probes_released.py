"""`protocol: paper`: the released code's steps, rates and orders, and what it reports."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from probe_problems import SIZES, heads, probe, problem, released_problem
from slow_twins import bits_lost, released_loop, twin_of
from test_probes_fitting import fitted

from bindscope.fitting.generators import rng
from bindscope.studies.binding_information.probes import protocols
from bindscope.studies.binding_information.probes.data import ProbeData
from bindscope.studies.binding_information.probes.fitting import fit
from bindscope.studies.binding_information.probes.module import InputShape, build
from bindscope.studies.binding_information.probes.protocols import paper
from bindscope.studies.binding_information.probes.weights import rebuild


def test_the_papers_protocol_reports_the_last_epoch():
    data = released_problem()
    (result,) = fitted("quadratic", data=data, protocol="paper", targets=["plain"])
    curve = [
        row["loss_bits"]
        for row in result.history
        if row["target"] == "object" and row["split"] == "val"
    ]
    assert curve[-1] > min(curve) + 0.1
    assert result.val_loss_bits["object"] == pytest.approx(curve[-1], abs=1e-5)
    assert result.metadata["best_step"]["object"] == result.steps == 40
    last = rebuild(result.metadata, result.weights).logits("object", data.val.z, data.val.objects)
    losses = np.logaddexp(0, (1 - 2.0 * data.val.objects) * last).sum(1) / np.log(2)
    assert losses.mean() == pytest.approx(curve[-1], rel=1e-5)


def test_the_papers_protocol_reports_the_best_epoch_where_a_loss_is_not_finite():
    data = problem(noise=1.0)
    splits = {name: replace(part, z=1e19 * part.z) for name, part in data.splits.items()}
    data = ProbeData(**splits, sizes=SIZES)
    (result,) = fitted("quadratic", data=data, protocol="paper", targets=["plain"])
    assert {"diverged", "not_converged"} <= set(result.flags)
    assert all(np.isfinite(values).all() for values in result.weights.values())


def test_the_paper_s_protocol():
    data = problem((1100, 100, 100))
    for name in ("linear", "quadratic"):
        (result,) = fitted(name, data=data, protocol="paper")
        assert result.steps == 80  # of 1024 and of 76 scenes in each of 40 epochs
        assert np.array_equal(result.weights["standardise.z.scale"], np.ones(10))
    plan = paper(39_200)
    assert (plan.steps, plan.accumulate, plan.patience) == (1560, 2, 0)
    batches = [plan.batches_before(step) for step in (0, 1, 38, 39, 40, 78)]
    assert batches == [0, 2, 76, 77, 79, 154]  # 76 of 512 scenes and one of 288 in an epoch
    rates = [plan.rate(step) for step in (0, 8 * 39 - 1, 8 * 39, 16 * 39, 1559)]
    assert rates == pytest.approx([1e-3, 1e-3, 2e-4, 4e-5, 1e-3 * 0.2**4])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n"), [("linear", 1100), ("quadratic", 300), ("dnn", 2100)])
def test_the_paper_s_protocol_is_the_released_loop(name, n, monkeypatch):
    """The same losses after every epoch, from the same weights and in the same order."""
    monkeypatch.setattr(protocols, "PAPER_EPOCHS", 10)
    data = problem((n, 100, 100))
    config = probe(name, protocol="paper", **({"hidden": 16} if name == "dnn" else {}))
    (result,) = fit(config, data, [4])
    val_losses = [
        row["loss_bits"]
        for row in result.history
        if (row["target"], row["split"]) == ("object", "val")
    ]
    twin = twin_of(build(config, heads("object"), InputShape(10), 4), config)
    z, bits = (torch.from_numpy(x).float() for x in (data.train.z, data.train.objects))
    expected = []
    orders = (rng(4, 1, epoch).permutation(n) for epoch in range(10))
    for _ in released_loop(
        twin, twin.parameters(), z, bits, lambda _: torch.from_numpy(next(orders)), 10
    ):
        with torch.no_grad():
            val = torch.from_numpy(data.val.objects).float()
            expected.append(bits_lost(twin(torch.from_numpy(data.val.z), val), val).sum(1).mean())
    assert val_losses[1:] == pytest.approx([float(loss) for loss in expected], abs=2e-3)
