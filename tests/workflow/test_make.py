"""What `make` calls, on a finished run."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Clone

from bindscope.studies.build import captions

pytestmark = [pytest.mark.workflow, pytest.mark.slow]


def test_snakemakes_own_report_has_our_captions(finished: Clone, tmp_path: Path) -> None:
    clone = finished.copy(tmp_path / "clone")
    clone.snakemake("--report", "results/snakemake-report.html")
    page = (clone.path / "results/snakemake-report.html").read_text()
    assert captions()["tokens"][:40] in page
    assert "The table priors; docs/tables.md describes" in page
