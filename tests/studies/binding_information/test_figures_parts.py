"""The headline figures: best rows, groups and flags; and what counting alone reaches."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from drawing import reason
from sample_tables import known_rows, make_row, make_table, paper_table, words
from zoo_tables import (
    ENTROPIES,
    GROUPS,
    MODELS,
    OBJECTIVES,
    parts_row,
    parts_table,
    zoo_rows,
    zoo_table,
)

from bindscope.config.loading import load_file
from bindscope.core.interfaces import Inputs
from bindscope.priors.entropies import entropies
from bindscope.statistics.means import mean_interval
from bindscope.studies.binding_information.figures.bars import tokens
from bindscope.studies.binding_information.figures.curves import complexity, layers
from bindscope.studies.binding_information.figures.parts import parts, parts_layers, parts_narrow
from bindscope.studies.binding_information.figures.shared import DAGGER
from bindscope.studies.binding_information.figures.structure import structure
from bindscope.studies.binding_information.figures.truth import calibration, histogram
from bindscope.studies.binding_information.published import (
    beside,
    read_color_cues,
    read_histograms,
    read_papers_table,
    read_trends,
)
from bindscope.studies.binding_information.quantities import PAIRING
from bindscope.studies.binding_information.views import last_layers, measured, over_seeds, quote
from bindscope.tables.groups import group_names, with_groups

pytestmark = pytest.mark.usefixtures("few_pixels")
ROOT = Path(__file__).parents[3]
NAMES = group_names(MODELS, GROUPS)
DATASETS = ["matching", "counting"]
RESOURCES = Inputs(
    resources={
        name: str(ROOT / "resources" / folder / f"{name}.csv")
        for name, folder in (
            ("binding_information", "published"),
            ("trends", "published"),
            ("histograms", "published"),
            ("color_cues", "reference"),
        )
    }
)


@pytest.fixture(scope="module")
def table():
    return with_groups(zoo_table(("linear", "quadratic")), GROUPS)


def bars(axes):
    """Return left end, width and middle of every bar, boxes first."""
    rectangles = [patch for patch in axes.patches if isinstance(patch, mpl.patches.Rectangle)]
    return [(p.get_x(), p.get_width(), p.get_y() + p.get_height() / 2) for p in rectangles]


def test_a_group_is_the_mean_over_its_models_with_the_t_interval(table):
    rows = over_seeds(last_layers(measured(table, best=True)))
    assert len(rows) == 2 * 7 * 2
    row = rows[(rows["model"] == "captions") & (rows["dataset"] == "counting")].iloc[0]
    each = zoo_table(known=False)
    each = each[each["model"].str.match(r"captions-\d") & (each["dataset"] == "counting")]
    each = each[(each["layer"] == "4") & (each["probe"] == "best")]
    each = each[each["tokens"] == row["tokens"]]
    limits = [row[f"{PAIRING.value}{end}"] for end in ("", "_low", "_high")]
    np.testing.assert_allclose(limits, mean_interval(each[PAIRING.value]))
    assert row["n_models"] == 3


def test_a_model_that_stands_alone_keeps_the_interval_over_test_scenes():
    rows = over_seeds(measured(parts_table([parts_row("counting", "mine")]), best=True))
    assert rows[f"{PAIRING.value}_low"].item() == pytest.approx(2.9)
    assert rows["n_models"].item() == 1


def test_the_headline_draws_boxes_of_all_there_is_and_bars_of_what_was_read(table):
    figure = parts.draw(table, NAMES, DATASETS)
    figure.draw_without_rendering()
    matching, counting = figure.axes
    assert {round(width, 3) for _, width, _ in bars(counting)} >= {
        round(bits, 3) for bits in ENTROPIES["counting"]
    }
    what, how_many, pairing = ENTROPIES["counting"]
    starts = {round(x, 2) for x, *_ in bars(counting)}
    gap = 0.035 * (what + how_many + pairing)
    assert starts == {0.0, round(what + gap, 2), round(what + how_many + 2 * gap, 2)}
    assert len({round(x, 2) for x, *_ in bars(matching)}) == 2
    assert "counts: 0 bits, implied by the features" in words(figure)
    row = quote(table, NAMES).rows.set_index(["dataset", "model", "tokens"])
    value = row.loc[("counting", "features", "cls"), PAIRING.value]
    drawn = [width for _, width, _ in bars(counting)]
    assert any(abs(width - value) < 1e-9 for width in drawn)
    labels = [label.get_text() for label in matching.get_yticklabels()]
    assert labels == [*OBJECTIVES, *OBJECTIVES]
    texts = [text for text in words(figure) if text.startswith("≥ ")]
    assert len(texts) == 2 * 7 * (2 + 3)


def test_on_a_narrow_screen_the_first_datasets_parts_stand_below_one_another(table):
    figure = parts_narrow.draw(table, NAMES, ["counting", "matching"])
    assert [round(axes.patches[0].get_width(), 3) for axes in figure.axes] == [
        round(bits, 3) for bits in ENTROPIES["counting"]
    ]
    texts = [text for text in words(parts.draw(table, NAMES, DATASETS)) if text.startswith("≥ ")]
    narrow = [text for text in words(figure) if text.startswith("≥ ")]
    assert len(narrow) == 2 * 7 * 3
    assert set(narrow) < set(texts)
    assumed = parts_table([parts_row("counting", "mine", flags="assumed_prior")])
    assert f"counting{DAGGER}" in words(parts_narrow.draw(assumed))


@pytest.mark.parametrize("flag", ["collapsed", "above_truth"])
def test_a_flagged_row_is_an_empty_box_that_names_the_flag(flag):
    rows = [row for row in zoo_rows() if row["dataset"] == "matching" and row["probe"] == "best"]
    hidden = {name: 7777.0 for name in rows[0] if "lower_bound_bits" in name} | {"flags": flag}
    bad = ("masked-0", "masked-1", "masked-2", "captions-1")
    table = make_table([row | (hidden if row["model"] in bad else {}) for row in rows])
    figure = parts.draw(with_groups(table, GROUPS), NAMES, DATASETS)
    text = words(figure)
    assert text.count(f"not quoted: {flag}") == 2
    assert "captions (2 of 3 seeds)" in text
    assert not any("777" in words_of for words_of in text if "≥" in words_of)
    assert max(width for _, width, _ in bars(figure.axes[0])) < 10
    drawn = parts_layers.draw(with_groups(table, GROUPS), NAMES, DATASETS)
    assert "masked" not in words(drawn)


def test_without_best_rows_there_is_no_headline():
    table = make_table([make_row()])
    for module in (parts, parts_narrow, parts_layers):
        assert reason(module, table).endswith(".")
        assert reason(module, table.iloc[:0]).endswith(".")


def test_counts_that_are_not_told_apart_share_a_box_with_pairing():
    row = parts_row(
        "counting", "mine", decoded=(5.0, 2.0, 3.0), counted=False, reason="four groups"
    )
    figure = parts.draw(parts_table([row]))
    assert "counts and pairing\n" in words(figure)
    assert "≥ 5.00 (25 %)" in words(figure)


def test_parts_over_layers_draw_shares_of_what_there_is(table):
    table = table[table["group"].isin(["objects", "self-distillation"])]
    figure = parts_layers.draw(table, NAMES, DATASETS)
    grid = [axes for axes in figure.axes if axes.lines]
    assert len(grid) == 2 * 4
    objects = grid[0]
    share = quote(table, NAMES, last=False).rows
    share = share[(share["dataset"] == "matching") & (share["tokens"] == "cls")]
    share = share[share["model"] == "objects"][PAIRING.value] / ENTROPIES["matching"][2]
    curves = [line.get_ydata() for line in objects.lines if len(line.get_ydata()) == 4]
    assert any(np.allclose(curve, 100 * share) for curve in curves)
    assert [text for text in words(figure) if text == "self-\ndistillation"]


def test_complexity_shows_what_counting_alone_reaches(table):
    figure = complexity.draw(table, {"matching": 64, "counting": 36}, NAMES)
    axes = figure.axes[0]
    counting = [line for line in axes.lines if line.get_linestyle() == "-."]
    _, how_many, pairing = ENTROPIES["counting"]
    np.testing.assert_allclose(
        counting[0].get_ydata(), [100 * how_many / (how_many + pairing), 0.0]
    )
    assert "counting alone, H(M|F)" in words(figure)


def test_calibration_has_panels_for_counts_and_pairing_where_their_truth_is_known():
    assert "counts" not in words(calibration.draw(make_table(known_rows())))
    truth = {"truth_count_bits": 5.0, "truth_pairing_bits": 4.0, "truth_feature_bits": 7.0}
    row = parts_row("counting", "half", "0", probe="linear", decoded=(7.0, 4.9, 3.9)) | truth
    row |= {"model_kind": "known-answer", "n_layers": 0, "truth_bits": 16.0}
    figure = calibration.draw(make_table([row | {"truth_conditional_bits": 9.0}]))
    assert {"counts", "pairing"} <= set(words(figure))


def test_a_histograms_share_is_that_of_the_presets_scenes():
    histograms = read_histograms(RESOURCES)
    assert round(histograms.set_index("dataset")["share"]["balanced_colorshape"], 2) == 0.62
    for row in histograms.to_dict("records"):
        config = load_file(ROOT / "config" / "presets" / f"{row['preset']}.yaml")
        datasets = {dataset.name: dataset for dataset in config.datasets}
        if row["preset_dataset"]:
            exact = next(
                r for r in entropies(datasets[row["preset_dataset"]]) if r["split"] == "test"
            )
            counts = exact["h_counts_given_feature_bits"]
            assert (counts is None) == (row["note"] != "")
            if counts is not None:
                h_given = exact["h_object_given_feature_bits"]
                assert row["h_counts_given_feature_bits"] == pytest.approx(counts, abs=1e-6)
                assert row["h_object_given_feature_bits"] == pytest.approx(h_given, abs=1e-6)


def test_the_papers_numbers_stand_beside_what_counting_reaches():
    published, trends = read_papers_table(RESOURCES), read_trends(RESOURCES)
    histograms = read_histograms(RESOURCES)
    cues = read_color_cues(RESOURCES)
    figure = histogram.draw(paper_table(), published, trends, histograms, cues)
    text = words(figure)
    assert {"counts alone: 62 %", "counts alone: 60 %", "counts alone: 82 %"} <= set(text)
    assert {"99.5 %", "\u2265 47 %"} <= set(text)  # of the main table
    assert any("not countable" in line for line in text)
    stars = [
        line.get_xdata() for axes in figure.axes for line in axes.lines if line.get_marker() == "*"
    ]
    np.testing.assert_allclose(np.concatenate(stars)[:4], [0.8, 37.9, 42.4, 94.1])
    ours = beside(paper_table(), published)
    ours = ours[ours["quantity"] == "conditional_binding_ratio"]
    circles = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert len(circles) == len(ours) == 4
    alone = histogram.draw(zoo_table(), published, trends, histograms, cues)
    assert "paper's formula, this run's probe" in words(figure)
    assert "paper's formula, this run's probe" not in words(alone)


def test_no_groups_name_stands_on_one_seed():
    """Layers that were read of seed 0 alone are drawn under its own name."""
    rows = [
        parts_row(
            "counting",
            f"objects-{seed}",
            str(layer),
            probe=probe,
            decoded=(5.0, 2.0, float(layer + seed)),
        )
        for seed, layers_read in ((0, (2, 3, 4)), (1, (4,)), (2, (4,)))
        for layer in layers_read
        for probe in ("best", "linear", *(["quadratic"] if seed == 0 else []))
    ]
    table = with_groups(make_table(rows), GROUPS).assign(is_control=True)
    curves = quote(table, NAMES, last=False).rows.groupby("model")[PAIRING.value].agg(list)
    bounds = ([2.0, 3.0, 4.0], [5.0], [6.0])
    assert dict(curves) == {f"objects-{i}": each for i, each in enumerate(bounds)}
    assert quote(table, NAMES).rows[PAIRING.value].item() == 5.0
    control = " (positive control)"
    assert f"objects{control}" in words(parts.draw(table, NAMES))
    title = "objects-0\n(positive\ncontrol)"
    for drawn in (parts_layers.draw(table, NAMES, DATASETS), layers.draw(table, NAMES)):
        assert {title, title.replace("\n", " ")} & set(words(drawn))
        assert f"objects{control}" not in words(drawn)
    # Of a probe that only one seed was fitted with, too.
    assert f"objects-0{control}" in words(tokens.draw(table))
    assert f"objects{control}" not in words(structure.draw(table))
    alone = with_groups(make_table(rows[:2]), GROUPS)
    assert "objects-0" in words(parts.draw(alone, NAMES))


def test_fits_by_the_papers_protocol_are_shown_as_a_family_of_their_own():
    table = make_table(
        [make_row(), make_row(probe="linear"), make_row() | {"probe": "paper", "protocol": "paper"}]
    )
    assert {"quadratic", "quadratic\npublished protocol"} <= set(words(structure.draw(table)))
    bars = {"quadratic, [CLS]", "quadratic, published protocol, [CLS]"}
    assert bars <= set(words(tokens.draw(table)))
    numbers = read_papers_table(RESOURCES)
    by_protocol = paper_table().assign(protocol="paper")
    assert len(beside(by_protocol, numbers)) == len(beside(paper_table(), numbers)) > 0
