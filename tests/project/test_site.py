"""The documentation site builds without a warning, and a reader's browser fetches nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# An address of another machine in an element that a browser loads by itself.
FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, strictly."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return folder


@pytest.mark.slow
def test_a_browser_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    assert FETCHED.search('<script src="https://unpkg.com/iframe-worker/shim"></script>')
    assert {
        page.name: FETCHED.findall(page.read_text())
        for page in pages
        if FETCHED.search(page.read_text())
    } == {}
    styles = [*site.rglob("*.css")]
    assert styles
    assert not [style for style in styles if re.search(r"url\([\"']?https?:", style.read_text())]


@pytest.mark.slow
def test_search_works_without_a_server(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text()
    assert index.startswith("var __index = ")
    assert "pairing" in index
    assert "assets/iframe-worker.js" in (site / "index.html").read_text()
