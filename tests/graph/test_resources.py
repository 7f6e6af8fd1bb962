"""Committed files that a product reads are told apart by name."""

from pathlib import Path

import pytest

from bindscope.core.graph import Graph
from bindscope.core.interfaces import Step
from bindscope.core.keys import CLONE

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


def test_files_of_the_clone_are_found_from_any_working_directory(tmp_path, monkeypatch):
    path = "resources/published/trends.csv"
    product = Graph(STEPS).add("figure", {"figure": "a"}, {}, resources=[path])
    monkeypatch.chdir(CLONE)
    assert product.files() == {"resource_trends": [path]}  # Snakemake's record survives a move
    monkeypatch.chdir(tmp_path)
    (resource,) = product.files()["resource_trends"]
    assert Path(resource).samefile(CLONE / path)


def test_two_files_never_have_one_name():
    with pytest.raises(ValueError, match=r"c/tokens\.rst and a/tokens\.csv are both called tokens"):
        resources("a/tokens.csv", "c/tokens.rst")
