"""From patch samples to the study's tables, figures and verdicts, without Snakemake."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from drawing import reason
from pair_problems import GRID, blobs, write_planted, write_sample
from planted_patches import Planted
from same_object_tables import ends, row, whole_table

from bindscope.core.errors import StoreError
from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.statistics.claims import judge
from bindscope.studies.same_object.claims import (
    CLAIMS,
    LAST_LAYER,
    WITH_POSITION_OVER,
    probe_effects,
)
from bindscope.studies.same_object.config import (
    PositionScorer,
    QuadraticScorer,
)
from bindscope.studies.same_object.data import PatchPairs
from bindscope.studies.same_object.estimates import add_leads
from bindscope.studies.same_object.figures.probes import (
    same_object_layers,
    same_object_models,
    same_object_ranks,
    same_object_strata,
)
from bindscope.studies.same_object.findings import chapter
from bindscope.studies.same_object.fit import fit_layers, pair_data, write_results
from bindscope.studies.same_object.tables import SAME_OBJECT, STRATA
from bindscope.studies.same_object.views import best_layers, quote
from bindscope.tables.write import write_table

ROOT = Path(__file__).parents[3]
KEYS = {"spec_key": "0" * 64, "code_key": "0" * 16}
IMAGES = {"train": 60, "val": 30, "test": 40}
PROBES = {
    "quadratic": QuadraticScorer(name="quadratic", family="quadratic", l2=(0.1,), steps=20),
    "position": PositionScorer(name="position", family="position", l2=(0.01,), steps=20),
}


def blobs_with_gaps(count, seed):
    """Blobs, three of whose patches are left out at the end."""
    arrays = blobs(count, seed, patches=16)
    arrays["patches"][:, -3:] = -1
    return arrays


@pytest.fixture(scope="module")
def planted_study(tmp_path_factory):
    """Rows of a quadratic probe on planted tokens of two models, and of positions alone."""
    folder = tmp_path_factory.mktemp("pairs")
    samples = [
        write_sample(
            folder / f"{split}.json",
            split,
            blobs_with_gaps(IMAGES[split], i),
            GRID,
            [{"image": 1}],
        )
        for i, split in enumerate(SPLITS)
    ]
    products = []
    for seed, model in enumerate(("planted-0", "planted-1")):
        planted = Planted(seed=seed, noise=0.3)
        tokens = {
            split: [write_planted(folder / f"{model}-{split}.json", planted, sample)]
            for split, sample in zip(SPLITS, samples, strict=True)
        }
        products.append(fitted_product(folder, "quadratic", model, samples, tokens, [0]))
    products.append(fitted_product(folder, "position", "none", samples, {}, []))
    content = {"n_layers": {"planted-0": 0, "planted-1": 0}}
    return SimpleNamespace(
        folder=folder, samples=samples, tokens=tokens, inputs=Inputs({"fits": products}, content)
    )


def fitted_product(folder, probe, model, samples, tokens, layers):
    """Fit as the rule does; return the product."""
    base = folder / f"{probe}-{model}"
    outputs = ("rows", "strata", "images", "weights")
    files = {name: str(base.with_suffix(f".{name}.jsonl")) for name in outputs}
    names = {"dataset": "blobs", "model": model, "probe": probe}
    spec = {"seeds": [0], "layers": layers}
    results = fit_layers(PROBES[probe], samples, tokens, spec, {**names, **KEYS})
    write_results(SimpleNamespace(**files), results)
    return ProductFiles({**names, **KEYS}, files)


@pytest.fixture(scope="module")
def table(planted_study):
    return SAME_OBJECT.build(planted_study.inputs)


def test_planted_tokens_go_through_the_same_rules(table):
    rows = table.set_index("model")
    assert list(rows["layer"]) == ["none", "0", "0"]
    assert (rows["n_skipped"] == 1).all()
    assert (rows["n_images"] <= IMAGES["test"]).all()
    assert rows["accuracy"]["planted-0"] > 0.95
    assert rows["accuracy"]["planted-0"] > rows["accuracy"]["none"] + 0.05
    assert rows["positives"].nunique() == 1  # all were asked about the same pairs


def test_the_lead_over_positions_is_the_difference_on_the_same_pairs(table):
    rows = table.set_index("model")
    lead = rows.loc["planted-0", "position_lead"]
    assert lead == pytest.approx(rows["accuracy"]["planted-0"] - rows["accuracy"]["none"])
    assert rows.loc["planted-0", "position_lead_low"] < lead
    assert lead < rows.loc["planted-0", "position_lead_high"]
    assert rows["quadratic_lead"].isna().all()  # there is no other probe of these tokens
    assert pd.isna(rows.loc["none", "position_lead"])


def test_probes_that_were_asked_about_other_pairs_are_not_compared(planted_study):
    [first, *rest] = planted_study.inputs.get("fits")
    rolled = planted_study.folder / "other.images.safetensors"
    from safetensors.numpy import load_file, save_file

    arrays = load_file(first.files["images"])
    save_file({name: np.roll(values, 1, axis=0) for name, values in arrays.items()}, rolled)
    changed = ProductFiles(first.names, {**first.files, "images": str(rolled)})
    inputs = Inputs({"fits": [changed, *rest]}, planted_study.inputs.content)
    with pytest.raises(StoreError, match="on other pairs than its rivals"):
        SAME_OBJECT.build(inputs)


def test_patches_that_no_image_has_take_no_room(planted_study):
    sample = open_store(planted_study.samples[2])
    stores = [open_store(path) for path in planted_study.tokens["test"]]
    data = pair_data(sample, stores, "0")
    assert data.valid.shape == (IMAGES["test"], 13)
    every = stores[0].read("patches", layer="0")
    block = PatchPairs(data).read(3, 9)
    np.testing.assert_array_equal(block.x[block.valid], every[3:9, :13][data.valid[3:9]])


def test_tokens_of_other_images_than_the_sample_are_refused(planted_study, tmp_path):
    tokens = np.zeros((1, 5, 16, 4), np.float32)
    path = tmp_path / "x.json"
    with StoreWriter(path.with_suffix(".zarr"), path, spec="{}", code="c") as writer:
        writer.attributes["layers"] = ["0"]
        writer.create("patches", tokens.shape, "float32", sample_axis=1)
        writer.write("patches", tokens)
    with pytest.raises(StoreError, match="tokens of 5 x 16 patches, and the sample"):
        pair_data(open_store(planted_study.samples[0]), [open_store(path)], "0")


# --- verdicts -------------------------------------------------------------------------------------


def lead_of(rows, groups=()):
    """Return the leading sentence and the key numbers of a chapter, with plain spaces."""
    inputs = Inputs(
        content={"studies": {"same_object": {"groups": groups}}},
        resources={"claims": "resources/reference/claims.csv"},
    )
    content = chapter({"same_object": whole_table(rows)}, inputs)
    return content.lead[0].replace("\u00a0", " "), [number.value for number in content.key_numbers]


def verdicts(rows, groups=()):
    judgments = judge(CLAIMS, probe_effects(quote(pd.DataFrame(rows), groups)))
    return {judgment.claim.name.removeprefix("quadratic-over-"): judgment for judgment in judgments}


def test_the_lead_names_the_best_rival_of_the_same_place_or_that_there_is_none():
    quadratic = row("a", "2", "quadratic", 0.879, **ends("position_lead", 0.004, 0.001))
    elsewhere = row("a", "3", "class_position", 0.95, **ends("quadratic_lead", -0.1))
    lead, numbers = lead_of([quadratic, elsewhere])
    assert lead.endswith("No rival that predicts from classes or positions was fitted there.")
    assert numbers == ["87.9", "70.0"]
    rivals = [
        row("none", "none", "position", 0.875),
        row("a", "2", "class_position", 0.86, **ends("quadratic_lead", 0.019)),
    ]
    lead, numbers = lead_of([quadratic, elsewhere, *rivals])
    assert "Its best rival, positions only, classifies 87.5 %; the claim of a gain" in lead
    assert lead.endswith("over it holds.")
    assert numbers == ["87.9", "87.5", "70.0"]
    rivals[1] |= {"accuracy": 0.93} | ends("quadratic_lead", -0.05)
    lead, numbers = lead_of([quadratic, elsewhere, *rivals])
    assert "Its best rival, both classes, positions and the image, classifies 93.0 %" in lead
    assert lead.endswith("over it does not hold.")


def test_a_groups_name_stands_for_all_of_its_seeds():
    names = [f"m-{seed}" for seed in range(3)]
    rows = [row(name, "2", "quadratic", 0.8 + 0.01 * i) for i, name in enumerate(names)]
    groups = [{"name": "m", "models": names}]
    assert "(m on d, layer 2)" in lead_of(rows, groups)[0]
    assert "(m-1 on d, layer 2)" in lead_of(rows[:2], groups)[0]
    more = [*rows, row("m-0", "3", "quadratic", 0.9)]
    assert "(m-0 on d, layer 3)" in lead_of(more, groups)[0]
    quoted = quote(whole_table([*rows, row("m-0", "2", "linear", 0.7)]), groups)
    assert list(quoted.rows["model"]) == ["m", "m-0"]


def test_models_on_different_patch_grids_are_no_group():
    rows = [row("m-0", "2", "quadratic", 0.8), row("m-1", "2", "quadratic", 0.9, grid="4x4")]
    lead, _ = lead_of(rows, [{"name": "m", "models": ["m-0", "m-1"]}])
    assert "(m-1 on d, layer 2)" in lead


def test_without_a_validation_loss_no_inner_layer_is_chosen():
    rows = [row("a", layer, "quadratic", 0.8) for layer in ("2", "4")]
    rows[0]["val_loss_bits"] = np.nan  # its fit diverged
    assert LAST_LAYER not in verdicts(rows)


@pytest.mark.parametrize("flag", ["diverged", "not_converged"])
@pytest.mark.parametrize("family", ["class_position", "class_pointwise", "position", "quadratic"])
def test_a_claim_over_a_rival_that_has_not_converged_is_not_testable(family, flag):
    rows = [
        row(
            "a", "2", "quadratic", 0.9, **ends("position_lead", 0.2), **ends("last_layer_lead", 0.1)
        ),
        row("a", "4", "quadratic", 0.8),
        row("a", "2", "diagonal", 0.88, **ends("quadratic_lead", 0.02)),
        row("a", "2", "class_pointwise", 0.8, **ends("quadratic_lead", 0.1)),
        row("a", "2", "class_position", 0.85, **ends("quadratic_lead", 0.05)),
        row("none", "none", "position", 0.7),
    ]
    assert {claim.verdict for claim in verdicts(rows).values()} == {"holds"}
    for entry in rows:
        if entry["family"] == family and (family, entry["layer"]) != ("quadratic", "2"):
            entry["flags"] = flag
    bad = verdicts(rows)
    untestable = {name for name, claim in bad.items() if claim.verdict == "not testable"}
    assert (
        untestable
        == {
            "class_position": {"class-position"},
            "class_pointwise": {"class", "class-position"},
            "position": {"class-position"},
            "quadratic": {LAST_LAYER},
        }[family]
    )
    assert all(f"a fit of the family {family}" in bad[name].reason for name in untestable)


def test_a_claim_holds_where_its_corrected_interval_is_above_zero():
    by_claim = verdicts(
        [
            row("a", "2", "quadratic", 0.9),
            row("a", "2", "diagonal", 0.88, **ends("quadratic_lead", 0.02)),
            row("a", "2", "class_position", 0.92, **ends("quadratic_lead", -0.02)),
            row("a", "2", "linear", 0.88, **ends("quadratic_lead", 0.02, 0.03)),
        ]
    )
    assert by_claim["diagonal"].verdict == "holds"
    assert by_claim["diagonal"].effect.value == pytest.approx(2.0)
    assert (by_claim["diagonal"].effect.n, by_claim["diagonal"].effect.resampled) == (
        50,
        "test images",
    )
    assert by_claim["class-position"].verdict == "does not hold"
    assert by_claim["linear"].verdict == "not significant"


def test_a_gain_over_a_rival_that_is_none_over_each_images_majority_does_not_count():
    lead = ends("quadratic_lead", 0.2)
    quadratic = row("a", "2", "quadratic", 0.9, **ends("image_majority_lead", -0.01, 0.005))
    judgment = verdicts([quadratic, row("a", "2", "class_position", 0.7, **lead)])["class-position"]
    assert judgment.verdict == "does not hold"
    assert judgment.effect.value == pytest.approx(-1.0)


def test_a_gain_over_class_and_position_is_one_over_either_of_them():
    rows = [
        row("a", "2", "quadratic", 0.9, **ends("position_lead", 0.0)),
        row("a", "2", "class_position", 0.7, **ends("quadratic_lead", 0.2)),
    ]
    assert verdicts(rows)["class-position"].verdict == "not significant"
    of_class = row("a", "2", "class_pointwise", 0.91, **ends("quadratic_lead", -0.01, 0.002))
    rows[0] |= ends("position_lead", 0.2)
    assert verdicts([*rows, of_class])["class-position"].effect.value == pytest.approx(-1.0)
    assert verdicts(rows)["class-position"].verdict == "holds"


def test_a_claim_without_its_rival_at_the_best_layer_is_not_testable():
    rows = [
        row("a", "1", "quadratic", 0.8),
        row("a", "2", "quadratic", 0.9),
        row("a", "1", "class_position", 0.7, **ends("quadratic_lead", 0.1)),
    ]
    judgment = verdicts(rows)["class-position"]
    assert judgment.verdict == "not testable"
    assert "no probe of the family class_position" in judgment.reason


def test_of_several_seeds_the_interval_is_over_seeds():
    rows = []
    for i, lead in enumerate((0.01, 0.02, 0.03)):
        rows.append(row(f"m-{i}", "2", "quadratic", 0.9))
        rows.append(row(f"m-{i}", "2", "diagonal", 0.9 - lead, **ends("quadratic_lead", lead, 0.5)))
    judgment = verdicts(rows, [{"name": "m", "models": ["m-0", "m-1", "m-2"]}])["diagonal"]
    assert (judgment.effect.n, judgment.effect.resampled) == (3, "training seeds")
    assert judgment.effect.value == pytest.approx(2.0)
    assert judgment.effect.low == pytest.approx(2 - 2.484, abs=0.01)
    assert judgment.verdict == "not significant"


def test_with_positions_it_is_judged_at_the_layer_that_validation_prefers_for_that_probe():
    judgment = verdicts(
        [
            row("a", "1", "quadratic", 0.9),
            row("a", "2", "quadratic", 0.8),
            row("a", "1", "quadratic_position", 0.91, val_loss_bits=0.3),
            row("a", "2", "quadratic_position", 0.95, val_loss_bits=0.2),
            row("a", "1", "class_position", 0.93, **ends("quadratic_position_lead", -0.02)),
            row("a", "2", "class_position", 0.93, **ends("quadratic_position_lead", 0.02)),
        ]
    )[WITH_POSITION_OVER]
    assert judgment.effect.where.endswith("layer 2")
    assert judgment.verdict == "holds"
    assert judgment.effect.value == pytest.approx(2.0)


def test_an_inner_layer_is_compared_with_the_last_from_what_is_right_of_each_image():
    """One model: +3 and +6 points on test have intervals, also where validation prefers the last.

    Before, the claim had no interval with one model, and [0, 0] where the last layer was preferred.
    """
    draw = np.random.default_rng(0)
    difficulty = draw.integers(300, 600, 100)
    right = {
        "1": difficulty + 60 + draw.integers(-9, 10, 100),
        "2": difficulty + 30,
        "4": difficulty,
    }
    pairs, none = np.full(100, 1000), np.zeros(100)
    fits = [
        (
            row("a", layer, "quadratic", 0.9, val_loss_bits=loss),
            np.stack([right[layer], pairs, none, none, none], 1).astype(float),
        )
        for layer, loss in (("1", 0.4), ("2", 0.5), ("4", 0.3))
    ]
    add_leads(fits, 400, 0)
    rows = [row_of_fit for row_of_fit, _ in fits]
    assert rows[2]["last_layer_lead"] is None
    assert list(best_layers(quote(pd.DataFrame(rows)))["layer"]) == ["4"]
    judged = verdicts(rows)[LAST_LAYER]
    assert judged.effect.where.endswith("layer 1")
    assert judged.verdict == "holds"
    assert judged.effect.value == pytest.approx(6.0, abs=0.2)
    deviation = 100 * (right["1"] - right["4"]).std() / 1000  # points, of one image
    half = 1.96 * deviation / 100**0.5
    assert judged.effect.value - judged.effect.low == pytest.approx(half, rel=0.2)
    behind = verdicts([r | ends("last_layer_lead", -0.05) for r in rows])[LAST_LAYER]
    assert behind.verdict == "does not hold"


def test_of_two_quadratic_probes_the_same_one_is_compared_with_all():
    """Leads took the one that was fitted first, claims the one whose name comes first."""
    pairs, none = np.full(40, 100), np.zeros(40)
    fits = [
        (
            row("a", "2", family, 0.0, probe=name),
            np.stack([np.full(40, right), pairs, none + 60, none, none], 1).astype(float),
        )
        for name, family, right in (
            ("z", "quadratic", 95),
            ("b", "quadratic", 80),
            ("diagonal", "diagonal", 85),
        )
    ]
    add_leads(fits, 50, 0)
    rows = {row_of_fit["probe"]: row_of_fit for row_of_fit, _ in fits}
    assert rows["diagonal"]["quadratic_lead"] == pytest.approx(-0.05)
    judged = verdicts(list(rows.values()))["diagonal"]
    assert judged.effect.value == pytest.approx(-5.0)
    assert rows["b"]["image_majority_lead"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("layers", "judged"),
    [
        (["0", "1", "3"], False),  # of four blocks, the last one was not read
        (["0", "4", "final"], False),  # neither the input nor the last norm is an inner layer
        (["0", "3", "4", "final"], True),
    ],
)
def test_an_inner_layer_is_judged_where_it_and_the_last_block_were_read(layers, judged):
    rows = [row("a", layer, "quadratic", 0.8 + i / 50) for i, layer in enumerate(layers)]
    assert list(verdicts(rows)) == ["class-position", *([LAST_LAYER] if judged else [])]


@pytest.mark.parametrize("split", ["n_train_images", "n_val_images", "n_images"])
def test_nothing_can_be_concluded_from_fewer_than_thirty_images_of_a_split(split):
    rows = [
        row("a", "2", "quadratic", 0.9, **ends("last_layer_lead", 0.1)),
        row("a", "4", "quadratic", 0.8),
        row("a", "2", "diagonal", 0.8, **ends("quadratic_lead", 0.1)),
        row("a", "2", "class_position", 0.8, **ends("quadratic_lead", 0.1)),
    ]
    assert {claim.verdict for claim in verdicts(rows).values()} == {"holds"}
    judged = verdicts([entry | {split: 29} for entry in rows])
    assert {claim.verdict for claim in judged.values()} == {"not testable"}
    assert all("29" in claim.reason and "needs 30" in claim.reason for claim in judged.values())


# --- figures and findings -------------------------------------------------------------------------


def write_input(table, frame, folder, name):
    write_table(frame, folder / name, table.schema)
    return ProductFiles({}, {"parquet": str(folder / f"{name}.parquet")})


@pytest.mark.parametrize("released", [True, False])
def test_the_class_probe_as_the_released_code_grades_it_is_a_line_by_layer(released):
    grades = {"1": 0.9, "2": 0.8, "4": 0.7}
    rows = [
        row(
            "a",
            layer,
            "class_pointwise",
            0.6,
            **({"class_pair_accuracy": grade} if released else {}),
        )
        for layer, grade in grades.items()
    ]
    figure = same_object_layers.draw(quote(whole_table(rows)), ["a"])
    drawn = [np.asarray(line.get_ydata(), float).tolist() for line in figure.axes[0].get_lines()]
    assert any(values == pytest.approx([90, 80, 70]) for values in drawn) == released
    words = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert ("class, on classes (released)" in words) == released


def test_figures_are_drawn_and_the_chapter_names_what_was_found(planted_study, table, tmp_path):
    strata = STRATA.build(planted_study.inputs)
    groups = [{"name": "planted", "models": ["planted-0", "planted-1"]}]
    content = {"models": ["planted-0", "planted-1"], "model_groups": groups}
    published = {"claims": str(ROOT / "resources/reference/claims.csv")}
    scores = write_input(SAME_OBJECT, table, tmp_path, "same_object")
    of_table = Inputs({"table": [scores]}, content, published)
    of_strata = Inputs(
        {"table": [write_input(STRATA, strata, tmp_path, "strata")], "scores": [scores]}, content
    )
    deeper = [table[table["layer"] == "0"].assign(layer=layer) for layer in ("1", "2")]
    layers = write_input(SAME_OBJECT, pd.concat([table, *deeper]), tmp_path, "layers")
    assert "three layers" in reason(same_object_layers, **same_object_layers.read(of_table))
    for figure, inputs in (
        (same_object_layers, Inputs({"table": [layers]}, content, published)),
        (same_object_models, of_table),
        (same_object_strata, of_strata),
    ):
        assert figure.draw(**figure.read(inputs)).axes
    config = {"studies": {"same_object": {"groups": groups}}}
    page = chapter({"same_object": table}, Inputs({}, config, published))
    assert "planted on blobs" in page.lead[0]
    (claims,) = (section for section in page.sections if section.name == "claims")
    sentences = [row[0].text for row in claims.tables[0].rows]
    assert any("classes, positions and the image" in sentence for sentence in sentences)
    assert [column.heading for column in claims.tables[0].columns] == ["claim", "for", "planted"]


def test_the_chapter_leads_with_a_model_and_with_positions_on_its_own_grid(table):
    planted, positions = (table[table["model"] == name] for name in ("planted-0", "none"))
    model = planted.assign(model="vit", n_layers=4, accuracy=0.75)
    coarse = positions.assign(grid="2x2", accuracy=0.99)
    published = {"claims": str(ROOT / "resources/reference/claims.csv")}
    both = pd.concat([model, coarse, positions])
    page = chapter({"same_object": both}, Inputs({}, {}, published))
    assert "75.0 % of patch pairs correctly (vit on blobs" in page.lead[0].replace("\u00a0", " ")
    numbers = [
        75.0,
        100 * positions["accuracy"].iloc[0],
        100 * planted["image_majority_accuracy"].iloc[0],
    ]
    listed = [float(number.value) for number in page.key_numbers]
    assert listed == pytest.approx(numbers, abs=0.06)


def test_ranks_are_shown_beside_the_full_form():
    rows = [row("a", layer, "quadratic", 0.8 + int(layer) / 100) for layer in ("1", "2")]
    rows += [row("a", "2", "quadratic", 0.7 + rank / 100, rank=rank) for rank in (1, 2, 4)]
    figure = same_object_ranks.draw(quote(pd.DataFrame(rows)))
    (curve,) = figure.axes
    np.testing.assert_allclose(curve.lines[0].get_ydata(), [71, 72, 74])
    assert curve.lines[1].get_ydata()[0] == pytest.approx(82)  # full rank, at the best layer
    none = quote(pd.DataFrame(rows[:2]))
    assert "no truncated form" in reason(same_object_ranks, none)
