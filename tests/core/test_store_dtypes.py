"""The cast to stored types, against torch and against brute force."""

import numpy as np
import pytest
import torch

from bindscope.core.store.dtypes import all_finite, cast, from_bfloat16, to_bfloat16


def test_every_bfloat16_is_read_exactly():
    bits = np.arange(1 << 16, dtype=np.uint16)
    expected = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(from_bfloat16(bits), expected)


def test_rounding_to_bfloat16_is_torchs():
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    ties = (rng.integers(0, 1 << 16, 20_000, dtype=np.uint32) << 16) | 0x8000
    values = np.concatenate([patterns, ties]).view(np.float32)
    values = values[np.isfinite(values)]
    expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy()
    np.testing.assert_array_equal(to_bfloat16(values), expected.view(np.uint16))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_finite_is_told_by_the_exponent(dtype):
    for bits in np.arange(1 << 16, dtype=np.uint16).reshape(-1, 1)[::7]:
        value = bits.view(np.float16) if dtype == "float16" else from_bfloat16(bits)
        stored = bits.view(np.float16) if dtype == "float16" else bits
        assert all_finite(stored, dtype) == bool(np.isfinite(value).all())


@pytest.mark.parametrize(
    ("dtype", "largest"), [("float16", 65504.0), ("bfloat16", 3.3895e38), ("float32", 3.4028e38)]
)
def test_largest_value_fits_and_the_next_does_not(dtype, largest):
    assert all_finite(cast(np.array([largest, -largest]), dtype), dtype)
    assert not all_finite(cast(np.array([largest * 1.01]), dtype), dtype)


def test_integers_are_never_changed():
    assert cast(np.array([0, 255]), "uint8").dtype == np.uint8
    for values in ([256], [-1], [0.5]):
        with pytest.raises(ValueError, match="do not fit uint8"):
            cast(np.array(values), "uint8")
