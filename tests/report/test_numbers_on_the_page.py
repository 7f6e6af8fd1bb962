"""A whole page says each number once: one rounding, no -0.00, p as journals write it."""

import re

import pytest
from binding_chapters import chapter_of
from report_pages import Outline, page_of
from same_object_tables import ends, row, whole_table
from sample_tables import make_table
from zoo_tables import CONFIG, GROUPS, MODELS, parts_row

from bindscope.core.interfaces import Inputs
from bindscope.figures import style
from bindscope.report.page import Drawing, Part
from bindscope.studies.binding_information.figures.bars import tokens
from bindscope.studies.binding_information.figures.parts import parts
from bindscope.studies.binding_information.quantities import QUANTITIES
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.studies.binding_information.views import order_models
from bindscope.studies.same_object.findings import chapter as same_object_chapter
from bindscope.tables.groups import with_groups
from bindscope.tables.numbers import at_least, at_most, number, p_value, percent, percentage_points

# Bounds whose nearest hundredth is above them; of seed 0, and 0.03 less and more of the others.
DECODED = {"objects": 9.337, "captions": 7.417, "captions-unpaired": 6.238, "none": 3.557}
WIDTH = 0.017
BOUNDS = [quantity.value for quantity in QUANTITIES]


@pytest.fixture(scope="module")
def table():
    rows = []
    for name, pairing in DECODED.items():
        for seed, shift in enumerate((0.0, -0.03, 0.03)):
            for probe in ("best", "linear"):
                probe_row = parts_row(
                    "matching",
                    f"{name}-{seed}",
                    probe=probe,
                    decoded=(4.127, 0.0, pairing + shift),
                    width=WIDTH,
                )
                rows.append(
                    probe_row
                    | {"conditional_binding_bits": -0.001, "conditional_binding_bits_low": -0.004}
                )
    return make_table(rows)


@pytest.fixture(scope="module")
def page(table, tmp_path_factory):
    """A page of two chapters, with two figures of the first."""
    folder = tmp_path_factory.mktemp("page")
    controls = [name for name in MODELS if name.startswith("objects")]
    drawn = with_groups(table, GROUPS).assign(is_control=table["model"].isin(controls))
    names = order_models(MODELS, GROUPS, controls)
    figures = []
    for name, figure in (
        ("parts", parts.draw(drawn, names, ["matching"])),
        ("tokens", tokens.draw(drawn, models=names)),
    ):
        files = [str(folder / f"{name}.{kind}") for kind in ("png", "svg")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(style._RC, "savefig.dpi", 30)
            style.save(figure, *files)
        figures.append(Drawing(name, f"Figure {name}", *files, "What is drawn. How to read it."))
    pairs = [
        row(
            "a",
            "2",
            "quadratic",
            0.879,
            image_majority_accuracy=0.71,
            **ends("position_lead", -0.0004, 0.0001),
        ),
        row("a", "2", "class_position", 0.86, **ends("quadratic_lead", 0.019, 1e-4)),
        row("none", "none", "position", 0.875),
    ]
    claims = {"claims": "resources/reference/claims.csv"}
    return page_of(
        Part("binding_information", "Binding", chapter_of(table, CONFIG), tuple(figures)),
        Part(
            "same_object",
            "Pairs",
            same_object_chapter(
                {"same_object": whole_table(pairs)}, Inputs(content={}, resources=claims)
            ),
        ),
    )


@pytest.fixture(scope="module")
def text(page):
    """Return all that a reader can see or point at, with plain spaces and minus signs."""
    words = " ".join("".join(Outline(page).text).split())
    return words.replace("\u00a0", " ").replace("\u2212", "-")


def test_a_bound_has_one_rounding_in_sentences_tables_and_figures(text, table):
    tokens_of_page = set(re.findall(r"-?\d+\.\d+", text))
    others = [column.name for column in BINDING_SCHEMA.columns if column.kind == "float64"]
    others = [name for name in others if not name.startswith(tuple(BOUNDS))]
    fine = {number(value) for name in others for value in table[name].dropna()}
    bounds = [value for name in BOUNDS for value in table[name]]
    ends = ((at_least, 0.0), (at_least, -WIDTH), (at_most, WIDTH))
    fine |= {write(value + shift) for value in bounds for write, shift in ends}
    rounded_up = {number(value) for value in bounds} - fine
    assert len(rounded_up) > 4
    assert {"9.34", "7.42", "6.24", "3.56"} <= rounded_up
    assert rounded_up & tokens_of_page == set()
    assert {"9.33", "7.41", "6.23", "3.55"} <= tokens_of_page
    for value in DECODED.values():
        assert f"≥ {at_least(value)}" in text


def test_zero_has_no_sign_anywhere(text):
    assert re.findall(r"(?<![\w.])-0(?:\.0+)?(?![\d.])", text) == []
    assert "0.00" in text


def test_shares_are_percent_and_their_differences_points():
    assert percent(0.754) == "75\u00a0%"
    assert [percentage_points(x) for x in (0.025, -0.0752, 0.0, -0.0001)] == [
        "+2.5",
        "\u22127.5",
        "0.0",
        "0.0",
    ]
    assert [percentage_points(x, decimals=0) for x in (0.98, 0.004)] == ["+98", "0"]


def test_p_values_are_written_as_journals_do(text):
    assert re.findall(r"\d[eE]-?\d+", text) == []
    assert "p < 0.001" in text
    assert [p_value(p) for p in (1e-202, 0.0123, 0.25, 1.0, float("nan"))] == [
        "<\u00a00.001",
        "0.012",
        "0.25",
        "1.00",
        "",
    ]


def test_nothing_on_our_models_is_called_the_papers(text):
    assert "paper's estimate" not in text
    assert "B_O, paper's formula" in text
    assert re.findall(r"paper's (?!formula)\w+", text) == []


def test_a_positive_control_is_called_one_and_stands_last(text):
    lead = text[: text.index("How far to trust it")]
    assert lead.index("captions") < lead.index("positive control, trained to predict the objects")
    assert len(re.findall(r"objects \(positive control\)", text)) > 3  # in both figures
    assert re.search(r"Other models: ≥ 3\.55 \(none\); positive control", text)


def test_same_object_names_its_rival_beside_its_accuracy(text):
    assert (
        "The best quadratic probe classifies 87.9 % of patch pairs correctly (a on d, layer 2), "
        "the majority class of each image 71.0 %. Its best rival, positions only, classifies "
        "87.5 %; the claim of a gain over it"
    ) in text
