"""Check a probe family: what docs/add_probe.md promises of every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from math import log, prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from pydantic import TypeAdapter
from scipy.special import entr
from torch import Tensor

from bindscope.codes.space import cells_within, feature_code
from bindscope.fitting.checkpoint import Checkpoint, Checkpoints
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.families import ProbeOptions
from bindscope.studies.binding_information.probes.base import FitResult, Heads, Target, all_parts
from bindscope.studies.binding_information.probes.batches import Labelled
from bindscope.studies.binding_information.probes.data import ProbeData, SplitData
from bindscope.studies.binding_information.probes.fitting import fit
from bindscope.studies.binding_information.probes.module import (
    Family,
    InputShape,
    PatchInputs,
    ProbeInputs,
    Projection,
    build,
)
from bindscope.studies.binding_information.probes.runs import backward, bits_lost
from bindscope.studies.binding_information.probes.weights import rebuild
from bindscope.studies.binding_information.registry import options_of

SIZES, DIM, TOKENS, SCENES = (3, 4), 7, 5, 6
RATE = 0.25  # of the planted bits
PRIOR_LOG_ODDS = float(np.log(RATE / (1 - RATE)))
STOPPED_AT = 5  # states that a fit keeps before it is stopped and resumed
GRADIENT = 1e-5  # relative difference of a gradient from the slope of the loss
DECODED = 0.6  # share of H(O) that is decoded from planted bits
NESTING_BITS = 0.02  # share of H(O) by which a fit may be worse on validation than one it contains


def check_probe(family: str, *, contains: Sequence[str] = ("linear",), **options: Any) -> None:
    """Check that a probe family keeps the promises of docs/add_probe.md.

    Parameters
    ----------
    family
        Its name, as in a configuration: one of ours, or of an entry point `bindscope.probes`.
    contains
        Families that it contains: its fits are no worse on validation scenes.
    **options
        Options of the family that make it small, as `rank` or `hidden`.

    Raises
    ------
    AssertionError
        If a promise is not kept; the message says which, and of which heads.
    """
    torch.set_num_threads(1)
    probe: ProbeOptions = TypeAdapter(AnyProbe).validate_python(
        {"name": "probe", "family": family, "steps": 15, "batch_size": 32, **options}
    )
    _check_declaration(probe)
    for heads in _head_ranges(probe):
        for shape in _shapes(probe):
            for check in (_check_logits, _check_order, _check_start, _check_gradient, _check_noise):
                check(probe, heads, shape)
    _check_resume(probe)
    _check_fits(probe, contains)


def planted_bits(
    n: Sequence[int] = (300, 100, 80),
    dim: int = 10,
    sizes: tuple[int, ...] = SIZES,
    noise: float = 0.3,
    seed: int = 0,
    tokens: int = 0,
    cls: bool = True,
) -> ProbeData:
    """Return independent bits of rate 1/4, seen through a random matrix and noise.

    Anchors are the exact prior of O; those of F and of O given F rule out what F rules out. (With
    bits of rate 1/2 a quadratic form of centered inputs could not distinguish a code from its
    complement.)
    """
    rng = np.random.default_rng(seed)
    k = prod(sizes)
    mix = rng.normal(size=(k, dim))
    splits = {}
    for name, n_scenes in zip(("train", "val", "test"), n, strict=True):
        objects = (rng.random((n_scenes, k)) < RATE).astype(np.uint8)
        features = feature_code(objects, sizes)
        z: Any = ((objects - 0.5) @ mix + noise * rng.normal(size=(n_scenes, dim))).astype(
            np.float32
        )
        allowed = cells_within(features, sizes)
        anchors = {
            "object": np.full((n_scenes, k), PRIOR_LOG_ODDS, np.float32),
            "feature": np.zeros(features.shape, np.float32),
            "object_given_feature": np.where(allowed, PRIOR_LOG_ODDS, -30).astype(np.float32),
        }
        cls_tokens = None
        if tokens:
            patches = rng.normal(size=(n_scenes, tokens, dim)).astype(np.float32) * noise
            patches[:, : min(k, tokens)] += (objects[:, :tokens, None] - 0.5) * mix[:tokens]
            cls_tokens, z = z if cls else None, patches.astype(np.float16)
        splits[name] = SplitData(z, objects, features, anchors, cls=cls_tokens)
    return ProbeData(**splits, sizes=sizes)


def random_batch(
    generator: torch.Generator, n: int, heads: Heads, shape: InputShape, dtype: torch.dtype
) -> tuple[ProbeInputs, Labelled]:
    """Return random inputs, and bits, anchors and the bits to predict."""

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=dtype)

    inputs: ProbeInputs = normal(n, shape.dim)
    if shape.tokens:
        cls = normal(n, shape.dim) if shape.cls else None
        inputs = PatchInputs(normal(n, shape.tokens, shape.dim), cls)
    bits = (normal(n, heads.length) > 0).to(dtype)
    anchors = normal(n, heads.count) if heads.anchored else None
    return inputs, (bits, anchors, bits[:, heads.first :])


def shake(family: Family) -> Family:
    """Give a family large random weights, so that no term hides behind a zero."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in family.parameters():
            noise = torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype)
            parameter.copy_(0.3 * noise)
        for part in family.modules():
            if isinstance(part, Projection):
                part.weight[..., -part.mask.shape[-1] :].mul_(part.mask)
    return family


def _require(holds: bool, promise: str, heads: Heads | None = None) -> None:
    if not holds:
        where = f" (heads {heads.name})" if heads else ""
        raise AssertionError(f"{promise}{where}")


def _check_declaration(probe: ProbeOptions) -> None:
    options, family = type(probe), type(probe).load()
    _require(options_of(probe.family) is options, "the registered options are of another family")
    _require(issubclass(family, Family), "`load` returns a class derived from `Family`")
    words = options.words(probe.family).words
    _require(words.startswith(("a ", "an ")), "`label.words` begins with an article")
    _require(bool(options.code()), "`code` names what the key of a fit covers")


def _head_ranges(probe: ProbeOptions) -> list[Heads]:
    if probe.jointly:
        return [*Target("object", SIZES).parts, *Target("chained", SIZES).heads(True)]
    return [*all_parts(SIZES)]


def _shapes(probe: ProbeOptions) -> list[InputShape]:
    if not probe.patches:
        return [InputShape(DIM)]
    return [InputShape(DIM, cls, TOKENS) for cls in (True, False)]


def _alone(probe: ProbeOptions) -> ProbeOptions:
    """Return the options of the family without the linear probe that it holds."""
    return probe.model_copy(update={"protocol": "paper"})


def _check_logits(probe: ProbeOptions, heads: Heads, shape: InputShape) -> None:
    """Logits are (B, heads) and finite, and each scene's its own."""
    inputs, (bits, anchors, _) = random_batch(_generator(), SCENES, heads, shape, torch.float32)
    family = shake(build(_alone(probe), heads, shape))
    logits = family(inputs, bits, anchors)
    _require(tuple(logits.shape) == (SCENES, heads.count), "logits are (B, heads)", heads)
    _require(bool(logits.isfinite().all()), "logits are finite", heads)
    alone = family(_first_scene(inputs), bits[:1], None if anchors is None else anchors[:1])
    same = torch.allclose(alone, logits[:1], rtol=1e-4, atol=1e-4)
    _require(same, "a scene's logits do not depend on the other scenes of its batch", heads)


def _first_scene(inputs: ProbeInputs) -> ProbeInputs:
    if isinstance(inputs, Tensor):
        return inputs[:1]
    return PatchInputs(inputs.patches[:1], None if inputs.cls is None else inputs.cls[:1])


def _check_order(probe: ProbeOptions, heads: Heads, shape: InputShape) -> None:
    """Head k sees the bits before it and no other: the chain rule holds."""
    inputs, (bits, anchors, _) = random_batch(_generator(), SCENES, heads, shape, torch.float32)
    family = shake(build(_alone(probe), heads, shape))
    logits = family(inputs, bits, anchors)
    for bit in range(heads.length):
        flipped = bits.clone()
        flipped[:, bit] = 1 - flipped[:, bit]
        moved = (family(inputs, flipped, anchors) - logits).abs().amax(0)
        may_not = max(bit + 1 - heads.first, 0)  # heads before and at the bit
        _require(
            not bool((moved[:may_not] > 1e-5).any()), "a head sees only the bits before it", heads
        )


def _check_start(probe: ProbeOptions, heads: Heads, shape: InputShape) -> None:
    """A fit that starts from the prior starts exactly there, and can leave it."""
    inputs, labels = random_batch(_generator(), SCENES, heads, shape, torch.float32)
    family = build(probe, heads, shape)
    logits = family(inputs, labels[0], labels[1])
    if family.linear is not None:
        logits = logits - family.linear.term(
            inputs if isinstance(inputs, Tensor) else inputs.vector, labels[0] - 0.5
        )
    prior = torch.zeros_like(logits) if labels[1] is None else labels[1]
    if family.starts_at_zero and not probe.convex:
        same = torch.allclose(logits, prior, rtol=0, atol=1e-6)
        _require(same, "the learned term starts at zero where `starts_at_zero` says so", heads)
        backward(family, inputs, labels)
        moves = any(
            p.grad is not None and bool(p.grad.abs().max() > 0) for p in family.parameters()
        )
        _require(moves, "the gradient at the start is not zero", heads)
    again = build(probe, heads, shape)
    same = all(
        torch.equal(a, b) for a, b in zip(family.parameters(), again.parameters(), strict=True)
    )
    _require(same, "initial weights follow from `generator` alone", heads)


def _check_gradient(probe: ProbeOptions, heads: Heads, shape: InputShape) -> None:
    """The gradient of every parameter is the slope of the loss, in double precision."""
    inputs, labels = random_batch(_generator(), SCENES, heads, shape, torch.float64)
    family = shake(build(_alone(probe), heads, shape).double())
    truth = labels[2]

    def loss() -> Tensor:
        return bits_lost(family(inputs, labels[0], labels[1]), truth).sum()

    loss().backward()  # type: ignore[no-untyped-call]
    draw = _generator()
    for name, parameter in family.named_parameters():
        _require(parameter.grad is not None, f"{name} has a gradient", heads)
        assert parameter.grad is not None
        # Along what the gradient moves: weights of forbidden bits stay as they are.
        way = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
        way = way * (parameter.grad != 0)
        slope = float((parameter.grad * way).sum())
        with torch.no_grad():
            parameter.add_(way, alpha=1e-6)
            above = float(loss())
            parameter.sub_(way, alpha=2e-6)
            below = float(loss())
            parameter.add_(way, alpha=1e-6)
        measured = (above - below) / 2e-6
        close = abs(measured - slope) <= GRADIENT * max(1.0, abs(slope))
        _require(close, f"the gradient of {name} is the slope of the loss", heads)


def _check_noise(probe: ProbeOptions, heads: Heads, shape: InputShape) -> None:
    """What is random in a step follows from its key, and nothing is random outside of steps."""
    inputs, (bits, anchors, _) = random_batch(_generator(), SCENES, heads, shape, torch.float32)
    family = shake(build(_alone(probe), heads, shape))
    same = torch.equal(family(inputs, bits, anchors), family(inputs, bits, anchors))
    _require(same, "outside of training steps logits repeat", heads)
    logits = []
    for _ in range(2):
        with family.noise((0, 3)):
            logits.append(family(inputs, bits, anchors))
    _require(torch.equal(*logits), "what is random in a step follows from `self.key`", heads)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(2)


class _StoppedError(Exception):
    """The fit of `_check_resume` is stopped."""


def _check_resume(probe: ProbeOptions) -> None:
    """A descent that is stopped and resumed ends in the same bits as one that is not."""
    data = planted_bits((48, 16, 16), tokens=14 if probe.patches else 0)
    (whole,) = fit(_alone(probe), data, [0])
    numbers, write = count(1), Checkpoint.write

    def write_and_stop(self: Checkpoint, tensors: dict[str, Tensor], record: Any) -> None:
        write(self, tensors, record)
        if next(numbers) == STOPPED_AT:
            raise _StoppedError

    stopped = False
    with TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder) / "fit", "check")
        every: dict[str, Any] = {"write": write_and_stop, "is_due": lambda *_, **__: True}
        with patch.multiple(Checkpoint, **every):
            try:
                fit(_alone(probe), data, [0], checkpoints)
            except _StoppedError:
                stopped = True
        (resumed,) = fit(_alone(probe), data, [0], Checkpoints(checkpoints.output, "check"))
    _require(
        stopped and _equal(whole, resumed),
        "a fit that is resumed ends in the same bits: all state is parameters and buffers",
    )


def _check_fits(probe: ProbeOptions, contains: Sequence[str]) -> None:
    """Fits repeat, do not depend on the other seeds, contain others, and decode planted bits."""
    data = planted_bits(tokens=14 if probe.patches else 0)
    entropy = prod(SIZES) * float(entr(RATE) + entr(1 - RATE)) / log(2)
    both = fit(probe, data, [0, 1])
    alone = fit(probe, data, [1])[0]
    same = _equal(both[1], alone)
    _require(same, "a fit repeats bit by bit, whatever other seeds are fitted beside it")
    chained = [name for name in both[0].losses if name.startswith("chained_")]
    anchored = float(both[0].losses["object_anchored"].mean())
    decoded = float(both[0].anchor_losses["object_anchored"].mean()) - anchored
    _require(
        decoded > DECODED * entropy,
        f"planted bits are decoded: {decoded:.2f} of {entropy:.2f} bits",
    )
    for name in chained:
        gain = both[0].anchor_losses[name] - both[0].losses[name]
        _require(float(gain.mean()) > 0, f"planted bits are decoded ({name})")
    shuffled = fit(probe, data.shuffled_labels(0), [0])[0]
    gained = float(
        (shuffled.anchor_losses["object_anchored"] - shuffled.losses["object_anchored"]).mean()
    )
    _require(gained < 0.05 * entropy, f"shuffled labels hold nothing: {gained:.2f} bits decoded")
    _check_loaded(both[0], data)
    for name in contains:
        if name == probe.family:
            continue
        options = {**probe.model_dump(include={"steps", "batch_size"}), "name": "p", "family": name}
        contained = TypeAdapter(AnyProbe).validate_python(options)
        read = data if contained.patches or not data.patches else _mean_tokens(data)
        smaller = fit(contained, read, [0])[0]
        for target in ("object", "object_anchored", "chained"):
            ours, theirs = both[0].val_loss_bits[target], smaller.val_loss_bits[target]
            _require(
                ours <= theirs + NESTING_BITS * entropy,
                f"it contains {name}: {ours:.3f} bits on validation, {name} {theirs:.3f}, of "
                f"{target}",
            )


def _mean_tokens(data: ProbeData) -> ProbeData:
    """Return what linear parts read of patch tokens: [CLS] and their mean."""

    def vectors(split: SplitData) -> SplitData:
        parts = [np.asarray(split.cls), np.asarray(split.z).mean(1, dtype=np.float32)]
        return replace(split, z=np.concatenate(parts, axis=1), cls=None)

    return replace(data, train=vectors(data.train), val=vectors(data.val), test=vectors(data.test))


def _check_loaded(result: FitResult, data: ProbeData) -> None:
    """A probe that is loaded from its weights predicts the same."""
    probe = rebuild(result.metadata, result.weights)
    z, cls = data.test.z, data.test.cls
    logits = probe.logits("object", z, data.test.objects, cls=cls)  # type: ignore[arg-type]
    bits = np.asarray(data.test.objects)
    losses = np.logaddexp(0, (1 - 2.0 * bits) * logits).sum(1) / np.log(2)
    same = np.allclose(losses, result.losses["object"], rtol=1e-3, atol=1e-3)
    _require(same, "a probe that is loaded from its weights has the same losses")


def _equal(first: FitResult, second: FitResult) -> bool:
    pairs: list[tuple[Any, Any]] = [(first.losses[k], second.losses[k]) for k in first.losses]
    pairs += [(first.weights[k], second.weights[k]) for k in first.weights]
    return all(np.array_equal(a, b) for a, b in pairs)
