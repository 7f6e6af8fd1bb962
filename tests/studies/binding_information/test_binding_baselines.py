"""Baselines in the study's table: rivals of a claim, lines in figures, no models anywhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from zoo_tables import CONFIG, GROUPS, parts_row, parts_table, zoo_rows

from bindscope.statistics.claims import TRAINING_SEEDS, Effect, judge
from bindscope.studies.binding_information import sentences
from bindscope.studies.binding_information.claims import (
    BINDS,
    CLAIMS,
    DECODED,
    MORE,
    SCENES,
    effects,
)
from bindscope.studies.binding_information.figures.bars import tokens
from bindscope.studies.binding_information.figures.parts import parts
from bindscope.studies.binding_information.quantities import PAIRING
from bindscope.studies.binding_information.sentences import gather
from bindscope.studies.binding_information.views import measured, quote, strongest_baselines
from bindscope.tables.groups import with_groups

pytestmark = pytest.mark.usefixtures("few_pixels")
WIDTH = 0.1  # half of an interval of `parts_row`


def baseline(
    name: str, pairing: float, probe: str = "linear", dataset: str = "matching", **changes: Any
) -> list[dict[str, Any]]:
    """Return the row of a probe and that of the best one."""
    return [
        parts_row(
            dataset,
            name,
            "0",
            "cls",
            each,
            (4.0, 0.0, pairing),
            model_kind="baseline",
            n_layers=0,
            **changes,
        )
        for each in (probe, "best")
    ]


def model(pairing: float, name: str = "mine", **changes: Any) -> dict[str, Any]:
    return parts_row("matching", name, decoded=(8.0, 0.0, pairing), **changes)


def measure(*rows: dict[str, Any], groups: Any = ()) -> dict[str, Effect]:
    """Return the effects of a table by claim."""
    table = with_groups(parts_table([*rows]), groups)
    return {effect.claim: effect for effect in effects(table, quote(table))}


def test_a_model_is_held_against_the_strongest_baseline_that_discards_places() -> None:
    rows = [*baseline("color-histogram", 1.0), *baseline("color-areas", 2.0)]
    effect = measure(model(3.0), *rows, *baseline("pixels", 6.0))[BINDS]
    assert effect.value == pytest.approx(1.0)
    # The worst of both ends.
    assert (effect.low, effect.high) == pytest.approx((1 - 2 * WIDTH, 1 + 2 * WIDTH))
    assert "mine" in effect.where
    assert "against color areas (\u2265\u00a02.00)" in effect.where
    assert effect.resampled == SCENES
    (judgment,) = judge(CLAIMS, [effect])
    assert judgment.verdict == "holds"


def test_the_best_probe_of_a_rival_counts_and_not_the_one_that_validation_chose() -> None:
    (strong, _) = baseline("color-histogram", 2.5, "quadratic")
    effect = measure(model(3.0), *baseline("color-histogram", 1.0), strong)[BINDS]
    assert effect.value == pytest.approx(0.5)


def test_a_code_of_colors_does_not_bind() -> None:
    (judgment,) = judge(CLAIMS, [measure(model(3.9), *baseline("color-areas", 4.0))[BINDS]])
    assert judgment.verdict == "not significant"
    (judgment,) = judge(CLAIMS, [measure(model(1.0), *baseline("color-areas", 4.0))[BINDS]])
    assert judgment.verdict == "does not hold"


@pytest.mark.parametrize("others", [(), baseline("pixels", 1.0)])
def test_without_a_rival_the_claim_is_not_made(others: Any) -> None:
    assert {*measure(model(3.0), *others)} == {DECODED}


def test_a_rival_of_another_dataset_is_none() -> None:
    rows = baseline("color-areas", 1.0, dataset="counting")
    assert {*measure(model(3.0), *rows)} == {DECODED}


def test_a_rival_whose_fit_did_not_end_leaves_the_claim_untested() -> None:
    effect = measure(model(3.0), *baseline("color-areas", 1.0, flags="not_converged"))[BINDS]
    assert effect.reason == "color-areas is flagged not_converged"


def test_a_group_keeps_its_interval_over_training_seeds() -> None:
    groups = [{"name": "mine", "models": ["mine-0", "mine-1", "mine-2"]}]
    rows = [model(bits, f"mine-{i}") for i, bits in enumerate((3.0, 3.1, 3.2))]
    by_claim = measure(*rows, *baseline("color-areas", 1.0), groups=groups)
    decoded, binds = by_claim[DECODED], by_claim[BINDS]
    assert (binds.n, binds.resampled) == (3, TRAINING_SEEDS)
    assert binds.value == pytest.approx(2.1)
    assert binds.low == pytest.approx(decoded.low - 1.0 - WIDTH)
    assert binds.high == pytest.approx(decoded.high - 1.0 + WIDTH)


# --- nowhere a model ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rows = [
        *baseline("color-histogram", 0.5),
        *baseline("color-areas", 1.5),
        *baseline("pixels", 9.4),
    ]
    return with_groups(parts_table([*zoo_rows(), *rows]), GROUPS)


def test_baselines_are_not_among_the_models(table: pd.DataFrame) -> None:
    names = {"color-histogram", "color-areas", "pixels"}
    assert {*measured(table, "baseline")["model"]} == names
    assert not names & {*measured(table)["model"]}
    quoted = quote(table)
    assert not names & {*quoted.rows["model"], *quoted.refused["model"]}
    about_models = [effect for effect in effects(table, quoted) if effect.claim == MORE]
    assert about_models
    assert not any(name in effect.where for effect in about_models for name in names)


def test_sentences_rank_models_only_and_name_baselines_as_such(table: pd.DataFrame) -> None:
    about = gather(table, CONFIG)
    numbers = [number.label for number in sentences.key_numbers(about)]
    for text in (*sentences.lead(about), *numbers, *sentences.caveats(about)):
        assert "pixels" not in text
        assert "color" not in text.replace("which color belongs to which shape", "")
    first = sentences.findings(about)[0]
    name, text = first.points[-1]
    assert name == "baselines"
    assert text == (
        " (of the images, no model): \u2265\u00a01.50 from color areas; \u2265\u00a09.40 from "
        "12 x 12 pixels."
    )


def test_the_strongest_is_chosen_for_each_number(table: pd.DataFrame) -> None:
    assert strongest_baselines(table, "matching", PAIRING) == pytest.approx(
        {"color-areas": 1.5, "pixels": 9.4}
    )
    assert strongest_baselines(table, "counting", PAIRING) == {}


def test_the_headline_figure_has_baselines_as_lines_across(table: pd.DataFrame) -> None:
    figure = parts.draw(table, datasets=["matching", "counting"])
    matching, counting = figure.axes
    ticks = [text.get_text() for text in matching.get_yticklabels()]
    assert not {"pixels", "color-areas"} & {*ticks}
    across = [
        (line.get_transform() - matching.transData).transform(line.get_xydata())[0, 0]
        for line in matching.lines
        if np.ptp(line.get_ydata()) > 10
    ]
    starts = [box.get_x() for box in matching.patches if box.get_width() > 9]
    pairing = max(starts)
    assert sorted(across) == pytest.approx(sorted([4.0, 4.0, pairing + 1.5, pairing + 9.4]))
    assert "12 x 12 pixels, pairing" in {line.get_label() for line in matching.lines}
    texts = [text.get_text() for text in matching.texts]
    assert texts.count("12 x 12 pixels") == 2
    assert not [line for line in counting.lines if np.ptp(line.get_ydata()) > 10]


def test_the_figure_of_token_inputs_names_them_in_its_legend(table: pd.DataFrame) -> None:
    (legend,) = tokens.draw(table).legends
    names = [text.get_text() for text in legend.get_texts()]
    assert {"color areas (baseline)", "12 x 12 pixels (baseline)"} <= {*names}
