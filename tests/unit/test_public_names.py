"""Only public names of what we depend on; exceptions stand in `core/workarounds.py`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = ROOT / "src/bindscope/core/workarounds.py"
FILES = [*ROOT.glob("src/bindscope/**/*.py"), *ROOT.glob("workflow/scripts/*.py")]
# Underscored and documented: a tuple with names has them to be free for its fields.
DOCUMENTED = {
    "os._exit",
    *(f"(...).{name}" for name in ("_asdict", "_fields", "_replace", "_make")),
}


def private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def dotted(node: ast.expr) -> list[str]:
    """Return ["a", "b", "c"] for a.b.c, and nothing where it starts with anything but a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def foreign_names(tree: ast.AST) -> dict[str, str]:
    """Return what each name stands for that is imported from another package."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return {name: whole for name, whole in names.items() if whole.partition(".")[0] != "bindscope"}


def private_names(trees: list[ast.AST]) -> set[str]:
    """Return every private name that our code defines or assigns to."""
    names = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and dotted(node.value)[:1] == ["self"]
            ):
                names.add(node.attr)
    return {name for name in names if private(name)}


def uses(tree: ast.AST, ours: set[str]) -> Iterator[tuple[int, str]]:
    """Give the line and name of each private name of another package."""
    foreign = foreign_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            if module.partition(".")[0] == "bindscope" or getattr(node, "level", 0):
                continue
            for alias in node.names:
                whole = f"{module}.{alias.name}" if module else alias.name
                if any(map(private, whole.split("."))) and not whole.startswith("bindscope."):
                    yield node.lineno, whole
        elif isinstance(node, ast.Attribute) and private(node.attr):
            parts = dotted(node)
            if parts and parts[0] in foreign:
                yield node.lineno, ".".join([foreign[parts[0]], *parts[1:]])
            elif node.attr not in ours:  # of an object: nothing of that name is made here
                yield node.lineno, f"(...).{node.attr}"
        elif isinstance(node, ast.Call) and node.args:
            yield from in_words(node, foreign, ours)


def in_words(node: ast.Call, foreign: dict[str, str], ours: set[str]) -> Iterator[tuple[int, str]]:
    """Give private names that are asked for by `getattr`, `setattr` or `import_module`."""
    words = [
        arg.value
        for arg in node.args
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
    ]
    called = dotted(node.func)[-1:] or [""]
    if called[0] in ("getattr", "setattr", "hasattr", "delattr"):
        owner = dotted(node.args[0])
        for word in words[:1]:
            if private(word) and ((owner[:1] and owner[0] in foreign) or word not in ours):
                yield node.lineno, f"{'.'.join(owner)}.{word}"
    elif called[0] in ("import_module", "__import__", "find_spec"):
        for word in words[:1]:
            if any(map(private, word.split("."))):
                yield node.lineno, word


def read(path: Path) -> ast.AST:
    return ast.parse(path.read_text())


def test_no_private_name_of_another_package():
    ours = private_names([read(path) for path in FILES])
    foreign = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(FILES)
        if path != ALLOWED
        for line, name in sorted(set(uses(read(path), ours)))
        if name not in DOCUMENTED
    ]
    assert not foreign, "\n".join(foreign)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import torch\ntorch._softmax_backward_data(1)", "torch._softmax_backward_data"),
        ("from torch._dynamo import disable", "torch._dynamo.disable"),
        ("def f(dag):\n    dag._secret = 1", "(...)._secret"),
        ("import torch\ngetattr(torch, '_C')", "torch._C"),
        ("from importlib import import_module\nimport_module('torch._C')", "torch._C"),
    ],
)
def test_the_search_finds(code, name):
    assert [used for _, used in uses(ast.parse(code), {"_ours"})] == [name]


@pytest.mark.parametrize(
    "code",
    [
        "class A:\n    def f(self, other):\n        self._ours = other._ours",
        "import numpy as np\nnp.__version__",
        "from bindscope.core.files import _ours",
    ],
)
def test_what_is_ours_or_public_may_be_used(code):
    tree = ast.parse(code)
    assert list(uses(tree, {"_ours"})) == []
