"""Rows of batches lie off the cache's aliases."""

import numpy as np
import pytest
import torch

from bindscope.fitting.standardise import ALIAS, Standardiser, padded

CPU = torch.device("cpu")


@pytest.mark.parametrize("width", [3, ALIAS, 3 * ALIAS])
def test_rows_do_not_lie_at_multiples_of_a_kilobyte(width):
    out = padded((2, 5, width), CPU)
    assert out.shape == (2, 5, width)
    assert out.stride(2) == 1
    assert out.stride(1) % ALIAS != 0


def test_padding_changes_no_value():
    tokens = np.random.default_rng(0).normal(size=(4, 6, ALIAS)).astype(np.float16)
    scaling = Standardiser.measure([tokens], ALIAS)
    there = scaling.apply(tokens, CPU)
    assert there.stride(1) > ALIAS
    here = (tokens.astype(np.float32) - scaling.mean) * scaling.scale
    assert np.array_equal(there.numpy(), here)
