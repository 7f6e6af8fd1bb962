"""Every figure draws what is there, says what is not, reads no other figure; same bytes."""

import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from drawing import reason
from safetensors.numpy import save_file
from sample_tables import (
    curve_table,
    default_table,
    history,
    known_rows,
    make_row,
    make_table,
    paper_table,
    priors_table,
    sheet,
    statistics_table,
    to_input,
    words,
    write_sheet,
)
from zoo_tables import ENTROPIES, parts_row

from bindscope.core.graph import roots
from bindscope.core.interfaces import Inputs
from bindscope.core.keys import closure
from bindscope.core.registries import studies
from bindscope.figures import style
from bindscope.figures.colors import EMPTY
from bindscope.figures.job import drawn
from bindscope.studies.binding_information.attention_maps import attention_share
from bindscope.studies.binding_information.figures.attention import attention
from bindscope.studies.binding_information.figures.bars import tokens
from bindscope.studies.binding_information.figures.curves import (
    complexity,
    layers,
    occlusion,
    resolution,
)
from bindscope.studies.binding_information.figures.structure import paper_cost, structure
from bindscope.studies.binding_information.figures.truth import calibration
from bindscope.studies.binding_information.names import PAPERS
from bindscope.studies.binding_information.published import beside, slug
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA, CURVE_SCHEMA
from bindscope.studies.binding_information.sharing_cost import SceneLosses, sharing_costs
from bindscope.studies.datasets.tables import PRIORS, SCENE_STATISTICS
from bindscope.tables.write import write_table

pytestmark = pytest.mark.usefixtures("few_pixels")
ROOT = Path(__file__).parents[2]
ORDER = ("vit-objects", "vit-features", "vit-random")
FROM_TABLE = (tokens, layers, structure, calibration)
ENTRIES = {entry.name: entry for study in studies().values() for entry in study.figures}


def points(figure):
    """Return x and y of all lines' points."""
    lines = [line.get_xydata() for line in figure.findobj(mpl.lines.Line2D)]
    return np.concatenate([np.asarray(line, float) for line in lines if len(line)])


def attention_arrays(n_scenes=2, n_objects=3):
    """Return two objects in each scene; the third is absent."""
    masks = np.zeros((n_scenes, 8, 8), np.uint8)
    masks[:, 1:3, 1:3] = 1
    masks[:, 5:7, 4:8] = 2
    maps = np.full((n_scenes, n_objects, 16), 1 / 16, np.float32)
    maps[:, 2] = np.nan
    images = np.full((n_scenes, 8, 8, 3), 255, np.uint8)
    share, baseline = attention_share(maps, masks, (4, 4), 2)
    return {
        "images": images,
        "masks": masks,
        "maps": maps,
        "grid": np.array([4, 4]),
        "patch_px": np.array([2]),
        "share": share[:, :2].ravel(),
        "baseline": baseline[:, :2].ravel(),
    }


@pytest.mark.parametrize("module", FROM_TABLE)
def test_what_is_missing_is_said(module):
    table = default_table()
    assert reason(module, table.iloc[:0]).endswith(".")
    failed = table.assign(status="failed", reason="diverged")
    assert reason(module, failed).endswith(".")
    shuffled = table.assign(control="shuffled_labels")
    assert reason(module, shuffled).endswith(".")


def test_known_answers_and_models_are_not_mixed():
    table = default_table()
    known = table[table["model_kind"] == "known-answer"]
    assert reason(tokens, known)
    assert reason(calibration, table[table["model_kind"] != "known-answer"])
    assert "cipher" not in " ".join(words(tokens.draw(table)))


@pytest.mark.parametrize("module", FROM_TABLE)
def test_figures_draw_with_missing_numbers_and_groups(module):
    table = default_table()
    table.loc[::3, [c for c in table if c.endswith(("_low", "_high"))]] = np.nan
    table.loc[::4, ["null_loss_object_bits", "loss_object_bits", "binding_bits"]] = np.nan
    table.loc[::5, ["truth_conditional_bits", "conditional_binding_bits"]] = np.nan
    table = table[~((table["model"] == "vit-random") & (table["tokens"] == "mean"))]
    assert any(axes.has_data() for axes in module.draw(table).axes)


def test_a_negative_estimate_is_drawn_where_it_is(published):
    rows = [make_row(loss_object=50.0, loss_given=25.0), make_row(tokens="mean", layer="3")]
    rows += [make_row(layer=n, loss_object=49.0, loss_given=24.0) for n in ("2", "3")]
    figure = tokens.draw(make_table(rows), published)
    assert np.isclose(points(figure)[:, 0], 26.488 - 50.0).any()
    assert min(axes.get_xlim()[0] for axes in figure.axes) < 26.488 - 50.0


def test_the_papers_marks_stand_only_beside_the_same_setting(published):
    same = paper_table()
    another = same.assign(h_object_bits=same["h_object_bits"] + 0.2)
    for table, n_stars in ((same, 4), (default_table(), 0), (another, 0)):
        figure = tokens.draw(table, published)
        assert len(stars(figure)) == n_stars
        assert ("Not comparable" in " ".join(words(figure))) == (n_stars == 0)


def test_layers_leave_single_layers_out_and_mark_the_last_norm():
    rows = [make_row(layer=layer, loss_object=20.0 - i) for i, layer in enumerate("024")]
    rows.append(make_row(layer="final"))
    rows.append(make_row("single"))
    figure = layers.draw(make_table(rows))
    assert "single" not in words(figure)
    assert "after the last norm" in words(figure)
    assert points(figure)[:, 0].max() >= 5
    assert reason(layers, make_table([make_row()]))


def test_complexity_leaves_the_share_out_where_there_is_nothing_to_bind(trends):
    nothing = dict.fromkeys(("loss_object", "loss_feature", "loss_given"), 0.0) | {
        "status": "undefined",
        "reason": "H(O|F) = 0",
        "conditional_binding_ratio": None,
        "binding_ratio": None,
    }
    rows = [
        make_row(dataset="one", h=(0.0, 0.0), **nothing),
        make_row(dataset="two", h=(3.9, 2.6), loss_object=2.0, loss_feature=1.3, loss_given=0.65),
        make_row(dataset="six"),
    ]
    cells = {"one": 1, "two": 4, "six": 36}
    figure = complexity.draw(make_table(rows), cells, trends=trends)
    share, bits = figure.axes
    points = share.lines[0].get_xydata()
    assert np.isnan(points[0, 1])  # K = 1
    np.testing.assert_allclose(points[1], [4, 50.0])
    np.testing.assert_allclose(bits.lines[0].get_xydata()[:2], [[1, 0.0], [4, 0.65]])
    assert reason(complexity, make_table(rows[:1]), cells)
    assert "monotonically" in " ".join(words(figure))


def test_occlusion_is_drawn_against_height_and_against_what_is_hidden(trends):
    rows = [
        make_row(dataset="low", h=(12.0, 7.0), loss_object=9.0, loss_feature=5.0, loss_given=4.0),
        make_row(dataset="high", h=(12.0, 7.0), loss_object=9.0, loss_feature=6.0, loss_given=3.0),
        make_row(dataset="flat"),
    ]
    statistics = statistics_table((("low", 0.6, 0.4), ("high", 3.2, 0.1)))
    cells = {"low": 12, "high": 12}
    figure = occlusion.draw(make_table(rows), statistics, cells, trends=trends)
    height, hidden = figure.axes
    np.testing.assert_allclose(height.lines[0].get_xydata(), [[0.6, 20.0], [3.2, 40.0]])
    np.testing.assert_allclose(height.lines[1].get_xydata(), [[0.6, 20.0], [3.2, 40.0]])
    np.testing.assert_allclose(hidden.lines[0].get_xydata(), [[10, 40.0], [40, 20.0]])
    text = " ".join(" ".join(words(figure)).split())
    for row in trends[trends["study"] == "occlusion"].itertuples():
        assert f"camera height {row.axis_value}: beta* {100 * row.value:.1f} %" in text
    assert "Not comparable with this run" in text
    assert reason(occlusion, make_table(rows[:1]), statistics, cells)
    assert reason(occlusion, make_table(rows), statistics_table((("low", 0.6, 0.4),)), cells)


def stars(figure):
    """Return x and y of the paper's marks, legends excluded."""
    lines = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "*"]
    points = [line.get_xydata() for line in lines if len(line.get_xydata())]
    points = np.concatenate(points) if points else np.empty((0, 2))
    return points[~np.isnan(points).any(axis=1)]


def filled_stars(figure):
    """Return x and y of the paper's marks of the same protocol."""
    lines = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "*"]
    filled = [line for line in lines if line.get_color() == style.PAPER_MARK["color"]]
    return [point for line in filled for point in line.get_xydata().tolist()]


def test_a_published_value_is_filled_where_protocol_and_input_agree(published):
    released = paper_table().assign(protocol="paper")
    for table, sides, n_filled in (
        (released, {"dinov2-large": 256}, 4),
        (released, {"dinov2-large": 224}, 0),
        (released, {"dinov2-large": None}, 0),
        (paper_table(), {"dinov2-large": 256}, 0),
    ):
        for module in (tokens, structure):
            figure = module.draw(table, published, sides=sides)
            assert len(stars(figure)) == 4 - (module is structure)  # patches are not in it
            assert len(filled_stars(figure)) == (len(stars(figure)) if n_filled else 0)
            hollow = "published value, other protocol or input" in words(figure)
            assert hollow == (not n_filled)
    ours = paper_table().assign(probe="our-" + paper_table()["probe"])
    beside_ours = beside(pd.concat([released, ours]), published, {"dinov2-large": 256})
    assert set(beside_ours[beside_ours["same"]]["our_family"].str.endswith(PAPERS)) == {True}
    assert beside_ours["same"].mean() == 0.5


def test_the_papers_occlusion_is_marked_on_scenes_of_its_size(trends):
    names = {"occlusion-clevr-060": 0.6, "occlusion-clevr-320": 3.2}
    rows = [
        make_row("dino", tokens=tokens, dataset=name, kind="hf", layer="4")
        for name in names
        for tokens in ("cls", "mean")
    ]
    statistics = statistics_table([(name, height, 0.1) for name, height in names.items()])
    for n_objects, n_stars in ((12, 2), (24, 0)):
        cells = dict.fromkeys(names, n_objects)
        figure = occlusion.draw(make_table(rows), statistics, cells, trends=trends)
        assert len(stars(figure)) == n_stars
        assert not filled_stars(figure)
    figure = occlusion.draw(make_table(rows), statistics, dict.fromkeys(names, 12), trends=trends)
    np.testing.assert_allclose(stars(figure), [[0.6, 45.0], [3.2, 58.7]])


def test_resolution_draws_families_against_the_side_of_the_input(trends):
    losses = {"vit-24": 17.0, "vit-48": 12.0, "vit-96": 14.0}
    rows = [make_row(name, loss_given=loss) for name, loss in losses.items()]
    sides = {("colorshape", name): int(name[4:]) for name in losses}
    families = {"one": ["vit-24", "vit-48"], "all": list(losses), "none": ["vit-24", "absent"]}
    figure = resolution.draw(make_table(rows), families, sides, {"colorshape": 36}, trends)
    share = figure.axes[0]
    curves = [line.get_xydata() for line in share.lines if line.get_marker() in "os"]
    h_given = 26.488 - 7.217
    expected = [[int(n[4:]), 100 * (h_given - loss) / h_given] for n, loss in losses.items()]
    np.testing.assert_allclose(curves[1], expected[:2])
    np.testing.assert_allclose(curves[0], expected)
    assert {"one", "all"} <= set(words(figure))
    assert "none" not in words(figure)
    text = " ".join(" ".join(words(figure)).split())
    assert "47.7 %" in text
    assert "Not comparable" in text
    assert not len(stars(figure))
    assert "families" in reason(resolution, make_table(rows), {}, sides, {})
    assert "two input sizes" in reason(resolution, make_table(rows), families, {}, {})


@pytest.mark.parametrize(("cells", "n_stars"), [(49, 2), (36, 0)])
def test_the_papers_resolutions_are_marked_where_scenes_and_models_agree(trends, cells, n_stars):
    sides = {"clip-vit-large-patch14": 224, "clip-vit-large-patch14-336": 336}
    rows = [
        make_row(name, tokens=tokens, kind="timm", layer="4", loss_given=12.0)
        for name in sides
        for tokens in ("cls", "mean")
    ]
    where = {("colorshape", name): px for name, px in sides.items()}
    figure = resolution.draw(
        make_table(rows), {"clip": list(sides)}, where, {"colorshape": cells}, trends
    )
    points = stars(figure).tolist()
    assert len(points) == n_stars
    if n_stars:  # in the panel of [CLS] alone
        np.testing.assert_allclose(sorted(points), [[224, 47.7], [336, 56.4]])


def costs_of(model, bits, dataset="colorshape", protocol=""):
    """The cost of sharing of one model on [CLS], the same for every scene."""
    plain = np.random.default_rng(0).gamma(4.0, 2.0, 50)
    both = {f"quadratic{protocol}": plain, f"quadratic_reuse{protocol}": plain + bits}
    names = (dataset, model, "cls")
    return sharing_costs((names, f, SceneLosses({0: x}, None)) for f, x in both.items())


def test_structure_shows_the_cost_of_sharing(published):
    table = default_table()
    costs = costs_of("vit-objects", 2.4)
    figure = structure.draw(table, published, ORDER, costs)
    text = " ".join(" ".join(words(figure)).split())
    assert "vit-objects, [CLS]" in text
    assert "+2.4" in text
    assert "Not comparable" in text
    bars = figure.subfigs[1].axes[0]
    ends = np.concatenate([np.asarray(lines.get_segments()) for lines in bars.collections])
    np.testing.assert_allclose(ends[:, :, 0], 2.4)  # paired: what is certain has no width
    assert "+2.4" not in " ".join(words(structure.draw(table)))
    both = paper_table()
    shared = both[both["probe"] == "quadratic"].assign(
        probe="shared", options=json.dumps({"family": "quadratic_reuse"})
    )
    for name in ("binding_bits", "binding_bits_low", "binding_bits_high"):
        shared[name] -= 2.0
    shared["loss_object_bits"] += 2.0
    number = paper_cost(published)
    names, table = (slug(number["model"]), slug(number["dataset"])), pd.concat([both, shared])
    ours, released = (costs_of(names[0], 2.0, names[1], p) for p in ("", PAPERS))
    assert [cost.released for cost in (*ours, *released)] == [False, True]
    # Only probes by the paper's protocol have no linear map of each object.
    sides = {names[0]: 256}
    for protocol, costs, input_px in (
        ("converged", ours, sides),
        ("paper", ours, sides),
        ("paper", released, {}),
    ):
        figure = structure.draw(table.assign(protocol=protocol), published, (), costs, input_px)
        assert "Not comparable" in " ".join(words(figure))
        assert [2.4, 0] not in stars(figure).tolist()
    figure = structure.draw(table.assign(protocol="paper"), published, (), released, sides)
    assert "Not comparable" not in " ".join(words(figure))
    assert [2.4, 0] in stars(figure).tolist()
    assert filled_stars(figure)


def test_structure_draws_intervals_and_seeds():
    table = default_table((0, 1))
    figure = structure.draw(table, models=ORDER)
    axes = figure.subfigs[0].axes[0]
    ends = np.concatenate([np.asarray(c.get_segments()) for c in axes.collections])
    here = table[(table["tokens"] == "cls") & (table["layer"] == "4")]
    here = here[(here["model"] == "vit-objects") & (here["probe"] == "dnn")]
    low, high = (26.488 - here[f"binding_bits_{end}"].mean() for end in ("high", "low"))
    assert np.isclose(ends[:, :, 1], [low, high]).all(axis=1).any()
    dots = [line for line in axes.lines if line.get_marker() == "."]
    assert sum(len(line.get_xydata()) for line in dots) == 3 * 5 * 2


def test_probes_of_one_family_have_a_row_each():
    rows = [make_row(probe="quadratic", loss_object=20.0), make_row(probe="dnn", loss_object=15.0)]
    rows.append(rows[0] | {"probe": "longer", "binding_lower_bound_bits": 9.0})
    (axes,) = tokens.draw(make_table(rows)).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["longer, [CLS]", "quadratic, [CLS]", "neural net, [CLS]"]
    places = [bar.get_y() + bar.get_height() / 2 for bar in axes.patches]
    np.testing.assert_allclose(np.diff(sorted(places)), 1)


def test_files_are_the_same_bytes_and_hold_no_date(tmp_path):
    for name, settings in (("a", {}), ("b", {"font.size": 20, "svg.hashsalt": None})):
        with mpl.rc_context(settings):  # a user's own settings
            figure = attention.draw({"one": attention_arrays()})
            style.save(figure, tmp_path / f"{name}.png", tmp_path / f"{name}.svg")
    for ending in (".png", ".svg"):
        first, second = ((tmp_path / f"{name}{ending}").read_bytes() for name in "ab")
        assert first == second
        assert b"Matplotlib" not in first
        assert b"<dc:date>" not in first


def write_fit(folder, model, probe, names):
    """Write what a fit or a null probe leaves behind."""
    base = folder / f"{model}-{probe}"
    row = make_row(model, tokens=names.get("tokens", "null"), probe=probe)
    base.with_suffix(".jsonl").write_text(json.dumps(row) + "\n")
    base.with_suffix(".history.json").write_text(json.dumps(history()))
    scenes = np.linspace(3, 5, 20) + 1.5 * (probe == "shared")
    losses = {
        "0.chained_loss_bits": np.linspace(0, 1, 11),
        "0.chained_prior_bits": np.ones(11),
        "0.object_bits_of_scenes": scenes,
    }
    save_file(losses, base.with_suffix(".details.safetensors"))
    return to_input(
        base.with_suffix(".jsonl"),
        {"dataset": "colorshape", "probe": probe, **names},
        history=base.with_suffix(".history.json"),
        details=base.with_suffix(".details.safetensors"),
    )


def write_inputs(folder, table):
    """Write what fits, nulls and models leave behind, and return what figures are given of it."""
    products = {
        "fits": [
            write_fit(folder, model, probe, {"model": model, "tokens": "cls"})
            for model in ORDER
            for probe in ("linear", "quadratic", "shared")
        ],
        "nulls": [write_fit(folder, "null", probe, {}) for probe in ("linear", "quadratic")],
        "maps": [],
        "indexes": [],
    }
    trained = folder / "trained.json"
    trained.write_text(json.dumps([{"step": 1, "split": "val", "loss_bits": 3.0}]))
    products["training"] = [to_input(trained, {"model": ORDER[0]}, history=trained)]
    for i, model in enumerate(ORDER[:2]):
        names = {"dataset": "colorshape", "model": model}
        index = folder / f"{model}.index.json"
        token_map = {"grid": [4 + i, 4 + i], "patch_px": 8}
        index.write_text(json.dumps({"attributes": {"token_map": token_map}}))
        products["indexes"].append(to_input(index, names))
        save_file(attention_arrays(), folder / f"{model}.safetensors")
        share = folder / f"{model}.share.json"
        share.write_text(json.dumps({"flags": "not_converged" if i else ""}))
        products["maps"].append(to_input(folder / f"{model}.safetensors", names, share=share))
    shard = write_sheet(folder / "scenes", sheet())
    products["scenes"] = [to_input(shard, {"dataset": "smaller", "split": "test"})]
    for role, frame, schema in (
        ("table", *table),
        ("statistics", statistics_table(), SCENE_STATISTICS.schema),
        ("priors", priors_table(), PRIORS.schema),
    ):
        write_table(frame, folder / schema.name, schema)
        products[role] = [to_input(folder / f"{schema.name}.parquet")]
    named = [("color", "red", "blue"), ("shape", "circle", "square", "cross")]
    groups = [{"name": name, "values": list(values)} for name, *values in named]
    content = {
        "models": list(ORDER),
        "datasets": ["colorshape"],
        "natural": ["colorshape"],
        "families": [{"name": "two", "models": list(ORDER[:2])}],
        "groups": {"colorshape": groups, "smaller": groups},
        "model_groups": [],
        "positive_controls": ["vit-objects"],
        "input_sides": [],
        "cells": {"colorshape": 6, "smaller": 2},
        "information": {"bootstrap_samples": 50, "bootstrap_seed": 0},
    }
    resources = {
        Path(path).stem: str(ROOT / path) for entry in ENTRIES.values() for path in entry.resources
    }
    return Inputs(products, content, resources)


# Those of the other studies, and what is joined with them, are drawn in their own tests.
OTHERS = (
    "same_object",
    "concept",
    "binding_complexity",
    "dual_complexity",
    "together",
    "binding_id",
    "pairing_use",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What figures are given: of a run, and of one that measured nothing."""
    rows = [
        make_row(model, layer, probe=probe)
        for model in ORDER
        for layer in "234"
        for probe in ("linear", "quadratic")
    ]
    rows += [*known_rows()[:3], make_row(dataset="smaller", h=(3.9, 2.6))]
    rows += [
        parts_row("colorshape", model, layer, h=ENTROPIES["counting"])
        for model in ORDER
        for layer in "234"
    ]
    pairs = []
    for table, schema in ((make_table(rows), BINDING_SCHEMA), (curve_table(), CURVE_SCHEMA)):
        inputs = write_inputs(tmp_path_factory.mktemp("run"), (table, schema))
        empty = tmp_path_factory.mktemp("nothing") / schema.name
        write_table(table.iloc[:0], empty, schema)
        products = {role: inputs.products[role] for role in ("statistics", "priors")}
        products["table"] = [to_input(empty.with_suffix(".parquet"))]
        nothing = Inputs(products, inputs.content | {"groups": {}}, inputs.resources)
        pairs.append((inputs, nothing))
    return pairs


def is_placeholder(figure):
    """Return whether a figure says only why there is nothing to draw."""
    return any(artist.get_gid() == EMPTY for artist in figure.findobj())


@pytest.mark.parametrize("name", [name for name in ENTRIES if not name.startswith(OTHERS)])
def test_every_figure_is_made_or_excused(name, written):
    inputs, nothing = written[name == "learning_curve"]
    figure = drawn(ENTRIES[name].implementation, inputs)
    figure.draw_without_rendering()
    assert not is_placeholder(figure)
    assert is_placeholder(drawn(ENTRIES[name].implementation, nothing))


@pytest.mark.parametrize("study", studies())
def test_an_edit_of_a_figure_redraws_those_of_its_study_alone(study):
    for entry in studies()[study].figures[:1]:
        used = closure(roots({"runs": [entry.implementation]})).files
        redrawn = {part.split(".")[2] for part in used if ".figures" in part and "studies" in part}
        assert redrawn == {study}
