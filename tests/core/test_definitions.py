"""Code keys follow definitions: what a function uses is in its key, its neighbors are not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from bindscope.core import definitions, keys

FUNCTIONS = (
    keys.module_file,
    keys.closure,
    keys.hash_step,
    keys._file,
    keys._used_by,
    definitions.parse_module,
)
FILES = {
    "fit.py": "from bindscope.a import run\n\ndef main(job):\n    return run(job)\n",
    "bindscope/a.py": '''
from __future__ import annotations
from typing import TYPE_CHECKING
import numpy as np
from bindscope import b
from bindscope.c import Thing, shared as common
if TYPE_CHECKING:
    from bindscope.d import Typed

LIMIT = 3

def run(job: Typed) -> Unused:
    """Run."""
    from bindscope.local import late
    return late(LIMIT, b.used(job), Thing().method())

def neighbor():
    return np.zeros(OTHER)

OTHER = 4
class Unused: ...
''',
    "bindscope/b.py": "from bindscope.e import used, unused\n\ndef nothing(): ...\n",
    "bindscope/c.py": "class Base:\n    def method(self): return helper()\n\n"
    "class Thing(Base): ...\n\ndef helper(): return 1\n\ndef shared(): ...\n",
    "bindscope/d.py": "class Typed: ...\n",
    "bindscope/e.py": "import scipy.stats\n\nSTATE = {}\nfor key in 'ab':\n    STATE[key] = key\n\n"
    "def used(x): return scipy.stats.norm(x), STATE\n\ndef unused(): ...\n",
    "bindscope/local.py": "from bindscope import c\n\ndef late(*x): return vars(c)\n",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small library and a script of it."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "bindscope/__init__.py").touch()
    monkeypatch.setattr(keys, "SOURCE", tmp_path)
    monkeypatch.setattr(keys, "SCRIPTS", tmp_path)
    for function in FUNCTIONS:
        function.cache_clear()
    yield tmp_path
    for function in FUNCTIONS:
        function.cache_clear()


@pytest.mark.parametrize(
    ("file", "before", "after", "changes"),
    [
        ("a.py", "LIMIT = 3", "LIMIT = 4", True),
        ("a.py", "OTHER = 4", "OTHER = 5", False),
        ("a.py", '"""Run."""', '"""Run, in other words."""', False),
        ("a.py", "-> Unused", "-> int", True),
        ("c.py", "return 1", "return 2", True),
        ("d.py", "class Typed: ...", "class Typed(int): ...", False),
        ("e.py", "'ab'", "'abc'", True),
        ("e.py", "def unused(): ...", "def unused(): return 1", False),
    ],
)
def test_an_edit_changes_the_key_of_what_uses_it(
    file: str, before: str, after: str, changes: bool, tree: Path
) -> None:
    key = keys.hash_step(("fit.py",))
    path = tree / "bindscope" / file
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    for function in FUNCTIONS:
        function.cache_clear()
    assert (keys.hash_step(("fit.py",)) != key) == changes


def test_an_object_is_a_root(tree: Path) -> None:
    (_, names), *_ = keys.closure(("bindscope.a:neighbor",)).definitions.items()
    assert names == {definitions.EFFECTS, "neighbor", "OTHER"}


def test_modules_of_the_library_have_no_effects_but_in_themselves() -> None:
    """A call at the top of a module that changes another one would be in no key."""
    changing = set()
    for path in (Path(keys.__file__).parents[1]).rglob("*.py"):
        for statement in ast.parse(path.read_text()).body:
            is_docstring = isinstance(statement, ast.Expr) and isinstance(
                statement.value, ast.Constant
            )
            is_condition = isinstance(statement, ast.If) and (
                "__name__" in ast.dump(statement.test)
                or "TYPE_CHECKING" in ast.dump(statement.test)
            )
            is_import = isinstance(statement, ast.Import | ast.ImportFrom)
            if not (is_docstring or is_condition or is_import or definitions._defined(statement)):
                changing.add((path.name, ast.unparse(statement).partition("\n")[0]))
    assert changing <= {
        # It adds quantities of the same module.
        ("quantities.py", "for _prefix, _words in _READERS.items():"),
        # So that torchvision can be imported; nothing computes with what is declared for it.
        (
            "__init__.py",
            "if 'torchvision' not in sys.modules and TorchvisionFinder not in sys.meta_path:",
        ),
    }


def test_another_version_of_a_library_is_other_code_for_what_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fits of one version of NumPy and scores of another do not meet in a table."""

    def code(**versions: str) -> str:
        monkeypatch.setattr(keys, "_version", lambda name: versions.get(name, "1"))
        return keys.hash_step.__wrapped__(("bindscope.statistics.bootstrap",))

    assert code() == code(torch="2") != code(numpy="2")
