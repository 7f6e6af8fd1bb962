"""Logistic regressions that share one design matrix, fitted together to their convex optima.

Column c minimises  mean_i softplus(-(2 y_ic - 1) l_ic) + l2/2 |w_c|^2 (bias unpenalised) with
logits l = offset + X w_c, over the leading rows of w_c that the column may use.  All columns
advance together (`fitting.lbfgs`).  Two things make it fast: a line search costs no product, for
logits are linear in the weights; the initial inverse Hessian is that of the mean curvature of the
columns that are left, exact per column because columns use nested leading blocks of one Cholesky
factor.  Where the ridge is weak, columns differ much in their curvature: what has not converged
after some iterations goes on with an inverse Hessian of its own, of the scenes that have most of
its curvature.  SciPy's L-BFGS takes 20 times as long or more, in as many more iterations.

Where the design matrix does not fit in memory, logits are not kept: each trial of a line search is
a pass over blocks of it, in the same two products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.fitting.lbfgs import Objective

REFRESH = 20  # iterations after which the curvature is measured anew; more often takes as long
ROWS = 4096  # scenes at a time of which the curvature takes another copy
JITTER = 1e-6
# Ridge from which columns get an inverse Hessian of their own, and after how many iterations: most
# have converged by then, and where all columns are alike their mean does as well.
OWN_RIDGE, OWN_AFTER = 1e-4, 8
HEAVY = 0.95  # of a column's curvature that the scenes have from which its Hessian is measured

# Of some scenes: design matrix x (n, p); sign (n, C), 1 where the label is 0 and -1 where it is 1;
# and what is added to the logits, in nats, (n, C), or None.
Block: TypeAlias = tuple[Tensor, Tensor, Tensor | None]
# x, sign and margins (n, C): logits, signed so that softplus(margin) is the loss.
Margins: TypeAlias = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Regressions:
    """The data of all columns, and which weights they have.

    `data` is one block, where all scenes are in memory, or what starts a pass over blocks of
    successive scenes, of which memory holds one at a time. Each column uses `rows` (C,) leading
    rows of w; `penalised` (p, 1) is 1 for rows under the ridge, 0 for the bias. Where the inverse
    Hessians of all columns do not fit into `room`, that of their mean serves all.
    """

    data: Block | Callable[[], Iterator[Block]]
    rows: Tensor
    penalised: Tensor
    room: int = 0  # bytes that inverse Hessians of single columns may take

    @property
    def in_memory(self) -> bool:
        """Whether all scenes are in memory."""
        return not callable(self.data)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (p, C) of the weights."""
        return len(self.penalised), len(self.rows)

    def mask(self) -> Tensor:
        """Return (p, C): 1 where the column uses the row."""
        row = torch.arange(len(self.penalised), device=self.penalised.device)[:, None]
        return (row < self.rows).to(self.penalised.dtype)

    def objective(self, l2: float, columns: Tensor) -> Objective:
        """Return what `descend` minimises for a ridge, of weights that are 0 where `mask` is."""
        return (_HeldMargins if self.in_memory else _Streamed)(self, l2, columns)

    def blocks(self) -> Iterable[Block]:
        """Start a pass over the scenes."""
        return self.data() if callable(self.data) else (self.data,)

    def margins(self, w: Tensor, columns: Tensor | slice = slice(None)) -> Iterator[Margins]:
        """Yield the margins of each block at weights (p, C) of some columns."""
        for block in self.blocks():
            yield _margins(block, w, columns)

    def losses(self, w: Tensor, columns: Tensor | slice = slice(None)) -> Tensor:
        """Return the loss of some columns without ridge, in nats per scene, float64 (C,)."""
        total, n = torch.zeros((), dtype=torch.float64), 0
        for _, _, margins in self.margins(w[:, columns], columns):
            total, n = softplus(margins).double().sum(0) + total, n + len(margins)
        return total / n

    def scene_gains(self, w: Tensor, over: Tensor, columns: Tensor | slice) -> Tensor:
        """Return by how much less each scene loses at w than at other weights (p, C).

        Summed over some columns, in nats, float64 (N,).
        """
        both = (self.margins(weights[:, columns], columns) for weights in (w, over))
        return torch.cat(
            [
                (softplus(others) - softplus(margins)).double().sum(1)
                for (_, _, margins), (_, _, others) in zip(*both, strict=True)
            ]
        )

    def curvature(self, w: Tensor, columns: Tensor) -> Tensor:
        """Return the mean Hessian, without ridge, of columns at weights (p, C), float64 (p, p)."""
        total, n = torch.zeros((), dtype=torch.float64), 0
        for block in self.blocks():
            for start in range(0, len(block[0]), ROWS):
                x, _, margins = _margins(_rows(block, slice(start, start + ROWS)), w, columns)
                sigma = margins.sigmoid_()
                total = (x.t() @ (x * (sigma * (1 - sigma)).mean(1, keepdim=True))).double() + total
                n += len(x)
        return total / n

    def own_inverses(self, l2: float, x: Tensor, margins: Tensor, rows: Tensor) -> Tensor:
        """Return the inverse Hessians (c, p, p) of columns at their margins (n, c).

        `x` is the design matrix (n, p), `rows` (c,) how many rows each uses; others are 0. Each is
        measured from the scenes that have `HEAVY` of the column's curvature.
        """
        inverses = x.new_zeros(margins.shape[1], x.shape[1], x.shape[1])
        for c, k in enumerate(rows.tolist()):
            sigma = margins[:, c].sigmoid()
            curvature = sigma * (1 - sigma)
            order = curvature.argsort(descending=True)
            total = curvature[order].double().cumsum(0)
            heavy = order[: int(torch.searchsorted(total, HEAVY * total[-1])) + 1]
            some = x[heavy, :k]
            hessian = some.t() @ (some * (curvature[heavy] / (HEAVY * len(x)))[:, None])
            factor = self.factor(l2, hessian.double())
            inverses[c, :k, :k] = factor.t() @ factor
        return inverses

    def factor(self, l2: float, curvature: Tensor) -> Tensor:
        """Return L^-1 (k, k), where L L' = curvature + l2, of the first k rows.

        The inverse of a leading block is L_k^-T L_k^-1 with L_k^-1 the leading block of L^-1, hence
        two products with a mask between them precondition all columns.
        """
        eye = torch.eye(len(curvature), dtype=torch.float64, device=curvature.device)
        size = 1 + curvature.diagonal().mean()
        penalised = self.penalised[: len(curvature)].double()
        jitter, ridge, failed = JITTER * size, l2 * penalised, True
        while failed:
            cholesky, failed = torch.linalg.cholesky_ex(
                curvature + eye * (ridge + jitter), check_errors=not jitter < size
            )
            jitter = 10 * jitter  # products in float32 of thousands of rows round by more
        inverse: Tensor = torch.linalg.solve_triangular(cholesky, eye, upper=False)
        return inverse.to(self.penalised.dtype)


def _margins(block: Block, w: Tensor, columns: Tensor | slice) -> Margins:
    x, sign, offset = block
    signs, logits = sign[:, columns], x @ w
    if offset is not None:
        logits += offset[:, columns]
    return x, signs, logits.mul_(signs)


def _rows(block: Block, rows: slice) -> Block:
    x, sign, offset = block
    return x[rows], sign[rows], None if offset is None else offset[rows]


def loss_and_slope(blocks: Iterable[Margins]) -> tuple[Tensor, Tensor]:
    """Return mean losses (C,) and their gradient (p, C), without ridge, of successive scenes."""
    loss, slope, n = torch.zeros((), dtype=torch.float64), torch.zeros(()), 0
    for x, sign, margins in blocks:
        loss = softplus(margins).sum(0).double() + loss
        slope = x.t() @ margins.sigmoid().mul_(sign) + slope
        n += len(x)
    return (loss / n).to(slope.dtype), slope / n


class _Columns:
    """What the two objectives below share: the columns that move (`live`), mask and factor."""

    def __init__(self, problem: Regressions, l2: float, columns: Tensor) -> None:
        self.problem, self.ridge, self.live = problem, l2 * problem.penalised, columns
        self.mask, self.l2, self.lines = problem.mask()[:, columns], l2, 0

    def measure(self, w: Tensor) -> None:
        self.inverse = self.problem.factor(self.l2, self.problem.curvature(w, self.live))

    def aim(self, w: Tensor, direction: Tensor) -> None:
        self.w, self.direction = w, direction
        self.lines += 1
        if self.lines % REFRESH == 0:
            self.measure(w)

    def keep(self, index: Tensor) -> None:
        self.live, self.mask = self.live[index], self.mask[:, index]

    def precondition(self, g: Tensor) -> Tensor:
        return self.mask * (self.inverse.t() @ (self.mask * (self.inverse @ g)))

    def state(self) -> dict[str, Tensor]:
        return {"inverse": self.inverse, "lines": torch.tensor(self.lines)}

    def resume(self, live: Tensor, state: dict[str, Tensor]) -> None:
        self.keep(live)
        self.inverse, self.lines = state["inverse"], int(state["lines"])


class _Streamed(_Columns):
    """Each trial is a pass, which gives the gradient there too."""

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        self.measure(w)
        loss, self.slope = loss_and_slope(self.problem.margins(w, self.live))
        return loss, self.slope * self.mask

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        loss, self.slope = loss_and_slope(
            self.problem.margins(self.w + t * self.direction, self.live)
        )
        return loss, (self.slope * self.direction).sum(0)

    def arrive(self, t: Tensor) -> Tensor:
        return self.slope * self.mask


class _HeldMargins(_Columns):
    """Margins are held: a trial takes no product."""

    inverses: Tensor | None = None  # inverse Hessians of the columns that are left, (c, p, p)

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        self.measure(w)
        [(self.x, self.sign, self.margins)] = blocks = list(self.problem.margins(w, self.live))
        loss, slope = loss_and_slope(blocks)
        return loss, slope * self.mask

    def measure(self, w: Tensor) -> None:
        if self.inverses is None:
            super().measure(w)

    def aim(self, w: Tensor, direction: Tensor) -> None:
        super().aim(w, direction)
        if self.lines == OWN_AFTER and self.l2 <= OWN_RIDGE and self._has_room():
            rows = self.problem.rows[self.live]
            self.inverses = self.problem.own_inverses(self.l2, self.x, self.margins, rows)
        self.change = self.sign * (self.x @ direction)

    def _has_room(self) -> bool:
        return 4 * len(self.live) * self.x.shape[1] ** 2 <= self.problem.room

    def precondition(self, g: Tensor) -> Tensor:
        if self.inverses is None:
            return super().precondition(g)
        return torch.bmm(self.inverses, g.t()[:, :, None])[:, :, 0].t()

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        here = torch.addcmul(self.margins, t, self.change)
        self.sigma = here.sigmoid()
        return softplus(here).mean(0), (self.sigma * self.change).mean(0)

    def arrive(self, t: Tensor) -> Tensor:
        self.margins.addcmul_(t, self.change)
        return self.x.t() @ (self.sigma * self.sign) / len(self.x) * self.mask

    def keep(self, index: Tensor) -> None:
        super().keep(index)
        self.sign, self.margins = self.sign[:, index], self.margins[:, index]
        self.inverses = None if self.inverses is None else self.inverses[index]

    def state(self) -> dict[str, Tensor]:
        inverses = {} if self.inverses is None else {"inverses": self.inverses}
        return super().state() | {"margins": self.margins} | inverses

    def resume(self, live: Tensor, state: dict[str, Tensor]) -> None:
        super().resume(live, state)
        self.margins, self.inverses = state["margins"], state.get("inverses")
