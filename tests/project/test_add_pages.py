"""Examples of the pages that say how to add something: applied to a copy, and run there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from representatives import one_of

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^([^\n]*):\n\n```(diff|python)\n(.*?)^```$", re.M | re.S)
NAMED = re.compile(r"`([^`]+\.py)`$")
PAGES = ("add_experiment", "add_quantity", "add_claim")
FILES_BY_HAND = {"add_experiment": 2, "add_quantity": 2, "add_claim": 2}


def examples(page: str) -> list[tuple[str, str, str]]:
    """Return path (empty where none is named), language and text of a page's examples."""
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    blocks = []
    for before, language, block in BLOCK.findall(text):
        named = NAMED.search(before)
        blocks.append((named[1] if named else "", language, block))
    return blocks


def apply(block: str, path: Path) -> None:
    """Apply a diff of lines that are in the file once."""
    lines = block.splitlines(keepends=True)[3:]
    old = "".join(line[1:] for line in lines if line[0] != "+")
    new = "".join(line[1:] for line in lines if line[0] != "-")
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("page", one_of(PAGES, "add_claim"))
def test_an_example_runs_in_a_copy(page: str, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignored)
    for name in ("studies", "helpers", "impostors"):
        shutil.copytree(ROOT / "tests" / name, tmp_path / "tests" / name, ignore=ignored)
    for name in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "resources").symlink_to(ROOT / "resources")
    touched, test = [], tmp_path / "tests/studies/binding_id/test_example.py"
    for path, language, block in examples(page):
        file = tmp_path / path
        if language == "diff":
            apply(block, file)
        elif path:
            file.write_text(block, encoding="utf-8")
        if path:
            touched.append(path)
        if language == "python" and "\ndef test_" in block:
            test = file if path else test
            test.write_text(block, encoding="utf-8")
    assert len(touched) == FILES_BY_HAND[page]
    paths = os.pathsep.join(str(tmp_path / name) for name in ("src", "tests/helpers"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
