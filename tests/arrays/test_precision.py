"""Numbers that float32 would lose, and what is said of those that no probe can read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bindscope as bs
from bindscope.arrays import precision
from bindscope.arrays.precision import in_float32

CHAINED: Any = {"family": "linear", "targets": ["chained"]}
Z = np.random.default_rng(0).normal(size=(200, 5))


def standardised(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    z = values.astype(np.float64)
    return (z - z.mean(0)) / z.std(0)


@pytest.mark.parametrize(
    "moved", [Z + 1e6, Z * 1e-30, Z * 1e30, 1e-20 * (Z + 1e6)], ids=["far", "tiny", "huge", "both"]
)
def test_numbers_keep_their_digits(moved: npt.NDArray[np.float64]) -> None:
    cast, notes = in_float32(moved)
    assert cast.dtype == np.float32
    assert not notes
    np.testing.assert_allclose(standardised(cast), standardised(Z), atol=1e-6)


def test_numbers_that_float32_holds_are_not_touched() -> None:
    single = Z.astype(np.float32)
    assert in_float32(single)[0] is single
    np.testing.assert_array_equal(in_float32(Z)[0], single)
    whole = np.arange(10).reshape(5, 2)
    np.testing.assert_array_equal(in_float32(whole)[0], whole)


def test_constant_columns_stay_so_and_are_counted() -> None:
    rounding = 0.1 + 1e-8 * np.random.default_rng(1).normal(size=200)
    cast, notes = in_float32(
        np.column_stack([Z, np.full(200, 0.1), np.zeros(200), rounding]).astype(np.float32)
    )
    assert not cast[:, 5:].any()
    assert notes == ("3 of 8 columns are constant and were not read",)


def test_blocks_of_scenes_are_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = np.random.default_rng(2).normal(size=(7, 3, 4)) + 1e6
    whole = in_float32(tokens)
    monkeypatch.setattr(precision, "_AT_ONCE", 24)
    blocks = in_float32(tokens)
    np.testing.assert_allclose(blocks[0], whole[0], rtol=1e-6)
    assert blocks[1] == whole[1]


def test_a_scene_with_most_of_the_variance_is_named() -> None:
    odd = Z.copy()
    odd[17] *= 1e6
    _, (note,) = in_float32(odd)
    assert "scene 17 has 99 % of the variance" in note
    tokens = np.repeat(odd[:, None], 3, axis=1)
    assert "scene 17 has 99 %" in in_float32(tokens)[1][0]


def test_bits_do_not_depend_on_where_numbers_lie() -> None:
    data = bs.example("matching", n=300)
    z = np.asarray(data.arrays["pairs"], np.float64)
    results = [
        bs.binding_information(values, data.objects, space=data.space, probes=[CHAINED])
        for values in (z, z + 1e6, z * 1e-30)
    ]
    bits = [result.best["pairing_lower_bound_bits"] for result in results]
    assert bits[0] > 3
    np.testing.assert_allclose(bits, bits[0], atol=0.02)
    outlier = z.copy()
    outlier[3] = 1e6 * np.arange(1, z.shape[1] + 1)
    result = bs.binding_information(
        {"outlier": outlier}, data.objects, space=data.space, probes=[CHAINED]
    )
    assert any("Layer outlier: scene 3 has 100 %" in note for note in result.notes)
