"""Python on every page: it parses, and what it imports of bindscope is there.

Blocks that call a function of arrays, and those of tutorials, run in tests of their own.
"""

import ast
import importlib
import importlib.util
import re
from pathlib import Path
from textwrap import dedent, indent

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{i}")
    for page in PAGES
    for i, block in enumerate(re.findall(r"(?ms)^```python\n(.*?)^```", page.read_text("utf-8")))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_what_a_block_imports_is_there(block: str) -> None:
    # An entry of a mapping, shown alone, is no statement.
    entry = re.fullmatch(r"\s*\"[^\n]*,\n", block)
    tree = ast.parse(f"{{{block}}}" if entry else block)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bindscope"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name) or importlib.util.find_spec(
                    f"{node.module}.{alias.name}"
                ), alias.name
        called = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if called and node.value.id == "bs":
            assert hasattr(importlib.import_module("bindscope"), node.attr), node.attr


def test_the_code_of_the_page_about_figures_is_that_of_the_toy_study() -> None:
    """`tests/workflow/test_toy_study.py` runs the study."""
    page = (ROOT / "docs" / "add_figure.md").read_text("utf-8")
    blocks = [dedent(block) for block in re.findall(r"(?ms)^    ```python\n(.*?)^    ```", page)]
    folder = ROOT / "tests" / "toy" / "src" / "bindscope" / "studies" / "toy"
    code = {name: (folder / f"{name}.py").read_text("utf-8") for name in ("figures", "study")}
    assert len(blocks) == 3
    assert blocks[0] == code["figures"]
    assert blocks[1] in code["study"]
    assert indent(blocks[2], " " * 8) in code["study"]
