"""Linear probes: the optimum is scikit-learn's, head by head."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from probe_problems import heads, probe, problem
from sklearn.linear_model import LogisticRegression

from bindscope.fitting.lbfgs import descend
from bindscope.fitting.regressions import FACTOR, OWN_AFTER, Regressions
from bindscope.fitting.ridge import Average
from bindscope.studies.binding_information.probes import convex
from bindscope.studies.binding_information.probes.batches import make_source
from bindscope.studies.binding_information.probes.convex import HeadProblem, LinearInputs
from bindscope.studies.binding_information.probes.data import ProbeData
from bindscope.studies.binding_information.probes.fitting import fit
from bindscope.studies.binding_information.probes.runs import start


def of_head(data, split, part="object", half=None):
    """Return the regressions of heads on a split, and the source of their inputs."""
    config = probe("linear")
    source = make_source(config, data)
    run = start(config, heads(part), source.shape)
    inputs = LinearInputs(source, 2**30, run.family.linear_part)
    return HeadProblem(inputs, [run], split, half).regressions(), source


def regressions(part, dtype=torch.float64, **fields):
    original, _ = of_head(problem(**fields), "train", part)
    x, sign, offset = original.data
    data = x.to(dtype), sign.to(dtype), None if offset is None else offset.to(dtype)
    return Regressions(data, original.rows, original.penalty.to(dtype))


def solve(problem_, l2, **fields):
    return descend(problem_, torch.zeros_like(problem_.mask), l2, **fields)


def gradient_norm(problem_, w, l2):
    slope = problem_.value_and_gradient(w)[1] + l2 * problem_.penalty * w
    return (slope * problem_.mask).norm(dim=0)


@pytest.mark.parametrize("l2", [1e-1, 1e-3])
def test_the_optimum_is_that_of_scikit_learn(l2):
    problem_ = regressions("object", noise=1.0)
    solution = solve(problem_, l2, tolerance=1e-14)
    assert gradient_norm(problem_, solution.w, l2).max() < 1e-6
    x, sign, _ = problem_.data
    n, bias = len(x), 10
    for k, rows in enumerate(problem_.rows.tolist()):
        used = [i for i in range(rows) if i != bias]
        oracle = LogisticRegression(C=1 / (l2 * n), tol=1e-10, max_iter=10_000)
        oracle.fit(x[:, used].numpy(), (sign[:, k] < 0).numpy())
        np.testing.assert_allclose(solution.w[used, k], oracle.coef_[0], rtol=1e-4, atol=1e-6)
        assert float(solution.w[bias, k]) == pytest.approx(float(oracle.intercept_[0]), abs=1e-5)
        assert torch.all(solution.w[rows:, k] == 0)  # bits that this head may not see


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_columns_with_a_curvature_of_their_own_end_at_the_same_optimum_sooner(dtype):
    l2, tolerance = 1e-5, 1e-8
    shared = regressions("object", dtype, noise=1.0)
    with_room = replace(shared, room=2**30)
    slow, fast = (
        solve(each, l2, tolerance=tolerance, iterations=400) for each in (shared, with_room)
    )
    assert fast.iterations < slow.iterations
    losses = [
        shared.losses(w) + l2 / 2 * (shared.penalty * w.square()).sum(0) for w in (slow.w, fast.w)
    ]
    assert float((losses[0] - losses[1]).abs().max()) < 1e-6
    assert torch.equal(fast.w * shared.mask, fast.w)  # rows that a column does not use stay 0


def test_where_memory_has_no_room_all_columns_share_one_curvature():
    shared = regressions("object", noise=1.0)
    p, c = shared.mask.shape
    too_small = replace(shared, room=4 * p * p - 1)  # not even for the last column that is left
    without = replace(shared, room=0)
    assert torch.equal(*(solve(each, 1e-5, iterations=30).w for each in (too_small, without)))
    for problem_, n_inverses in ((too_small, 0), (replace(shared, room=4 * c * p * p), c)):
        problem_.prepare(torch.zeros(p, c, dtype=torch.float64), 1e-5, 1000 * OWN_AFTER)
        assert n_inverses == (0 if problem_.inverses is None else len(problem_.inverses))


def test_columns_get_their_own_curvature_when_iterations_have_taken_half_as_long():
    """Its operations are at least those of a factor: they buy so many iterations."""
    problem_ = replace(regressions("object", noise=1.0), room=2**30)
    p, c = problem_.mask.shape
    n = len(problem_.data[0])
    iterations = FACTOR * float((problem_.rows**3).sum()) / (8 * n * p * c)
    due = [line for line in range(OWN_AFTER, 1000 * OWN_AFTER, OWN_AFTER) if line > iterations]
    for line in (due[0] - OWN_AFTER, 2 * due[-1]):
        problem_.prepare(torch.zeros(p, c, dtype=torch.float64), 1e-5, line)
        assert (problem_.inverses is not None) == (line > due[0])


def test_anchors_are_an_offset_of_the_optimum():
    """An offset that is itself linear in the inputs is taken back by the weights."""
    problem_ = regressions("object", noise=4.0)
    w = solve(problem_, 0.0, tolerance=1e-14).w
    shift = torch.randn(w.shape, dtype=w.dtype, generator=torch.Generator().manual_seed(0))
    shift *= problem_.mask
    x, sign, _ = problem_.data
    moved = replace(problem_, data=(x, sign, x @ shift))
    torch.testing.assert_close(solve(moved, 0.0, tolerance=1e-14).w + shift, w, rtol=0, atol=1e-4)


def test_inputs_of_any_rank_and_scale():
    """Constant, repeated and badly scaled columns do not stop the descent."""
    problem_ = regressions("object", noise=1.0)
    x = problem_.data[0].clone()
    x[:, 0] = 0
    x[:, 1] = x[:, 2]
    x[:, 3] *= 1e4
    bad = replace(problem_, data=(x, problem_.data[1], None))
    solution = solve(bad, 1e-4, tolerance=1e-12)
    assert solution.iterations < 150
    assert torch.isfinite(solution.w).all()
    assert solution.decrement.max() <= 1e-12


def chosen(data, **fields):
    """The ridge strength of every head, and the result."""
    (result,) = fit(probe("linear", **fields), data, [0])
    options = result.metadata["chosen"]
    return {part: options[part]["l2"] for part in options}, result


def test_every_head_has_its_own_ridge():
    """Half of the bits are read without noise, half hardly: weak and strong ridges."""
    data, rng = problem((400, 400, 400), noise=0.0, dim=24), np.random.default_rng(1)
    splits = {}
    for name, split in data.splits.items():
        z = split.objects[:, :6] + 0.0
        noisy = split.objects[:, 6:] + 4.0 * rng.normal(size=(split.n_scenes, 6))
        z = np.concatenate([z, noisy, rng.normal(size=(split.n_scenes, 40))], axis=1)
        splits[name] = replace(split, z=z.astype(np.float32))
    ridges, result = chosen(replace(data, **splits))
    clear, dim = ridges["object"][:6], ridges["object"][6:]
    assert max(clear) < 1e-3
    assert all(l2 is None or l2 > max(clear) for l2 in dim)
    losses = {
        l2: float(fit_one(replace(data, **splits), l2).sum()) for l2 in (1.0, 0.1, 0.01, 1e-3, 1e-4)
    }
    assert result.val_loss_bits["object"] <= min(losses.values()) + 1e-6


def fit_one(data, l2):
    """Validation losses of all heads of O in bits, at one ridge strength for all."""
    (train, _), (val, _) = (of_head(data, split) for split in ("train", "val"))
    return val.losses(solve(train, l2).w) / np.log(2)


def test_strengths_are_averaged_by_their_likelihood():
    """Two close strengths share a head, so that rounding cannot move it from one to the other."""
    val, _ = of_head(problem((300, 300, 300), noise=1.0), "val")
    torch.manual_seed(0)
    path = [0.1 * torch.randn(val.mask.shape) for _ in range(3)]
    average = Average(val, path[0])
    on = torch.arange(val.mask.shape[1])
    for w in path[1:]:
        average.add(w, on)

    losses = torch.stack([val.losses(w) for w in path])
    shares = (-300 * losses).softmax(0)
    expected = (shares[:, None] * torch.stack(path)).sum(0)
    assert torch.allclose(average.w, expected.to(average.w.dtype), atol=1e-5)
    assert (val.losses(average.w) <= (shares * losses).sum(0) + 1e-6).all()


def test_each_half_of_validation_is_scored_by_the_weights_that_the_other_half_chose():
    """What the choice of ridges flatters is seen on scenes that had no say in it."""
    data = problem((300, 300, 300), noise=1.0)
    (val, source), *others = (of_head(data, "val", half=half) for half in (None, 0, 1))
    halves = [regressions_of_half for regressions_of_half, _ in others]
    origin = torch.zeros_like(val.mask)
    path = convex._Path(val, val, halves, source.halves, origin)
    torch.manual_seed(0)
    weights = [0.1 * torch.randn(val.mask.shape) for _ in halves]
    for average, w in zip(path.halves, weights, strict=True):
        average.w[:] = w
    _, crossed = path.gains(torch.arange(val.mask.shape[1]))
    for half, w in ((0, weights[1]), (1, weights[0])):
        scenes = source.halves == half
        expected = val.scene_gains(w, origin)[scenes] / np.log(2)
        assert torch.allclose(crossed[scenes], expected, atol=1e-6)


def test_a_code_that_is_read_without_noise_has_no_ridge_at_the_end():
    ridges, result = chosen(problem((600, 300, 300), noise=0.0, dim=24))
    assert max(ridges["object"]) <= 1e-3
    assert result.val_loss_bits["object"] < 0.01


def test_where_z_says_nothing_the_anchor_alone_is_the_choice():
    data, rng = problem(), np.random.default_rng(0)
    splits = {
        name: replace(split, z=rng.normal(size=(split.n_scenes, 60)).astype(np.float32))
        for name, split in data.splits.items()
    }
    ridges, result = chosen(ProbeData(**splits, sizes=data.sizes))
    assert ridges["object_anchored"].count(None) >= 6
    anchors = val_loss_of_anchors(data)
    assert result.val_loss_bits["object_anchored"] <= anchors
    assert result.val_loss_bits["object_anchored"] > 0.97 * anchors


def val_loss_of_anchors(data):
    """Loss of the exact prior over O on validation, bits per scene."""
    sign = 1 - 2.0 * data.val.objects
    return np.logaddexp(0, sign * data.val.anchors["object"]).sum(1).mean() / np.log(2)


def test_the_curvature_of_many_rows_and_few_scenes_is_factored() -> None:
    """Its rounding is larger than the ridge: rows of DINOv2-g's patches and class token."""
    x = torch.full((2, 3000), 3.0) + torch.randn(
        2, 3000, generator=torch.Generator().manual_seed(0)
    )
    data = (x, torch.ones(2, 1), None)
    problem = Regressions(data, torch.tensor([3000]), torch.ones(3000, 1))
    curvature = problem.curvature(torch.zeros(3000, 1))
    assert problem.inverse_factor(1e-6, curvature).isfinite().all()
    with pytest.raises(torch.linalg.LinAlgError):
        problem.inverse_factor(1e-6, torch.full_like(curvature, torch.nan))
