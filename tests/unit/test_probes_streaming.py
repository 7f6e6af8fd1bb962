"""Data larger than memory: what is held, what is read when, and that the fits are the same."""

import threading
import tracemalloc
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from probe_problems import heads, probe, problem

from bindscope.probes import batches
from bindscope.probes.batches import PatchBatches, StreamedVectors, VectorBatches, make_source, rng
from bindscope.probes.convex import _regressions
from bindscope.probes.data import ProbeData, SplitData
from bindscope.probes.fitting import fit
from bindscope.probes.lbfgs import Passes, Preconditioner, Regressions, minimise
from bindscope.probes.runs import Labels, Run, build
from bindscope.probes.streaming import buffers, epoch_order, in_order

CPU = torch.device("cpu")
MEMORY = 4_000_000


class Made:
    """Rows that are computed when they are read: as large as wanted, and nowhere in memory."""

    def __init__(self, *shape):
        self.shape, self.dtype = shape, np.dtype(np.float16)

    def read(self, start, stop, out=None):
        """Give each scene its number, modulo what float16 holds exactly."""
        out = np.empty((stop - start, *self.shape[1:]), self.dtype) if out is None else out
        out[...] = (np.arange(start, stop) % 1000).reshape(-1, *[1] * (len(self.shape) - 1))
        return out

    def cls(self):
        """Return [CLS] tokens that are made in the same way."""
        return Made(self.shape[0], self.shape[2])


def large(*rest):
    """Splits whose train z takes 32 MB and whose labels take 1 MB."""
    n = 32_000_000 // (2 * int(np.prod(rest)))
    splits = {}
    for name, count in (("train", n), ("val", 400), ("test", 400)):
        bits = np.zeros((count, 4), np.uint8)
        zeros = np.zeros((count, 4), np.float32)
        anchors = dict.fromkeys(("object", "feature", "object_given_feature"), zeros)
        splits[name] = SplitData(Made(count, *rest), bits, bits, anchors)
    return ProbeData(**splits, sizes=(2, 2))


@pytest.mark.parametrize("rest", [(8, 64), (128,)])
def test_memory_is_what_was_asked_for_not_the_size_of_the_data(rest, monkeypatch):
    """An epoch over 32 MB in 4 MB of buffers: the peak would be 32 MB if all of it were held."""
    monkeypatch.setattr(batches, "READ_BYTES", 2**19)
    data, n = large(*rest), 32_000_000 // (2 * int(np.prod(rest)))
    make = PatchBatches if len(rest) == 2 else StreamedVectors
    tracemalloc.start()
    try:
        source = make(data, MEMORY, True, CPU)
        seen = 0
        for _, scenes in islice(source.train(256, 0), n // 256):
            seen += len(scenes)
        for _, scenes in source.split("test", 256):
            seen += len(scenes)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == n // 256 * 256 + 400
    batch = 256 * int(np.prod(rest)) * 4
    assert MEMORY / 2 < peak < 1.5 * MEMORY + 5 * batch < 10_000_000


def test_the_memory_of_vectors_decides_whether_they_are_streamed():
    data = large(128)  # 125,000 scenes: 64 MB in float32
    assert isinstance(make_source(probe("quadratic", memory_mb=61), data), StreamedVectors)
    assert batches.held_bytes(data, convex=True) > 2 * batches.held_bytes(data, convex=False)
    small = problem()
    assert isinstance(make_source(probe("linear", memory_mb=1), small), VectorBatches)


def test_the_next_buffer_is_read_while_one_is_used():
    class Watched(Made):
        def __init__(self, *shape):
            super().__init__(*shape)
            self.reads = [threading.Event() for _ in range(4)]

        def read(self, start, stop, out=None):
            self.reads[start // 10].set()
            return super().read(start, stop, out)

    rows = Watched(40, 2)
    for i, (content, part) in enumerate(buffers([rows], in_order(40, 10))):
        if i < 3:
            assert rows.reads[i + 1].wait(5)  # nobody has asked for it yet
        assert i > 1 or not rows.reads[i + 2].is_set()  # but no more than one ahead
        assert content[0][0, 0] == part.ranges[0][0] == 10 * i


def test_reading_ahead_goes_on_over_the_end_of_an_epoch():
    data = problem((300, 100, 80), tokens=6)
    source = PatchBatches(data, 20_000, True, CPU)
    drawn = torch.cat([scenes for _, scenes in islice(source.train(30, 0), 30)])
    epochs = drawn.split(300)
    assert all(sorted(epoch.tolist()) == list(range(300)) for epoch in epochs)
    assert not torch.equal(epochs[0], epochs[1])
    for epoch, order in zip(epochs, range(3), strict=True):
        plan = epoch_order(300, source.block, source.buffer, rng(0, 1, order))
        index = [np.concatenate([np.arange(*r) for r in part.ranges])[part.order] for part in plan]
        assert epoch.tolist() == np.concatenate(index).tolist()


def test_streamed_vectors_are_the_held_ones():
    data = problem()
    held, streamed = VectorBatches(data, True, CPU), StreamedVectors(data, 4000, True, CPU)
    assert streamed.buffer < 300
    np.testing.assert_allclose(
        streamed.standardisers["z"].scale, held.standardisers["z"].scale, rtol=1e-5
    )
    for z, scenes in islice(streamed.train(32, 0), 20):
        torch.testing.assert_close(z, held.z["train"][scenes], rtol=1e-5, atol=1e-5)
    for name, split in data.splits.items():
        found = list(streamed.split(name, 32))
        assert torch.cat([scenes for _, scenes in found]).tolist() == list(range(split.n_scenes))
        whole = torch.cat([z for z, _ in found])
        torch.testing.assert_close(whole, held.z[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", ["object", "chained_object", "feature"])
def test_a_convex_fit_in_passes_finds_the_same_optimum(part):
    data, config = problem(noise=1.0), probe("linear")
    labels, found = Labels(data, CPU), []
    for source in (VectorBatches(data, True, CPU), StreamedVectors(data, 4000, True, CPU)):
        run = Run(0, heads(part), build(config, heads(part), source.shape))
        found.append(_regressions(run, source, labels, "train"))
    held, passes = found
    assert isinstance(held, Regressions)
    assert isinstance(passes, Passes)
    torch.testing.assert_close(held.gram(), passes.gram(), rtol=1e-5, atol=1e-6)
    start = torch.zeros(held.shape)
    solutions = [minimise(p, start, 1e-2, Preconditioner(p), tolerance=1e-7) for p in found]
    torch.testing.assert_close(solutions[0].w, solutions[1].w, rtol=0, atol=3e-3)
    assert held.mean_loss(solutions[0].w) == pytest.approx(passes.mean_loss(solutions[1].w), 1e-5)


@pytest.mark.parametrize("family", ["linear", "quadratic"])
def test_a_fit_that_streams_learns_what_one_in_memory_does(family, monkeypatch):
    data = problem((1500, 200, 200), noise=0.5)
    config = probe(family, steps=60, l2=[1e-2]) if family == "linear" else probe(family, steps=60)
    (held,) = fit(config, data, [0])
    monkeypatch.setattr(batches, "held_bytes", lambda *_, **__: 2**60)
    first, second = fit(config, data, [0, 1])
    tolerance = 1e-3 if family == "linear" else 0.5
    for target, losses in held.losses.items():
        assert first.losses[target].sum(1).mean() == pytest.approx(
            losses.sum(1).mean(), abs=tolerance
        )
    assert (first.weights["object.bias"] == second.weights["object.bias"]).all() == (
        family == "linear"
    )
    alone = fit(config, data, [1])[0]
    assert np.array_equal(alone.losses["object"], second.losses["object"])


def test_a_default_memory_changes_no_key():
    """`memory_mb` came to vectors later: at its default it is no part of a fit's spec."""
    assert "memory_mb" not in probe("linear").model_dump(mode="json", exclude={"name"})
    assert probe("linear", memory_mb=7).model_dump(mode="json")["memory_mb"] == 7
    assert probe("attention_quadratic").model_dump(mode="json")["memory_mb"] == 1024
    dumped = probe("dnn", memory_mb=7).model_dump(mode="json")
    assert probe(**{k: v for k, v in dumped.items() if k != "name"}).memory_mb == 7


def test_patches_in_a_tight_memory_still_have_two_buffers():
    data = problem(tokens=6)
    source = PatchBatches(replace(data), 1, False, CPU)
    assert source.buffer == batches.BLOCKS_PER_BUFFER
    assert source.block == 1
    assert len(next(source.train(64, 0))[1]) == 64  # a batch may be larger than a buffer
