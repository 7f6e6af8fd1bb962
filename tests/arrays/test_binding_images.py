"""`binding_information` with images: baselines beside arrays, and what colors give away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from cases_binding_information import SPACE, draw_scenes, render_objects

from bindscope import binding_information
from bindscope.arrays.result import Result
from bindscope.core.errors import InputError
from bindscope.studies.binding_information.array_baselines import read_baselines
from bindscope.studies.binding_information.claims import BINDS, CLAIMS

OBJECTS = draw_scenes(240, np.random.default_rng(0))
IMAGES = render_objects(OBJECTS, "released")
HISTOGRAM, AREAS, PIXELS = (
    f"baseline:{name}" for name in ("color-histogram", "color-areas", "pixels")
)
CHAINED: Any = {"family": "linear", "targets": ["chained"]}
WORDS = next(claim.sentence for claim in CLAIMS if claim.name == BINDS)


@pytest.fixture(scope="module")
def result() -> Result:
    features = np.hstack([OBJECTS.reshape(-1, 4, 4).any(axis) for axis in (1, 2)])
    return binding_information(
        {"features": features.astype(float), "objects": OBJECTS.astype(float)},
        OBJECTS,
        space=SPACE,
        probes=[CHAINED],
        images=IMAGES,
    )


def test_baselines_are_layers_and_never_the_best(result: Result) -> None:
    assert {*result.table["layer"]} == {"features", "objects", HISTOGRAM, AREAS, PIXELS}
    assert result.best["layer"] == "objects"
    bits = result.table[result.table["probe"] == "best"].set_index("layer")
    # Colors give away as much as the code of the objects holds.
    assert (
        bits.loc[AREAS, "pairing_lower_bound_bits"]
        > 0.8 * bits.loc[AREAS, "h_object_given_counts_bits"]
    )
    assert AREAS in repr(result)


def test_the_claim_is_held_against_colors(result: Result) -> None:
    claims = result.claims[result.claims["claim"] == WORDS]
    assert len(claims) == 2
    assert claims["where"].str.contains("against color areas").all()
    assert set(claims["verdict"]) == {"does not hold", "not significant"}


def test_an_array_alone_is_called_z(result: Result) -> None:
    rows = dict(result.rows["binding_information"][0])
    assert rows["layer"] != ""
    alone = binding_information(
        OBJECTS.astype(float), OBJECTS, space=SPACE, probes=[CHAINED], images=IMAGES[:, ::4, ::4]
    )
    lines = repr(alone).splitlines()
    assert lines[2].split()[0] == "Z"
    assert "Best by validation: vectors, linear probe" in repr(alone)
    assert alone.best["layer"] == ""


def test_images_are_read_in_parts_wherever_they_are(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", IMAGES)
    stored = zarr.create_array(tmp_path / "images.zarr", data=IMAGES, chunks=(50, 48, 48, 3))
    here = read_baselines(IMAGES, 240, "here")
    for images in (np.load(tmp_path / "images.npy", mmap_mode="r"), stored):
        there = read_baselines(images, 240, "here")
        assert [*there] == [*here] == [HISTOGRAM, PIXELS, AREAS]
        for name, z in here.items():
            np.testing.assert_array_equal(z.values, there[name].values)


def test_areas_need_few_colors() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3)).astype(np.uint8)
    assert [*read_baselines(noise, 20, "here")] == [HISTOGRAM, PIXELS]
    black = np.zeros_like(noise)
    assert [*read_baselines(black, 20, "here")] == [HISTOGRAM, PIXELS]


@pytest.mark.parametrize(
    ("z", "images", "message"),
    [
        ("mine", IMAGES[:100], "there are 100 images for 240 scenes"),
        ("mine", IMAGES / 255, r"`images` is float64 \(240, 48, 48, 3\)"),
        ("mine", IMAGES[..., 0], r"`images` is uint8 \(240, 48, 48\)"),
        (AREAS, IMAGES, "a layer of `Z` is called 'baseline:color-areas'"),
    ],
)
def test_what_does_not_fit_is_refused(z: str, images: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        binding_information({z: OBJECTS.astype(float)}, OBJECTS, space=SPACE, images=images)


def test_without_a_probe_of_vectors_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from bindscope.studies.binding_information import measure

    calls: list[str] = []
    fitted = measure._fitted

    def count(probe: Any, data: Any, labels: Any, place: Any, *rest: Any) -> Any:
        calls.append(place[0])
        return fitted(probe, data, labels, place, *rest)

    monkeypatch.setattr(measure, "_fitted", count)
    tokens = OBJECTS.astype(float).reshape(240, 4, 4)
    probe = {"family": "set", "targets": ["chained"], "steps": 2, "hidden": 2, "summed": 2}
    result = binding_information(tokens, OBJECTS, space=SPACE, probes=[probe], images=IMAGES)
    assert calls == [""]
    assert any("Baselines were not fitted" in note for note in result.notes)
