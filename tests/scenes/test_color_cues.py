"""tools/color_cues.py: exact numbers against a list of all codes, reductions, the page's table."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from datasets_by_hand import dataset, groups, uniform

from bindscope.codes.sampling import sample_codes
from bindscope.priors.entropies import entropies
from bindscope.scenes.palette import COLORS
from bindscope.scenes.shapes import outlines

ROOT = Path(__file__).parents[2]
UNIFORM = {**uniform(4, color=3, shape=4), "min_objects": 2}
BALANCED = {
    "kind": "balanced",
    "groups": groups(color=3, shape=4),
    "chosen": [2, 3],
    "n_objects": 4,
}
SMALL = {"kind": "shapes", "size_px": 60, "object_px": 9, "area": "released", "placement": "grid"}


@pytest.fixture
def cues(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import color_cues

    return color_cues


def _all_codes(space: dict[str, Any]) -> np.ndarray:
    """List every code (n, 3, 4) of a space."""
    codes = np.array(list(product((0, 1), repeat=12)), np.uint8).reshape(-1, 3, 4)
    n = codes.sum(axis=(1, 2))
    if space is UNIFORM:
        return codes[(n >= 2) & (n <= 4)]
    used = codes.any(axis=2).sum(axis=1), codes.any(axis=1).sum(axis=1)
    return codes[(n == 4) & (used[0] == 2) & (used[1] == 3)]


def _entropy_given(*keys: np.ndarray) -> float:
    """H(O | keys) of equally likely codes: the mean logarithm of how many share their keys."""
    both = np.concatenate([key.reshape(len(key), -1) for key in keys], axis=1)
    _, group, sizes = np.unique(both, axis=0, return_inverse=True, return_counts=True)
    return float(np.log2(sizes[group]).mean())


@pytest.mark.parametrize("space", [UNIFORM, BALANCED], ids=["uniform", "balanced"])
def test_counted_information_is_that_of_a_list_of_all_codes(
    cues: Any, monkeypatch: pytest.MonkeyPatch, space: dict[str, Any]
) -> None:
    codes = _all_codes(space)
    monkeypatch.setattr(cues, "sample_codes", lambda *_: codes)
    numbers = cues.count_areas(dataset(space, render=SMALL))
    pixels = codes @ outlines(9, "released")[:4].sum(axis=(1, 2))
    features = np.concatenate([codes.any(axis=2), codes.any(axis=1)], axis=1)
    counts = np.concatenate([codes.sum(axis=2), codes.sum(axis=1)], axis=1)
    whole = _entropy_given(features) - _entropy_given(features, pixels)
    pairing = _entropy_given(counts) - _entropy_given(counts, pixels)
    assert numbers["conditional_binding_lower_bound_bits"] == pytest.approx(whole)
    assert numbers["pairing_lower_bound_bits"] == pytest.approx(pairing)
    assert numbers["count_lower_bound_bits"] == pytest.approx(whole - pairing)
    assert 0 < whole < numbers["h_object_given_feature_bits"]


def test_a_histogram_holds_the_pixels_of_each_color(cues: Any) -> None:
    scenes = dataset(UNIFORM, render=SMALL)
    codes = sample_codes(scenes, "train", 0, 20)
    histogram = cues.encode(scenes, codes, ["color-histogram"])["color-histogram"] * 60**2
    areas = codes.reshape(20, 3, 4) @ outlines(9, "released")[:4].sum(axis=(1, 2))
    bins = [r // 64 * 16 + g // 64 * 4 + b // 64 for r, g, b in list(COLORS.values())[:3]]
    np.testing.assert_allclose(histogram[:, bins], areas, rtol=1e-6)
    np.testing.assert_allclose(histogram[:, -1], 60**2 - areas.sum(axis=1), rtol=1e-6)  # white


def test_the_table_is_of_the_presets_and_on_the_page(cues: Any) -> None:
    table = pd.read_csv(cues.TABLE)
    assert list(table["name"].unique()) == [case.name for case in cues.CASES]
    for case in cues.CASES:
        scenes = cues.read_dataset(case)
        rows = table[table["name"] == case.name]
        assert (rows["preset_dataset"] == scenes.name).all()
        known = next(row for row in entropies(scenes) if row["split"] == "test")
        for name in cues.GIVEN:
            expected = np.nan if known[name] is None else known[name]
            np.testing.assert_allclose(rows[name], expected, atol=1e-4)
    assert cues.write_table(table) in (ROOT / "docs/color_cues.md").read_text()


def test_equal_areas_leave_nothing_of_pairing(cues: Any) -> None:
    table = pd.read_csv(cues.TABLE)
    equal = [
        case.name
        for case in cues.CASES
        if getattr(cues.read_dataset(case).render, "area", "") == "equal"
    ]
    histograms = table[table["name"].isin(equal) & (table["baseline"] == "color-histogram")]
    assert len(histograms) == len(equal) > 3
    assert (histograms["pairing_lower_bound_bits_high"] <= 0.05).all()
    released = table[(table["name"] == "matching-released") & (table["probe"] == "linear")]
    assert released.set_index("baseline")["pairing_lower_bound_bits"]["color-histogram"] > 3
