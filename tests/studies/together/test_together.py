"""Two studies' tables joined: from rows to the table, the figure, the verdict and the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from drawing import reason
from sample_tables import KEYS, pairing_row, words, write_rows

from bindscope.config.loading import load_config
from bindscope.core.errors import ConfigError
from bindscope.core.interfaces import Inputs
from bindscope.statistics.means import mean_interval
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.studies.same_object.tables import SAME_OBJECT_SCHEMA
from bindscope.studies.together.claims import judged
from bindscope.studies.together.figures import together as figure
from bindscope.studies.together.findings import chapter
from bindscope.studies.together.names import MEASURED
from bindscope.studies.together.tables import TOGETHER
from bindscope.studies.together.views import left_out, over_groups, points

ROOT = Path(__file__).parents[3]
RATES = {"claims": str(ROOT / "resources/reference/claims.csv")}
ENTROPY = 9.5
POSITION = 0.96


def bits(model, value, layer="4", tokens="cls", **changes):
    """A row of study one about `value` bits of what goes with what."""
    names = {"dataset": "scenes", "model": model, "layer": layer, "tokens": tokens}
    return pairing_row(value, 0.1, ENTROPY, **names, **changes)


def pair_row(model, lead, layer="3", loss=0.1, family="quadratic", **changes):
    """A row of study two, `lead` ahead of positions."""
    accuracy = POSITION + lead
    return {
        "dataset": "scenes",
        "model": model,
        "layer": layer,
        "probe": family,
        "family": family,
        "flags": "",
        "val_loss_bits": loss,
        "accuracy": accuracy,
        "accuracy_low": accuracy - 0.002,
        "accuracy_high": accuracy + 0.002,
        "position_lead": lead,
        "position_lead_low": lead - 0.003,
        "position_lead_high": lead + 0.003,
        **KEYS,
        **changes,
    }


def positions():
    """What reads positions alone."""
    nothing = dict.fromkeys(f"position_lead{end}" for end in ("", "_low", "_high"))
    return pair_row("none", 0.0, "none", family="position") | nothing


@pytest.fixture
def joined(tmp_path):
    """Joins rows of both studies into the table."""

    def join(bits_rows, pair_rows, models):
        """`models`: model -> its group."""
        read = (BINDING_SCHEMA, bits_rows), (SAME_OBJECT_SCHEMA, pair_rows)
        inputs = {schema.name: [write_rows(tmp_path, schema, rows)] for schema, rows in read}
        about = [
            {"model": name, "group": group, "training_seed": i if group == "ours" else None}
            for i, (name, group) in enumerate(models.items())
        ]
        return TOGETHER.build(Inputs(inputs, {"datasets": ["scenes"], "models": about}))

    return join


@pytest.fixture
def small(joined):
    """A model read at two layers by each study, one with a fit that did not end, one alone."""
    return joined(
        [
            bits("good", 5.0, "2"),
            bits("good", 9.0, seed=0),
            bits("good", 8.0, seed=1),
            bits("good", 1.0, probe="linear"),
            bits("good", 9.4, tokens="patches"),
            bits("good", 0.0, control="shuffled_labels"),
            bits("bad", 4.0, "2"),
            bits("bad", 7.0, flags="above_prior;not_converged"),
            bits("alone", 3.0),
        ],
        [
            positions(),
            pair_row("good", 0.02, "1", 0.2),
            pair_row("good", 0.03),
            pair_row("bad", 0.01),
            pair_row("other", 0.01),
        ],
        {"good": "ours", "bad": "ours", "alone": "alone", "other": "other"},
    )


def test_rows_are_joined_by_dataset_model_and_layer(small):
    rows = small.set_index(["model", "layer"])
    assert list(rows.index) == [
        ("bad", "2"),
        ("bad", "3"),
        ("bad", "4"),
        ("good", "1"),
        ("good", "2"),
        ("good", "3"),
        ("good", "4"),
    ]
    last, layer_3 = rows.loc[("good", "4")], rows.loc[("good", "3")]
    assert last["cls_pairing_bits"] == pytest.approx(8.5)  # a mean over seeds of the probe
    assert last["cls_pairing_bits_high"] == pytest.approx(8.6)
    assert last["cls_pairing_ratio"] == pytest.approx(8.5 / ENTROPY)
    assert last["patches_pairing_bits"] == pytest.approx(9.4)
    assert np.isnan(last["position_lead"])
    assert layer_3["position_lead"] == pytest.approx(0.03)
    assert layer_3["same_object_accuracy"] == pytest.approx(POSITION + 0.03)
    assert layer_3["same_object_status"] == MEASURED
    assert set(small["group"]) == {"ours"}
    assert list(rows.loc["bad"]["training_seed"]) == [1, 1, 1]


def test_a_flagged_number_is_not_repeated(small):
    row = small.set_index(["model", "layer"]).loc[("bad", "4")]
    assert row["cls_status"] == "not_converged"
    assert np.isnan(row["cls_pairing_bits"])
    assert np.isnan(row["cls_pairing_ratio"])


def test_a_flagged_quadratic_probe_has_no_score(joined):
    table = joined(
        [bits("a", 5.0)], [positions(), pair_row("a", 0.01, flags="diverged")], {"a": "a"}
    )
    assert list(table["same_object_status"].dropna()) == ["diverged"]
    assert table["same_object_accuracy"].isna().all()
    assert not len(points(table))
    assert left_out(table) == [("scenes", "a", "diverged")]


def test_of_several_quadratic_probes_validation_chooses(joined):
    two = [
        pair_row("a", 0.03, loss=0.2, probe="first"),
        pair_row("a", 0.02, probe="second"),
    ]
    table = joined([bits("a", 5.0)], [positions(), *two], {"a": "a"})
    row = table[table["layer"] == "3"].iloc[0]
    assert row["position_lead"] == pytest.approx(0.02)


def test_a_point_has_the_last_cls_and_the_patches_that_validation_prefers(small):
    (point,) = points(small).to_dict("records")  # `bad` did not end at its last layer: no point
    assert (point["model"], point["cls_layer"], point["patch_layer"]) == ("good", "4", "3")
    assert point["cls_pairing_bits"] == pytest.approx(8.5)
    assert point["position_lead"] == pytest.approx(0.03)
    assert left_out(small) == [("scenes", "bad", "not_converged")]


def seeds(joined, pairs, n=3):
    """Groups of `n` models around (bits, lead), a little apart."""
    models = {f"{name}-{i}": name for name in pairs for i in range(n)}
    bits_rows = [
        bits(model, pairs[group][0] + 0.1 * int(model[-1])) for model, group in models.items()
    ]
    pair_rows = [
        pair_row(model, pairs[group][1] + 0.0005 * int(model[-1]))
        for model, group in models.items()
    ]
    return joined(bits_rows, [positions(), *pair_rows], models)


def test_groups_have_means_with_intervals_over_their_models(joined):
    means = over_groups(points(seeds(joined, {"a": (5, 0.01), "b": (6, 0.02)}))).set_index("group")
    expected = mean_interval([5.0, 5.1, 5.2])
    row = means.loc["a", [f"cls_pairing_bits{end}" for end in ("", "_low", "_high")]]
    assert tuple(row) == pytest.approx(expected)
    assert means.loc["b", "n_models"] == 3
    apart = seeds(joined, {"a": (1, 0.01)})
    apart["cls_pairing_bits"] *= np.arange(1, len(apart) + 1)
    apart["pairing_entropy_bits"] = apart["cls_pairing_bits"].max()
    wide = over_groups(points(apart)).iloc[0]
    assert wide["cls_pairing_bits_high"] == wide["pairing_entropy_bits"]  # no more than there is
    single = over_groups(points(seeds(joined, {"a": (5, 0.01)}, 1))).iloc[0]
    assert single["cls_pairing_bits_low"] == pytest.approx(4.9)  # its own, over scenes


@pytest.mark.parametrize(
    ("leads", "verdict"),
    [
        ([0.0, 0.005, 0.01, 0.015, 0.02, 0.025], "holds"),
        ([0.025, 0.02, 0.015, 0.01, 0.005, 0.0], "does not hold"),
        ([0.01, 0.025, 0.0, 0.02, 0.005, 0.015], "not significant"),
        ([0.0, 0.005, 0.01, 0.015, 0.02], "not testable"),  # five groups have no interval
    ],
)
def test_the_verdict_follows_the_order_of_the_groups(joined, leads, verdict):
    pairs = {f"g{i}": (float(i + 1), lead) for i, lead in enumerate(leads)}
    (judgment,) = judged(points(seeds(joined, pairs)))
    assert (judgment.verdict, judgment.effect.n) == (verdict, len(leads))


def test_networks_of_different_depth_are_compared_at_equal_depth(joined):
    pairs = {f"g{i}": (float(i + 1) / 2, 0.003 * i) for i in range(12)}
    table = points(seeds(joined, pairs, 1))
    (plain,) = judged(table)
    assert plain.effect.value == pytest.approx(1)
    table["cls_layer"] = [
        str(4 + int(name[1:].partition("-")[0])) for name in table["group"]
    ]  # depth says it all
    (partial,) = judged(table)
    assert np.isnan(partial.effect.value)
    (few,) = judged(table[:8])
    assert few.reason == "fewer than 12 groups"


def test_the_figure_shows_every_group_the_limits_and_the_verdict(joined):
    table = seeds(joined, {f"g{i}": (float(i + 1), 0.005 * i) for i in range(6)})
    assert reason(figure, table) is None
    drawn = figure.draw(table)
    text = " ".join(words(drawn))
    for part in ("g0", "g5", "entropy", "6 model groups: holds"):
        assert part in text
    axes = drawn.axes[0]
    entropy, *_ = (line for line in axes.lines if set(line.get_xdata()) == {ENTROPY})
    assert entropy.get_linestyle() == "--"
    heights = {float(line.get_ydata()[0]) for line in axes.lines if len(line.get_ydata()) == 2}
    assert min(abs(height - 100 * (1 - POSITION)) for height in heights) < 1e-9


def test_without_a_point_the_figure_says_so(joined):
    table = joined(
        [bits("a", 1.0, flags="collapsed")], [positions(), pair_row("a", 0.0)], {"a": "a"}
    )
    assert "No model" in reason(figure, table)


def test_the_report_says_the_verdict_and_who_is_left_out(small):
    page = chapter({"together": small}, Inputs(resources=RATES))
    (lead,) = page.lead
    assert lead.startswith("Model groups whose patches separate objects better than positions")
    assert "On scenes: not testable (fewer than 6 groups)" in lead
    assert "1 model group" in lead
    assert page.warnings[0].rows == ("scenes, bad: not_converged",)
    texts = [cell.text for table in page.sections[1].tables for row in table.rows for cell in row]
    assert "8.50" in texts
    assert "+3.0" in texts  # points ahead of positions


def config(**section):
    """The CI's preset with both studies, and a section of this one."""
    raw = yaml.safe_load((ROOT / "config/presets/ci.yaml").read_text())
    raw["studies"]["same_object"] = yaml.safe_load(
        (ROOT / "tests/studies/same_object/ci.yaml").read_text()
    )
    raw["studies"]["together"] = {"datasets": ["tiny"], "models": ["vit"], **section}
    return raw


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"datasets": ["tiny", "tny"]}, "datasets: 'tny' is not defined"),
        (
            {"models": ["vit", "identity"]},
            "models: 'identity' is not measured together: add it to `fits` of same_object",
        ),
        (
            {"groups": [{"name": "a", "models": ["vit", "identity"]}]},
            "groups.0.models: 'identity' is not defined",
        ),
    ],
)
def test_a_mistake_is_named(section, message):
    assert load_config(config(), "c").studies.together.models == ("vit",)
    with pytest.raises(ConfigError) as caught:
        load_config(config(**section), "c")
    assert f"studies.together.{message}" in str(caught.value)


def test_a_study_that_takes_no_part_is_named():
    raw = config()
    del raw["studies"]["same_object"]
    with pytest.raises(ConfigError, match="the study 'same_object' takes no part"):
        load_config(raw, "c")


def test_a_number_that_the_other_table_lacks_comes_with_its_reason(joined):
    unmeasured = bits("a", np.nan, pairing_ratio=None, reason="counts are not told apart")
    table = joined([unmeasured], [positions(), pair_row("a", 0.01)], {"a": "a"})
    assert left_out(table) == [("scenes", "a", "counts are not told apart")]


def test_a_dataset_that_one_study_does_not_measure_is_named():
    raw = config(datasets=["tiny", "more"])
    raw["datasets"].append({**raw["datasets"][0], "name": "more"})
    block = {"name": "more", "datasets": ["more"], "models": ["vit"], "probes": ["linear"]}
    raw["studies"]["binding_information"]["fits"].append(block)
    with pytest.raises(ConfigError) as caught:
        load_config(raw, "c")
    assert "'more' is not measured together: add it to `fits` of same_object" in str(caught.value)
    assert "binding_information (" not in str(caught.value)
