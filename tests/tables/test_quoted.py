"""What may be quoted: one way to leave rows out, to average them, and to write a number."""

import numpy as np
import pandas as pd
import pytest

from bindscope.statistics.means import mean_interval
from bindscope.tables.groups import complete_groups, with_groups
from bindscope.tables.quantities import Quantity
from bindscope.tables.quoted import Quoted

BITS = Quantity(
    name="bits",
    value="bits",
    low="bits_low",
    high="bits_high",
    entropy="entropy_bits",
    is_bound=True,
)
SHARE = Quantity(name="share", value="share", low="share_low", high="share_high", most=1.0)
PLACE = ("dataset", "model", "layer")
GROUPS = [{"name": "trained", "models": ["trained-0", "trained-1"]}]


def row(model, bits, layer="1", dataset="shapes", seed=0, flags="", share=0.9):
    return {
        "dataset": dataset,
        "model": model,
        "layer": layer,
        "seed": seed,
        "flags": flags,
        "bits": bits,
        "bits_low": bits - 0.1,
        "bits_high": bits + 0.1,
        "entropy_bits": 5.0,
        "share": share,
        "share_low": share - 0.05,
        "share_high": share + 0.05,
    }


def quoted(*rows):
    table = complete_groups(with_groups(pd.DataFrame(rows), GROUPS), ["dataset"])
    return Quoted.choose(table, (SHARE, BITS), PLACE, needed=BITS)


def test_a_group_is_the_mean_over_its_models_with_the_t_interval_within_what_can_be():
    rows = [row("trained-0", 4.2, seed=seed) for seed in (0, 1)]
    here = quoted(*rows, row("trained-1", 4.8, share=0.99), row("other", 1.0))
    estimate = here["shapes"].where(model="trained").best(BITS)
    assert (estimate.value, estimate.n_models) == (pytest.approx(4.5), 2)
    low, high = mean_interval([4.2, 4.8])[1:]
    assert estimate.low == pytest.approx(max(low, 0.0))
    assert (estimate.high, high > 5.0) == (5.0, True)
    assert here.best(SHARE).high == 1.0
    assert list(here.single["model"]) == ["trained-0", "trained-1", "other"]
    assert list(here.single["n_seeds"]) == [2, 1, 1]


def test_a_groups_name_stands_for_all_of_its_models_or_for_none():
    rows = [row("trained-0", 4.2), row("trained-0", 4.3, layer="2"), row("trained-1", 4.8)]
    alone = quoted(*rows).rows["model"]  # trained-1 was not read at layer 2
    assert list(alone) == ["trained-0", "trained-0", "trained-1"]
    whole = quoted(*rows, row("trained-1", 4.9, layer="2")).rows["model"]
    assert list(whole) == ["trained", "trained"]


def test_a_single_model_keeps_its_interval_and_its_name():
    here = quoted(row("trained-0", 4.0))
    assert list(here.rows["model"]) == ["trained-0"]
    (estimate,) = here.estimates(BITS)
    assert (estimate.low, estimate.high) == pytest.approx((3.9, 4.1))
    left_over = quoted(row("trained-0", 4.0), row("trained-1", 1.0, flags="diverged"))
    assert list(left_over.rows["model"]) == ["trained-0"]


def test_a_row_with_a_forbidden_flag_is_refused_with_the_reason():
    here = quoted(
        row("trained-0", 4.0, flags="collapsed;prior"),
        row("trained-1", 9.0, flags="diverged"),
        row("other", 1.0, flags="prior"),
        row("empty", np.nan),
    )
    assert list(here.rows["model"]) == ["other"]
    assert here.refused.to_dict("list") == {
        "dataset": ["shapes"] * 2,
        "model": ["trained", "empty"],
        "layer": ["1"] * 2,
        "flags": ["collapsed and diverged", "incomplete"],
        "n_models": [2, 1],
    }
    assert here.names("model") == ["other", "trained", "empty"]
    assert here["elsewhere"].names("model") == []


def test_a_bound_is_rounded_down_and_an_estimate_says_about():
    here = quoted(row("other", 2.999))
    assert here.best(BITS).words == "≥\u00a02.99"
    assert here.best(BITS).interval == "2.89 to 3.10"
    assert here.best(SHARE).words == "0.90"
    table = with_groups(pd.DataFrame([row("other", 2.999)]), ()).assign(assumed_prior=True)
    estimated = Quoted.choose(table, (BITS,), PLACE, needed=BITS, labels=("assumed_prior",))
    assert estimated.best(BITS).words == "about 2.99"


def test_the_best_is_the_largest_and_rows_are_in_order():
    here = quoted(row("a", 1.0, layer="10"), row("b", 3.0), row("a", 2.0, layer="2"))
    assert here.best(BITS).row["model"] == "b"
    assert here.where(model="a").best(BITS).value == 2.0
    ordered = here.ordered(model=["b", "a"], layer=["2", "10"])
    assert list(ordered.rows["bits"]) == [3.0, 2.0, 1.0]
