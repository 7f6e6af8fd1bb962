"""Probe fitting: one training step of every family against its floor and its literal twin.

Floor
-----
FLOPs of forward, weight gradients and hidden-state gradients (z and tokens have none), over the
highest rate of matrix products of this run, tried over 4096^3 and the step's own shapes. With B
scenes, K heads, d dimensions, rank r, h hidden units, T patch tokens and v = K (K - 1) / 2 pairs of
a head and a bit that it sees, s = dK + v, a step takes at least this many (a product over the
masked bits is counted as the triangle it is)::

    linear             2 B s * 2
    quadratic          2 B 2r s * 2
    quadratic_reuse    2 B (d r sum_g n_g + 2 r v) * 2        n_g values of group g
    dnn                2 B (h s * 2 + 2 K h^2 * 3 + K h * 3)
    attention          2 B (2r s * 2 + 2r K d * 3 + d v * 2 + K T d * 4) + 2 (2 K d^2) * 3

AdamW, GELU, softmax and the products over r are not in it.

Twin
----
``tests/helpers/slow_twins.py``, written from the equations: z is repeated for every head beside the
bits that the head sees, (B, K, d + K), and every head has small products of its own. Both start
from the same weights, read the same batch, take the same AdamW, and must lose the same over the
first steps. Both are differentiated by autograd here: what is compared is the arithmetic of a
family, not the loop around it.

Whole fits
----------
``fit`` of a block of two seeds, all targets in one pass, against a fit per seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import torch
from measure import Entry, Options, Other, gemm_rate, side_by_side
from probe_problems import probe, problem
from slow_twins import random_inputs, twin_of
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.fitting.standardise import padded
from bindscope.studies.binding_information.probes.base import Target
from bindscope.studies.binding_information.probes.fitting import fit
from bindscope.studies.binding_information.probes.module import InputShape, PatchInputs, ProbeInputs

TITLE = "Probe fitting"
COMPARED_STEPS, TOLERANCE = 4, 1e-3  # whose losses are compared, and their relative difference
TURN_S = 0.3  # a turn takes as many successive steps as fit into this
RANK = 16


@dataclass(frozen=True)
class Case:
    """A family at a size; the least share of the floor, and ratio to the twin, promised of it."""

    family: str
    batch: int
    side: int
    dim: int
    tokens: int = 0
    hidden: int = 0
    share: float | None = None
    ratio: float | None = None
    threads: int | None = None

    @property
    def name(self) -> str:
        """How the table calls it."""
        size = f", {self.hidden} hidden" if self.hidden else ""
        size += f", {self.tokens} + 1 tokens" if self.tokens else ""
        return f"{self.family}{size}, K {self.side**2}, d {self.dim}, batch {self.batch}"


# The sizes of the default run, with one thread as there; and the paper's.
SMALL = (
    Case("quadratic", 192, 6, 96, threads=1),
    Case("quadratic_reuse", 192, 6, 96, threads=1),
    Case("dnn", 128, 6, 96, hidden=32, threads=1),
    Case("attention_quadratic", 128, 6, 96, tokens=36, threads=1),
)
LARGE = (
    Case("linear", 512, 8, 1024, ratio=13.6),
    Case("quadratic", 512, 8, 1024, share=0.75, ratio=39),
    Case("quadratic_reuse", 512, 8, 1024, share=0.75),
    Case("multilinear_reuse", 512, 8, 1024, share=0.75),
    Case("dnn", 512, 8, 1024, hidden=256, share=0.6, ratio=3.0),
    Case("attention_quadratic", 32, 8, 1024, tokens=256, share=0.6, ratio=2.4),
)


def entries(options: Options) -> list[Entry]:
    """Time every case beside its twin, then blocks of seeds."""
    timed = []
    for cases in (SMALL,) if options.size == "ci" else (LARGE, SMALL):
        torch.set_num_threads(cases[0].threads or options.threads)
        rate = gemm_rate(sorted({shape for case in cases for shape in shapes(case)}), options)
        timed += [step_entry(case, options, rate) for case in cases]
    torch.set_num_threads(1)
    return [
        *timed,
        block_entry("quadratic", 0, options),
        block_entry("attention_quadratic", 36, options),
    ]


def flops(case: Case) -> float:
    """Return the floor's FLOPs of a case (see the module)."""
    k, d, b, h = case.side**2, case.dim, case.batch, case.hidden
    known_bits = k * (k - 1) / 2
    rows = d * k + known_bits
    if case.family == "linear":
        return 4 * b * rows
    if case.family == "quadratic":
        return 4 * b * 2 * RANK * rows
    if case.family.endswith("_reuse"):
        return 4 * b * RANK * (d * 2 * case.side + 2 * known_bits)
    if case.family == "dnn":
        return 2 * b * (2 * h * rows + 6 * k * h * h + 3 * k * h)
    readout = 2 * 2 * RANK * rows + 3 * 2 * RANK * k * d
    return 2 * b * (readout + 2 * d * known_bits + 4 * k * case.tokens * d) + 3 * 2 * 2 * k * d * d


def shapes(case: Case) -> list[tuple[int, int, int]]:
    """Return the products (m, k, n) whose rates count: the largest of the step, both ways."""
    k, b = case.side**2, case.batch
    x = case.dim + k
    if case.family.endswith("_reuse"):
        return [(b, case.dim, 2 * case.side * RANK), (case.dim, b, 2 * case.side * RANK)]
    width = {"linear": 1, "dnn": case.hidden}.get(case.family, 2 * RANK)
    return [(b, x, k * width), (x, b, k * width)]


class Step:
    """A training step: logits of the batch, cross-entropy in bits per scene, autograd, AdamW."""

    def __init__(
        self, logits: Callable[[], Tensor], bits: Tensor, parameters: Sequence[Tensor]
    ) -> None:
        self.logits, self.bits = logits, bits
        self.optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-4, fused=True)

    def __call__(self) -> float:
        """Take the step; return the loss before it."""
        margins = (1 - 2 * self.bits) * self.logits()
        loss = softplus(margins).sum() / (len(self.bits) * log(2.0))
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad()
        return float(loss.detach())


def step_entry(case: Case, options: Options, rate: float) -> Entry:
    """Time one case beside its twin; the losses of the first steps must agree."""
    config = probe(case.family, **({"hidden": case.hidden} if case.hidden else {}))
    (heads,) = Target("object", (case.side, case.side)).parts
    generator = torch.Generator().manual_seed(0)
    shape = InputShape(case.dim, bool(case.tokens))
    ours = type(config).load()(config, heads, shape, generator).to(options.device)
    drawn, bits, _ = random_inputs(
        generator, case.batch, case.dim, heads, case.tokens, dtype=torch.float32
    )
    inputs, bits = on_device(drawn, options.device), bits.to(options.device)
    steps = {"ours": Step(lambda: ours(inputs, bits, None), bits, list(ours.parameters()))}
    if options.device == "cpu":
        twin = twin_of(ours, config)
        steps["twin"] = Step(lambda: twin(inputs, bits), bits, twin.parameters())
        losses = [[step() for _ in range(COMPARED_STEPS)] for step in steps.values()]
        if not torch.allclose(*map(torch.tensor, losses), rtol=TOLERANCE, atol=0):
            raise SystemExit(f"{case.name}: the losses of the first steps differ: {losses}")
    typical = steps_side_by_side(steps, options)
    floor = flops(case) / rate
    others = [Other("GEMM floor", floor, case.share)]
    if "twin" in typical:
        others.append(Other("literal twin", typical["twin"], case.ratio))
    notes = {"flops": flops(case), "gemm_flop_per_s": rate, "threads": torch.get_num_threads()}
    return Entry(case.name, typical["ours"], others, notes=notes)


def steps_side_by_side(steps: dict[str, Step], options: Options) -> dict[str, float]:
    """Time alternatives in turns of successive steps, as in a fit; seconds of a step."""
    runs: dict[str, Callable[[], object]] = {}
    lengths = {}
    for name, step in steps.items():
        step()
        start = time.perf_counter()
        step()
        length = max(1, min(20, int(TURN_S / (time.perf_counter() - start))))
        runs[name] = lambda step=step, length=length: [step() for _ in range(length)]
        lengths[name] = length
    return {name: s / lengths[name] for name, s in side_by_side(runs, options).items()}


def on_device(inputs: ProbeInputs, device: str) -> ProbeInputs:
    """Return inputs on a device, tokens laid out as a fit lays them out."""
    if not isinstance(inputs, PatchInputs):
        return inputs.to(device)
    patches = padded(inputs.patches.shape, torch.device(device)).copy_(inputs.patches)
    return PatchInputs(patches, None if inputs.cls is None else inputs.cls.to(device))


def block_entry(family: str, tokens: int, options: Options, steps: int = 20) -> Entry:
    """Time a block of two seeds in one call of `fit` against a call per seed."""
    data = problem((2000, 300, 300), 96, (6, 6), tokens=tokens)
    config: Any = probe(family, steps=steps, batch_size=128, device=options.device)
    typical = side_by_side(
        {
            "block": lambda: fit(config, data, (0, 1)),
            "alone": lambda: [fit(config, data, (seed,)) for seed in (0, 1)],
        },
        Options(options.size, options.device, 1, min(options.repetitions, 2)),
    )
    what = f"block of {family}, {steps} steps, all targets, 2 seeds"
    return Entry(what, typical["block"], [Other("a fit per seed", typical["alone"])])
