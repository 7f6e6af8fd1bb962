"""Forms and their losses against literal twins; the convex fits."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from pair_problems import GRID, blobs, planted_splits
from pair_twins import block_of, literal_logits, literal_loss
from planted_patches import Planted
from scipy.optimize import minimize

from bindscope.core.errors import InputError
from bindscope.fitting.lbfgs import descend
from bindscope.fitting.rows import ArrayRows
from bindscope.studies.same_object.config import (
    DiagonalScorer,
    LinearScorer,
    PositionScorer,
    QuadraticPositionScorer,
    QuadraticScorer,
)
from bindscope.studies.same_object.data import PairData, PatchPairs
from bindscope.studies.same_object.scorers import convex
from bindscope.studies.same_object.scorers.base import FitTask
from bindscope.studies.same_object.scorers.convex import PairProblem
from bindscope.studies.same_object.scorers.forms import (
    Covariance,
    LinearForm,
    PairForm,
    QuadraticForm,
)
from bindscope.studies.same_object.scorers.positions import (
    CoupleCounts,
    CoupleTable,
    ImageCoupleTable,
    PositionTable,
)

B, M, D = 3, 6, 4
FAMILIES = {"linear": LinearScorer, "diagonal": DiagonalScorer, "quadratic": QuadraticScorer}


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def easy():
    """Splits on which no scorer is perfect."""
    return planted_splits(Planted(noise=1.0, classes=1.5, rank=8, dim=32), n=(80, 40, 40))


def form_of(kind):
    return convex.form_of(kind, Covariance(torch.eye(D, dtype=torch.float64)))


def symmetrise(form, theta):
    """Make W symmetric, in place."""
    matrix = form.split(theta)["matrix"]
    matrix.copy_((matrix + matrix.t().clone()) / 2)


def problem(seed=0):
    draw = np.random.default_rng(seed)
    valid = np.ones((B, M), bool)
    valid[0, 2] = valid[1, :3] = False
    return draw.standard_normal((B, M, D)), draw.integers(0, 3, (B, M)), valid, draw


def as_matrix(kind, theta):
    """What weights mean, as (W, a, b)."""
    if kind == "linear":
        return torch.zeros(D, D, dtype=theta.dtype), theta[:D], theta[D]
    if kind == "diagonal":
        return torch.diag(theta[:D]), theta[D : 2 * D], theta[2 * D]
    return theta[: D * D].view(D, D), theta[D * D : -1], theta[-1]


@pytest.mark.parametrize("kind", ["linear", "diagonal", "quadratic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_and_gradients_equal_the_literal_expansion(kind, dtype):
    x, instances, valid, draw = problem()
    form = form_of(kind)
    theta = torch.tensor(draw.standard_normal(form.size))
    if kind == "quadratic":
        symmetrise(form, theta)
    block = block_of(torch.tensor(x, dtype=dtype), instances, valid)
    wide = block_of(torch.tensor(x), instances, valid)
    literal = literal_logits(wide.x, *as_matrix(kind, theta))
    tight = 1e-10 if dtype == torch.float64 else 2e-5
    computed = form.logits(theta.to(dtype), block)
    torch.testing.assert_close(computed.double(), wide.packed(literal), rtol=tight, atol=tight)

    leaf = theta.clone().requires_grad_()
    with torch.enable_grad():
        logits = literal_logits(wide.x, *as_matrix(kind, leaf))
        loss = literal_loss(logits, wide.instances, wide.valid)
    loss.backward()
    expected = leaf.grad
    if kind == "quadratic":  # of a symmetric W
        matrix = expected[: D * D].view(D, D)
        expected = torch.cat([((matrix + matrix.t()) / 2).reshape(-1), expected[D * D :]])
    sign = 1 - 2 * block.same.to(dtype)
    residuals = (sign * computed).sigmoid() * sign / len(computed)
    torch.testing.assert_close(
        form.slope(residuals, block).double(), expected, rtol=10 * tight, atol=tight
    )


def test_the_quadratic_form_with_positions_equals_the_literal_expansion():
    x, instances, valid, draw = problem()
    grid, covariance = (2, 3), Covariance(torch.eye(D, dtype=torch.float64))
    curvature, columns = torch.ones(15, dtype=torch.float64), torch.tensor([1, 3])
    positions = (
        PositionTable(grid, curvature),
        CoupleTable(curvature),
        ImageCoupleTable(curvature, columns),
    )
    form = PairForm([QuadraticForm(covariance), *positions, LinearForm(covariance)])
    theta = torch.tensor(draw.standard_normal(form.size))
    symmetrise(form, theta)
    cells = torch.tensor(draw.permuted(np.tile(np.arange(6), (B, 1)), axis=1))  # as M = 6 cells
    row, column = cells // 3, cells % 3
    x = torch.tensor(x) * torch.tensor(valid)[..., None]  # 0 of no patch, as blocks have it
    block = block_of(x, instances, valid)
    block = replace(block, positions=torch.stack([row, column], -1), columns=3)
    number = {couple: q for q, couple in enumerate((j, i) for i in range(6) for j in range(i))}

    def literal(theta):
        weights = form.split(theta)
        offsets, places = weights["table"][:6].view(grid), weights["table"][6:]
        apart = [(part[:, :, None] - part[:, None]).abs() for part in (row, column)]
        table = offsets[apart[0], apart[1]] + places[cells][:, :, None] + places[cells][:, None]
        logits = literal_logits(block.x, weights["matrix"], weights["linear"], theta[-1]) + table
        of_image = torch.stack([x[b][valid[b]].mean(0)[columns] for b in range(B)])
        for b, i, j in np.ndindex(B, M, M):
            if i != j:
                q = number[tuple(sorted((int(cells[b, i]), int(cells[b, j]))))]
                more = weights["couples"][q] + of_image[b] @ weights["image_couples"][:, q]
                logits[b, i, j] = logits[b, i, j] + more
        return logits

    computed = form.logits(theta, block)
    torch.testing.assert_close(computed, block.packed(literal(theta)))
    residuals = torch.tensor(draw.standard_normal(len(computed)))
    leaf = theta.clone().requires_grad_()
    with torch.enable_grad():
        (block.packed(literal(leaf)) * residuals).sum().backward()
    expected = leaf.grad
    matrix = expected[: D * D].view(D, D)
    expected = torch.cat([((matrix + matrix.t()) / 2).reshape(-1), expected[D * D :]])
    torch.testing.assert_close(form.slope(residuals, block), expected)


def test_pairs_are_those_of_valid_patches_once_each():
    x, instances, valid, _ = problem()
    block = block_of(torch.tensor(x), instances, valid)
    expected = [
        (n * M + i, n * M + j)
        for n in range(B)
        for i in range(M)
        for j in range(i + 1, M)
        if valid[n, i] and valid[n, j]
    ]
    assert (
        list(zip(block.first_places.tolist(), block.second_places.tolist(), strict=True))
        == expected
    )
    n = valid.sum(1)
    assert len(expected) == (n * (n - 1) // 2).sum()
    full = block_of(torch.zeros(2, 64, 1), np.ones((2, 64), int), np.ones((2, 64), bool))
    assert len(full.index) == 2 * 64 * 63 // 2
    values = torch.arange(float(len(expected)))
    assert torch.equal(block.packed(block.unpacked(values)), values)


def test_patches_without_an_object_are_in_no_pair():
    instances = torch.tensor([[0, 0, 1, 1, 2]])
    sample = {
        "patches": np.arange(5)[None],
        "instances": instances.numpy(),
        "classes": instances.numpy(),
    }
    data = PairData.from_arrays(sample, None, (1, 5))
    assert (data.valid.sum(), data.n_pairs, data.same_of_images.sum()) == (3, 3, 1)


def test_what_stands_where_there_is_no_patch_reaches_nothing():
    data = PairData.from_arrays(blobs(6, 0), np.ones((6, 32, 3), np.float16), GRID)
    hidden = np.where(data.valid[..., None], np.float16(1), np.float16(np.nan))
    for block in PatchPairs(replace(data, tokens=ArrayRows(hidden))).blocks():
        assert torch.isfinite(block.x).all()


@pytest.mark.parametrize("kind", ["diagonal", "quadratic"])
def test_a_pass_over_blocks_is_a_pass_over_all(easy, kind, monkeypatch):
    """Held or read anew, in blocks of any size: the same losses and gradients."""
    train = easy[0]
    passes = []
    for memory, block in ((2**30, 2**22), (0, 2**22), (2**30, 5000), (0, 5000)):
        pairs = PatchPairs(train, FitTask(train, train).scaling(), memory=memory, block=block)
        assert pairs.in_memory == (memory > 0)
        form = convex.form_of(kind, Covariance.measure(pairs))
        theta = torch.linspace(-0.1, 0.1, form.size)
        problem = PairProblem(form, (pairs, pairs), theta)
        loss, slope = problem.value_and_gradient(torch.zeros(form.size, 1))
        passes.append((loss, slope, *problem.value_and_gradient(-0.5 * slope)))
    assert PatchPairs(train, block=5000).images < 10
    for outcome in passes[1:]:
        for a, b in zip(passes[0], outcome, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["linear", "diagonal", "quadratic"])
def test_the_optimum_is_scipys(easy, kind):
    """A fixed ridge around other weights: the minimum that an independent optimiser finds."""
    this = convex.Fit.begin(
        LinearScorer(name="p", family="linear"), FitTask(*(split_of(s, 20, 6) for s in easy[:2]))
    )
    form = convex.form_of(kind, this.covariance)
    centre = torch.zeros(form.size)
    centre[-1] = -0.5
    problem = PairProblem(form, this.pairs, centre)

    def value(delta):
        w = torch.tensor(delta, dtype=torch.float32)[:, None]
        loss, slope = problem.value_and_gradient(w)
        pull = (0.01 * problem.penalty).float() * w
        return float(loss + (pull * w).sum() / 2), (slope + pull).double().numpy()[:, 0]

    reference = minimize(
        value,
        np.zeros(form.size),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "ftol": 1e-12, "gtol": 1e-6},
    )
    solution = descend(problem, torch.zeros(form.size, 1), 0.01, tolerance=1e-7)
    optimum, slope = value(solution.w[:, 0].double().numpy())
    assert optimum < value(np.zeros(form.size))[0] - 1e-3
    assert optimum == pytest.approx(reference.fun, abs=1e-6)
    assert np.linalg.norm(slope) < 1e-3
    assert float(solution.decrement) <= 1e-7


def test_counted_couples_of_places_are_their_pairs(easy):
    """The same losses and gradients, whether pairs are taken one by one or as counts."""
    pairs = PatchPairs(easy[0], memory=2**30)
    counts = CoupleCounts.count(pairs)
    grid, curvature = pairs.data.grid, counts.curvature
    form = PairForm([PositionTable(grid, curvature), CoupleTable(curvature)])
    outcomes = []
    for split in (pairs, counts):
        centre = torch.linspace(-0.5, 0.5, form.size)
        problem = PairProblem(form, (split, split), centre)
        loss, slope = problem.value_and_gradient(torch.zeros(form.size, 1))
        outcomes.append((loss, slope, *problem.value_and_gradient(-0.5 * slope)))
    for a, b in zip(*outcomes, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def split_of(data, n, dims):
    """The first images, and the first numbers of every token."""
    tokens = data.tokens.read(0, n)[..., :dims]
    return PairData(
        ArrayRows(tokens),
        data.instances[:n],
        data.classes[:n],
        data.valid[:n],
        data.positions[:n],
        data.grid,
    )


def test_a_richer_form_never_loses_more_on_train_or_validation(easy):
    task = FitTask(*easy[:2])
    rows = [
        convex.fit_form(config(name="p", family=kind), task)[0].columns
        for kind, config in FAMILIES.items()
    ]
    for poorer, richer in pairwise(rows):
        for loss in ("train_loss_bits", "val_loss_bits"):
            assert richer[loss] <= poorer[loss] + 1e-6
    assert rows[2]["val_loss_bits"] < rows[1]["val_loss_bits"] - 0.01
    assert all(row["flags"] == [] for row in rows)


@pytest.mark.parametrize(
    "planted",
    [
        Planted(noise=1.0, classes=1.5, rank=8, dim=32),
        Planted(binding=0.0, rank=8, dim=32),
    ],
    ids=["both", "places alone"],
)
def test_tokens_and_positions_together_lose_no_more_than_either(planted):
    task = FitTask(*planted_splits(planted, n=(60, 40, 1))[:2])
    [of_places] = convex.fit_position(PositionScorer(name="p", family="position"), task)
    [of_tokens] = convex.fit_form(QuadraticScorer(name="p", family="quadratic"), task)
    family = "quadratic_position"
    [both] = convex.fit_quadratic_position(QuadraticPositionScorer(name="p", family=family), task)
    for loss in ("train_loss_bits", "val_loss_bits"):
        least = min(fitted.columns[loss] for fitted in (of_places, of_tokens))
        assert both.columns[loss] <= least + 1e-6
    assert both.columns["flags"] == []
    if planted.binding:
        assert both.columns["val_loss_bits"] < of_tokens.columns["val_loss_bits"] - 0.05


def test_truncated_forms_keep_the_largest_eigenvalues_of_the_fitted_one(easy):
    config = QuadraticScorer(name="p", family="quadratic", ranks=(2, 8, 64))
    *fitted, full = convex.fit_form(config, FitTask(*easy[:2]))
    assert [form.rank for form in (full, *fitted)] == [0, 2, 8, 32]  # tokens have no 64 dimensions
    [alone] = convex.fit_form(QuadraticScorer(name="p", family="quadratic"), FitTask(*easy[:2]))
    assert all(np.array_equal(full.weights[name], alone.weights[name]) for name in full.weights)
    block = next(FitTask(*easy[:2]).pairs(full.scaling)[1].blocks())
    whole, *parts = (form.scorer.logits(block) for form in (full, *fitted))
    torch.testing.assert_close(parts[-1], whole, rtol=1e-3, atol=1e-3)
    gaps = [float((part - whole).square().mean()) for part in parts]
    assert gaps[0] > gaps[1] > 10 * gaps[2]
    for truncated in fitted:
        matrix = truncated.scorer.form.split(truncated.scorer.theta)["matrix"]
        assert torch.linalg.matrix_rank(matrix.double(), rtol=1e-5) == truncated.rank


def test_a_fit_that_is_cut_short_says_so(easy):
    config = QuadraticScorer(name="p", family="quadratic", steps=1, l2=(1e-3,))
    [fitted] = convex.fit_form(config, FitTask(*easy[:2]))
    assert fitted.columns["flags"] == ["not_converged"]


def test_tokens_of_other_patches_are_refused():
    with pytest.raises(InputError, match="one patch sample"):
        PairData.from_arrays(blobs(6, 0), np.zeros((6, 31, 3), np.float32), GRID)
