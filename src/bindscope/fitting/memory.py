"""Memory that a fit frees is kept for its next step (glibc).

A step allocates the same large arrays as the step before. By default glibc asks the kernel for
every array above 32 MB, and gives freed memory back at the end of the heap, so that each step takes
new pages, which the kernel has to find and to zero: for wide probes up to half of the step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # parameters of mallopt, malloc.h
# What glibc's own adaptation ends with once an array of 32 MB has been freed; setting a parameter
# turns the adaptation off, so the thresholds that it starts from would be too small for ever.
AFTER = {TRIM_THRESHOLD: 64 * 2**20, MMAP_THRESHOLD: 32 * 2**20, MMAP_MAX: 65536}


@contextmanager
def kept() -> Iterator[None]:
    """Keep what is freed inside, and give it back at the end; elsewhere than on glibc, nothing.

    The setting is the process's. It changes no result: only where arrays lie. What threads other
    than the main one allocate is not concerned.
    """
    try:
        libc = ctypes.CDLL(None)
        mallopt, trim = libc.mallopt, libc.malloc_trim
    except (OSError, AttributeError, TypeError):
        yield
        return
    mallopt(MMAP_MAX, 0)
    mallopt(TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        for parameter, value in AFTER.items():
            mallopt(parameter, value)
        trim(0)
