"""A room imports the rooms before it, never one after it; a study never imports another one."""

import ast
from functools import cache
from pathlib import Path

import pytest

from bindscope.core.registries import STUDIES

SOURCE = Path(__file__).parents[2] / "src" / "bindscope"
# The four floors, and on top what a user starts.
ROOMS = (
    "core",
    "config",
    "fitting",
    "statistics",
    "tables",
    "figures",
    "report",
    "arrays",
    "codes",
    "priors",
    "scenes",
    "sources",
    "models",
    "activations",
    "graph",
    "studies",
    "commands",
    "testing",
    "cli",
    "notebook",
)
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Modules of bindscope that a file imports, inside functions and for types too."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return tuple(name for name in names if name.startswith("bindscope"))


def room(module: str) -> str:
    return module.split(".")[1]


def test_a_module_imports_no_room_after_its_own() -> None:
    upward = []
    for path in MODULES:
        room_of_path = path.parts[0].removesuffix(".py")
        if room_of_path != "__init__":
            later = ROOMS[ROOMS.index(room_of_path) + 1 :]
            upward += [
                (str(path), module)
                for module in imports(SOURCE / path)
                if module.startswith("bindscope.") and room(module) in later
            ]
    assert upward == []


def test_every_room_has_its_place() -> None:
    assert {path.parts[0].removesuffix(".py") for path in MODULES} <= {*ROOMS, "__init__"}


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_imports_no_other_one(study: str) -> None:
    others = tuple(f"bindscope.studies.{name}." for name in STUDIES if name != study)
    for path in (SOURCE / "studies" / study).rglob("*.py"):
        assert not [m for m in imports(path) if f"{m}.".startswith(others)], path


def test_the_interfaces_import_nothing_of_the_package() -> None:
    assert imports(SOURCE / "core/interfaces.py") == ()


def test_nothing_but_the_registry_names_a_study() -> None:
    """The shared rooms, rules and tests of the workflow know no study by name.

    The `__init__` of the package says what is public; `testing` checks what studies plug in.
    """
    named_there = {Path("core/registries.py"), Path("__init__.py")}
    studies = tuple(f"bindscope.studies.{name}" for name in STUDIES)
    for path in MODULES:
        if path.parts[0] not in ("studies", "testing") and path not in named_there:
            assert not [m for m in imports(SOURCE / path) if m.startswith(studies)], path
