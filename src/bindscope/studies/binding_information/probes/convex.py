"""How the linear part of a probe is fitted: to the convex optimum of every head (`lbfgs`).

Heads are regressions of their own, so each has its own ridge, which validation chooses from a path:
the anchors alone (or the marginals, without anchors), then one optimum after the other, from
the strongest of `STRENGTHS` to the weakest, each from that of the stronger ridge before it. A head
leaves the path when two strengths in a row cannot have a share any more.

Where a family contains another one (`Family.contained_dim`), the path of that one comes first, and
both are one average: more to read must not cost what less of it would give.

A head's weights are the average over the path, each strength weighted by the likelihood that it
gives the validation scenes (exponential weights: Yang (2004), "Aggregating regression procedures
to improve performance", Bernoulli 10). The loss of an average is at most the average of losses, for
it is convex. A choice of the best strength would jump: rounding differs between types of CPU, two
strengths are nearly equal for one head of many, and the choice then moves that head by .01 to .24
bits on test (seen). The average moves as little as its parts do. For the same reason the path does
not end without any ridge, where weights have no bound: that gained at most 0.01 bits.

The choices of many heads add up: each takes the noise of the validation scenes that suits it, and
all together may lose on other scenes. So anchored heads choose on each half of these scenes too,
and what they gain over the prior on the other half is what the weight of the prior in the mixture
is fitted to (`statistics.prior_mixtures`). A part of which the mixture is the prior alone has no
weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bindscope.core.progress import Progress
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.fitting.lbfgs import Solution
from bindscope.fitting.regressions import Regressions, SceneBlock
from bindscope.fitting.ridge import Average, RidgePath
from bindscope.statistics.prior_mixtures import fit_prior_weight
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probes.base import LN2
from bindscope.studies.binding_information.probes.batches import Labels, ProbeSource, VectorBatches
from bindscope.studies.binding_information.probes.module import Family
from bindscope.studies.binding_information.probes.runs import (
    MOVED,
    ProbeRun,
    prior_bits,
)

ITERATIONS = 400
TOLERANCE = 1e-6  # nats above the optimum
RELATIVE = 1e-3  # of the ridge: with more, rounding moves weights where a ridge is weak
BLOCK = 4096  # scenes that are in memory at a time where vectors are streamed
STRENGTHS = tuple(10.0**k for k in range(3, -7, -1))  # of the ridge, strongest first
RIDGES = RidgePath(STRENGTHS, ITERATIONS, TOLERANCE, RELATIVE)
PERFECT = 1e-4 * LN2  # nats of a head below which there is nothing left to gain
HOPELESS = 10.0  # nats, over all validation scenes, by which a strength is worse than another one
PATIENCE = 2  # hopeless strengths in a row after which a head's path ends


def fit_linear_parts(
    runs: Sequence[ProbeRun],
    source: ProbeSource,
    probe: AnyProbe,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Fit the linear part of every run of one seed to its optimum.

    Runs whose heads read the same bits are one problem: they share its matrix products. A run of a
    linear probe takes note of the losses on the way. Where vectors take more memory than the probe
    may, each pass reads them again.
    """
    limit = MOVED * prior_bits(source, "val")
    first, *others = (run.family.linear_part for run in runs)
    first.learn(source)
    for family in others:
        family.take_learned(first)
    vectors = LinearInputs(source, probe.memory_mb * 2**20, first)
    groups: dict[tuple[int, int, str], list[ProbeRun]] = {}
    for run in runs:
        groups.setdefault(run.heads.reads, []).append(run)
    progress = Progress(len(groups), "linear parts")
    for group in groups.values():
        train, val = (HeadProblem(vectors, group, split) for split in ("train", "val"))
        contained = HeadProblem(vectors, group, "train", width=first.contained_dim)
        halves = [HeadProblem(vectors, group, "val", half).regressions() for half in (0, 1)]
        start = train.start()
        path = _Path(train.regressions(), val.regressions(), halves, source.halves, start)
        if contained.width:
            path.follow(contained.regressions(), contained.rows(), checkpoints)
        path.follow(train.regressions(), train.rows(), checkpoints)
        for run, columns in train.columns():
            if run.heads.anchored:
                _score_parts(run, path, columns.start)
            _take(run, vectors, path, columns, limit)
        progress.advance(note=f"{float(path.seen[-1][2].sum()) / LN2:.3f} bits on validation")


class LinearInputs:
    """What linear parts read, (N, d): vectors, or what the family makes of patch tokens.

    They are held where train and val fit into the memory of a fit; else every pass reads them
    again. `mean` and `scale` (d,) are those of the mean token over the train split, for its
    deviation is not that of tokens.

    Vectors that are wider than there are train scenes, or of which some numbers are the same in all
    of these, are turned into the space of the train scenes (orthonormal `basis` (d, dim)), which
    has all that a ridge gives weight to: the fits are the same, and faster.
    """

    def __init__(self, source: ProbeSource, memory: int, family: Family) -> None:
        self.source, self.family, self.memory = source, family, memory
        self.basis: Tensor | None = None
        patches = not isinstance(source, VectorBatches) and bool(source.shape.tokens)
        self.batch = max(1, BLOCK // max(1, source.shape.tokens)) if patches else BLOCK
        dim, width = family.vector_dim, sum(source.sizes)
        in_memory = 4 * (dim + width) * sum(source.scenes[split] for split in ("train", "val"))
        self.held: dict[str, tuple[Tensor, Labels]] = {}
        self.mean, self.scale = torch.zeros(dim), torch.ones(dim)
        if isinstance(source, VectorBatches):
            self.basis = _basis(source.z["train"])
            self.held = {
                split: (self._turned(source.z[split]), source.held[split])
                for split in ("train", "val")
            }
        elif patches and in_memory <= memory:
            self.held = {split: self._whole(split) for split in ("train", "val")}
        if patches:
            self._measure()
        self.dim = dim if self.basis is None else self.basis.shape[1]

    def _turned(self, z: Tensor) -> Tensor:
        return z if self.basis is None else z @ self.basis

    def _whole(self, split: str) -> tuple[Tensor, Labels]:
        parts, labels = zip(*((z, each.copy()) for z, each in self.raw(split)), strict=True)
        return torch.cat(parts), Labels.joined(labels)

    def raw(self, split: str) -> Iterator[tuple[Tensor, Labels]]:
        """Start a pass over a split: vectors before they are scaled, and labels."""
        if split in self.held:
            return iter([self.held[split]])
        batches = self.source.split(split, self.batch)
        return ((self.family.vector(z), labels) for z, _, labels in batches)

    def _measure(self) -> None:
        total = square = torch.zeros((), dtype=torch.float64)
        n = 0
        for z, _ in self.raw("train"):
            total, square = total + z.double().sum(0), square + z.double().square().sum(0)
            n += len(z)
        mean = total / n
        deviation = (square / n - mean.square()).clamp_min(0).sqrt()
        constant = deviation <= 1e-6
        scale = torch.where(constant, 0.0, 1 / torch.where(constant, 1.0, deviation))
        self.mean, self.scale = mean.float(), scale.float()
        for split, (z, labels) in self.held.items():
            self.held[split] = (z - self.mean) * self.scale, labels

    def blocks(self, split: str) -> Iterator[tuple[Tensor, Labels]]:
        """Start a pass over a split."""
        if split in self.held:
            return iter([self.held[split]])
        return (((z - self.mean) * self.scale, labels) for z, labels in self.raw(split))


def _basis(z: Tensor) -> Tensor | None:
    """Return an orthonormal basis (d, dim) of standardised vectors (N, d); None for all of it."""
    varying = z.any(dim=0)  # constant numbers are 0
    n_varying = int(varying.sum())
    if n_varying == z.shape[1] <= len(z):
        return None
    within = torch.eye(n_varying, dtype=z.dtype)
    if len(z) < n_varying:
        within = torch.linalg.qr(z[:, varying].double().t())[0].to(z.dtype)
    basis = z.new_zeros(z.shape[1], within.shape[1])
    basis[varying] = within.to(z.device)
    return basis


@dataclass(frozen=True)
class HeadProblem:
    """Heads of several runs as regressions on [z; 1; bits - 1/2] of one split.

    `half` 0 or 1 takes that half of the validation scenes, `width` the first so many numbers of z.
    """

    vectors: LinearInputs
    runs: Sequence[ProbeRun]
    split: str
    half: int | None = None
    width: int = 0

    @property
    def dim(self) -> int:
        """How many numbers of z it reads."""
        return self.width or self.vectors.dim

    def rows(self) -> Tensor:
        """Return the rows that it has of the weights of the whole problem."""
        behind = torch.arange(1 + self.runs[0].heads.length) + self.vectors.dim
        return torch.cat([torch.arange(self.dim), behind])

    def columns(self) -> Iterator[tuple[ProbeRun, slice]]:
        """Yield the runs and their columns."""
        start = 0
        for run in self.runs:
            yield run, slice(start, start + run.heads.count)
            start += run.heads.count

    def start(self) -> Tensor:
        """Return weights (p, C) that know neither z nor bits.

        Anchors alone are the prior, and have no weight; without them it is the marginals' bias.
        """
        heads, dim = self.runs[0].heads, self.vectors.dim
        ones, n = torch.zeros(()), 0
        for labels in self.vectors.source.labels(self.split):
            priors = torch.cat([labels.of_heads(run.heads)[2] for run in self.runs], dim=1)
            ones, n = ones.to(priors.device) + priors.sum(0), n + len(priors)
        rate = (ones + 0.5) / (n + 1)
        free = [not run.heads.anchored for run in self.runs for _ in range(run.heads.count)]
        w = rate.new_zeros(dim + 1 + heads.length, len(rate))
        w[dim] = torch.where(torch.tensor(free, device=rate.device), rate.logit(), 0.0)
        return w

    def _blocks(self) -> Iterator[SceneBlock]:
        """Start a pass over the scenes."""
        halves, start = self.vectors.source.halves, 0
        for z, labels in self.vectors.blocks(self.split):
            scenes: slice | Tensor = slice(None)
            if self.half is not None:
                scenes = (halves[start : start + len(z)] == self.half).nonzero().squeeze(1)
            start += len(z)
            yield self._block(z[scenes, : self.dim], labels.take(scenes))

    def _block(self, z: Tensor, labels: Labels) -> SceneBlock:
        blocks = [labels.of_heads(run.heads) for run in self.runs]
        bits, ones = blocks[0][0], torch.ones(len(z), 1, device=z.device)
        truth = torch.cat([truth for _, _, truth in blocks], dim=1)
        x, sign = torch.cat([z, ones, bits - 0.5], dim=1), 1 - 2 * truth
        if not any(run.heads.anchored for run in self.runs):
            return x, sign, None
        anchors = [torch.zeros_like(t) if a is None else a for _, a, t in blocks]
        return x, sign, torch.cat(anchors, dim=1)

    def regressions(self) -> Regressions:
        """Return the regressions, in memory where the vectors are."""
        dim, heads = self.dim, self.runs[0].heads
        device = next(self.runs[0].family.parameters()).device
        penalty = torch.ones(dim + 1 + heads.length, 1, device=device)
        penalty[dim] = 0
        rows = [dim + 1 + run.heads.first + k for run in self.runs for k in range(run.heads.count)]
        used = torch.tensor(rows, device=device)
        if self.split in self.vectors.held:
            [block] = self._blocks()
            return Regressions(block, used, penalty, self.vectors.memory // 2)
        return Regressions(self._blocks, used, penalty)


class _Path:
    """The optima of all columns from the strongest ridge to the weakest, averaged by validation.

    By column (C,), `chosen` is the strength with the largest share (infinite: the start, without
    weights) and `short` about how far weights are above their optimum, in nats per scene. `seen`
    are iterations so far and losses of train and val after each strength, `halves` the averages
    that each half of val would take, `half_of` the half of each scene.
    """

    def __init__(
        self,
        train: Regressions,
        val: Regressions,
        halves: Sequence[Regressions],
        half_of: Tensor,
        start: Tensor,
    ) -> None:
        self.train, self.start, self.average = train, start.clone(), Average(val, start)
        self.halves, self.half_of = [Average(half, start) for half in halves], half_of
        self.chosen = torch.full_like(self.average.evidence, torch.inf)
        self.largest, self.short = torch.ones_like(self.chosen), torch.zeros_like(self.chosen)
        self.taken = 0
        self.seen: list[tuple[int, Tensor, Tensor]] = []
        self._note()

    def follow(
        self, problem: Regressions, rows: Tensor, checkpoints: Checkpoints | None = None
    ) -> None:
        """Go along the path of a problem with some rows of the weights."""
        self.rows = rows
        self.going = torch.arange(self.start.shape[1], device=self.start.device)
        self.lowest = self.average.scenes.losses(self.start)
        self.hopeless = torch.zeros_like(self.lowest)
        RIDGES.follow(problem, self.start[rows] * problem.mask, self, checkpoints)

    def add(self, ridge: float, optimum: Solution) -> None:
        """Take a strength's weights into the averages; hopeless and perfect columns end."""
        columns, self.taken = self.going, self.taken + optimum.iterations
        w = torch.zeros_like(self.start)
        w[self.rows] = optimum.w
        losses, share = self.average.add(w, columns)
        for half in self.halves:
            half.add(w, columns)
        larger = share > self.largest[columns] * (1 - share)
        self.largest[columns] = torch.where(larger, share, self.largest[columns] * (1 - share))
        self.chosen[columns[larger]] = ridge
        decrement = optimum.decrement[columns].double()
        self.short[columns] = self.short[columns].lerp(decrement, share)
        self._note()
        lowest = torch.minimum(losses, self.lowest[columns])
        worse = self.average.n * (losses - lowest) > HOPELESS
        self.lowest[columns] = lowest
        self.hopeless[columns] = torch.where(worse, self.hopeless[columns] + 1, 0.0)
        going = (self.hopeless < PATIENCE) & (self.lowest > PERFECT)
        self.going = going.nonzero().squeeze(1)

    def gains(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return what each validation scene gains over the start, bits (N,).

        By the average of all of them, and by that of the half that does not have the scene.
        """
        first, second = self.halves
        gains = self._gains(self.average.scenes, self.average.w, columns)
        crossed = torch.empty_like(gains)
        crossed[self.half_of == 0] = self._gains(first.scenes, second.w, columns)
        crossed[self.half_of == 1] = self._gains(second.scenes, first.w, columns)
        return gains / LN2, crossed / LN2

    def _gains(self, scenes: Regressions, w: Tensor, columns: Tensor) -> Tensor:
        return scenes.select(columns).scene_gains(w[:, columns], self.start[:, columns])

    def reset(self, columns: Tensor) -> None:
        """Take the weights of some columns off: they are the start's."""
        self.average.w[:, columns] = self.start[:, columns]
        self.chosen[columns], self.short[columns] = torch.inf, 0.0

    def _note(self) -> None:
        w = self.average.w
        self.seen.append((self.taken, self.train.losses(w), self.average.scenes.losses(w)))


def _score_parts(run: ProbeRun, path: _Path, first: int) -> None:
    """Note what the choice of ridges flatters; a part that is best as the prior has no weights.

    `first` is the run's first column.
    """
    for part in run.parts:
        start = first + part.first - run.heads.first
        columns = torch.arange(start, start + part.count, device=path.start.device)
        gains, crossed = (values.cpu().numpy() for values in path.gains(columns))
        if fit_prior_weight(crossed) == 1:
            path.reset(columns)
        else:
            run.optimism[part.name] = gains - crossed


def _take(run: ProbeRun, vectors: LinearInputs, path: _Path, columns: slice, limit: float) -> None:
    """Load a run's columns into its linear part, and note what was chosen."""
    run.options["l2"] = [l2 if l2 < torch.inf else None for l2 in path.chosen[columns].tolist()]
    if float(path.short[columns].sum()) / LN2 > limit:
        run.flags.add("not_converged")
    linear = run.family.linear_part
    _load(linear, path.average.w[:, columns], vectors)
    if linear is run.family:
        is_prior = run.heads.anchored and not run.optimism
        *earlier, (last, train, val) = path.seen[:1] if is_prior else path.seen
        for step, *losses in earlier:
            for split, loss in zip(("train", "val"), losses, strict=True):
                run.record(step, split, float(loss[columns].sum()) / LN2)
        # The end of the path counts, also where an average on the way was better by chance.
        run.record(last, "train", float(train[columns].sum()) / LN2)
        run.validated(last, float(val[columns].sum()) / LN2)
        run.steps = path.taken


@torch.no_grad()
def _load(linear: Family, w: Tensor, vectors: LinearInputs) -> None:
    """Copy weights (z; bias; bits) into a linear family, which reads vectors without scaling."""
    state, dim = linear.state_dict(keep_vars=True), vectors.dim
    vector_weights = w[:dim] if vectors.basis is None else vectors.basis @ w[:dim]
    vector_weights = vector_weights * vectors.scale.to(w.device)[:, None]
    rows = torch.cat([vector_weights, w[dim + 1 : dim + 1 + linear.heads.length]])
    state["weights.weight"].copy_(rows.t()[:, None])
    state["bias"].copy_(w[dim] - vectors.mean.to(w.device) @ vector_weights)
