"""Batches: every scene, the right tokens, the same streamed as held; scaling."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_problems import probe, problem

from bindscope.fitting.generators import rng
from bindscope.fitting.standardise import Standardiser
from bindscope.fitting.streaming import ScaledRows, batches, epoch_order
from bindscope.studies.binding_information.probes.batches import (
    StreamedBatches,
    VectorBatches,
    make_source,
)

CPU = torch.device("cpu")


class Reader:
    """Patch tokens that count what is read."""

    def __init__(self, tokens):
        self.tokens, self.shape, self.largest = tokens, tokens.shape, 0
        self.dtype = tokens.dtype

    def read(self, start, stop, out=None):
        """Return a copy, as a store does."""
        self.largest = max(self.largest, stop - start)
        out = np.empty_like(self.tokens[start:stop]) if out is None else out
        out[...] = self.tokens[start:stop]
        return out


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 120), st.integers(1, 40), st.integers(1, 60), st.integers(1, 30), st.integers(0)
)
def test_an_epoch_reads_each_scene_once_and_its_own_tokens(n, block, buffer, batch, seed):
    tokens = np.arange(n, dtype=np.float32)[:, None, None] * np.ones((1, 2, 3), np.float32)
    plan = epoch_order(n, block, buffer, rng(seed))
    visited = []
    for (drawn,), scenes in batches([ScaledRows(Reader(tokens))], plan, batch):
        assert len(drawn) == len(scenes) == batch
        assert np.array_equal(drawn[:, 0, 0], scenes)
        visited.extend(scenes.tolist())
    assert len(visited) == len(set(visited)) == n // batch * batch


def streamed(memory, tokens=6, cls=True):
    data = problem(tokens=tokens, cls=cls)
    return data, StreamedBatches(data, memory, True, CPU)


def test_streamed_batches_equal_held_ones_in_the_same_order():
    data, in_memory = streamed(2**30)
    _, source = streamed(20_000)
    assert in_memory.columns.buffer == 300
    assert source.columns.buffer < 300
    assert source.columns.buffer * 6 * 10 * 2 * 2 <= 20_000
    visited = []
    for tokens, scenes, labels in islice(source.train(32, 0), 25):
        visited.append(scenes)
        raw = data.train.z[scenes.numpy()]
        expected = in_memory.standardisers["patches"].apply(raw, CPU)
        assert torch.equal(tokens.patches, expected)
        raw = data.train.cls[scenes.numpy()]
        assert torch.equal(tokens.cls, source.standardisers["cls"].apply(raw, CPU))
        assert torch.equal(labels.columns["objects"], torch.from_numpy(data.train.objects)[scenes])
    assert len(torch.cat(visited[:9]).unique()) == 32 * 9  # the first epoch


def test_the_order_of_vectors_is_the_seed_s_own():
    source = VectorBatches(problem(), True, CPU)
    first, again, reshuffled = (
        torch.cat([scenes for _, scenes, _ in islice(source.train(100, seed), 6)])
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, reshuffled)
    assert sorted(first[:300].tolist()) == list(range(300))


def test_a_reader_is_never_asked_for_more_than_a_buffer():
    data = problem(tokens=6, cls=False)
    reader = Reader(data.train.z)
    data = replace(data, train=replace(data.train, z=reader))
    source = StreamedBatches(data, 20_000, False, CPU)
    list(islice(source.train(32, 0), 20))
    assert reader.largest <= source.columns.block
    assert source.shape.cls is False


def test_an_error_of_the_reader_reaches_the_caller():
    class Broken(Reader):
        def read(self, start, stop, out=None):
            if start > 100:
                raise OSError("disk")
            return super().read(start, stop, out)

    reader = Broken(np.zeros((300, 2, 2), np.float32))
    with pytest.raises(OSError, match="disk"):
        list(batches([ScaledRows(reader)], epoch_order(300, 20, 100, rng(0)), 10))


def test_scaling_is_by_train_and_constant_columns_vanish():
    values = np.random.default_rng(0).normal(3, 2, (1000, 4)).astype(np.float32)
    values[:, 1] = 1e4
    values[:, 2] = 0
    scaling = Standardiser.measure([values[:300], values[300:]], 4)
    np.testing.assert_allclose(scaling.mean, values.mean(0), rtol=1e-5)
    np.testing.assert_allclose(scaling.scale[[0, 3]], 1 / values[:, [0, 3]].std(0), rtol=1e-5)
    assert scaling.scale[1] == scaling.scale[2] == 0
    scaled = scaling.apply(values, CPU)
    assert scaled.std(0).numpy() == pytest.approx([1, 0, 0, 1], abs=1e-2)
    assert torch.all(scaling.apply(values + 7, CPU)[:, 1:3] == 0)


def test_a_large_mean_does_not_drown_the_deviation():
    values = np.random.default_rng(0).normal(1e3, 0.1, (5000, 3)).astype(np.float32)
    scaling = Standardiser.measure(np.array_split(values, 7), 3)
    np.testing.assert_allclose(1 / scaling.scale, values.astype(np.float64).std(0), rtol=1e-3)


def test_inputs_are_raw_under_the_paper_s_protocol():
    data = problem()
    source = make_source(probe("quadratic", protocol="paper"), data)
    inputs, *_ = next(source.split("val", 1000))
    assert np.array_equal(inputs.numpy(), data.val.z)
    inputs, *_ = next(make_source(probe("quadratic"), data).split("train", 1000))
    assert inputs.mean(0).abs().max() < 1e-5
    assert inputs.std(0, correction=0).numpy() == pytest.approx(1, abs=1e-4)
