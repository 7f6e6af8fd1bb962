"""Logistic regressions that share one design matrix, fitted together to their convex optima.

Column c minimises  mean_i softplus(-(2 y_ic - 1) l_ic) + ridge/2 |w_c|^2 (bias unpenalised) with
logits l = offset + X w_c, over the leading rows of w_c that the column may use.  All columns
advance together (`fitting.lbfgs`).  The initial inverse Hessian is that of the mean curvature of
the columns that are left, exact per column because columns use nested leading blocks of one
Cholesky factor.  Where the ridge is weak, columns differ much in their curvature: what has not
converged goes on with an inverse Hessian of its own, of the scenes that have most of its curvature,
once iterations have taken half as long as these Hessians take.  SciPy's L-BFGS takes 20 times as
long or more, in as many more iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.fitting.lbfgs import Problem

REFRESH = 20  # iterations after which the curvature is measured anew; more often takes as long
ROWS = 4096  # scenes at a time of which the curvature takes another copy
JITTER = 1e-6
# Ridge from which columns may get an inverse Hessian of their own, and after how many iterations it
# is asked, again and again, whether that pays.
OWN_RIDGE, OWN_AFTER = 1e-4, 8
FACTOR = 6  # operations per p^3 of a Hessian's factor and inverse, in float64 counted twice
HEAVY = 0.95  # of a column's curvature that the scenes have from which its Hessian is measured

# Of some scenes: design matrix x (n, p); sign (n, C), 1 where the label is 0 and -1 where it is 1;
# and what is added to the logits, in nats, (n, C), or None.
SceneBlock: TypeAlias = tuple[Tensor, Tensor, Tensor | None]


@dataclass(eq=False)
class Regressions(Problem):
    """The data of all columns, and which weights they have.

    `data` is one block, where all scenes are in memory, or what starts a pass over blocks of
    successive scenes, of which memory holds one at a time. Each column uses `rows` (C,) leading
    rows of w; `penalty` (p, 1) is 1 for rows under the ridge, 0 for the bias. Where the inverse
    Hessians of all columns do not fit into `room`, that of their mean serves all.
    """

    data: SceneBlock | Callable[[], Iterator[SceneBlock]]
    rows: Tensor
    penalty: Tensor
    room: int = 0  # bytes that inverse Hessians of single columns may take
    columns: Tensor | None = None  # of the blocks of a pass; all of them if None
    factor: Tensor | None = None  # L^-1 (p, p) of the mean curvature, see `inverse_factor`
    inverses: Tensor | None = None  # inverse Hessians of single columns, (C, p, p)

    def __post_init__(self) -> None:
        row = torch.arange(len(self.penalty), device=self.penalty.device)[:, None]
        self.mask = (row < self.rows).to(self.penalty.dtype)  # (p, C): 1 where a column uses a row

    def select(self, columns: Tensor) -> Regressions:
        """Return the regressions of some columns."""
        rows = self.rows[columns]
        inverses = None if self.inverses is None else self.inverses[columns]
        if not callable(self.data):
            data = _select_columns(self.data, columns)
            return replace(self, data=data, rows=rows, inverses=inverses)
        columns = columns if self.columns is None else self.columns[columns]
        return replace(self, columns=columns, rows=rows)

    def blocks(self) -> Iterator[SceneBlock]:
        """Start a pass over the scenes."""
        for block in self.data() if callable(self.data) else (self.data,):
            yield block if self.columns is None else _select_columns(block, self.columns)

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean losses (C,) in nats and their gradient (p, C), without ridge."""
        loss, gradient, n = torch.zeros((), dtype=torch.float64), torch.zeros(()), 0
        for block in self.blocks():
            x, sign, _ = block
            margins = _margins(block, w)
            loss = softplus(margins).sum(0).double() + loss
            gradient = x.t() @ margins.sigmoid_().mul_(sign) + gradient
            n += len(x)
        return (loss / n).to(gradient.dtype), gradient / n * self.mask

    def precondition(self, gradient: Tensor, ridge: float) -> Tensor:
        """Return about the inverse of the Hessian, of the ridge of `prepare`, times (p, C)."""
        del ridge
        if self.inverses is not None:
            return torch.bmm(self.inverses, gradient.t()[:, :, None])[:, :, 0].t()
        assert self.factor is not None
        return self.mask * (self.factor.t() @ (self.mask * (self.factor @ gradient)))

    def prepare(self, w: Tensor, ridge: float, line: int) -> None:
        """Measure the curvature at weights: the mean again and again, that of columns once."""
        if self.inverses is None and line % REFRESH == 0:
            self.factor = self.inverse_factor(ridge, self.curvature(w))
        room = 4 * len(self.rows) * len(self.penalty) ** 2 <= self.room
        if self.inverses is not None or ridge > OWN_RIDGE or not room or callable(self.data):
            return
        if line and line % OWN_AFTER == 0:
            self.inverses = self.own_inverses(ridge, self.data, w, line)

    def losses(self, w: Tensor) -> Tensor:
        """Return the loss of each column without ridge, in nats per scene, float64 (C,)."""
        total, n = torch.zeros((), dtype=torch.float64), 0
        for block in self.blocks():
            total, n = softplus(_margins(block, w)).double().sum(0) + total, n + len(block[0])
        return total / n

    def scene_gains(self, w: Tensor, reference: Tensor) -> Tensor:
        """Return by how much less each scene loses at w than at other weights (p, C).

        Summed over columns, in nats, float64 (N,).
        """
        gains = [
            softplus(_margins(block, reference)) - softplus(_margins(block, w))
            for block in self.blocks()
        ]
        return torch.cat([gain.double().sum(1) for gain in gains])

    def curvature(self, w: Tensor) -> Tensor:
        """Return the mean Hessian of the columns, without ridge, at weights, float64 (p, p)."""
        total, n = torch.zeros((), dtype=torch.float64), 0
        for block in self.blocks():
            for start in range(0, len(block[0]), ROWS):
                part = _rows(block, slice(start, start + ROWS))
                x, sigma = part[0], _margins(part, w).sigmoid_()
                total = (x.t() @ (x * (sigma * (1 - sigma)).mean(1, keepdim=True))).double() + total
                n += len(x)
        return total / n

    def own_inverses(self, ridge: float, block: SceneBlock, w: Tensor, line: int) -> Tensor | None:
        """Return the inverse Hessians (C, p, p) of columns at weights; of unused rows they are 0.

        Each is measured from the scenes that have `HEAVY` of the column's curvature. None while
        that takes more than twice the operations of the iterations so far, `line`: columns that
        converge soon are not worth it, and wide vectors make it dear.
        """
        x, margins = block[0], _margins(block, w)
        n, p = x.shape
        curvature, order = margins.sigmoid().mul_(1 - margins.sigmoid()).sort(0, descending=True)
        total = curvature.double().cumsum(0)
        heavy = 1 + (total < HEAVY * total[-1]).sum(0)
        operations = (2 * heavy * self.rows**2 + FACTOR * self.rows**3).sum()
        if 2 * line * 4 * n * p * len(self.rows) < operations:
            return None
        inverses = x.new_zeros(len(self.rows), p, p)
        for c, (k, count) in enumerate(zip(self.rows.tolist(), heavy.tolist(), strict=True)):
            some = x[order[:count, c], :k]
            share = curvature[:count, c] / (HEAVY * n)
            factor = self.inverse_factor(ridge, (some.t() @ (some * share[:, None])).double())
            inverses[c, :k, :k] = factor.t() @ factor
        return inverses

    def inverse_factor(self, ridge: float, curvature: Tensor) -> Tensor:
        """Return L^-1 (k, k), where L L' = curvature + ridge, of the first k rows.

        The inverse of a leading block is L_k^-T L_k^-1 with L_k^-1 the leading block of L^-1, hence
        two products with a mask between them precondition all columns.
        """
        eye = torch.eye(len(curvature), dtype=torch.float64, device=curvature.device)
        size = 1 + curvature.diagonal().mean()
        penalty, jitter, failed = self.penalty[: len(curvature)].double(), JITTER * size, True
        while failed:
            cholesky, failed = torch.linalg.cholesky_ex(
                curvature + eye * (ridge * penalty + jitter), check_errors=not jitter < size
            )
            jitter = 10 * jitter  # products in float32 of thousands of rows round by more
        inverse: Tensor = torch.linalg.solve_triangular(cholesky, eye, upper=False)
        return inverse.to(self.penalty.dtype)


def _margins(block: SceneBlock, w: Tensor) -> Tensor:
    """Return logits (n, C), signed so that softplus(margin) is the loss."""
    x, sign, offset = block
    logits = x @ w
    if offset is not None:
        logits += offset
    return logits.mul_(sign)


def _select_columns(block: SceneBlock, columns: Tensor) -> SceneBlock:
    x, sign, offset = block
    return x, sign[:, columns], None if offset is None else offset[:, columns]


def _rows(block: SceneBlock, rows: slice) -> SceneBlock:
    x, sign, offset = block
    return x[rows], sign[rows], None if offset is None else offset[rows]
