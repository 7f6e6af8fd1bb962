"""Where arrays of a fit lie: kept between steps, rows off the cache's aliases."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bindscope.probes import memory
from bindscope.probes.standardise import ALIAS, Standardiser, padded

CPU = torch.device("cpu")


PAGES = """
import resource

import torch

from bindscope.probes import memory

def new_pages():
    # Pages that the kernel finds for one array of 64 MB, more than glibc ever keeps by itself.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

outside = new_pages()
with memory.kept():
    new_pages()
    inside = new_pages()
assert inside < outside / 4, (inside, outside)
assert new_pages() > inside
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_freed_memory_is_used_again_inside_and_given_back_after():
    # In a fresh interpreter with one thread: other tests, or the start of torch's threads, may leave
    # something small behind an array, and then its place is too short for the next, aligned one.
    source = str(Path(memory.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", PAGES], env=environment, check=True)


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
