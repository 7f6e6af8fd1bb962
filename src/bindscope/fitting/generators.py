"""Generators of random numbers that follow from a key."""

from __future__ import annotations

import numpy as np


def rng(*key: int) -> np.random.Generator:
    """Return the generator of a key: a seed, what it is for, an epoch."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
