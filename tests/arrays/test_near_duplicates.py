"""Copies of scenes in train and test give no bound; scenes of equal codes are no copies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr

import bindscope as bs
from bindscope.arrays.inputs import Representation, read_layers, train_val_test
from bindscope.arrays.near_duplicates import near_duplicate_note

Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
GROUPS = [{"name": "color", "size": 4}, {"name": "shape", "size": 4}]
SPACE = {"kind": "balanced", "groups": GROUPS, "chosen": [4, 4], "n_objects": 4}
CHAINED: Any = {"family": "linear", "targets": ["chained"]}
CODES = np.array([np.eye(4, dtype=np.uint8)[list(p)] for p in permutations(range(4))])  # 24


def note_of(z: Any, codes: Integers, seed: int = 0) -> str:
    rows = train_val_test(len(codes), None, None, seed, "here", 10)
    layers = (
        read_layers(z, "here", "Z")
        if hasattr(z, "chunks")
        else {"": Representation(np.asarray(z, np.float32), "here", "Z")}
    )
    return near_duplicate_note(layers, codes[:, None], rows)


def copied(n: int, copies: int | Integers, noise: float, seed: int) -> tuple[Doubles, Integers]:
    """Make a random vector and code for each of n originals, and noisy copies of it."""
    draw = np.random.default_rng(seed)
    originals = np.repeat(np.arange(n), copies)
    z = draw.normal(size=(n, 256))[originals]
    return z + noise * draw.normal(size=z.shape), draw.integers(0, 24, n)[originals]


# --- Copies -------------------------------------------------------------------------------------


def assert_no_bound(z: Doubles, codes: Integers, seed: int = 0) -> bs.Result:
    result = bs.binding_information(
        z, CODES[codes], space=SPACE, probes=[CHAINED], random_state=seed
    )
    assert result.best["pairing_lower_bound_bits"] > 1, "there is nothing to guard against"
    assert result.table["flags"].str.contains("near_duplicates").all()
    assert set(result.claims["verdict"]) == {"not testable"}
    assert "give `groups`" in result.claims["reason"].iloc[0]
    assert "have a near-duplicate in train" in result.notes[0]
    assert "the same label in `groups`" in result.notes[0]
    assert "≥" not in str(result)
    assert "(estimates," in str(result)
    return result


def test_augmentations_of_random_vectors_give_no_bound() -> None:
    """4.585 bits of pairing are decoded from a vector per original that holds none of them."""
    result = assert_no_bound(*copied(100, 4, 0.05, 0))
    assert result.best["pairing_lower_bound_bits"] > 3.5
    assert result.plot().axes[0].get_xlabel().startswith("bits (estimates)")


def test_exact_copies_give_no_bound() -> None:
    assert_no_bound(*copied(60, 5, 0.0, 1), seed=1)


def test_one_copy_of_half_of_the_scenes_gives_no_bound() -> None:
    assert_no_bound(*copied(300, np.tile([1, 2], 150), 0.1, 2), seed=2)


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1, 0.3])
def test_copies_are_found_up_to_noise_of_a_third_of_the_vectors(noise: float) -> None:
    for seed in range(3):
        assert note_of(*copied(100, 4, noise, seed), seed)


@pytest.mark.parametrize(("n", "copies"), [(50, 2), (40, 25), (3000, 2)])
def test_copies_are_found_whatever_their_number(n: int, copies: int) -> None:
    assert note_of(*copied(n, copies, 0.1, 0))


def test_copies_are_found_next_to_information_about_the_code() -> None:
    draw = np.random.default_rng(0)
    z, codes = copied(100, 4, 0.1, 0)
    assert note_of(z + 2 * draw.normal(size=(24, 256))[codes], codes)


def test_copies_are_found_in_columns_of_any_scale_and_in_one_layer_of_several() -> None:
    z, codes = copied(100, 4, 0.05, 0)
    wide = np.column_stack([1e-6 * z, 1e3 * np.random.default_rng(1).normal(size=(400, 1))])
    assert note_of(wide, codes)
    rows = train_val_test(400, None, None, 0, "here", 10)
    noise = np.random.default_rng(2).normal(size=(400, 8))
    layers = read_layers({"noise": noise, "copies": z}, "here", "Z")
    assert near_duplicate_note(layers, codes[:, None], rows)


def test_copies_are_found_under_augmentations_along_few_directions() -> None:
    """As of brightness: in the vectors' own metric, copies are as far apart as other scenes."""
    draw = np.random.default_rng(0)
    z, codes = copied(150, 4, 0.1, 0)
    brightness = draw.normal(size=(600, 1)) * draw.normal(size=(1, 256))
    assert note_of(z[:, :64] @ draw.normal(size=(64, 256)) / 8 + 3 * brightness, codes)


def test_mean_tokens_and_arrays_on_disk_are_compared_alike(tmp_path: Any) -> None:
    z, codes = copied(100, 4, 0.05, 0)
    tokens = z[:, None] + np.array([-1.0, 0.0, 1.0])[:, None] * np.ones(256)
    stored = zarr.create_array(tmp_path / "z.zarr", data=tokens, chunks=(50, 3, 256))
    assert note_of(tokens, codes) == note_of(stored, codes) == note_of(z, codes) != ""


def test_groups_declare_that_scenes_are_no_copies() -> None:
    z, codes = copied(100, 4, 0.05, 0)
    result = bs.binding_information(
        z, CODES[codes], space=SPACE, probes=[CHAINED], groups=np.arange(400)
    )
    assert not result.table["flags"].str.contains("near_duplicates").any()


def test_repeated_codes_of_a_large_space_name_groups() -> None:
    """No code has five train scenes; the declared distribution shows the copies."""
    draw, n = np.random.default_rng(0), 60
    codes = np.zeros((n, 36), np.uint8)
    for code in codes:
        code[draw.choice(36, 4, replace=False)] = 1
    originals = np.repeat(np.arange(n), 4)
    space = {
        "kind": "uniform",
        "groups": {"color": 6, "shape": 6},
        "min_objects": 4,
        "max_objects": 4,
    }
    result = bs.binding_information(
        draw.normal(size=(n, 64))[originals], codes[originals], space=space, probes=[CHAINED]
    )
    assert "the same label in `groups`" in result.notes[0]
    assert "holds" not in set(result.claims["verdict"])


def test_copies_of_segmented_scenes_give_no_claim_about_pairs_of_patches() -> None:
    draw, data = np.random.default_rng(0), bs.example("clutter", n=30)
    originals = np.repeat(np.arange(30), 4)
    segments = np.asarray(data.segments)[originals]
    tokens = draw.normal(size=(30, segments[0].size, 16))[originals]
    probes = [{"family": "quadratic", "l2": [0.1], "steps": 5}, "position"]
    result = bs.same_object(tokens, segments, probes=probes)
    assert result.notes[0].endswith("the same label in `groups`. No claim is tested.")
    assert result.table["flags"].str.contains("near_duplicates").all()
    assert set(result.claims["verdict"]) == {"not testable"}
    grouped = bs.same_object(tokens, segments, probes=probes, groups=originals)
    assert not any("near-duplicate" in note for note in grouped.notes)


def test_segmented_videos_are_found_by_their_equal_lengths() -> None:
    """All 12 train scenes of a code are copies, so that none of them is farther than the others."""
    z, _ = copied(40, 20, 0.1, 0)
    codes = np.random.default_rng(1).integers(0, 5, (40, 16))[np.repeat(np.arange(40), 20)]
    rows = train_val_test(800, None, None, 0, "here", 10)
    layers = {"": Representation(z.astype(np.float32), "here", "Z")}
    assert near_duplicate_note(layers, codes, rows, are_codes_rich=True)
    assert not near_duplicate_note(layers, codes, rows)


# --- Scenes that are no copies ------------------------------------------------------------------


def noise(d: int) -> Callable[..., Doubles]:
    return lambda codes, draw: draw.normal(size=(len(codes), d))


def one_hot(codes: Integers, draw: Any) -> Doubles:
    return np.eye(24)[codes]


def one_hot_and_noise(codes: Integers, draw: Any) -> Doubles:
    return np.eye(24)[codes] + 0.01 * draw.normal(size=(len(codes), 24))


def sum_of_objects(codes: Integers, draw: Any) -> Doubles:
    amplitudes = CODES[codes].reshape(-1, 16) * np.exp(0.3 * draw.normal(size=(len(codes), 16)))
    return np.asarray(amplitudes @ draw.normal(size=(16, 64)))


def clusters(codes: Integers, draw: Any) -> Doubles:
    background = draw.normal(size=(10, 64))[draw.integers(0, 10, len(codes))]
    return np.asarray(background + 0.05 * draw.normal(size=(len(codes), 64)))


def clusters_and_code(codes: Integers, draw: Any) -> Doubles:
    return clusters(codes, draw) + draw.normal(size=(24, 64))[codes]


def exact_clusters_and_code(codes: Integers, draw: Any) -> Doubles:
    background = draw.normal(size=(5, 64))[draw.integers(0, 5, len(codes))]
    return np.asarray(background + draw.normal(size=(24, 64))[codes])


def heavy_tails(codes: Integers, draw: Any) -> Doubles:
    return np.asarray(draw.standard_t(2, size=(len(codes), 64)))


def scales_of_scenes(codes: Integers, draw: Any) -> Doubles:
    return np.exp(2 * draw.normal(size=(len(codes), 1))) * draw.normal(size=(len(codes), 64))


def curve(codes: Integers, draw: Any) -> Doubles:
    place = draw.uniform(size=(len(codes), 1))
    return np.sin(6 * place * draw.normal(size=(1, 64)) + draw.normal(size=(24, 64))[codes])


def surface_of_each_code(codes: Integers, draw: Any) -> Doubles:
    place, frames = draw.uniform(size=(len(codes), 1, 2)), draw.normal(size=(24, 2, 64))
    return np.sin(place @ frames[codes])[:, 0] + draw.normal(size=(24, 64))[codes]


NO_COPIES: dict[str, Callable[..., Doubles]] = {
    **{f"noise in {d} dimensions": noise(d) for d in (1, 2, 8, 64, 256)},
    **{
        make.__name__: make
        for make in (
            one_hot,
            one_hot_and_noise,
            sum_of_objects,
            clusters,
            clusters_and_code,
            exact_clusters_and_code,
            heavy_tails,
            scales_of_scenes,
            curve,
            surface_of_each_code,
        )
    },
}


@pytest.mark.parametrize("kind", NO_COPIES)
def test_independent_scenes_have_no_near_duplicates(kind: str) -> None:
    for n, seeds in ((100, 4), (200, 4), (400, 4), (1500, 1)):
        for seed in range(seeds):
            draw = np.random.default_rng(seed)
            codes = draw.integers(0, 24, n)
            assert not note_of(NO_COPIES[kind](codes, draw), codes, seed), (n, seed)


@pytest.mark.parametrize("n_layouts", [36, 200])
def test_layouts_that_occur_again_are_no_copies(n_layouts: int) -> None:
    """Tokens encode the layout of the segments, and some layouts occur several times by chance."""
    for seed in range(10):
        draw = np.random.default_rng(seed)
        layouts = draw.integers(0, n_layouts, 100)
        z = draw.normal(size=(n_layouts, 32))[layouts] + 0.1 * draw.normal(size=(100, 32))
        rows = train_val_test(100, None, None, seed, "here", 10)
        layers = {"": Representation(z.astype(np.float32), "here", "Z")}
        segments = draw.integers(0, 5, (n_layouts, 16))[layouts]
        assert not near_duplicate_note(layers, segments, rows, are_codes_rich=True)


def test_scenes_close_to_the_center_of_their_code_are_no_copies() -> None:
    """A third of the scenes of each code are there; the others have much more noise."""
    for seed in range(3):
        draw = np.random.default_rng(seed)
        codes = draw.integers(0, 24, 600)
        scale = np.where(draw.random((600, 1)) < 0.3, 0.01, 1.0)
        z = scale * draw.normal(size=(600, 64)) + draw.normal(size=(24, 64))[codes]
        assert not note_of(z, codes, seed)


def test_scenes_of_one_code_have_no_near_duplicates() -> None:
    z, codes = copied(100, 4, 0.0, 0)
    assert not note_of(z, np.zeros_like(codes))


def test_constant_vectors_have_no_near_duplicates() -> None:
    assert not note_of(np.ones((400, 3)), copied(100, 4, 0.0, 0)[1])


@pytest.mark.parametrize("name", ["matching", "clutter"])
def test_examples_have_no_near_duplicates(name: str) -> None:
    data = bs.example(name, n=200)
    if name == "matching":
        result = bs.binding_information(
            data.arrays, data.objects, space=data.space, probes=[CHAINED]
        )
    else:
        probe = {"family": "quadratic", "l2": [0.1], "steps": 5}
        result = bs.same_object(data.arrays, data.segments, probes=[probe])
    assert not any("near-duplicate" in note for note in result.notes)
