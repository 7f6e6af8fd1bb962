"""Where arrays of a fit lie: kept between steps, rows off the cache's aliases."""

import ctypes

import numpy as np
import pytest
import torch

from bindscope.fitting import memory
from bindscope.fitting.standardise import ALIAS, Standardiser, padded

CPU = torch.device("cpu")


class Mallinfo2(ctypes.Structure):
    """What glibc says of its memory (malloc.h); `hblks` arrays were asked of the kernel singly."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost",
    )]  # fmt: skip


def singly():
    """Arrays of its own that one array of 64 MB, more than glibc ever keeps, adds."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo2
    before = mallinfo2().hblks
    array = torch.ones(2**24)
    return mallinfo2().hblks - before + 0 * len(array)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="not glibc 2.33 or later")
def test_arrays_lie_in_memory_that_is_kept_inside_and_on_their_own_after():
    assert singly() == 1
    with memory.kept():
        assert singly() == 0
    assert singly() == 1


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
