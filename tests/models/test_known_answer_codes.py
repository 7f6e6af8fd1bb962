"""The encoders do what their names say, whatever the shards."""

import numpy as np
import pytest
from known_answers import HASHED, all_codes, dataset, model
from pydantic import ValidationError

from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import build_space, feature_code
from bindscope.config.models import ENCODERS
from bindscope.core.errors import ConfigError
from bindscope.models.known_answer import encode, injective, token_map

SPACES = {
    "uniform": dataset((3, 4), (2, 5)),
    "fixed": dataset((6, 6), (9, 9)),
    "balanced": dataset((4, 4), 5, chosen=(3, 3)),
    "hashed": dataset((3, 3), (2, 4), split=HASHED),
    "three": dataset((2, 3, 2), (2, 4)),
}


def encoded(encoder, data, start=0, stop=200, split="test", **options):
    objects = sample_codes(data, split, start, stop)
    return objects, encode(model(encoder, **options), data, split, start, objects)


@pytest.mark.parametrize(
    ("name", "encoder"),
    [("fixed", encoder) for encoder in ENCODERS]
    + [("three", encoder) for encoder in ("cell_erasure", "swaps", "cipher", "token_grid")],
)
def test_any_shard_gives_the_same_rows(encoder, name):
    data = SPACES[name]
    _, whole = encoded(encoder, data)
    _, again = encoded(encoder, data)
    parts = [encoded(encoder, data, *span)[1] for span in ((0, 1), (1, 74), (74, 200))]
    assert set(whole) == ({"cls", "patches"} if encoder == "token_grid" else {"cls"})
    for array, values in whole.items():
        assert values.dtype == np.float32
        assert values.flags.c_contiguous
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(values, again[array])
        # Matrix products of other shapes may differ in the last bit.
        np.testing.assert_allclose(
            values, np.concatenate([part[array] for part in parts]), atol=1e-6
        )


@pytest.mark.parametrize(
    "encoder",
    ["erasure", "cell_erasure", "swaps", "swaps_within_counts", "cipher", "token_grid"],
)
def test_noise_depends_on_every_seed_and_on_the_split(encoder):
    data = dataset((4, 4), (4, 4))
    objects = sample_codes(data, "train", 0, 100)
    array = "patches" if encoder == "token_grid" else "cls"

    def noisy(split="train", dataset_seed=0, start=0, **options):
        second = data.model_copy(update={"seed": dataset_seed})
        return encode(model(encoder, **options), second, split, start, objects)[array]

    variants = [noisy(), noisy("val"), noisy(seed=1), noisy(dataset_seed=1), noisy(start=100)]
    for i, first in enumerate(variants):
        for second in variants[i + 1 :]:
            assert not np.array_equal(first, second)


def test_plain_codes():
    data = SPACES["fixed"]
    objects, z = encoded("identity", data)
    np.testing.assert_array_equal(z["cls"], objects)
    np.testing.assert_array_equal(encoded("half", data)[1]["cls"], objects[:, :18])
    np.testing.assert_array_equal(
        encoded("features", data)[1]["cls"], feature_code(objects, (6, 6))
    )
    grid = objects.reshape(-1, 6, 6).astype(int)
    margins = np.hstack([grid.sum(axis=2), grid.sum(axis=1)])
    np.testing.assert_array_equal(encoded("counts", data)[1]["cls"], margins)
    assert encoded("zero", data)[1]["cls"].shape == (200, 1)
    assert not encoded("zero", data)[1]["cls"].any()


def encoded_basis(encoder, data, **options):
    eye = np.eye(build_space(data.space).n_cells, dtype=np.uint8)
    return eye, encode(model(encoder, **options), data, "train", 0, eye)["cls"].astype(float)


@pytest.mark.parametrize(
    ("encoder", "options"),
    [
        ("conjunctive", {}),
        ("tensor_product", {}),
        ("rotated", {}),
        ("hadamard", {"dim": 96}),
        ("hadamard", {}),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_linear_codes_are_independent_directions(encoder, options, seed):
    _, directions = encoded_basis(encoder, SPACES["fixed"], seed=seed, **options)
    assert np.linalg.matrix_rank(directions) == 36
    singular = np.linalg.svd(directions, compute_uv=False)
    assert singular[-1] / singular[0] > 1e-2  # far from float32's resolution


@pytest.mark.parametrize("seed", range(6))
def test_injectivity_agrees_with_enumeration(seed):
    rng = np.random.default_rng(seed)
    fewest, most = sorted(rng.integers(1, 7, size=2).tolist())
    data = dataset((2, 4), (fewest, most))
    signs = rng.choice([-1.0, 1.0], (8, int(rng.integers(2, 8))))
    codes = all_codes(data)
    distinct = len(np.unique(codes @ signs, axis=0)) == len(codes)
    assert injective(signs, fewest, most) is distinct


def test_injectivity_is_left_open_where_it_would_take_too_long():
    assert injective(np.random.default_rng(0).choice([-1.0, 1.0], (36, 8)), 9, 9) is None


def test_erasure_shows_features_always_and_objects_sometimes():
    data = dataset((4, 4), (4, 4))
    objects, z = encoded("erasure", data, 0, 4000, probability=0.3)
    np.testing.assert_array_equal(z["cls"][:, :8], feature_code(objects, (4, 4)))
    visible = z["cls"][:, 8:].any(axis=1)
    np.testing.assert_array_equal(z["cls"][visible, 8:], objects[visible])
    assert abs(visible.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 4000)


@pytest.mark.parametrize("name", ["uniform", "balanced", "three"])
def test_swaps_keep_the_features(name):
    data = SPACES[name]
    objects, z = encoded("swaps", data, 0, 500, probability=1.0)
    swapped = z["cls"].astype(np.uint8)
    sizes = build_space(data.space).sizes
    np.testing.assert_array_equal(feature_code(swapped, sizes), feature_code(objects, sizes))
    allowed = {code.tobytes() for code in all_codes(data)}
    assert all(code.tobytes() in allowed for code in swapped)
    assert not np.array_equal(swapped, objects)
    np.testing.assert_array_equal(encoded("swaps", data, probability=0.0)[1]["cls"], objects[:200])


def _sums(codes):
    grid = codes.reshape(-1, 3, 3)
    return np.hstack([grid.sum(axis=2), grid.sum(axis=1)])


@pytest.mark.parametrize(
    ("encoder", "code", "invariants", "n_same"),
    [
        ("swaps", [1, 0, 0, 0, 1, 0, 0, 0, 1], lambda codes: feature_code(codes, (3, 3)), 51),
        ("swaps_within_counts", [1, 1, 0, 1, 0, 0, 0, 0, 1], _sums, 5),
    ],
)
def test_swaps_are_uniform_among_the_codes_of_what_they_keep(encoder, code, invariants, n_same):
    data, code, n = dataset((3, 3), (3, 4)), np.array(code, dtype=np.uint8), 20000
    z = encode(model(encoder), data, "test", 0, np.tile(code, (n, 1)))["cls"]
    same = [c for c in all_codes(data) if (invariants(c[None]) == invariants(code[None])).all()]
    n_by_code = dict(zip(*np.unique(z @ 2.0 ** np.arange(9), return_counts=True), strict=True))
    assert len(n_by_code) == len(same) == n_same  # every one is reached
    expected = np.full(len(same), 0.5 * n / len(same))
    expected[[np.array_equal(c, code) for c in same]] += 0.5 * n
    counts = np.array([n_by_code[float(c @ 2.0 ** np.arange(9))] for c in same])
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < len(same) - 1 + 4 * np.sqrt(2 * (len(same) - 1))


def test_cells_are_erased_one_by_one_and_rotated():
    data = SPACES["fixed"]
    objects, z = encoded("cell_erasure", data, 0, 4000, probability=0.3)
    assert z["cls"].shape == (4000, 96)
    centred = objects - 9 / 36
    rotation = encoded_basis("cell_erasure", data, probability=0.0)[1]
    rotation = rotation + 9 / 36 * rotation.sum(axis=0) / (1 - 9)  # the basis' own mean put back
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(36), atol=1e-4)
    values = z["cls"] @ rotation.T
    erased = np.abs(values) < 1e-3
    np.testing.assert_allclose(values, centred * ~erased, atol=1e-3)
    error = np.sqrt(0.3 * 0.7 / 4000)
    np.testing.assert_allclose(erased.mean(axis=0), 0.3, atol=4 * error)
    pairs = np.cov(erased.T.astype(float))
    assert np.abs(pairs - np.diag(np.diag(pairs))).max() < 5 * 0.21 / np.sqrt(4000)


@pytest.mark.parametrize(
    ("encoder", "n_parts"), [("cipher", 2), ("cipher_features", 2), ("cipher_three", 3)]
)
def test_ciphers_are_products_of_parts_that_say_nothing_alone(encoder, n_parts):
    data = dataset((4, 4), (4, 4))
    objects, z = encoded(encoder, data, 0, 4000)
    z = z["cls"]
    if encoder == "cipher_features":
        np.testing.assert_array_equal(z[:, :8], feature_code(objects, (4, 4)))
        z = z[:, 8:]
    assert set(np.unique(z)) == {-1.0, 1.0}
    parts = z.reshape(4000, n_parts, 16)
    sign = 2.0 * objects - 1
    # encrypted = O xor keys: an xor of bits is minus the product of their signs.
    np.testing.assert_array_equal(np.prod(parts, axis=1) * (-1) ** (n_parts - 1), sign)
    centred = sign - sign.mean(axis=0)
    for subset in ([0], [1], [n_parts - 1]):
        correlation = np.prod(parts[:, subset], axis=1).T @ centred / 4000
        assert np.abs(correlation).max() < 5 / np.sqrt(4000)


def test_token_grid_holds_one_object_per_token():
    data = dataset((3, 4), (2, 5))
    objects, z = encoded("token_grid", data)
    tokens, side = z["patches"], 4
    assert tokens.shape == (200, side * side, 7)
    here = token_map(model("token_grid"), data)
    assert (here.grid, here.prefix, here.has_cls, here.registers) == ((side, side), 1, True, 0)
    np.testing.assert_array_equal(z["cls"], feature_code(objects, (3, 4)))
    grid = np.zeros((200, 3, 4))
    for scene, token in zip(*np.nonzero(tokens.any(axis=2)), strict=True):
        row, column = np.flatnonzero(tokens[scene, token])
        grid[scene, row, column - 3] += 1
    np.testing.assert_array_equal(grid.reshape(200, 12), objects)
    margins = np.hstack([grid.sum(axis=2), grid.sum(axis=1)])
    np.testing.assert_allclose(tokens.mean(axis=1), margins / side**2, atol=1e-6)
    used = tokens.any(axis=2).mean(axis=0)
    assert used.min() > 0.05  # objects stand anywhere


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: encoded("swaps_within_counts", SPACES["three"]), "two feature groups"),
        (lambda: encoded("rotated", SPACES["fixed"], dim=5), "hadamard"),
        (lambda: model("cipher", probability=1), "probability has no meaning"),
    ],
)
def test_encoders_that_make_no_sense_are_refused(make, message):
    with pytest.raises((ConfigError, ValidationError), match=message):
        make()


def test_rotation_keeps_distances_and_inverts():
    data = SPACES["fixed"]
    objects, z = encoded("rotated", data, dim=96)
    assert z["cls"].shape == (200, 96)
    np.testing.assert_allclose(z["cls"] @ z["cls"].T, objects @ objects.T.astype(float), atol=1e-4)
    _, basis = encoded_basis("rotated", data, dim=96)
    np.testing.assert_allclose(z["cls"] @ basis.T, objects, atol=1e-5)


def test_tensor_product_is_a_sum_of_outer_products():
    data = dataset((2, 3), (1, 6))
    eye, directions = encoded_basis("tensor_product", data, dim=4)
    z = directions.reshape(2, 3, 4, 4)
    for matrix in z.reshape(6, 4, 4):
        assert np.linalg.matrix_rank(matrix, tol=1e-6) == 1
    # u_a (x) v_b - u_a (x) v_c shares the row space u_a.
    assert np.linalg.matrix_rank((z[0, 0] - z[0, 1]), tol=1e-6) == 1
    objects = np.array([[1, 0, 1, 0, 1, 0]], dtype=np.uint8)
    together = encode(model("tensor_product", dim=4), data, "train", 0, objects)["cls"]
    np.testing.assert_allclose(together[0], directions[[0, 2, 4]].sum(axis=0), atol=1e-6)
    assert len(eye) == 6
