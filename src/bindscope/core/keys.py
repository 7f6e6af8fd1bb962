"""The two keys of a product: what it depends on (`spec`) and what computes it (`code`).

``spec`` is canonical JSON of the configuration slice, chained through the spec keys of the inputs.
``code`` is ``<own>:<chained>``: a hash of the definitions (functions, classes, constants) that the
step's script uses, and a hash of that with the chained hashes of its inputs. Comments, docstrings
and definitions that it does not use are not part of it, nor are modules that decide nothing; the
public versions of the numeric libraries that it uses are. Nothing is imported to compute it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from bindscope.core.definitions import EFFECTS, parse_module
from bindscope.core.errors import ConfigError
from bindscope.core.files import canonical_json, sha256

DECIDES_NOTHING = True
"""Said by modules, or by a package of all its modules, that are in no code key.

What they decide stands in the spec, or is how a job is run and reported.
"""

SOURCE = Path(__file__).resolve().parents[2]
CLONE = SOURCE.parent
SCRIPTS = CLONE / "workflow" / "scripts"
DefinitionName = tuple[str, str]  # module or script, and a definition of it
_SAID = re.compile("^DECIDES_NOTHING = True$", re.MULTILINE)

NUMERIC = {
    "matplotlib": "matplotlib",
    "numpy": "numpy",
    "pandas": "pandas",
    "PIL": "pillow",
    "pyarrow": "pyarrow",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "timm": "timm",
    "torch": "torch",
    "torchvision": "torchvision",
    "transformers": "transformers",
    "zarr": "zarr",
}


def spec_key(spec: str) -> str:
    """Return the spec key (64 hex digits) of a canonical JSON spec."""
    return sha256(spec)


@cache
def module_file(name: str, root: Path) -> Path | None:
    """Return the file of a module in `root`; None where there is none."""
    base = root.joinpath(*name.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def is_outside(name: str) -> bool:
    """Whether a module, or a package that holds it, says that it decides nothing."""
    package, _, _ = name.rpartition(".")
    if "." in package and is_outside(package):  # what the library's top says is of itself only
        return True
    path = module_file(name, SOURCE)
    return path is not None and _SAID.search(path.read_text(encoding="utf-8")) is not None


@dataclass(frozen=True)
class Code:
    """The code behind some references.

    Definitions by module or script (`EFFECTS` included), the modules' files, and third-party
    top-level packages.
    """

    definitions: Mapping[str, frozenset[str]]
    files: Mapping[str, Path]
    foreign: frozenset[str]


@cache
def closure(roots: tuple[str, ...]) -> Code:
    """Follow the names that `roots` (scripts, modules, ``"module:object"``) use."""
    # Of users: modules of theirs that a root imports are followed too, each as a whole.
    packages = frozenset(top for root in roots if (top := _package(root)) not in NUMERIC)
    reached: set[DefinitionName] = set()
    foreign: set[str] = set()
    todo = [reference for root in roots for reference in _begin(root, packages)]
    while todo:
        reference = todo.pop()
        if reference in reached:
            continue
        module, name = reference
        if _file(module, packages) is None:
            foreign.add(module.partition(".")[0])
            continue
        reached.add(reference)
        todo.extend(_used_by(module, name, packages))
        if name != EFFECTS:
            todo.append((module, EFFECTS))
    definitions: dict[str, set[str]] = {}
    for module, name in reached:
        definitions.setdefault(module, set()).add(name)
    return Code(
        {module: frozenset(names) for module, names in sorted(definitions.items())},
        {
            module: path
            for module in sorted(definitions)
            if (path := _file(module, packages)) is not None
        },
        frozenset(foreign),
    )


def _package(root: str) -> str:
    """Return the top-level package of a root that is not ours; "" of ours and of scripts."""
    module = root.partition(":")[0]
    ours = module.endswith(".py") or module_file(module, SOURCE)
    return "" if ours else module.partition(".")[0]


def _begin(root: str, packages: frozenset[str]) -> list[DefinitionName]:
    """Return where a root begins; all of a module where it names no object."""
    module, _, name = root.partition(":")
    if _file(module, packages) is None and module.partition(".")[0] in packages:
        raise ConfigError(
            f"python:{module}",
            "there is no module of this name on sys.path",
            "install it in this environment, or put its folder on PYTHONPATH",
        )
    return _targets(module, name, "", packages)


@cache
def _file(module: str, packages: frozenset[str]) -> Path | None:
    """Return a script's file, or that of a module of the library or of users' packages."""
    if module.endswith(".py"):
        return SCRIPTS / module
    ours = module_file(module, SOURCE)
    if ours or module.partition(".")[0] not in packages:
        return ours
    try:
        top = find_spec(module.partition(".")[0])  # imports nothing
    except (ImportError, ValueError):
        top = None
    if "." not in module and top and top.origin:
        return Path(top.origin)
    folders = (top and top.submodule_search_locations) or ()
    return next(
        (file for folder in folders if (file := module_file(module, Path(folder).parent))), None
    )


@cache
def _used_by(module: str, name: str, packages: frozenset[str]) -> tuple[DefinitionName, ...]:
    """Return what a definition uses, one step far."""
    path = _file(module, packages)
    parsed = parse_module(path) if path else None
    if parsed is None or name not in parsed.definitions:
        return ()
    definition = parsed.definitions[name]
    references: list[DefinitionName] = []
    for dotted in definition.uses:
        first, _, rest = dotted.partition(".")
        bound = definition.imports.get(first)
        if bound is None and first in parsed.definitions:
            references.append((module, first))
        elif bound or (bound := parsed.imports.get(first)):
            references += _targets(bound[0], bound[1], rest, packages)
    return tuple(references)


def _targets(module: str, name: str, rest: str, packages: frozenset[str]) -> list[DefinitionName]:
    """Return what an object of a module is, with the attributes that are read of it.

    An object that a module imports is looked up where it is defined; a module that is handed on
    whole is all that it defines.
    """
    parts = [part for part in (name, *rest.split(".")) if part]
    while parts and _file(f"{module}.{parts[0]}", packages):
        module = f"{module}.{parts.pop(0)}"
    if is_outside(module):
        return []
    path = _file(module, packages)
    if path is None:
        return [(module, EFFECTS)]
    parsed = parse_module(path)
    if not parts or module.partition(".")[0] in packages:
        return [(module, each) for each in (EFFECTS, *parsed.definitions)]
    if parts[0] not in parsed.definitions and parts[0] in parsed.imports:
        source, original = parsed.imports[parts[0]]
        return _targets(source, original, ".".join(parts[1:]), packages)
    return [(module, parts[0] if parts[0] in parsed.definitions else EFFECTS)]


@cache
def hash_step(roots: tuple[str, ...]) -> str:
    """Hash the definitions and numeric library versions behind one step; see `closure`."""
    code = closure(roots)
    definitions = {}
    for module, names in code.definitions.items():
        parsed = parse_module(code.files[module]).definitions
        definitions[module] = {name: parsed[name].digest for name in names & parsed.keys()}
    versions = {
        distribution: _version(distribution)
        for package, distribution in NUMERIC.items()
        if package in code.foreign
    }
    return sha256(canonical_json({"definitions": definitions, "versions": versions}))[:16]


def numeric_versions() -> dict[str, str]:
    """Return the versions of all numeric libraries, without what says which build it is."""
    return {name: _version(name) for name in sorted(set(NUMERIC.values()))}


@cache
def _version(distribution: str) -> str:
    return version(distribution).partition("+")[0]


def chained_code(step_code: str, inputs: Iterable[str]) -> str:
    """Combine a step's own code hash with the code of its inputs into ``<own>:<chained>``."""
    chained = sha256(
        canonical_json([step_code, sorted({code.partition(":")[2] for code in inputs})])
    )
    return f"{step_code}:{chained[:16]}"
