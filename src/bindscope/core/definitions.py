"""Top-level definitions of a module and the names that they use; nothing is imported."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bindscope.core.errors import StoreError
from bindscope.core.files import canonical_json, sha256, write_atomic

# Statements that define nothing: loops, conditions, calls. They belong to every definition.
EFFECTS = ""
# Fields of syntax nodes that hold statements, or what holds statements.
BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")


@dataclass(frozen=True)
class Definition:
    """What code keys need of one top-level definition.

    `digest` is a hash without comments and docstrings, `uses` are dotted names in it but for
    annotations, `imports` maps names that are imported inside it to (module, object or "").
    """

    digest: str
    uses: Sequence[str]
    imports: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Module:
    """Definitions by name, and what the module imports, as `Definition.imports`."""

    definitions: Mapping[str, Definition]
    imports: Mapping[str, Sequence[str]]


@cache
def _cache() -> dict[str, Any]:
    try:
        stored = json.loads(_cache_file().read_text())
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _cache_file(root: Path = Path()) -> Path:
    return root / ".snakemake" / "bindscope-definitions.json"


def save_cache(root: Path = Path()) -> None:
    """Keep the parsed modules, by content, where Snakemake keeps its own records of a clone."""
    if _cache_file(root).parent.is_dir():
        with suppress(StoreError):  # a user who may only read does without
            write_atomic(_cache_file(root), canonical_json(_cache()))


@cache
def parse_module(path: Path) -> Module:
    """Split a module into its top-level definitions; blocks under ``if TYPE_CHECKING:`` are not."""
    source = path.read_bytes()
    raw = sha256(source)
    if raw not in _cache():
        _cache()[raw] = asdict(_split(_strip(ast.parse(source, filename=str(path)))))
    stored = _cache()[raw]
    definitions = {name: Definition(**part) for name, part in stored["definitions"].items()}
    return Module(definitions, stored["imports"])


def _split(tree: ast.Module) -> Module:
    statements: dict[str, list[ast.stmt]] = {EFFECTS: []}
    imports: dict[str, Sequence[str]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports |= _bound(statement)
            continue
        for name in _defined(statement) or (EFFECTS,):
            statements.setdefault(name, []).append(statement)
    definitions = {name: _define(nodes) for name, nodes in statements.items() if nodes}
    return Module(definitions, imports)


def _define(nodes: Sequence[ast.stmt]) -> Definition:
    uses: set[str] = set()
    imports: dict[str, Sequence[str]] = {}
    for node in nodes:
        _add_uses(node, uses)
        for child in _statements(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                imports |= _bound(child)
    return Definition(sha256("".join(map(ast.dump, nodes))), sorted(uses), imports)


def _strip(tree: ast.Module) -> ast.Module:
    """Take out docstrings and blocks for type checkers."""
    for node in _statements(tree):
        body = getattr(node, "body", None)
        if body is None:
            continue
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, documented) and body and _is_text(body[0]):
            body = body[1:]
        node.body = [each for each in body if not _is_for_types(each)]  # type: ignore[attr-defined]
    return tree


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and the statements below it, and no expression: they are ten times as many."""
    yield node
    for field in BLOCKS:
        for child in getattr(node, field, ()):
            yield from _statements(child)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _defined(statement: ast.stmt) -> tuple[str, ...]:
    """Return the names that a statement defines, if it does nothing else."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (statement.name,)
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        leaves = [
            leaf
            for target in targets
            for leaf in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
        if all(isinstance(leaf, ast.Name) for leaf in leaves):
            return tuple(leaf.id for leaf in leaves if isinstance(leaf, ast.Name))
    return ()


def _bound(statement: ast.Import | ast.ImportFrom) -> dict[str, Sequence[str]]:
    """Return what an import binds: name -> [module, object], object "" where it is a module."""
    if isinstance(statement, ast.ImportFrom):
        if statement.level:  # relative: no module of ours has one
            return {}
        module = statement.module or ""
        return {alias.asname or alias.name: [module, alias.name] for alias in statement.names}
    return {
        alias.asname or alias.name.partition(".")[0]: [
            alias.name if alias.asname else alias.name.partition(".")[0],
            "",
        ]
        for alias in statement.names
    }


def _add_uses(node: ast.AST, uses: set[str]) -> None:
    """Add dotted names; annotations of functions and variables are not computed with."""
    if isinstance(node, ast.Name | ast.Attribute):
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            uses.add(".".join([inner.id, *reversed(parts)]))
            return
    for field in node._fields:
        value = None if field in ("annotation", "returns") else getattr(node, field, None)
        if isinstance(value, ast.AST):
            _add_uses(value, uses)
        elif isinstance(value, list):
            for child in value:
                if isinstance(child, ast.AST):
                    _add_uses(child, uses)
