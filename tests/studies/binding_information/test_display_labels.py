"""Words are for people: with others in their place all numbers and verdicts are the same."""

import re
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from binding_chapters import RESOURCES
from sample_tables import known_rows
from zoo_tables import CONFIG, GROUPS, MODELS, parts_row, parts_table, zoo_rows

from bindscope.core.interfaces import Inputs
from bindscope.models.baselines import BASELINES
from bindscope.studies.binding_information import names
from bindscope.studies.binding_information.figures.bars import tokens
from bindscope.studies.binding_information.figures.curves import layers
from bindscope.studies.binding_information.figures.parts import parts, parts_layers
from bindscope.studies.binding_information.figures.structure import structure
from bindscope.studies.binding_information.figures.truth import calibration
from bindscope.studies.binding_information.findings import chapter
from bindscope.studies.binding_information.registry import FAMILIES, options_of
from bindscope.studies.binding_information.sentences import gather
from bindscope.studies.binding_information.views import order_models
from bindscope.tables.groups import with_groups

pytestmark = pytest.mark.usefixtures("few_pixels")
CONTROLS = [f"objects-{seed}" for seed in range(3)]
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def table():
    """A zoo with groups, positive controls, baselines and known-answer encoders."""
    rows = [
        row
        for row in zoo_rows(("linear", "quadratic"))
        if row["dataset"] == "matching" and row["model"].startswith(("objects", "captions", "none"))
    ]
    rows += [
        parts_row("matching", name, "1", probe=probe, model_kind="baseline", n_layers=1)
        for name in ("pixels", "color-histogram")
        for probe in ("best", "linear")
    ]
    return parts_table([*rows, *known_rows()])


def replace_words(monkeypatch):
    """Replace all words that a reader sees by others, no two alike and none with a number."""
    numbers = count()

    def word():
        letters = np.base_repr(next(numbers) + 1296, 26)
        return "zz" + "".join(chr(97 + int(letter, 26)) for letter in letters)

    def label(old):
        return old._replace(name=word(), words=f"a {word()}", short=word())

    for words in (names.WORDS, names.OBJECTIVES):
        for key in words:
            monkeypatch.setitem(words, key, word())
    for token, old in names._TOKENS.items():
        monkeypatch.setitem(names._TOKENS, token, label(old))
    for family in FAMILIES:
        options = options_of(family)
        monkeypatch.setattr(options, "label", label(options.label))
    for name, baseline in BASELINES.items():
        monkeypatch.setitem(BASELINES, name, replace(baseline, words=word()))
    monkeypatch.setattr(names, "CONTROL", f" {word()}")


def verdicts(table):
    """Return the numbers and verdicts of all claims."""
    judgments = gather(table, CONFIG).judgments
    return [
        (j.claim.name, j.effect.value, j.effect.low, j.effect.high, j.verdict, j.p_value)
        for j in judgments
    ]


def numbers_of_chapter(table):
    """Return the numbers of the chapter's sentences, in order."""
    page = chapter({"binding_information": table}, Inputs(content=CONFIG, resources=RESOURCES))
    findings = [f.lead + "".join(text for _, text in f.points) for f in page.findings]
    texts = [*page.lead, *findings, *(number.value for number in page.key_numbers)]
    texts += [text for part in page.sections for text in part.paragraphs]
    return NUMBER.findall(" ".join(texts).replace("12 x 12 pixels", ""))


def drawn(table):
    """Return what each figure draws: lines and their looks, boxes of bars, panel by panel."""
    grouped = with_groups(table, GROUPS)
    grouped = grouped.assign(is_control=grouped["model"].isin(CONTROLS))
    order = order_models(MODELS, GROUPS, CONTROLS)
    shapes = []
    for figure in (parts, parts_layers, tokens, layers, structure, calibration):
        canvas = figure.draw(grouped, models=order)
        for axes in canvas.axes:
            for line in axes.lines:
                look = (line.get_color(), line.get_linewidth(), line.get_marker())
                shapes.append((line.get_xydata().tolist(), look))
            shapes += [patch.get_path().get_extents().bounds for patch in axes.patches]
            shapes += [len(collection.get_paths()) for collection in axes.collections]
    return shapes


@pytest.mark.parametrize("measure", [verdicts, numbers_of_chapter, drawn])
def test_other_words_change_no_number(table, measure, monkeypatch):
    before = measure(table)
    assert len(before) > 20
    replace_words(monkeypatch)
    after = measure(table)
    assert len(after) == len(before)
    for ours, theirs in zip(after, before, strict=True):
        np.testing.assert_equal(ours, theirs)


def test_the_words_are_replaced(table, monkeypatch):
    replace_words(monkeypatch)
    text = " ".join(
        chapter({"binding_information": table}, Inputs(content=CONFIG, resources=RESOURCES)).lead
    )
    assert "pairing" not in text
    assert text.count("zz") >= 5
