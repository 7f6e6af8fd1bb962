"""The battery of planted cases: a sample of its seeds against the committed rates, and its bars."""

from __future__ import annotations

from importlib.util import find_spec

import impostors
import numpy as np
import pandas as pd
import pytest
from cases import Case, judge_case
from impostors import BATTERIES, COLUMNS, REFERENCE, claim_rates, failures, with_intervals
from rates_figure import draw
from representatives import one_of
from scipy.stats import fisher_exact

from bindscope.core.registries import STUDIES
from bindscope.report.claims import weakest_impostor
from bindscope.statistics.claims import Claim, Effect

UNLIKELY = 1e-3
ROW = ("s", "binds", "class alone", "impostor")


def rates(*rows: tuple[object, ...]) -> pd.DataFrame:
    return with_intervals(pd.DataFrame(rows, columns=COLUMNS))


def read_reference() -> pd.DataFrame:
    """Read the committed counts, with rates and intervals."""
    return with_intervals(pd.read_csv(REFERENCE))


def departures(rates: pd.DataFrame, reference: pd.DataFrame) -> list[str]:
    """List where a sample of seeds of whole studies does not go with the reference.

    Cases that only one of the two has, and those whose counts differ with a probability below
    `UNLIKELY` (Fisher's exact test): the same seeds need not agree on another type of CPU.
    """
    expected = reference[reference["study"].isin(rates["study"].unique())]
    both = rates.merge(expected, "outer", COLUMNS[:4], suffixes=("", "_expected"), indicator="side")
    lines = []
    for row in both.to_dict("records"):
        name = f"{row['study']}: {row['claim']}, {row['kind']} {row['case']!r}"
        if row["side"] != "both":
            lines.append(f"{name}: only in {row['side']}")
            continue
        holds, n, before, of = (
            int(row[column]) for column in ("holds", "n", "holds_expected", "n_expected")
        )
        counts = np.array([[holds, n - holds], [before, of - before]])
        if fisher_exact(counts).pvalue < UNLIKELY:
            lines.append(f"{name}: {holds} of {n} hold, {before} of {of} in the reference")
    return lines


def of_two_seeds(rates: pd.DataFrame, holds: pd.Series | int) -> pd.DataFrame:
    """Return the rates of the same cases if each claim held for so many of two seeds."""
    return with_intervals(rates[COLUMNS].assign(holds=holds, n=2))


@pytest.mark.timeout(900)  # half a minute of one core for planted fits, more on a busy machine
@pytest.mark.parametrize("study", one_of(BATTERIES, "binding_id"))
def test_a_sample_of_the_battery_goes_with_the_committed_rates(study):
    """Two seeds; the second only where two outcomes like the first would be a departure."""
    reference = read_reference()
    first = claim_rates([study], 1)
    if departures(of_two_seeds(first, 2 * first["holds"]), reference):
        assert departures(claim_rates([study], 2), reference) == []


def test_one_of_two_seeds_is_never_a_departure():
    reference = read_reference()
    assert departures(of_two_seeds(reference, 1), reference) == []


@pytest.mark.parametrize("study", BATTERIES)
def test_every_claim_has_an_impostor_and_a_genuine_case(study):
    claims, cases = BATTERIES[study]
    names = {claim.name for claim in claims}
    assert names == {name for case in cases for name in case.genuine}
    assert names == {name for case in cases for name in case.impostor}
    assert len(names) == len(claims)
    assert len({case.name for case in cases}) == len(cases)


def test_every_study_that_makes_claims_has_a_battery():
    claims = {name: find_spec(f"bindscope.studies.{name}.claims") for name in STUDIES}
    assert {name for name, module in claims.items() if module} == set(BATTERIES)


def test_committed_rates_keep_the_bars():
    reference = read_reference()
    assert reference["n"].min() >= 100
    assert failures(reference) == []


def test_bars():
    genuine = (*ROW[:3], "genuine")
    assert failures(rates((*ROW, 4, 100), (*genuine, 90, 100))) == []
    assert len(failures(rates((*ROW, 5, 100)))) == 1  # the interval's upper end is above 10 %
    assert failures(rates((*ROW, 25, 1000))) == []
    assert len(failures(rates((*ROW, 60, 1000)))) == 1
    assert len(failures(rates((*genuine, 89, 100)))) == 1


def test_departures_are_counts_that_chance_does_not_explain_and_cases_that_one_side_lacks():
    reference = rates((*ROW, 0, 100), (*ROW[:2], "noise", "impostor", 1, 100))
    assert departures(reference, reference) == []
    assert len(departures(rates((*ROW, 0, 2)), reference)) == 1  # noise was not tried
    both = rates((*ROW, 2, 2), (*ROW[:2], "noise", "impostor", 0, 2))
    (line,) = departures(both, reference)
    assert "2 of 2 hold, 0 of 100" in line
    assert len(departures(rates((*ROW[:2], "new", "impostor", 0, 2)), reference)) == 3


def test_the_weakest_impostor_is_the_one_that_is_believed_most_often():
    counts = rates(
        (*ROW, 3, 100),
        (*ROW[:2], "noise", "impostor", 2, 50),
        (*ROW[:2], "bound", "genuine", 99, 100),
    )
    assert weakest_impostor(counts, "s", "binds") == "noise: 2 of 50 seeds"
    assert weakest_impostor(counts, "s", "other") == ""


def test_the_figure_shows_each_case_at_its_rate():
    counts = rates((*ROW, 3, 100), (*ROW[:2], "bound", "genuine", 99, 100))
    (axis,) = draw(counts).axes
    marks = [line.get_xdata()[0] for line in axis.lines if len(line.get_xdata()) == 1]
    assert marks == [0.03, 0.99]


def test_a_case_has_to_measure_the_claims_that_it_names():
    claim = Claim("above", "It is above.")
    effect = Effect("above", "here", 2.0, 0.1, 3.5, 50, "images")
    good = Case("good", lambda seed: [effect], genuine=("above",))
    assert judge_case(good, [claim], 0) == {"above": True}
    for silent in ({"genuine": ("above",)}, {"impostor": ("above",)}):
        with pytest.raises(ValueError, match="measures no above"):
            judge_case(Case("silent", lambda seed: [], **silent), [claim], 0)


def test_the_reference_keeps_cases_that_were_not_tried_and_none_that_is_gone(tmp_path, monkeypatch):
    committed = pd.read_csv(REFERENCE)
    gone = committed.iloc[:1].assign(case="a case that is gone")
    monkeypatch.setattr(impostors, "REFERENCE", tmp_path / "claims.csv")
    pd.concat([committed, gone]).to_csv(impostors.REFERENCE, index=False)
    tried = committed[committed["case"] == committed["case"].iloc[0]].assign(n=7)
    impostors.write_reference(tried)
    written = pd.read_csv(impostors.REFERENCE)
    assert len(written) == len(committed)
    assert (written["n"] == 7).sum() == len(tried)
