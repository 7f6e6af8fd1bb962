"""Properties of codes and priors that hold for every space."""

from math import prod

import numpy as np
from datasets_by_hand import dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bindscope.codes.ranks import unrank
from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import build_space, feature_code
from bindscope.codes.splits import feature_codes
from bindscope.core.splits import SPLITS
from bindscope.priors.entropies import entropies

quick = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def spaces(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    if len(sizes) > 1 and draw(st.booleans()):
        chosen = [draw(st.integers(1, size)) for size in sizes]
        n_objects = draw(st.integers(max(chosen), prod(chosen)))
        extra = {"kind": "balanced", "chosen": chosen, "n_objects": n_objects}
    else:
        low = draw(st.integers(1, prod(sizes)))
        extra = {
            "kind": "uniform",
            "min_objects": low,
            "max_objects": draw(st.integers(low, prod(sizes))),
        }
    groups = [{"name": f"group{i}", "size": size} for i, size in enumerate(sizes)]
    return {"groups": groups, **extra}


@st.composite
def datasets(draw):
    space, seed = draw(spaces()), draw(st.integers(0, 2**70))
    n = len(feature_codes(dataset(space), "train"))
    if n >= 3 and draw(st.booleans()):
        train = draw(st.integers(1, n - 2))
        val = draw(st.integers(1, n - train - 1))
        test = draw(st.integers(1, n - train - val))
        numbers = {"train": train, "val": val, "test": test}
        split = {
            "rule": "ranked_feature_codes",
            "salt": draw(st.text(max_size=3)),
            "n_feature_codes": numbers,
        }
        return dataset(space, split, seed=seed)
    return dataset(space, seed=seed)


@quick
@given(datasets())
def test_entropies_are_ordered_and_add_up(data):
    for row in entropies(data):
        o, f = row["h_object_bits"], row["h_feature_bits"]
        given_f = row["h_object_given_feature_bits"]
        assert 0 <= given_f <= o + 1e-12
        assert 0 <= f <= o + 1e-12
        assert abs(o - f - given_f) < 1e-11
        assert row["split_gap_bits"] >= 0
        assert f <= np.log2(row["n_feature_codes"]) + 1e-12


@quick
@given(datasets(), st.integers(0, 30), st.integers(0, 30))
def test_samples_are_of_the_split_and_independent_of_shards(data, cut, more):
    space = build_space(data.space)
    for split in SPLITS:
        whole = sample_codes(data, split, 0, cut + more)
        parts = sample_codes(data, split, 0, cut), sample_codes(data, split, cut, cut + more)
        np.testing.assert_array_equal(whole, np.concatenate(parts))
        numbers = whole.sum(axis=1)
        assert ((numbers >= space.min_objects) & (numbers <= space.max_objects)).all()
        allowed = {row.tobytes() for row in feature_codes(data, split)}
        assert {row.tobytes() for row in feature_code(whole, space.sizes)} <= allowed


@quick
@given(spaces(), st.integers(0, 10**9))
def test_unranking_gives_the_feature_code_that_was_asked_for(config, number):
    data = dataset(config)
    space = build_space(data.space)
    features = feature_codes(data, "train")
    table = space.covers()
    counts = np.stack(
        [part.sum(axis=1) for part in np.split(features, np.cumsum(space.sizes)[:-1], axis=1)], 1
    )
    ranks = np.array([number % table[tuple(row)] for row in counts.tolist()])
    objects = unrank(space, features, ranks)
    np.testing.assert_array_equal(feature_code(objects, space.sizes), features)
