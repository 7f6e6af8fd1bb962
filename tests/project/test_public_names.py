"""Only public names of what we depend on; exceptions stand in `core/workarounds.py`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = ROOT / "src/bindscope/core/workarounds.py"
FILES = [*ROOT.glob("src/bindscope/**/*.py"), *ROOT.glob("workflow/scripts/*.py")]


def private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def dotted(node: ast.expr) -> list[str]:
    """Return ["a", "b", "c"] for a.b.c, and nothing where it starts with anything but a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name that is imported from another package, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def uses(tree: ast.AST) -> Iterator[str]:
    """Yield each private name of another package that is imported, read, or asked for by name."""
    foreign = {name: of for name, of in imported(tree) if of.partition(".")[0] != "bindscope"}
    yield from (of for of in foreign.values() if any(map(private, of.split("."))))
    for node in ast.walk(tree):
        parts: list[str] = []
        if isinstance(node, ast.Attribute) and private(node.attr):
            parts = dotted(node)
        elif isinstance(node, ast.Call) and dotted(node.func) in (["getattr"], ["setattr"]):
            owner, name, *_ = node.args
            if isinstance(name, ast.Constant) and private(str(name.value)):
                parts = [*dotted(owner), str(name.value)]
        if parts and parts[0] in foreign:
            yield ".".join([foreign[parts[0]], *parts[1:]])


def test_no_private_name_of_another_package():
    used = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(FILES)
        if path != ALLOWED
        for name in sorted(set(uses(ast.parse(path.read_text()))))
        if name != "os._exit"  # underscored, and documented
    ]
    assert not used, "\n".join(used)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import torch\ntorch._softmax_backward_data(1)", "torch._softmax_backward_data"),
        ("def f():\n    from torch._dynamo import disable", "torch._dynamo.disable"),
        ("import torch\ngetattr(torch, '_C')", "torch._C"),
    ],
)
def test_the_search_finds(code, name):
    assert list(uses(ast.parse(code))) == [name]


@pytest.mark.parametrize(
    "code", ["import numpy as np\nnp.__version__", "from bindscope.core.files import _ours"]
)
def test_what_is_ours_or_public_may_be_used(code):
    assert list(uses(ast.parse(code))) == []
