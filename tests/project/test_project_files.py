"""The files around the code: lock, licences, citation, changelog, CI."""

import ast
import csv
import re
import shlex
import subprocess
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from lock_file import HASHES, LOCK, read_pins
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from snakemake.cli import get_argument_parser

import bindscope

PROJECT = tomllib.loads(Path("pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIRED = [*PROJECT["dependencies"], *EXTRAS["workflow"], *EXTRAS["docs"]]
MAKEFILE = Path("Makefile").read_text()
TARGETS = set(re.findall(r"(?m)^([a-z][a-z-]*):", MAKEFILE))
# What a program under MIT may be shipped with; copyleft that reaches our code is not among them.
PERMISSIVE = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla|Zlib|HPND|CC0|Unlicense|0BSD"
    r"|matplotlib|LGPL|NCSA|WTFPL"
)


def runtime() -> list[str]:
    """Return the installed projects that the runtime dependencies need, and they themselves."""
    pins = read_pins()
    todo = [Requirement(text).name for text in REQUIRED]
    needed: set[str] = set()
    while todo:
        name = canonicalize_name(todo.pop())
        if name in needed or name not in pins:
            continue
        needed.add(name)
        for text in distribution(name).requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(requirement.name)
    return sorted(needed)


def licence(name: str) -> str:
    """Return what a project says about its licence: expression, classifiers, else its files."""
    project = distribution(name)
    metadata = project.metadata
    classifiers = [c for c in metadata.get_all("Classifier") or [] if c.startswith("License")]
    texts = [metadata.get("License-Expression"), *classifiers, metadata.get("License")]
    if not any(texts):
        files = [
            f for f in project.files or [] if f.name.upper().startswith(("LICENSE", "COPYING"))
        ]
        texts = [str(file.locate().read_text(encoding="utf-8"))[:300] for file in files]
    return " ".join(text[:300] for text in texts if text)


def test_the_lock_names_no_machine_no_build_and_no_hash() -> None:
    lines = [line for line in LOCK.read_text().splitlines() if line.strip()[:1] not in ("", "#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line) for line in lines)
    text = "\n".join(lines)
    for forbidden in ("+cpu", "file:", "/", "--", "@", "nvidia", "cuda", "triton"):
        assert forbidden not in text
    assert "file:" not in LOCK.read_text()
    assert "/work" not in LOCK.read_text()


def test_every_pin_has_hashes_but_those_of_builds_that_differ_by_machine() -> None:
    text = HASHES.read_text()
    assert read_pins(HASHES) == {
        name: version
        for name, version in read_pins().items()
        if name not in ("torch", "torchvision")
    }
    pins = [line for line in text.splitlines() if "==" in line]
    parts = re.split(r"(?m)^[a-z0-9-]+==", text)[1:]
    assert len(parts) == len(pins)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", part) for part in parts)
    for forbidden in ("+cpu", "file:", "/work", "@", "--index", "--find"):
        assert forbidden not in text


def test_no_known_vulnerability_is_locked() -> None:
    """Of resources/advisories.csv, without a network; add a row for each one that is heard of."""
    pins = read_pins()
    direct = [*PROJECT["dependencies"], *EXTRAS["workflow"]]
    names = {canonicalize_name(Requirement(text).name) for text in direct}
    with Path("resources/advisories.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        assert row["package"] in names
        assert row["id"]
        assert row["source"].startswith("https://")
        assert Version(pins[row["package"]]) >= Version(row["fixed"]), row


def test_the_lock_satisfies_the_project() -> None:
    pins = read_pins()
    requirements = [*PROJECT["dependencies"], *EXTRAS["workflow"], *EXTRAS["docs"], *EXTRAS["dev"]]
    for text in requirements:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), text


@pytest.mark.parametrize("name", runtime())
def test_licences_of_what_we_need_are_permissive(name: str) -> None:
    text = licence(name)
    assert PERMISSIVE.search(text), f"{name}: {text or 'says nothing'}"


def test_one_version_everywhere() -> None:
    assert PROJECT["version"] == bindscope.__version__
    citation = yaml.safe_load(Path("CITATION.cff").read_text())
    assert citation["version"] == bindscope.__version__
    assert f"## [{bindscope.__version__}]" in Path("CHANGELOG.md").read_text()


def steps(workflow: Path) -> list[str]:
    jobs: dict[str, Any] = yaml.safe_load(workflow.read_text())["jobs"]
    return [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("workflow", sorted(Path(".github/workflows").glob("*.yml")), ids=str)
def test_workflows_call_targets_that_exist(workflow: Path) -> None:
    called = {
        target
        for run in steps(workflow)
        for target in re.findall(r"make (?:--[a-z-]+ )*([a-z-]+)", run)
    }
    assert called
    assert called <= TARGETS


def commands() -> list[str]:
    """Every Snakemake command of the README, the pages and the configurations."""
    pages = [Path("README.md"), *Path("docs").glob("*.md"), *Path("config").glob("**/*.yaml")]
    lines = [line for page in pages for line in page.read_text().splitlines()]
    return [
        match[1]
        for line in lines
        if (match := re.match(r"(?:#\s+)?(snakemake -.+|snakemake results.+)", line))
    ]


@pytest.mark.parametrize("command", commands())
def test_documented_commands_mean_what_they_say(command: str) -> None:
    """`--configfile` and `--resources` take several values, a target behind them among these."""
    words = shlex.split(command, comments=True)[1:]
    known, _ = get_argument_parser(profiles=[]).parse_known_args(words)
    for configfile in known.configfile or []:
        assert Path(configfile).suffix == ".yaml", command
    assert set(known.targets) <= {a for a in words if a.startswith("results/")}


def test_the_slurm_profile_repeats_the_default_one() -> None:
    """A workflow profile replaces profiles/default, so its lines must stand there too."""
    default, slurm = (
        yaml.safe_load(Path(folder, "profile.yaml").read_text())
        for folder in ("profiles/default", "workflow/profiles/slurm")
    )
    assert default
    assert {key: slurm.get(key) for key in default} == default
    assert slurm["executor"] == "slurm"


SOURCES = [path for room in ("src", "tests", "workflow") for path in Path(room).rglob("*.py")]


def test_functions_are_short_and_modules_are_read_in_one_go() -> None:
    """Statements count: lines are the formatter's business, and docstrings may be long."""
    long = [f"{path}: {n}" for path in SOURCES if (n := path.read_text().count("\n")) > 500]
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                n = sum(isinstance(inner, ast.stmt) for inner in ast.walk(node)) - 1
                long += [f"{path}, {node.name}: {n} statements"] if n > 40 else []
    assert long == []


def test_hardly_any_public_class_or_type_is_defined_twice() -> None:
    """A name means one thing; types of arrays stand in `core.array_types`."""
    modules: dict[str, set[Path]] = {}
    for path in Path("src").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            defined = node.targets[0] if isinstance(node, ast.Assign) else node
            name = getattr(defined, "id", "") or getattr(defined, "name", "")
            if name[:1].isupper() and not name.isupper():
                modules.setdefault(name, set()).add(path)
    assert len([name for name, paths in modules.items() if len(paths) > 1]) <= 10


def test_the_ci_script_is_bash_and_calls_targets_that_exist() -> None:
    subprocess.run(["bash", "-n", ".ci/run"], check=True)
    called = set(re.findall(r"make --no-print-directory ([a-z-]+)", Path(".ci/run").read_text()))
    tools = set(re.findall(r"for tool in ([a-z ]+); do", Path(".ci/run").read_text())[0].split())
    assert called - {"lint-"} <= TARGETS
    assert called >= {"test", "test-whole", "test-presets"}
    assert {f"lint-{tool}" for tool in tools} == {t for t in TARGETS if t.startswith("lint-")}


def test_every_target_is_documented() -> None:
    page = Path("docs/development.md").read_text()
    undocumented = {t for t in TARGETS - {"help"} if f"make {t}" not in page}
    assert {t for t in undocumented if not t.startswith("lint-")} == set()
