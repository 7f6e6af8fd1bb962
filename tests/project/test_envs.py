"""The conda environments: every spec parses, is the lock's version, and nothing is missing."""

import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
import yaml
from lock_file import read_pins
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rattler import MatchSpec

from bindscope.core.definitions import parse_module
from bindscope.core.registries import ADAPTERS, READERS, RENDERERS, SPACES
from bindscope.studies.binding_information.registry import FAMILIES, options_of

ENVS = sorted(Path("envs").glob("*.yaml"))
# conda-forge's name where it is not PyPI's.
PYPI = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
# The project that an import comes from, where the names differ.
PROJECT = {"sklearn": "scikit-learn", "yaml": "pyyaml", "PIL": "pillow"}
# Imported by name only: by Snakemake itself (a script's own library), by the tools that start it.
NOT_IN_JOBS = {"snakemake", "psutil"}
# Imports torch when a program imports torchvision, which needs it anyway.
WITH_TORCHVISION = "bindscope.core.workarounds"
DRAWN = [
    ".".join(path.relative_to("src").with_suffix("").parts)
    for room in ("tables", "figures", "report")
    for path in Path("src/bindscope", room).glob("*.py")
]
IMPLEMENTATIONS = {
    "base": [
        *SPACES.values(),
        *RENDERERS.values(),
        *READERS.values(),
        ADAPTERS["known-answer"],
        *DRAWN,
    ],
    "torch": [*ADAPTERS.values(), *(path for name in FAMILIES for path in options_of(name).code())],
}


def specs(path: Path) -> dict[str, MatchSpec]:
    entries = yaml.safe_load(path.read_text())["dependencies"]
    parsed = [MatchSpec(entry, strict=True) for entry in entries]
    return {spec.name.normalized: spec for spec in parsed}


@cache
def scripts(env: str) -> frozenset[str]:
    """Return the scripts of the rules that run in an environment."""
    paths = set()
    for rules in Path("workflow/rules").glob("*.smk"):
        for rule in re.split(r"(?m)^(?:rule|use rule) ", rules.read_text())[1:]:
            script = re.search(r'script:\s+"\.\./(scripts/\w+\.py)"', rule)
            if script and f'"../../envs/{env}.yaml"' in rule:
                paths.add(f"workflow/{script[1]}")
    return frozenset(paths)


def imported(env: str) -> set[str]:
    """Return the third-party projects that an environment's scripts reach, lazy imports too."""
    return reached(
        "bindscope.core.job", *scripts(env), *(r.partition(":")[0] for r in IMPLEMENTATIONS[env])
    )


def imports_of(file: Path) -> Iterator[str]:
    """Yield what a module imports when it runs, inside functions too."""
    module = parse_module(file)
    parts = module.definitions.values()
    for source, name in chain(module.imports.values(), *(part.imports.values() for part in parts)):
        yield source
        if name:
            yield f"{source}.{name}"


def reached(*roots: str) -> set[str]:
    """Return the third-party projects that modules and scripts import, through the library."""
    todo = list(roots)
    visited: set[str] = {WITH_TORCHVISION}
    foreign = set()
    while todo:
        name = todo.pop()
        if name in visited:
            continue
        visited.add(name)
        base = Path("src", *name.split("."))
        candidates = [Path(name), base.with_suffix(".py"), base / "__init__.py"]
        file = next((path for path in candidates if path.is_file()), None)
        if file:
            todo.extend(imports_of(file))
        elif name.partition(".")[0] not in {"bindscope", *sys.stdlib_module_names}:
            foreign.add(name.partition(".")[0])
    return {canonicalize_name(PROJECT.get(name, name)) for name in foreign - NOT_IN_JOBS}


@pytest.mark.parametrize("path", ENVS, ids=str)
def test_versions_are_the_locks(path: Path) -> None:
    pins = read_pins()
    for name, spec in specs(path).items():
        if name == "python":
            assert str(spec.version) == "3.11.*"
            continue
        pin = pins[canonicalize_name(PYPI.get(name, name))]
        assert str(spec.version) == f"{pin}.*", f"{path}: {name} is {pin} in requirements.lock"


@pytest.mark.parametrize("path", ENVS, ids=str)
def test_nothing_that_a_job_imports_is_missing(path: Path) -> None:
    assert scripts(path.stem)
    present = {canonicalize_name(PYPI.get(name, name)) for name in specs(path)}
    assert not imported(path.stem) - present


def test_everything_imported_is_declared() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["workflow"], *extras["xarray"]]
    names = {canonicalize_name(Requirement(text).name) for text in declared}
    modules = [
        ".".join(path.relative_to("src").with_suffix("").parts)
        for path in Path("src/bindscope").rglob("*.py")
    ]
    missing = sorted(reached(*modules) - names)
    assert not missing


@pytest.mark.parametrize("path", ENVS, ids=str)
def test_only_conda_forge(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["channels"] == ["conda-forge", "nodefaults"]


def test_every_rule_with_a_script_has_an_environment() -> None:
    for rules in Path("workflow/rules").glob("*.smk"):
        for rule in re.split(r"(?m)^rule ", rules.read_text())[1:]:
            named = re.search(r"envs/(\w+)\.yaml", rule)
            assert "script:" not in rule or (named and Path(f"envs/{named[1]}.yaml") in ENVS)
