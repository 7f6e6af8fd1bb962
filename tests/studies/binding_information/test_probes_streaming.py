"""Data larger than memory: what is held, what is read when, and that the fits are the same."""

import threading
import tracemalloc
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from probe_problems import heads, probe, problem

from bindscope.fitting import columns, regressions
from bindscope.fitting.generators import rng
from bindscope.fitting.lbfgs import descend
from bindscope.fitting.rows import row_bytes
from bindscope.fitting.streaming import ScaledRows, buffers, epoch_order, in_order
from bindscope.fitting.streaming import batches as made_batches
from bindscope.studies.binding_information.probes import batches, convex, fitting
from bindscope.studies.binding_information.probes.batches import (
    StreamedBatches,
    VectorBatches,
    make_source,
)
from bindscope.studies.binding_information.probes.convex import HeadProblem, LinearInputs
from bindscope.studies.binding_information.probes.data import ProbeData, SplitData
from bindscope.studies.binding_information.probes.fitting import fit
from bindscope.studies.binding_information.probes.runs import start as begin

CPU = torch.device("cpu")
MEMORY = 4_000_000


class Made:
    """Rows that are computed when they are read: as large as wanted, and nowhere in memory."""

    def __init__(self, *shape, dtype=np.float16, modulus=1000):
        self.shape, self.dtype, self.modulus = shape, np.dtype(dtype), modulus
        self.largest = 0

    def read(self, start, stop, out=None):
        """Give each scene its number, modulo what the type holds exactly."""
        self.largest = max(self.largest, stop - start)
        out = np.empty((stop - start, *self.shape[1:]), self.dtype) if out is None else out
        numbers = np.arange(start, stop) % self.modulus
        out[...] = numbers.reshape(-1, *[1] * (len(self.shape) - 1))
        return out


def splits_of(z, n, evaluated):
    """Splits whose inputs and labels are all made when they are read; 56 bytes of labels each."""
    splits = {}
    for name, count in (("train", n), ("val", evaluated), ("test", evaluated)):
        bits = Made(count, 4, dtype=np.uint8, modulus=2)
        prior = Made(count, 4, dtype=np.float32, modulus=2)
        anchors = dict.fromkeys(("object", "feature", "object_given_feature"), prior)
        rows = z(count)
        cls = Made(count, rows.shape[2]) if len(rows.shape) == 3 else None
        splits[name] = SplitData(rows, bits, bits, anchors, cls=cls)
    return ProbeData(**splits, sizes=(2, 2))


def large(*rest):
    """Splits whose train z takes 32 MB, and 8 MB of few numbers each, with 14 MB of labels."""
    return splits_of(lambda n: Made(n, *rest), n_large(*rest), 400)


def n_large(*rest):
    """Scenes to train on."""
    return (8_000_000 if rest == (16,) else 32_000_000) // (2 * int(np.prod(rest)))


@pytest.mark.parametrize("rest", [(8, 64), (128,), (16,)])
def test_memory_is_what_was_asked_for_not_the_size_of_the_data(rest, monkeypatch):
    """An epoch over more than 20 MB in 4 MB of buffers, labels among them."""
    monkeypatch.setattr(columns, "READ_BYTES", 2**19)
    data, n = large(*rest), n_large(*rest)
    tracemalloc.start()
    try:
        source = StreamedBatches(data, MEMORY, True, CPU)
        n_scenes = 0
        for _, scenes, labels in islice(source.train(256, 0), n // 256):
            n_scenes += len(scenes)
            assert torch.equal(labels.columns["objects"][:, 0], (scenes % 1000 % 2).byte())
        for _, scenes, _ in source.split("test", 256):
            n_scenes += len(scenes)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert n_scenes == n // 256 * 256 + 400
    batch = 256 * int(np.prod(rest)) * 4
    assert MEMORY / 2 < peak < 1.5 * MEMORY + 5 * batch < 10_000_000


def test_what_a_whole_fit_holds_does_not_grow_with_the_scenes(monkeypatch):
    """Three times the scenes: the same buffers, and about 40 bytes for each more to test."""
    monkeypatch.setattr(columns, "READ_BYTES", 2**18)
    # Passes are alike: two iterations of three strengths, with a curvature that is measured anew.
    two = replace(convex.RIDGES, iterations=2, strengths=convex.STRENGTHS[:3])
    monkeypatch.setattr(convex, "RIDGES", two)
    monkeypatch.setattr(regressions, "REFRESH", 1)
    config = probe("quadratic", steps=1, rank=1, batch_size=1000, memory_mb=1)
    fit(config, problem(), [0])  # what an optimiser imports is not counted
    peaks, largest = [], []
    for n in (4_000, 12_000):
        data = splits_of(lambda count: Made(count, 64), n, n)
        tracemalloc.start()
        try:
            (result,) = fit(config, data, [0])
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert {len(losses) for losses in result.losses.values()} == {n}
        rows = [split.z for split in data.splits.values()]
        rows += [values for split in data.splits.values() for values in split.labels.values()]
        largest.append(max(values.largest * row_bytes(values) for values in rows))
    assert largest[0] == largest[1] <= 2**18
    assert peaks[1] - peaks[0] < 1.5 * 5 * 8 * 8_000 < 0.4 * 3 * 56 * 8_000  # of all labels


@pytest.mark.parametrize("tokens", [0, 6])
def test_labels_that_are_read_with_their_inputs_give_the_same_fit(tokens, monkeypatch):
    data = problem(tokens=tokens)
    config = probe("attention_quadratic" if tokens else "quadratic", steps=12, batch_size=64)
    fits = []
    for share in (1, 2**40):  # held; read, in one buffer as before
        monkeypatch.setattr(batches, "LABELS_SHARE", share)
        source = StreamedBatches(data, 2**28, True, CPU)
        assert bool(source.held) == (share == 1)
        monkeypatch.setattr(fitting, "make_source", lambda *_, chosen=source: chosen)
        fits.append(fit(config, data, [3])[0])
    in_memory, read = fits
    assert in_memory.history == read.history
    for name, losses in in_memory.losses.items():
        assert np.array_equal(losses, read.losses[name])
    for name, values in in_memory.weights.items():
        assert np.array_equal(values, read.weights[name])


def test_labels_alone_come_in_pieces(monkeypatch):
    monkeypatch.setattr(columns, "READ_BYTES", 2000)
    data = problem()
    source = StreamedBatches(data, 4000, True, CPU)
    whole = VectorBatches(data, True, CPU).held["val"]
    for part in (heads("chained_object"), heads("feature"), heads("object_anchored")):
        pieces = [
            [None if x is None else x.clone() for x in piece.of_heads(part)]
            for piece in source.labels("val")
        ]
        assert len(pieces) > 1
        for column_pieces, expected in zip(
            zip(*pieces, strict=True), whole.of_heads(part), strict=True
        ):
            if expected is None:
                assert set(column_pieces) == {None}
            else:
                assert torch.equal(torch.cat(column_pieces), expected)


def test_the_memory_of_vectors_decides_whether_they_are_streamed():
    data = large(128)  # 125,800 scenes: 64.4 MB in float32, and 7.0 MB of labels
    assert batches.bytes_in_memory(data, convex=False) == 125_800 * (512 + 56)
    assert isinstance(make_source(probe("quadratic", memory_mb=68), data), StreamedBatches)
    assert batches.bytes_in_memory(data, convex=True) > 2 * batches.bytes_in_memory(
        data, convex=False
    )
    small = problem()
    assert isinstance(make_source(probe("linear", memory_mb=1), small), VectorBatches)


def test_batches_take_turns_in_two_places_and_streams_share_none():
    def stream():
        return made_batches([ScaledRows(Made(70, 2))], in_order(70, 35), 10, rest=True)

    addresses, first = [], stream()
    for (batch,), scenes in first:
        assert batch[:, 0].tolist() == scenes.tolist()
        for (validation_batch,), theirs in stream():  # as a validation amid an epoch
            assert validation_batch[:, 0].tolist() == theirs.tolist()
        assert batch[:, 0].tolist() == scenes.tolist()  # still: the next was not asked for
        addresses.append(batch.data_ptr())
    assert len(addresses) == 7
    assert len(set(addresses)) == 2
    assert addresses[::2] == addresses[:1] * 4


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
    source = StreamedBatches(data, 20_000, True, CPU)
    drawn = torch.cat([scenes for _, scenes, _ in islice(source.train(30, 0), 30)])
    epochs = drawn.split(300)
    assert all(sorted(epoch.tolist()) == list(range(300)) for epoch in epochs)
    assert not torch.equal(epochs[0], epochs[1])
    for epoch, order in zip(epochs, range(3), strict=True):
        plan = epoch_order(300, source.columns.block, source.columns.buffer, rng(0, 1, order))
        index = [np.concatenate([np.arange(*r) for r in part.ranges])[part.order] for part in plan]
        assert epoch.tolist() == np.concatenate(index).tolist()


def test_streamed_vectors_are_the_held_ones():
    data = problem()
    in_memory, streamed = VectorBatches(data, True, CPU), StreamedBatches(data, 4000, True, CPU)
    assert streamed.columns.buffer < 300
    np.testing.assert_allclose(
        streamed.standardisers["z"].scale, in_memory.standardisers["z"].scale, rtol=1e-5
    )
    for z, scenes, _ in islice(streamed.train(32, 0), 20):
        torch.testing.assert_close(z, in_memory.z["train"][scenes], rtol=1e-5, atol=1e-5)
    for name, split in data.splits.items():
        parts = [(z.clone(), scenes) for z, scenes, _ in streamed.split(name, 32)]
        assert torch.cat([scenes for _, scenes in parts]).tolist() == list(range(split.n_scenes))
        whole = torch.cat([z for z, _ in parts])
        torch.testing.assert_close(whole, in_memory.z[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", ["object", "chained_object", "feature"])
def test_a_convex_fit_in_passes_finds_the_same_optimum(part):
    data, config = problem(noise=1.0), probe("linear")
    problems = []
    for source in (VectorBatches(data, True, CPU), StreamedBatches(data, 4000, True, CPU)):
        run = begin(config, heads(part), source.shape)
        problems.append(
            HeadProblem(
                LinearInputs(source, 2**20, run.family.linear_part), [run], "train"
            ).regressions()
        )
    in_memory, passes = problems
    assert callable(passes.data)
    assert not callable(in_memory.data)
    start = torch.zeros_like(in_memory.mask)
    curvatures = [problem.curvature(start) for problem in problems]
    torch.testing.assert_close(*curvatures, rtol=1e-5, atol=1e-6)
    solutions = [descend(problem, start, 1e-2, tolerance=1e-7) for problem in problems]
    torch.testing.assert_close(solutions[0].w, solutions[1].w, rtol=0, atol=3e-3)
    assert float(in_memory.losses(solutions[0].w).sum()) == pytest.approx(
        float(passes.losses(solutions[1].w).sum()), 1e-5
    )


@pytest.mark.parametrize("family", ["linear", "quadratic"])
def test_a_fit_that_streams_learns_what_one_in_memory_does(family, monkeypatch):
    monkeypatch.setattr(convex, "RIDGES", replace(convex.RIDGES, strengths=convex.STRENGTHS[::3]))
    data = problem((1500, 200, 200), noise=0.5)
    config = probe(family, steps=30, targets=["plain"])
    (in_memory,) = fit(config, data, [0])
    monkeypatch.setattr(batches, "bytes_in_memory", lambda *_, **__: 2**60)
    first, second = fit(config, data, [0, 1])
    tolerance = 1e-3 if family == "linear" else 0.5
    for target, losses in in_memory.losses.items():
        assert first.losses[target].mean() == pytest.approx(losses.mean(), abs=tolerance)
    assert (first.weights["object.bias"] == second.weights["object.bias"]).all() == (
        family == "linear"
    )
    alone = fit(config, data, [1])[0]
    assert np.array_equal(alone.losses["object"], second.losses["object"])


def test_patches_in_a_tight_memory_still_have_two_buffers():
    data = problem(tokens=6)
    source = StreamedBatches(replace(data), 1, False, CPU)
    assert source.columns.buffer == columns.BLOCKS_PER_BUFFER
    assert source.columns.block == 1
    assert len(next(source.train(64, 0))[1]) == 64  # a batch may be larger than a buffer
