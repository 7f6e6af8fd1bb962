"""Committed files that a product reads are told apart by name."""

import pytest

from bindscope.core.graph import Graph
from bindscope.core.interfaces import Step

STEPS = {"figure": Step("figure", {"png": "results/figures/{figure}.png"})}


def resources(*paths):
    """Return the names that a product gives to files."""
    return Graph(STEPS).add("figure", {"figure": "a"}, {}, resources=paths).resources


def test_files_of_studies_may_have_the_same_name():
    named = resources(
        "resources/published/trends.csv",
        "src/bindscope/studies/one/introduction.html",
        "src/bindscope/studies/two/introduction.html",
    )
    assert list(named) == ["trends", "one_introduction", "two_introduction"]
    assert named["trends"] == "resources/published/trends.csv"
    assert list(resources("a/b.csv", "a/b.csv")) == ["b"]


def test_two_files_never_have_one_name():
    with pytest.raises(ValueError, match=r"c/tokens\.rst and a/tokens\.csv are both called tokens"):
        resources("a/tokens.csv", "c/tokens.rst")
