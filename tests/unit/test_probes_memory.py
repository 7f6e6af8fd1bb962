"""Where arrays of a fit lie: kept between steps, rows off the cache's aliases."""

import ctypes
import resource

import numpy as np
import pytest
import torch

from bindscope.probes import memory
from bindscope.probes.standardise import ALIAS, Standardiser, padded

FLOATS = 2**24  # 64 MB, more than glibc ever keeps by itself
CPU = torch.device("cpu")


def new_pages():
    """Pages that the kernel finds for one array."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(FLOATS)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_freed_memory_is_used_again_inside_and_given_back_after():
    outside = new_pages()
    with memory.kept():
        new_pages()
        inside = new_pages()
    assert inside < outside / 4
    assert new_pages() > inside


def test_memory_is_given_back_after_an_error_too():
    with pytest.raises(ZeroDivisionError), memory.kept():
        1 / 0  # noqa: B018


@pytest.mark.parametrize("width", [3, ALIAS, 3 * ALIAS])
def test_rows_do_not_lie_at_multiples_of_a_kilobyte(width):
    out = padded((2, 5, width), CPU)
    assert out.shape == (2, 5, width)
    assert out.stride(2) == 1
    assert out.stride(1) % ALIAS != 0


def test_padding_changes_no_value():
    tokens = np.random.default_rng(0).normal(size=(4, 6, ALIAS)).astype(np.float16)
    scaling = Standardiser.of([tokens], ALIAS)
    there = scaling.apply(tokens, CPU)
    assert there.stride(1) > ALIAS
    here = (tokens.astype(np.float32) - scaling.mean) * scaling.scale
    assert np.array_equal(there.numpy(), here)
