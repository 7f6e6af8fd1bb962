"""The two keys of a product: what it depends on (`spec`) and what computes it (`code`).

``spec`` is canonical JSON of the configuration slice, chained through the spec keys of the inputs.
``code`` is ``<own>:<chained>``: a hash of the modules that the step's script imports, and a hash
of that with the chained hashes of its inputs. Comments and docstrings are not part of it, the
public versions of the numeric libraries that the step imports are. Nothing is imported to compute
it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bindscope.core.errors import ConfigError
from bindscope.core.files import canonical_json, sha256, write_atomic

SOURCE = Path(__file__).resolve().parents[2]
CLONE = SOURCE.parent
SCRIPTS = CLONE / "workflow" / "scripts"

# Modules that decide nothing about a result: what they decide stands in the spec, or is how a job
# is run and reported. tests/workflow/test_code_keys.py holds this list against the tree.
OUTSIDE = (
    "bindscope", "bindscope.config", "bindscope.graph", "bindscope.core.errors",
    "bindscope.core.graph", "bindscope.core.interfaces", "bindscope.core.job",
    "bindscope.core.keys", "bindscope.core.progress", "bindscope.core.registries",
    "bindscope.core.work", "bindscope.studies.build", "bindscope.cli", "bindscope.notebook",
    "bindscope.commands",
)  # fmt: skip
# The same of every study; parts of its configuration are called `<part>_config`.
OUTSIDE_STUDY = ("config", "cost", "products", "registry", "study")
_OF_STUDY = (*(f".{name}" for name in OUTSIDE_STUDY), "_config")

NUMERIC = {
    "matplotlib": "matplotlib", "numpy": "numpy", "pandas": "pandas", "PIL": "pillow",
    "pyarrow": "pyarrow", "scipy": "scipy", "sklearn": "scikit-learn", "timm": "timm",
    "torch": "torch", "torchvision": "torchvision", "transformers": "transformers", "zarr": "zarr",
}  # fmt: skip


def spec_key(spec: str) -> str:
    """Return the spec key (64 hex digits) of a canonical JSON spec."""
    return sha256(spec)


@cache
def _cache() -> dict[str, list[Any]]:
    try:
        found = json.loads(_cache_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _cache_file() -> Path:
    return Path(".snakemake") / "bindscope-modules.json"


def save_cache() -> None:
    """Keep the parsed modules, by content, where Snakemake keeps its own records."""
    if _cache_file().parent.is_dir():
        write_atomic(_cache_file(), canonical_json(_cache()))


@cache
def parse_module(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the hash of a module without comments and docstrings, and what it imports.

    These are the dotted names in import statements, those in functions included, in blocks under
    ``if TYPE_CHECKING:`` not.
    """
    source = path.read_bytes()
    raw = sha256(source)
    if raw not in _cache():
        tree = _without_docstrings(ast.parse(source, filename=str(path)))
        _cache()[raw] = [sha256(ast.dump(tree)), sorted(set(_imports(tree)))]
    digest, imports = _cache()[raw]
    return digest, tuple(imports)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body
            if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
                node.body = body[1:]
    return tree


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from _imports(child)


@cache
def module_file(name: str, root: Path) -> Path | None:
    """Return the file of a module in `root`; None where there is none."""
    base = root.joinpath(*name.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def _is_outside(name: str) -> bool:
    if name.startswith("bindscope.studies.") and name.endswith(_OF_STUDY):
        return True
    return any(name == o or (o != "bindscope" and name.startswith(f"{o}.")) for o in OUTSIDE)


@cache
def closure(roots: tuple[str, ...]) -> tuple[dict[str, Path], frozenset[str]]:
    """Follow the imports of `roots` through the library.

    Parameters
    ----------
    roots
        Paths of scripts (ending in ``.py``) and dotted module names.

    Returns
    -------
    tuple
        The files by name, and the names of third-party top-level packages they import.
    """
    files: dict[str, Path] = {}
    foreign: set[str] = set()
    packages: set[str] = set()  # of users: modules of theirs that a root imports are followed too
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name in files or _is_outside(name):
            continue
        path = SCRIPTS / name if name.endswith(".py") else module_file(name, SOURCE)
        top = name.partition(".")[0]
        if path is None and top not in NUMERIC and (name in roots or top in packages):
            path = _user_file(name, must_be_there=name in roots)
            packages.add(top)
        if path is None:
            foreign.add(name.partition(".")[0])
            continue
        files[name] = path
        todo.extend(parse_module(path)[1])
    return files, frozenset(foreign)


def _user_file(name: str, *, must_be_there: bool) -> Path | None:
    """Return the file of a module that is not ours; nothing is imported."""
    try:
        top = find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        top = None
    folders = (top and top.submodule_search_locations) or ()
    found = [file for folder in folders if (file := module_file(name, Path(folder).parent))]
    if "." not in name and top and top.origin:
        found = [Path(top.origin)]
    if must_be_there and not found:
        raise ConfigError(
            f"python:{name}",
            "there is no module of this name on sys.path",
            "install it in this environment, or put its folder on PYTHONPATH",
        )
    return found[0] if found else None


@cache
def own_code(roots: tuple[str, ...]) -> str:
    """Hash the modules and numeric library versions behind one step; see `closure`."""
    files, foreign = closure(roots)
    modules = {name: parse_module(path)[0] for name, path in files.items()}
    versions = {
        distribution: _version(distribution)
        for package, distribution in NUMERIC.items()
        if package in foreign
    }
    return sha256(canonical_json({"modules": modules, "versions": versions}))[:16]


def numeric_versions() -> dict[str, str]:
    """Return the versions of all numeric libraries, without what says which build it is."""
    return {name: _version(name) for name in sorted(set(NUMERIC.values()))}


@cache
def _version(distribution: str) -> str:
    return version(distribution).partition("+")[0]


def chained_code(own: str, inputs: Iterable[str]) -> str:
    """Combine a step's own code hash with the code of its inputs into ``<own>:<chained>``."""
    chained = sha256(canonical_json([own, sorted({code.partition(":")[2] for code in inputs})]))
    return f"{own}:{chained[:16]}"
