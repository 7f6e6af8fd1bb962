"""Linear fits of all heads: against the mean curvature alone, and against scikit-learn.

Ours
----
``fit`` of a linear probe: the heads of O, of F and of O given F, along ten ridge strengths, on one
thread.

Mean curvature
--------------
The same fit where no column gets an inverse Hessian of its own (`fitting.regressions`). Losses of
both on test must agree within .005 bits.

scikit-learn
------------
``LogisticRegression`` of one head after the other, along the same strengths, each warm from the
stronger one, among which validation chooses; at its own tolerance, which is looser. It fits the
heads of O alone, without anchors (it takes no offsets): at most half of what ours fits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from measure import Entry, Options, Other, side_by_side
from probe_problems import probe, problem
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from bindscope.fitting import regressions
from bindscope.studies.binding_information.probes.convex import STRENGTHS
from bindscope.studies.binding_information.probes.data import ProbeData
from bindscope.studies.binding_information.probes.fitting import fit

TITLE = "Linear fits"
AGREE_BITS = 0.005
SIDES, DIMS = (6, 8), (64, 384)
SCENES = {"ci": (1500, 300, 300), "full": (5000, 1000, 300)}


def entries(options: Options) -> list[Entry]:
    """Time fits of every size."""
    torch.set_num_threads(1)
    sizes = [(side, dim) for side in SIDES for dim in DIMS]
    return [entry(side, dim, options) for side, dim in sizes[: 1 if options.size == "ci" else None]]


def entry(side: int, dim: int, options: Options) -> Entry:
    """Time one size; the fits with and without Hessians of columns must agree."""
    data = problem(SCENES[options.size], dim, (side, side), noise=2.0)
    config = probe("linear", device=options.device)
    losses: dict[str, list[float]] = {}

    def ours(name: str) -> None:
        (result,) = fit(config, data, (0,))
        losses[name] = [float(scenes.mean()) for scenes in result.losses.values()]

    def mean_curvature() -> None:
        with without_own_hessians():
            ours("mean curvature")

    typical = side_by_side(
        {
            "ours": lambda: ours("ours"),
            "mean curvature": mean_curvature,
            "scikit-learn": lambda: scikit_learn(data),
        },
        options,
    )
    if not np.allclose(losses["ours"], losses["mean curvature"], rtol=0, atol=AGREE_BITS):
        raise SystemExit(f"K {side**2}, d {dim}: losses differ: {losses}")
    rivals = [
        Other("mean curvature", typical["mean curvature"]),
        Other("scikit-learn", typical["scikit-learn"], 1.0),
    ]
    return Entry(
        f"linear, K {side**2}, d {dim}, {len(data.train.z):,} scenes", typical["ours"], rivals
    )


@contextmanager
def without_own_hessians() -> Iterator[None]:
    """Let the mean curvature of all columns serve each."""
    ridge, regressions.OWN_RIDGE = regressions.OWN_RIDGE, 0.0
    try:
        yield
    finally:
        regressions.OWN_RIDGE = ridge


@threadpool_limits.wrap(limits=1)  # NumPy's BLAS has its threads already, and more are slower
def scikit_learn(data: ProbeData) -> list[float]:
    """Return the validation loss in nats of each head of O, by scikit-learn."""
    mean, scale = data.train.z.mean(0), data.train.z.std(0)
    train, val = ((split.z - mean) / scale for split in (data.train, data.val))
    best = []
    for head in range(data.train.objects.shape[1]):
        x, x_val = (
            np.concatenate([z, split.objects[:, :head] - np.float32(0.5)], axis=1)
            for z, split in ((train, data.train), (val, data.val))
        )
        model = LogisticRegression(warm_start=True, max_iter=400, tol=1e-4)
        losses = []
        for ridge in STRENGTHS:
            model.set_params(C=1 / (ridge * len(x)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(x, data.train.objects[:, head])
            losses.append(log_loss(data.val.objects[:, head], model.predict_proba(x_val)))
        best.append(min(losses))
    return best
