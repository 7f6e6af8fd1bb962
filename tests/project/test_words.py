"""tools/words.py: it sees what it rules out, and no file has more of it than was committed."""

import importlib.util
import json
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("words", "tools/words.py")
assert SPEC is not None
assert SPEC.loader is not None
words = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(words)


def test_no_file_has_more_than_was_committed() -> None:
    assert words.risen(words.counts(), json.loads(words.BASELINE.read_text())) == []


@pytest.mark.parametrize(
    "source", ["found = 1", "def f(told): ...", "class Told: ...", "for one in x: ..."]
)
def test_banned_names_are_seen(source: str) -> None:
    assert len(list(words.names(source))) == 1


@pytest.mark.parametrize(
    "source",
    ["matches = found", "x.own = 1", "left, top, w, h = box"],
)
def test_uses_and_good_names_are_not(source: str) -> None:
    assert list(words.names(source)) == []


def test_long_sentences_are_seen_and_code_and_tables_are_not(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    long = "word " * 36 + "end."
    page.write_text(
        f"# {long}\n\nShort one. {long}\n\n```\n{long}\n```\n\n| {long} |\n\n- {long}\n"
    )
    assert [(line, kind) for line, kind, _ in words.cases(page)] == [
        (3, "sentence"),
        (11, "sentence"),
    ]


def test_code_that_a_page_cuts_off_and_items_that_are_none_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    fits, wide = "x" * words.WIDEST, "x" * (words.WIDEST + 1)
    page.write_text(
        f"1. First:\n\n    ```python\n    {fits}\n    {wide}\n    ```\n\n    More.\n2. Second.\n"
        f"    - nested\n3. Third.\n\n```\n{wide}\n```\n"
    )
    assert [(line, kind) for line, kind, _ in words.cases(page)] == [(5, "wide"), (9, "item")]


def test_documents_that_nobody_can_open_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "The loss (specification, section 8) falls.\nAs in spec 1.\nHeads (specification, E9).\n"
        "As in config.\n"
    )
    assert [kind for _, kind, _ in words.cases(page)] == ["unreadable"] * 3
