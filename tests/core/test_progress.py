"""A bar for a person, and none where progress goes to a log."""

import logging
import sys
import types

import pytest

from bindscope.core.progress import progress_bar


def test_a_notebook_shows_a_bar_and_a_job_does_not(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    log = logging.getLogger("bindscope.core.progress")
    before = log.level
    request.addfinalizer(lambda: log.setLevel(before))
    log.setLevel(logging.WARNING)
    assert list(progress_bar([1, 2], "fits")) == [1, 2]
    assert capsys.readouterr().err == ""  # no terminal
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    assert list(progress_bar([1, 2], "fits")) == [1, 2]
    assert "fits" in capsys.readouterr().err
    log.setLevel(logging.INFO)
    items = [1, 2]
    assert progress_bar(items, "fits") is items
    assert capsys.readouterr().err == ""
