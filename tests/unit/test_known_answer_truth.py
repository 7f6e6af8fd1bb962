"""Each closed form against a sum over everything, on spaces small enough to list."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from known_answers import (
    HASHED,
    all_codes,
    brute_force,
    dataset,
    function_channel,
    information,
    model,
)

from bindscope.codes.space import build_space, feature_code
from bindscope.config.models import ENCODERS
from bindscope.core.errors import ConfigError
from bindscope.models.known_answer import encode
from bindscope.models.known_answer_margins import margin_sum, matrices, partitions
from bindscope.models.known_answer_truth import symmetric_channel, truth

SPACES = {
    "uniform": dataset((2, 3), (1, 4)),
    "fixed": dataset((4, 3), (4, 4)),
    "balanced": dataset((3, 3), 3, chosen=(2, 2)),
    "hashed": dataset((3, 3), (2, 4), split=HASHED),
    "three": dataset((2, 2, 2), (2, 3)),
    "one": dataset((5,), (2, 3)),
}
FUNCTIONS = ["zero", "features", "identity", "rotated", "hadamard", "conjunctive", "tensor_product"]


def listed(data):
    codes = all_codes(data)
    return codes, feature_code(codes, build_space(data.space).sizes)


@pytest.fixture(params=SPACES)
def space(request):
    return SPACES[request.param]


@pytest.mark.parametrize("encoder", FUNCTIONS)
def test_functions_of_the_code(space, encoder):
    codes, features = listed(space)
    z = encode(model(encoder), space, "test", 0, codes)["cls"].astype(float)
    expected = brute_force(function_channel(np.round(z, 4)), features)
    assert truth(model(encoder), space) == pytest.approx(expected, abs=1e-9)


def test_superposition():
    data = dataset((3, 4), (1, 4))
    codes, features = listed(data)
    narrow = model("hadamard", dim=10)
    z = encode(narrow, data, "test", 0, codes)["cls"].astype(float)
    assert truth(narrow, data) == pytest.approx(
        brute_force(function_channel(z), features), abs=1e-9
    )


def test_superposition_that_collides_has_no_closed_form():
    data = dataset((3, 3), (1, 4))
    assert truth(model("hadamard", dim=1), data) == (None, None)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_erasure(space, p):
    codes, features = listed(space)
    n = len(codes)
    channel = np.hstack([p * np.eye(n), (1 - p) * function_channel(features)])
    assert truth(model("erasure", probability=p), space) == pytest.approx(
        brute_force(channel, features), abs=1e-9
    )


@pytest.mark.parametrize("s", [0.0, 0.4, 1.0])
def test_swaps(space, s):
    codes, features = listed(space)
    same = (features[:, None] == features[None]).all(axis=2)
    channel = (1 - s) * np.eye(len(codes)) + s * same / same.sum(axis=1, keepdims=True)
    assert truth(model("swaps", probability=s), space) == pytest.approx(
        brute_force(channel, features), abs=1e-9
    )


def test_symmetric_channel_of_one_symbol_is_silent():
    assert symmetric_channel(1, 0.5) == 0
    assert symmetric_channel(7, 0.0) == pytest.approx(np.log2(7))
    assert symmetric_channel(7, 1.0) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("p", [0.0, 0.05, 0.3, 0.5])
def test_flips(space, p):
    codes, features = listed(space)
    k = codes.shape[1]
    outputs = np.array(list(product((0, 1), repeat=k)))
    distance = (codes[:, None] != outputs[None]).sum(axis=2)
    channel = p**distance * (1 - p) ** (k - distance)
    assert truth(model("flips", probability=p), space) == pytest.approx(
        brute_force(channel, features), abs=1e-9
    )


def test_flips_of_many_cells_have_no_closed_form():
    assert truth(model("flips"), dataset((3, 7), (4, 4))) == (None, None)
    assert None not in truth(model("flips"), dataset((4, 4), (4, 4)))


@pytest.mark.parametrize(
    ("sizes", "n_objects"), [((2, 3), (1, 4)), ((4, 3), (4, 4)), ((4, 2), (2, 5)), ((2, 2), (4, 4))]
)
def test_half(sizes, n_objects):
    data = dataset(sizes, n_objects)
    codes, features = listed(data)
    channel = function_channel(codes[:, : codes.shape[1] // 2])
    expected = brute_force(channel, features)
    assert truth(model("half"), data) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    "data", [dataset((3, 3), (2, 4)), dataset((2, 2, 2), (2, 3)), dataset((5,), (2, 3))]
)
def test_half_that_ends_inside_a_row(data):
    codes, features = listed(data)
    bits, conditional = truth(model("half"), data)
    expected = brute_force(function_channel(codes[:, : codes.shape[1] // 2]), features)
    assert bits == pytest.approx(expected[0], abs=1e-9)
    assert conditional is None


@pytest.mark.parametrize("name", ["balanced", "hashed"])
def test_half_of_other_laws_has_no_closed_form(name):
    assert truth(model("half"), SPACES[name]) == (None, None)


@pytest.mark.parametrize("encoder", ["cipher", "cipher_features", "cipher_three"])
def test_ciphers_hide_nothing_from_who_holds_the_key(encoder):
    # p(z|o) is uniform over keys; z determines (o, key), so z's law is a relabelled product.
    data = dataset((2, 2), (1, 2))
    codes, features = listed(data)
    keys = np.array(list(product((0, 1), repeat=4)))
    index = {c.tobytes(): i for i, c in enumerate(keys.astype(np.uint8))}
    channel = np.zeros((len(codes), 16 * 16))
    for i, code in enumerate(codes):
        for j, key in enumerate(keys.astype(np.uint8)):
            channel[i, 16 * index[(code ^ key).tobytes()] + j] = 1 / 16
    assert truth(model(encoder), data) == pytest.approx(brute_force(channel, features), abs=1e-9)
    assert information(channel[:, :256].reshape(-1, 16, 16).sum(axis=2) / len(codes)) == (
        pytest.approx(0, abs=1e-12)
    )  # the encrypted part alone


@pytest.mark.parametrize("name", ["uniform", "fixed", "balanced", "hashed"])
def test_token_grid(name):
    data = SPACES[name]
    codes, features = listed(data)
    arrays = encode(model("token_grid"), data, "test", 0, codes)
    for tokens, z in (("cls", arrays["cls"]), ("mean", arrays["patches"].mean(axis=1))):
        expected = brute_force(function_channel(np.round(z.astype(float), 4)), features)
        assert truth(model("token_grid"), data, tokens=tokens) == pytest.approx(expected, abs=1e-9)
    kinds = ("cls", "mean", "cls_mean", "patches")
    found = {tokens: truth(model("token_grid"), data, tokens=tokens) for tokens in kinds}
    assert found["patches"] == truth(model("identity"), data)
    assert found["cls_mean"] == found["mean"]
    assert (found["mean"][0] < found["patches"][0]) == (name != "balanced")  # margins suffice there


def test_token_grid_mean_has_no_closed_form_for_three_groups():
    assert truth(model("token_grid"), SPACES["three"], tokens="mean") == (None, None)
    assert None not in truth(model("token_grid"), SPACES["three"], tokens="patches")
    assert margin_sum((8, 8), 9) is None


def test_matrices_with_given_margins():
    rows, columns = 3, 4
    counts = Counter()
    for bits in product((0, 1), repeat=rows * columns):
        m = np.array(bits).reshape(rows, columns)
        counts[tuple(m.sum(axis=1)), tuple(m.sum(axis=0))] += 1
    for (r, c), n in counts.items():
        descending = (sorted(filter(None, r), reverse=True), sorted(filter(None, c), reverse=True))
        assert matrices(tuple(descending[0]), tuple(descending[1])) == n
    assert matrices((3, 1), (2, 2)) == 0


def test_partitions():
    assert list(partitions(6, 3, 4)) == [(4, 1, 1), (3, 2, 1), (2, 2, 2)]
    assert not list(partitions(7, 2, 3))


@pytest.mark.parametrize("encoder", [e for e in ENCODERS if e != "token_grid"])
def test_no_truth_exceeds_the_entropies(space, encoder):
    bits, conditional = truth(model(encoder), space)
    h_object, h_given = truth(model("identity"), space)
    assert bits is None or 0 <= bits <= h_object + 1e-9
    assert conditional is None or -1e-9 <= conditional <= h_given + 1e-9


def test_tokens_that_an_encoder_lacks_are_refused():
    with pytest.raises(ConfigError, match="token_grid"):
        truth(model("identity"), SPACES["fixed"], tokens="patches")


@pytest.mark.parametrize(
    ("encoder", "options", "expected"),
    [
        ("identity", {}, (26.488, 19.272)),
        ("features", {}, (7.217, 0.0)),
        ("erasure", {}, (16.853, 9.636)),
        ("swaps", {}, (15.853, 8.636)),
        ("half", {}, (14.466, 11.001)),
        ("hadamard", {"dim": 24}, (26.488, 19.272)),
    ],
)
def test_values_of_the_calibration_setting(encoder, options, expected):
    # Spec 1, section 6b: 6 x 6, 9 objects; the conditional of `half` is ours.
    found = truth(model(encoder, **options), dataset((6, 6), (9, 9)))
    assert found == pytest.approx(expected, abs=6e-4)
