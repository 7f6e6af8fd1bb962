"""The documentation site builds without a warning, and a reader's browser fetches nothing."""

import html
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bindscope as bs

# An address of another machine in an element that a browser loads by itself.
FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


pytestmark = [pytest.mark.whole, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, strictly."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return folder


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


@pytest.mark.parametrize("name", bs.__all__)
def test_the_reference_shows_every_parameter_with_its_type_and_text(site: Path, name: str) -> None:
    page = (site / "reference" / "api.html").read_text(encoding="utf-8")
    section = page.split(f'id="bindscope.{name}"')[1].split('<div class="doc doc-object ')[0]
    rows = re.findall(r'<tr class="doc-section-item">(.*?)</tr>', section, re.DOTALL)
    cells = [
        [plain(cell) for cell in re.findall(r"<td>(.*?)</td>", row, re.DOTALL)] for row in rows
    ]
    signature = inspect.signature(getattr(bs, name))
    rendered = {row[0]: row[1:] for row in cells if len(row) == 4}
    assert list(rendered) == list(signature.parameters)
    for parameter in signature.parameters.values():
        kind, text, default = rendered[parameter.name]
        annotation = str(parameter.annotation).replace(" ", "").replace("pd.", "")
        assert kind.replace(" ", "") == annotation.replace('"', "'")
        assert len(text) > 4
        assert (default == "required") == (parameter.default is parameter.empty)
    assert len({row[1] for row in rendered.values()}) == len(rendered), "a text for two of them"


def test_the_reference_has_results_with_their_members(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text(encoding="utf-8")
    for member in ("table", "best", "claims", "plot", "to_parquet", "notes"):
        assert f"bindscope.arrays.result.Result.{member}" in page


def test_the_configuration_is_a_page_per_section_and_errors_are_found_last(site: Path) -> None:
    for name in ("datasets", "models", "binding_information", "same_object"):
        page = (site / "configuration" / f"{name}.html").read_text(encoding="utf-8")
        assert "<table>" in page
    text = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("var __index = ").rstrip("; \n"))
    entries = [entry for entry in index["docs"] if entry["location"].startswith("reference/errors")]
    assert entries
    assert all(entry["boost"] < 0.1 for entry in entries)


def plain(text: str) -> str:
    """Return the words of a part of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split())


def test_search_works_without_a_server(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text()
    assert index.startswith("var __index = ")
    assert "pairing" in index
    assert "assets/iframe-worker.js" in (site / "index.html").read_text()


@pytest.mark.parametrize("study", ["binding_information", "same_object", "concepts", "binding_id"])
def test_a_study_links_its_papers_figures(site: Path, study: str) -> None:
    page = (site / "studies" / f"{study}.html").read_text(encoding="utf-8")
    assert f'href="../papers.html#{study}"' in page
    assert f'id="{study}"' in (site / "papers.html").read_text(encoding="utf-8")
