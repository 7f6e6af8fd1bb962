"""docs/papers: what is said of a paper's figures and tables names what exists."""

from pathlib import Path

import pytest

from bindscope.config.loading import load_file
from bindscope.core.registries import studies
from bindscope.graph import data
from bindscope.studies.build import build

ROOT = Path(__file__).parents[2]
PRESETS = {path.stem for path in (ROOT / "config/presets").glob("*.yaml")}
STUDIES = ("binding_information", "same_object", "concepts", "binding_id")


@pytest.mark.parametrize("study", STUDIES)
def test_items_of_a_paper_name_presets_figures_and_reasons(
    study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import pages

    # An item may be shown by another study's figure, as a scene or a prior is.
    drawn = {entry.name for each in studies().values() for entry in each.figures}
    tables = {entry.name for each in studies().values() for entry in each.tables}
    rows = pages.paper_items(study)
    assert rows
    assert len({row["item"] for row in rows}) == len(rows)
    for row in rows:
        assert tuple(row) == pages.PAPER_COLUMNS
        assert row["protocol"] in pages.PROTOCOLS, row
        assert bool(row["reason"]) == (row["protocol"] != "same"), row
        assert row["preset"] in PRESETS | {""}, row
        assert row["figure"] in drawn | tables | {""}, row
        if row["protocol"] == "same":
            assert row["preset"], row


@pytest.mark.parametrize("study", STUDIES)
def test_a_preset_makes_the_figures_that_items_name(
    study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import pages

    monkeypatch.setattr(data, "content_key", lambda path: "0" * 64)  # no data set is here
    figures: dict[str, set[str]] = {}
    for row in pages.paper_items(study):
        if row["preset"] and row["figure"]:
            figures.setdefault(row["preset"], set()).add(row["figure"])
    for preset, names in figures.items():
        graph = build(load_file(ROOT / f"config/presets/{preset}.yaml"))
        planned = {product.wildcards["figure"] for product in graph.select("figure")}
        planned |= {product.wildcards["table"] for product in graph.select("table")}
        assert names <= planned, preset
