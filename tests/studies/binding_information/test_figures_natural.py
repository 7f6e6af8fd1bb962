"""Natural images, and the marks of an estimated prior in every figure that can show one."""

import matplotlib as mpl
import numpy as np
import pytest
from sample_tables import make_row, make_table, priors_table, statistics_table, words

from bindscope.figures.hover import collect_marks
from bindscope.studies.binding_information.figures.bars import natural, tokens
from bindscope.studies.binding_information.figures.curves import (
    complexity,
    layers,
    occlusion,
    resolution,
)
from bindscope.studies.binding_information.figures.shared import DAGGER
from bindscope.studies.binding_information.figures.structure import structure
from bindscope.studies.binding_information.views import (
    assumed_prior,
    last_layers,
    measured,
    over_seeds,
)

pytestmark = pytest.mark.usefixtures("few_pixels")
MODELS = ("vit-objects", "vit-features")
CELLS = {"photos": 36, "others": 4}
# Which figures draw a difference from an entropy; the others draw losses, weights, or encoders
# whose law is known.
MARKED = {
    "tokens",
    "layers",
    "structure",
    "complexity",
    "resolution",
    "occlusion",
    "natural",
}


def rows_of(flags):
    """Two models, two probes, three layers and two datasets, the first one flagged as asked."""
    return [
        make_row(
            model, layer, probe=probe, dataset=dataset, flags=flags if dataset == "photos" else ""
        )
        for model in MODELS
        for layer in ("2", "3", "4")
        for probe in ("linear", "quadratic")
        for dataset in ("photos", "others")
    ]


def figures(table):
    """Draw what shows differences from entropies, by name."""
    statistics = statistics_table((("photos", 0.6, 0.3), ("others", 3.2, 0.1)))
    sides = {(d, m): 24 * (i + 1) for d in CELLS for i, m in enumerate(MODELS)}
    return {
        "tokens": tokens.draw(table),
        "layers": layers.draw(table),
        "structure": structure.draw(table),
        "complexity": complexity.draw(table, CELLS),
        "resolution": resolution.draw(table, {"two": MODELS}, sides, CELLS),
        "occlusion": occlusion.draw(table, statistics, CELLS),
        "natural": natural.draw(table, priors_table(CELLS), ["photos"], CELLS),
    }


def is_hatched(artist):
    return bool(artist.get_hatch())


def hatched_artists(figure):
    """Bars and bands that are hatched, the legend's patch left out."""
    legends = {id(p) for legend in figure.legends for p in legend.get_patches()}
    kinds = (mpl.patches.Patch, mpl.collections.Collection)
    artists = [a for kind in kinds for a in figure.findobj(kind) if is_hatched(a)]
    return [artist for artist in artists if id(artist) not in legends]


def test_an_estimated_prior_is_marked_in_every_figure_that_draws_differences_from_it():
    flagged = figures(make_table(rows_of("assumed_prior")))
    assert set(flagged) == MARKED
    for name, figure in flagged.items():
        entry = [text for text in words(figure) if text.startswith("hatched")]
        assert entry == [f"hatched,{DAGGER}: prior estimated, no bound"], name
        # structure draws losses, which are bounds; its H(O) is marked, as are other entropies
        assert bool(hatched_artists(figure)) == (name != "structure"), name
    for name, text in {
        "tokens": "H(O)",
        "structure": "H(O)",
        "natural": "H(O|F)",
        "complexity": "H(O|F)",
    }.items():
        assert f"{text}{DAGGER}" in words(flagged[name]), name
    assert f"photos\n[CLS]\nlinear{DAGGER}" in words(flagged["layers"])


def test_only_the_flagged_datasets_bars_are_hatched():
    table = make_table(rows_of("assumed_prior"))
    assert assumed_prior(table) == {"photos"}
    bars = over_seeds(last_layers(measured(table)))
    assert dict(bars.groupby("dataset")["assumed_prior"].first()) == {
        "photos": True,
        "others": False,
    }
    assert len(hatched_artists(tokens.draw(table))) == len(bars) // 2


def assigned(bits):
    """Priors of `photos` whose attributes are re-assigned."""
    table = priors_table(["photos"])
    for name in ("assignment_bits", "multiset_bits", "code_bits"):
        table[name] = bits
    return table


def positions(axes, marker):
    """Places of all points with a marker, float (n, 2)."""
    lines = [line for line in axes.get_lines() if line.get_marker() == marker]
    return np.array([line.get_xydata()[0] for line in lines]).reshape(-1, 2)


def test_natural_draws_every_estimate_at_its_place():
    table = make_table(rows_of("assumed_prior"))
    figure = natural.draw(table, assigned(10.0), ["photos"], CELLS, MODELS)
    share, bits, whole = figure.axes
    row = table[(table["dataset"] == "photos") & (table["layer"] == "4")].iloc[0]
    h_given = row["h_object_given_feature_bits"]
    loss_difference = row["loss_object_bits"] - row["loss_feature_bits"]
    assert (
        len(positions(share, "D")) == len(positions(bits, "D")) == len(positions(whole, "D")) == 4
    )
    assert np.allclose(positions(bits, "D")[:, 0], h_given - loss_difference)
    assert np.allclose(positions(share, "D")[:, 0], 100 * (h_given - loss_difference) / h_given)
    assert np.allclose(positions(whole, "D")[:, 0], row["binding_bits"])
    assert np.allclose(positions(bits, "s")[:, 0], 10.0 - loss_difference)
    assert np.allclose(positions(share, "s")[:, 0], 100 * (10.0 - loss_difference) / 10.0)
    assert not len(positions(whole, "s"))
    bound = row["conditional_binding_lower_bound_bits"]
    assert {round(bar.get_width(), 9) for bar in bits.patches} == {round(bound, 9)}
    assert [label.get_text() for label in share.get_yticklabels()] == list(MODELS)
    without = natural.draw(table, priors_table(["photos"]), ["photos"], CELLS, MODELS)
    assert not len(positions(without.axes[0], "s"))
    assert "same, with that paper's prior" in words(figure)
    assert "same, with that paper's prior" not in words(without)


def test_the_papers_numbers_are_words_unless_dataset_and_model_agree(trends):
    table = make_table(rows_of("assumed_prior"))
    figure = natural.draw(table, assigned(10.0), ["photos"], CELLS, MODELS, trends)
    text = " ".join(" ".join(words(figure)).split())
    assert "39.9 % (lowest of DINOv2 and CLIP on Visual Genome)" in text
    assert "47.0 %" in text
    assert "Not comparable with this run" in text
    assert not len(positions(figure.axes[0], "*"))
    named = trends[trends["study"] == "natural images"].assign(
        dataset="photos", model="some/vit-objects", cells="36"
    )
    paper = make_table([row | {"model_kind": "hf"} for row in rows_of("assumed_prior")])
    stars = natural.draw(paper, assigned(10.0), ["photos"], CELLS, MODELS, named)
    assert np.allclose(positions(stars.axes[0], "*"), [[39.9, 0.0], [47.0, 0.0]])
    unnamed = named.assign(model="")  # the least and the largest of all models
    stars = natural.draw(paper, assigned(10.0), ["photos"], CELLS, MODELS, unnamed)
    assert np.allclose(positions(stars.axes[0], "*"), [[39.9, -0.4], [47.0, -0.4]])


def test_where_the_features_leave_no_pairing_open_no_share_is_drawn():
    table = make_table(rows_of("assumed_prior")).assign(h_object_given_feature_bits=0.0)
    figure = natural.draw(table, priors_table(["photos"]), ["photos"], CELLS, MODELS)
    share, bits, _ = figure.axes
    assert np.isnan([bar.get_width() for bar in share.patches]).all()
    assert np.isfinite([bar.get_width() for bar in bits.patches]).all()
    assert not [mark for mark in collect_marks(figure) if mark.text.startswith("β*")]
