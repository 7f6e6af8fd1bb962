"""A study is one folder, one .smk, one page and one line: nothing else changes, nothing reruns."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from harness import ROOT, Clone

pytestmark = [pytest.mark.workflow, pytest.mark.slow]
TOY = ROOT / "tests" / "toy"
REGISTRY = "src/bindscope/core/registries.py"
GRID = {"name": "all", "datasets": ["tiny"], "models": ["vit"], "layers": "all"}
LINE = '    "toy": "bindscope.studies.toy.study:STUDY",\n'


def add_toy(clone: Clone) -> list[Path]:
    """Put the toy study into a clone; return the files that were there before and changed."""
    new = [path.relative_to(TOY) for path in TOY.rglob("*") if path.is_file()]
    there = [path for path in new if (clone.path / path).exists()]
    shutil.copytree(TOY, clone.path, dirs_exist_ok=True)
    registry = clone.path / REGISTRY
    before = registry.read_text()
    registry.write_text(before.replace("STUDIES = {\n", f"STUDIES = {{\n{LINE}"))
    assert len(registry.read_text()) == len(before) + len(LINE)
    return [*there, Path(REGISTRY)]


def test_a_study_touches_one_line_and_an_edit_reruns_its_products_alone(
    finished: Clone, tmp_path: Path
) -> None:
    clone = finished.copy(tmp_path / "clone")
    assert add_toy(clone) == [Path(REGISTRY)]
    assert clone.would_run() == {}  # registered, but not in the configuration: nothing happens
    clone.edit({"studies.toy": {"grids": [GRID]}})
    assert clone.would_run() == {"lengths": 2, "table": 1, "figure": 1, "report": 1}
    clone.snakemake()
    assert clone.would_run() == {}
    table = pd.read_csv(clone.path / "results/tables/lengths.csv")
    assert list(table["layer"]) == [0, 1]
    assert (table["length"] > 0).all()
    assert (clone.path / "results/figures/lengths.png").stat().st_size > 1000
    rest = {path: of for path, of in finished.results().items() if not path.startswith("report.")}
    assert rest.items() <= clone.results().items()
    page = (clone.path / "results/report.html").read_text()
    assert "How long tokens are" in page
    assert "How long the [CLS] token is, layer by layer" in page  # the caption

    edits = {
        "work.py": {"lengths": 2, "table": 1, "figure": 1, "report": 1},
        "findings.py": {"report": 1},
    }
    for module, jobs in edits.items():
        path = clone.path / "src/bindscope/studies/toy" / module
        before = path.read_text()
        path.write_text(before + "\nassert True\n")
        assert clone.would_run() == jobs, module
        path.write_text(before)
