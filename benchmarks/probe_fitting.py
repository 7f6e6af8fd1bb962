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

AdamW, GELU, softmax and the products over r are not in it. AdamW has a floor of its own, the bytes
that it moves: it reads weight, gradient and both moments, and writes all but the gradient.

Twin
----
``tests/unit/slow_twins.py``, written from the equations: z is repeated for every head beside the
bits that the head sees, (B, K, d + K), and every head has small products of its own. Both start
from the same weights, read the same batches, take the same AdamW, and must lose the same over the
first steps. ``BINDSCOPE_AUTHORS=PATH`` adds the authors' modules (a checkout of
KordingLab/formalizing-the-binding-problem, not part of this repository), with weights of their own.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from measure import Entry, Options, gemm_rate, medians, side_by_side, table
from probe_problems import problem
from pydantic import TypeAdapter
from slow_twins import random_inputs, twin_of
from torch import Tensor

from bindscope.config.probes import AnyProbe
from bindscope.fitting.adam import Adam
from bindscope.fitting.standardise import padded
from bindscope.studies.binding_information.probes.base import Target
from bindscope.studies.binding_information.probes.batches import make_source
from bindscope.studies.binding_information.probes.data import ProbeData
from bindscope.studies.binding_information.probes.fitting import fit
from bindscope.studies.binding_information.probes.module import (
    Family,
    Inputs,
    InputShape,
    Tokens,
    build,
    sum_of_products,
)
from bindscope.studies.binding_information.probes.protocols import converged, fit_in_batches
from bindscope.studies.binding_information.probes.runs import backward, bits_lost, start

TITLE = "Probe fitting"
CURVE, TOLERANCE = 4, 1e-3  # steps whose losses are compared, and by how much they may differ
TURN_S = 0.3  # a turn takes as many successive steps as fit into this
AUTHORS = "BINDSCOPE_AUTHORS"


@dataclass(frozen=True)
class Case:
    """One line: a family at a size, and what is promised of it."""

    family: str
    batch: int
    side: int
    dim: int
    tokens: int = 0
    hidden: int = 0
    share: float | None = None
    ratio: float | None = None
    twin: bool = True
    threads: int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How the table calls it."""
        size = f", {self.hidden} hidden" if self.hidden else ""
        size += f", {self.tokens} + 1 tokens" if self.tokens else ""
        return f"{self.family}{size}, K {self.side**2}, d {self.dim}, batch {self.batch}"


def cases(options: Options) -> list[Case]:
    """Return the promised sizes, and those of the default run (one thread, as there)."""
    small = [
        Case("quadratic", 192, 6, 96, threads=1),
        Case("quadratic_reuse", 192, 6, 96, threads=1),
        Case("dnn", 128, 6, 96, hidden=32, threads=1),
        Case("attention_quadratic", 128, 6, 96, tokens=36, threads=1),
    ]
    if options.size == "ci":
        return small
    return [
        Case("linear", 512, 8, 1024, ratio=13.6),
        Case("quadratic", 512, 8, 1024, share=0.75, ratio=39),
        Case("quadratic_reuse", 512, 8, 1024, share=0.75),
        Case("multilinear_reuse", 512, 8, 1024, share=0.75),
        Case("dnn", 512, 8, 1024, hidden=256, share=0.6, ratio=3.0),
        Case("dnn", 512, 8, 1024, hidden=1024, share=0.6, twin=False),
        Case("attention_quadratic", 32, 8, 1024, tokens=256, share=0.6, ratio=2.4),
        Case("attention_quadratic", 512, 8, 1024, tokens=256, share=0.6, twin=False),
        *small,
    ]


def flops(case: Case, rank: int = 16) -> float:
    """Return the floor's FLOPs of a case (see the module)."""
    k, d, b, h = case.side**2, case.dim, case.batch, case.hidden
    seen = k * (k - 1) / 2
    rows = d * k + seen
    if case.family == "linear":
        return 4 * b * rows
    if case.family == "quadratic":
        return 4 * b * 2 * rank * rows
    if case.family.endswith("_reuse"):
        return 4 * b * rank * (d * 2 * case.side + 2 * seen)
    if case.family == "dnn":
        return 2 * b * (2 * h * rows + 6 * k * h * h + 3 * k * h)
    readout = 2 * 2 * rank * rows + 3 * 2 * rank * k * d
    return 2 * b * (readout + 2 * d * seen + 4 * k * case.tokens * d) + 3 * 2 * 2 * k * d * d


def shapes(case: Case, rank: int = 16) -> list[tuple[int, int, int]]:
    """Return the products (m, k, n) whose rates count: the largest of the step, both ways."""
    k, b = case.side**2, case.batch
    x = case.dim + k
    if case.family.endswith("_reuse"):
        return [(b, case.dim, 2 * case.side * rank), (case.dim, b, 2 * case.side * rank)]
    width = {"linear": 1, "dnn": case.hidden}.get(case.family, 2 * rank)
    return [(b, x, k * width), (x, b, k * width)]


class Step:
    """One training step of one probe, with the seconds of its parts.

    Parameters
    ----------
    loss
        Adds the gradients and returns the loss in bits per scene.
    parameters
        What AdamW moves.
    """

    def __init__(self, loss: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
        self.loss, self.parameters = loss, parameters
        self.optimiser = Adam(parameters, 1e-4)
        self.update_s: list[float] = []

    def __call__(self) -> float:
        """Take the step; return the loss before it."""
        loss = self.loss()
        start = time.perf_counter()
        self.optimiser.step(1e-3)
        self.update_s.append(time.perf_counter() - start)
        return float(loss)

    @property
    def update_bytes(self) -> float:
        """Bytes that AdamW reads and writes at least."""
        return 7 * sum(p.numel() * p.element_size() for p in self.parameters)


def entries(options: Options) -> list[Entry]:
    """Time every case, then a block's shared pass and layers in one process."""
    torch.set_num_threads(options.threads)
    found: list[Entry] = []
    rates: dict[int, tuple[float, float]] = {}
    for case in cases(options):
        threads = case.threads or options.threads
        torch.set_num_threads(threads)
        if threads not in rates:
            alike = [c for c in cases(options) if (c.threads or options.threads) == threads]
            every = sorted({shape for c in alike for shape in shapes(c)})
            rates[threads] = gemm_rate(every, options), tensor_copy_rate(options)
        new = measure(case, options, *rates[threads])
        print(table(new), file=sys.stderr, flush=True)
        found += new
    torch.set_num_threads(options.threads)
    return [*found, *one_pass(options), stacked(options)]


def measure(case: Case, options: Options, gemm: float, copy: float) -> list[Entry]:
    """Time one case beside its twin; the losses of the first steps must agree."""
    config = config_of(case.family, **({"hidden": case.hidden} if case.hidden else {}))
    (heads,) = Target("object", (case.side, case.side)).parts
    ours = build(config, heads, InputShape(case.dim, bool(case.tokens)), device=options.device)
    generator = torch.Generator().manual_seed(0)
    given, bits, _ = random_inputs(
        generator, case.batch, case.dim, heads, case.tokens, dtype=torch.float32
    )
    inputs, bits = on_device(given, options.device), bits.to(options.device)
    fast = Step(lambda: backward(ours, inputs, (bits, None, bits)), list(ours.parameters()))
    steps = {"ours": fast}
    if case.twin and options.device == "cpu":
        twin = twin_of(ours, config)
        steps["twin"] = Step(lambda: autograd(twin(inputs, bits), bits), twin.parameters())
    if folder := os.environ.get(AUTHORS):
        steps |= authors(case, folder, inputs, bits)
    if "twin" in steps:
        compare({name: [step() for _ in range(CURVE)] for name, step in steps.items()}, case)
    times = side_by_side_in_rows(steps, options)
    typical = medians(times)
    update = medians({"": fast.update_s[CURVE:]})[""]
    floor = flops(case) / gemm
    notes = {
        "flops": flops(case), "gemm_flop_per_s": gemm, "best_s": min(times["ours"]),
        "share_best": floor / min(times["ours"]),
        "share_without_adamw": floor / (typical["ours"] - update),
        "threads": torch.get_num_threads(),
    }  # fmt: skip
    against = "literal twin" if "twin" in typical else ""
    found = [
        Entry(
            case.name, typical["ours"], floor="GEMM", floor_s=floor, share_promised=case.share,
            against=against, against_s=typical.get("twin"),
            ratio_promised=case.ratio, notes=notes,
        ),
        Entry("- of it AdamW", update, floor="copy", floor_s=fast.update_bytes / copy),
    ]  # fmt: skip
    if "authors" in typical:
        found.append(
            Entry("- against the authors' module", typical["ours"], against="their step",
                  against_s=typical["authors"])
        )  # fmt: skip
    if case.tokens:
        found.append(prepared(given, options))
    return found


def side_by_side_in_rows(steps: dict[str, Step], options: Options) -> dict[str, list[float]]:
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
    times = side_by_side(runs, options)
    return {name: [s / lengths[name] for s in values] for name, values in times.items()}


def prepared(given: Inputs, options: Options) -> Entry:
    """Time what a batch of tokens costs once, for all probes of a block: a second layout."""
    assert isinstance(given, Tokens)
    batch = on_device(given, options.device)
    assert isinstance(batch, Tokens)
    run = {"transpose": lambda: batch.patches.transpose(1, 2).contiguous()}
    typical = medians(side_by_side(run, options))
    return Entry("- once per batch: tokens transposed", typical["transpose"])


def compare(curves: dict[str, list[float]], case: Case) -> None:
    """Stop where the losses of the first steps differ; the authors' weights are their own."""
    pairs = zip(curves["ours"], curves["twin"], strict=True)
    if any(abs(a - b) > TOLERANCE * b for a, b in pairs):
        raise SystemExit(f"{case.name}: the loss curves differ: {curves}")


def autograd(logits: Tensor, bits: Tensor) -> Tensor:
    """Return the loss in bits per scene, with gradients by autograd, as a reader would write it."""
    loss = bits_lost(logits, bits).sum(1).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def authors(case: Case, folder: str, inputs: Inputs, bits: Tensor) -> dict[str, Step]:
    """Return the step of the authors' module of this family, from their checkout."""
    path = Path(folder) / "src" / "probes.py"
    if not path.is_file():
        raise SystemExit(f"{AUTHORS}={folder}: no {path}; name a checkout of their repository")
    spec = importlib.util.spec_from_file_location("authors_probes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    k, sides = case.side**2, (case.side, case.side)
    makers: dict[str, Callable[[], Any]] = {
        "linear": lambda: module.LinearProbe(case.dim, k, k),
        "quadratic": lambda: module.QuadraticConcatProbe(case.dim, k, 16, k),
        "quadratic_reuse": lambda: module.QuadraticConcatReuseProbe(case.dim, k, 16, k, sides),
        "dnn": lambda: module.DNNConcatProbe(case.dim, k, k, hidden_dim=case.hidden, num_layers=4),
        "attention_quadratic": lambda: module.AttentionQuadraticProbe(
            (case.tokens + 1) * case.dim, k, k, case.dim, 16
        ),
    }
    if case.family not in makers or not case.twin:
        return {}
    probe = makers[case.family]().to(bits.device)
    z = inputs
    if isinstance(inputs, Tokens):
        assert inputs.cls is not None
        z = torch.cat([inputs.cls[:, None], inputs.patches], dim=1).flatten(1)
    return {"authors": Step(lambda: autograd(probe(z, bits), bits), list(probe.parameters()))}


def one_pass(options: Options) -> list[Entry]:
    """Time a block (4 targets, 2 seeds) in one pass against one fit per target and seed."""
    seeds, found = (0, 1), []
    torch.set_num_threads(1)
    for family, tokens in (("quadratic", 0), ("attention_quadratic", 36)):
        data = problem((2000, 300, 300), 96, (6, 6), tokens=tokens)
        probe = config_of(family, steps=10, batch_size=128)
        once = Options(options.size, "cpu", 1, 2)
        times = side_by_side(
            {
                "block": lambda probe=probe, data=data: fit(probe, data, seeds),
                "alone": lambda probe=probe, data=data: [one_fit(probe, data, s) for s in seeds],
            },
            once,
        )
        typical = medians(times)
        what = f"block of {family}, 10 steps: 4 targets, 2 seeds in one pass"
        found.append(
            Entry(what, typical["block"], against="one fit at a time", against_s=typical["alone"])
        )
    return found


def stacked(options: Options, layers: int = 4) -> Entry:
    """Time the most that a `fit_many` could do: layers stacked in batched products.

    The quadratic object probe of the default run, four layers at once, against four steps.
    """
    torch.set_num_threads(1)
    case = Case("quadratic", 192, 6, 96)
    (heads,) = Target("object", (case.side, case.side)).parts
    probes = [build(config_of("quadratic"), heads, InputShape(case.dim), s) for s in range(layers)]
    generator = torch.Generator().manual_seed(0)
    x, bits, _ = random_inputs(generator, case.batch, case.dim, heads, dtype=torch.float32)
    given = torch.cat([x, bits - 0.5], dim=1).t().expand(layers, -1, -1).contiguous()
    states = [probe.state_dict() for probe in probes]
    weight = torch.stack([state["factors.weight"] for state in states]).requires_grad_()
    bias = torch.stack([state["bias"] for state in states]).requires_grad_()
    mask, factor = probes[0].factors.mask, probes[0].factor

    def together() -> Tensor:
        factors = torch.bmm(weight.flatten(1, 3), given).view(*weight.shape[:-1], case.batch)
        logits = sum_of_products(factors.transpose(0, 1)) * factor + bias
        loss = autograd(logits.flatten(0, 1), bits.repeat_interleave(layers, 0))
        weight.grad[..., case.dim :].mul_(mask)
        return loss

    def own(probe: Family) -> Callable[[], Tensor]:
        return lambda: backward(probe, x, (bits, None, bits))

    many = Step(together, [weight, bias])
    single = [Step(own(probe), list(probe.parameters())) for probe in probes]
    one, each = many(), [step() for step in single]
    if abs(one - sum(each) / layers) > TOLERANCE * one:
        raise SystemExit(f"stacked layers lose {one}, one by one {each}")
    runs = {"stacked": many, "each": lambda: [step() for step in single]}
    typical = medians(side_by_side(runs, options))
    what = f"fit_many: quadratic, {layers} layers stacked, K 36, d 96, batch 192"
    return Entry(what, typical["stacked"], against=f"{layers} steps", against_s=typical["each"])


def one_fit(probe: AnyProbe, data: ProbeData, seed: int) -> None:
    """Fit the parts of the four targets one after the other, each with its own pass."""
    for target in ("feature", "object", "object_anchored", "chained"):
        for heads in Target(target, data.sizes).parts:
            source = make_source(probe, data)
            run = start(probe, heads, source.shape, seed)
            fit_in_batches([run], source, converged(probe))


def config_of(family: str, **options: Any) -> AnyProbe:
    """Return the configuration of a family."""
    fields = {"name": "p", "family": family, **options}
    return TypeAdapter[AnyProbe](AnyProbe).validate_python(fields)


def on_device(inputs: Inputs, device: str) -> Inputs:
    """Return inputs on a device, tokens laid out as a fit's source lays them out."""
    if not isinstance(inputs, Tokens):
        return inputs.to(device)
    patches = padded(inputs.patches.shape, torch.device(device)).copy_(inputs.patches)
    return Tokens(patches, None if inputs.cls is None else inputs.cls.to(device))


def tensor_copy_rate(options: Options, n_bytes: int = 2**28) -> float:
    """Return bytes read plus written per second by copies of torch, on its threads or device."""
    source = torch.ones(n_bytes // 4, device=options.device)
    target = torch.empty_like(source)
    times = side_by_side({"copy": lambda: target.copy_(source)}, options)["copy"]
    return 2.0 * n_bytes / min(times)
