"""Scoring pairs of patches: a full quadratic step against its floor and a literal expansion.

A step is the loss and its gradient over all pairs of a block of images, as a pass of the convex fit
over streamed blocks takes it. Of B images with M patches of d numbers it needs at least ::

    2 B M d^2 * 2 + 2 B M^2 d * 2    FLOPs

(X W, X'(U X), and both products of (M, M) matrices), over the highest rate of matrix products of
this run.

The literal expansion (``tests/helpers/pair_twins.py``) makes x and y of every ordered pair, each
(B, M, M, d), and is differentiated by autograd; both must lose the same. Fits in processes of their
own, on tokens that are drawn as they are read, show what their memory depends on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Entry, Options, Other, gemm_rate, side_by_side
from pair_twins import literal_logits, literal_loss

from bindscope.fitting.lbfgs import descend
from bindscope.studies.same_object.config import QuadraticScorer
from bindscope.studies.same_object.data import PairBlock, PairData, PatchPairs
from bindscope.studies.same_object.scorers.base import FitTask
from bindscope.studies.same_object.scorers.convex import Fit, PairProblem, form_of
from bindscope.studies.same_object.scorers.forms import Covariance

TITLE = "Pairs of patches"
HALF = np.dtype(np.float16)
SHARE, GROWTH = 0.6, 1.1  # of the floor; of the peak memory from fewer to more images
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Size:
    """Images, patches of an image, numbers of a patch."""

    images: int
    patches: int
    dim: int

    def __str__(self) -> str:
        """Return how the table calls it."""
        return f"{self.images} images x {self.patches} patches, d {self.dim}"

    @property
    def flops(self) -> float:
        """FLOPs of the products of a step."""
        tokens = self.images * self.patches
        return 4.0 * tokens * self.dim * (self.dim + self.patches)

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """The two large products (m, k, n)."""
        tokens = self.images * self.patches
        return [(tokens, self.dim, self.dim), (self.dim, tokens, self.dim)]


LARGE, SMALL = Size(256, 64, 1024), Size(256, 32, 96)
# All pairs of 256 images of 64 patches as vectors of 1024 numbers would take 4.3 GB each.
EXPANDED = (Size(4, 64, 1024), Size(16, 32, 96))
# Images of train whose fits are compared, patches, numbers.
MEMORY = {"ci": (2000, 6000, 32, 32), "full": (2000, 8000, 64, 384)}
MEMORY_MB = 16


def entries(options: Options) -> list[Entry]:
    """Time the steps; fit in processes of their own."""
    torch.set_num_threads(options.threads)
    return [
        step_entry(LARGE, options, SHARE),
        step_entry(SMALL, options, None),
        *(expansion_entry(size, options) for size in EXPANDED),
        memory_entry(options),
    ]


@dataclass(frozen=True)
class DrawnTokens:
    """Rows (`fitting.rows.Rows`) that are drawn when they are read, so that none are held."""

    shape: tuple[int, int, int]
    dtype: np.dtype[Any] = HALF

    def read(self, start: int, stop: int, out: Any = None) -> Any:
        """Return images [start, stop): noise, and a vector of each of four objects."""
        _, patches, dim = self.shape
        draw = np.random.default_rng(start)
        object_vectors = draw.standard_normal((stop - start, 4, dim), dtype=np.float32)
        patches_of_images = object_vectors[:, np.arange(patches) % 4] + draw.standard_normal(
            (stop - start, patches, dim), dtype=np.float32
        )
        if out is None:
            return patches_of_images.astype(self.dtype)
        out[...] = patches_of_images
        return out


def drawn(size: Size) -> PairData:
    """Return patches of four objects an image."""
    instances = np.tile(np.arange(size.patches) % 4 + 1, (size.images, 1))
    sample = {
        "patches": np.tile(np.arange(size.patches), (size.images, 1)),
        "instances": instances,
        "classes": instances,
    }
    return PairData.from_arrays(sample, DrawnTokens((size.images, size.patches, size.dim)), (8, 8))


def step(size: Size, options: Options) -> tuple[PairProblem, torch.Tensor, list[PairBlock]]:
    """Return a problem whose blocks are ready, and the weights to evaluate it at."""
    pairs = PatchPairs(drawn(size), device=options.device)
    blocks = list(pairs.blocks())
    pairs.blocks = lambda: iter(blocks)
    for block in blocks:
        _ = block.first_places, block.second_places  # as in every pass after the first
    form = form_of("quadratic", Covariance(torch.eye(size.dim, dtype=torch.float64)))
    theta = torch.randn(form.size, generator=torch.Generator().manual_seed(0)) / size.dim**1.5
    matrix = form.split(theta)["matrix"]
    matrix.copy_((matrix + matrix.t()) / 2)
    theta = theta.to(options.device)
    problem = PairProblem(form, (pairs, pairs), theta)
    return problem, torch.zeros_like(theta)[:, None], blocks


def step_entry(size: Size, options: Options, share: float | None) -> Entry:
    """Time a step beside the floor of its products."""
    problem, zero, _ = step(size, options)
    rate = gemm_rate(size.shapes, options)
    seconds = side_by_side({"step": lambda: problem.value_and_gradient(zero)}, options)["step"]
    notes = {"flops": size.flops, "gemm_flop_per_s": rate, "threads": torch.get_num_threads()}
    return Entry(
        f"a quadratic step, {size}",
        seconds,
        [Other("GEMM floor", size.flops / rate, share)],
        notes=notes,
    )


def expansion_entry(size: Size, options: Options) -> Entry:
    """Time a step beside the literal expansion; both must lose the same."""
    problem, zero, blocks = step(size, options)
    theta = problem.centre.clone().requires_grad_()

    def literal() -> float:
        matrix = problem.form.split(theta)["matrix"]
        total = 0.0
        for block in blocks:
            logits = literal_logits(block.x, matrix, theta[size.dim**2 : -1], theta[-1])
            loss = literal_loss(logits, block.instances, block.valid)
            loss.backward()
            total += float(loss.detach()) * len(block.index)
        theta.grad = None
        return total / problem.pairs[0].n_pairs

    ours = float(problem.value_and_gradient(zero)[0])
    if abs(literal() - ours) > TOLERANCE * ours:
        raise SystemExit(f"the literal expansion loses {literal()}, the step {ours}")
    with torch.no_grad():
        times = side_by_side({"step": lambda: problem.value_and_gradient(zero)}, options)
    times |= side_by_side({"literal": literal}, options)
    return Entry(
        f"a quadratic step, {size}",
        times["step"],
        [Other("literal N x N x d expansion", times["literal"])],
    )


def memory_entry(options: Options) -> Entry:
    """Fit to fewer and to more images; the peak must be about the same."""
    few, many, patches, dim = MEMORY[options.size]
    peaks, seconds = {}, 0.0
    for images in (few, many):
        task = {"images": images, "patches": patches, "dim": dim, "threads": options.threads}
        done = subprocess.run(
            [sys.executable, __file__],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(options.threads)},
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"a fit to {images} images failed\n{done.stderr[-4000:]}")
        measured = json.loads(done.stdout.splitlines()[-1])
        peaks[images], seconds = measured["peak_gb"], measured["seconds"]
    name = f"two steps of a quadratic fit, {Size(many, patches, dim)}, memory_mb {MEMORY_MB}"
    limits = {f"peak GB, times that of {few} images": (peaks[many] / peaks[few], GROWTH)}
    return Entry(name, seconds, limits=limits, notes={"peak_gb": peaks})


def fit_in_this_process(task: dict[str, Any]) -> dict[str, Any]:
    """Take two steps of a quadratic fit; return seconds and the peak of this process."""
    torch.set_num_threads(task["threads"])
    train = drawn(Size(task["images"], task["patches"], task["dim"]))
    val = drawn(Size(2, task["patches"], task["dim"]))
    config = QuadraticScorer(name="p", family="quadratic")
    start = time.perf_counter()
    with torch.no_grad():
        fit = Fit.begin(config, FitTask(train, val, MEMORY_MB * 2**20))
        assert not fit.pairs[0].in_memory
        form = form_of("quadratic", fit.covariance)
        zero = torch.zeros(form.size)
        descend(PairProblem(form, fit.pairs, zero), zero[:, None], 1.0, iterations=2)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 / 1e9 for line in status if line.startswith("VmHWM"))
    return {"seconds": time.perf_counter() - start, "peak_gb": peak}


if __name__ == "__main__":
    print(json.dumps(fit_in_this_process(json.load(sys.stdin))))
