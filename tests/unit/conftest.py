"""Fixtures of tests of figures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

RESOURCES = Path(__file__).parents[2] / "resources" / "published"


@pytest.fixture
def few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few pixels: what is tested does not depend on how many there are."""
    from bindscope.figures import style

    monkeypatch.setitem(style._RC, "savefig.dpi", 30)


@pytest.fixture(scope="session")
def published() -> pd.DataFrame:
    """Return the paper's table."""
    from bindscope.studies.binding_information.published import read_published

    return read_published(RESOURCES / "binding_information.csv")


@pytest.fixture(scope="session")
def trends() -> pd.DataFrame:
    """Return the paper's numbers beside its table."""
    from bindscope.studies.binding_information.published import TREND_COLUMNS, read_published

    return read_published(RESOURCES / "trends.csv", TREND_COLUMNS)
