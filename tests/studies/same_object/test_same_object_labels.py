"""Words for people are made in one place and read by nobody: random ones change no number."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from same_object_tables import ends, row
from test_same_object_study import lead_of, verdicts

from bindscope.studies.same_object import claims, findings

ROWS = [
    row("a", "1", "quadratic", 0.85, **ends("position_lead", 0.05)),
    row("a", "2", "quadratic", 0.9, **ends("position_lead", 0.1)),
    row("a", "4", "quadratic", 0.8, **ends("position_lead", 0.02)),
    row("a", "1", "class_position", 0.8, **ends("quadratic_lead", 0.05)),
    row("a", "2", "class_position", 0.85, **ends("quadratic_lead", 0.05)),
    row("a", "4", "class_position", 0.8, **ends("quadratic_lead", 0.0)),
    row("none", "none", "position", 0.8),
]


@pytest.fixture
def random_words(monkeypatch):
    """Replace the words of places and claims, another word each time."""
    random = Random(0)

    def word(*_):
        return "".join(random.choices("abcdefghij", k=12))

    monkeypatch.setattr(claims.JudgedPlace, "words", property(word))
    for name in ("_unended", "_few"):
        monkeypatch.setattr(claims, name, word)
    named = tuple(replace(claim, sentence=word()) for claim in claims.CLAIMS)
    monkeypatch.setattr(findings, "CLAIMS", named)


def judged():
    """Name, place, verdict and numbers of every claim."""
    return [
        (name, j.effect.about, j.verdict, j.effect.value, j.effect.low, j.effect.high, j.effect.n)
        for name, j in verdicts(ROWS).items()
    ]


def test_random_words_change_no_claim_and_no_key_number(request):
    plain, (lead, numbers) = judged(), lead_of(ROWS)
    assert "class-position" in dict.fromkeys(name for name, *_ in plain)
    assert lead.endswith("the claim of a gain over it holds.")
    request.getfixturevalue("random_words")
    np.testing.assert_equal(judged(), plain)
    renamed, again = lead_of(ROWS)
    assert again == numbers
    assert renamed != lead
    assert renamed.endswith("the claim of a gain over it holds.")
