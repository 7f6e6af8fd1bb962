"""A clone in a temporary folder, and Snakemake in it."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from bindscope.commands.warm import LIBRARIES, warm_interpreter
from bindscope.config.root import Config
from bindscope.core import definitions, keys
from bindscope.core.graph import Product
from bindscope.studies.build import build

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "Snakefile",
    "requirements.lock",
    "workflow",
    "profiles",
    "config",
    "envs",
    "src",
    "resources",
)
# What Snakemake and commands import, beside what jobs do.
LAUNCHERS = ("psutil", "rich.progress", "snakemake.cli", "torch._dynamo")
HALF_WRITTEN = shutil.ignore_patterns("*.pyc.*")  # bytecode that another process is writing
# Lines of a dry run, of a rule and a reason: `    6  fit    output missing`.
_COUNT = re.compile(r"^ *(\d+)  (\w+) +\S", re.MULTILINE)


@cache
def warm_python() -> str:
    """Start an interpreter for this process that has imported the large libraries; its path."""
    warm = warm_interpreter((*LIBRARIES, *LAUNCHERS))
    executable = str(warm.__enter__())
    atexit.register(warm.__exit__, None, None, None)
    return executable


@cache
def parse_library() -> None:
    """Parse all modules and scripts, once in this process."""
    for folder in ("src", "workflow/scripts"):
        for path in (ROOT / folder).rglob("*.py"):
            definitions.parse_module(path)


@dataclass
class Clone:
    """A copy of the project with results of its own."""

    path: Path
    configfile: str = "config/presets/ci.yaml"

    @classmethod
    def make(cls, path: Path) -> Clone:
        """Copy what the pipeline needs; not the results. Bytecode too: jobs need not compile it."""
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, path / part, ignore=HALF_WRITTEN)
            else:
                path.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, path / part)
        parse_library()
        (path / ".snakemake").mkdir()
        definitions.save_cache(path)  # keys are by content: its first run need not parse it again
        return cls(path)

    def copy(self, path: Path) -> Clone:
        """Copy this clone with its results and Snakemake's records, times kept."""
        shutil.copytree(self.path, path, symlinks=True, ignore=HALF_WRITTEN)
        return Clone(path, self.configfile)

    def snakemake(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run Snakemake here, and its jobs, forked from a warm interpreter (`warm.py`)."""
        done = subprocess.run(
            [warm_python(), *self.command(*arguments)[1:]],
            cwd=self.path,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=1200,
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}")
        return done

    def run_jobs(self, calls: Path | None = None) -> None:
        """Run every job of the configuration, without Snakemake (`forked.py`).

        `calls` is a folder for what of the library each job calls.
        """
        noted = {"FORKED_CALLS": str(calls)} if calls else {}
        done = subprocess.run(
            [warm_python(), Path(__file__).with_name("forked.py"), self.configfile],
            cwd=self.path,
            # Threads are the configuration's: one, as Snakemake says to a job.
            env={
                **os.environ,
                "PYTHONPATH": str(self.path / "src"),
                "OMP_NUM_THREADS": "1",
                **noted,
            },
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert not done.returncode, f"{done.stdout}\n{done.stderr}"

    def bindscope(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the `bindscope` command of this clone."""
        return subprocess.run(
            [warm_python(), "-m", "bindscope.cli", *arguments, "--configfile", self.configfile],
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": str(self.path / "src")},
            capture_output=True,
            text=True,
            timeout=600,
            check=check,
        )

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of Snakemake, with the plain interpreter."""
        return [
            sys.executable,
            "-m",
            "snakemake",
            "--cores",
            "2",
            "--configfile",
            self.configfile,
            *arguments,
        ]

    def would_run(self, *arguments: str) -> Counter[str]:
        """Count the jobs of a dry run by rule, `all` left out."""
        counts: Counter[str] = Counter()
        for n, rule in _COUNT.findall(self.snakemake("--dry-run", *arguments).stdout):
            counts[rule] += int(n)
        return counts

    def edit(self, change: dict[str, object] | None = None, **values: object) -> None:
        """Change values of the configuration by dotted path, `models.0.seed`."""
        file = self.path / self.configfile
        config = yaml.safe_load(file.read_text())
        for path, value in {**(change or {}), **values}.items():
            assign(config, path, value)
        file.write_text(yaml.safe_dump(config, sort_keys=False))

    def with_configfile(self, configfile: str) -> Clone:
        """Give this clone another configuration, at first a copy of its own."""
        shutil.copy2(self.path / self.configfile, self.path / configfile)
        return Clone(self.path, configfile)

    def product(self, rule: str, **wildcards: str) -> Product:
        """Look up the one product of a rule with these wildcards."""
        config = Config.model_validate(yaml.safe_load((self.path / self.configfile).read_text()))
        (selected,) = (
            product
            for product in build(config).select(rule)
            if wildcards.items() <= product.wildcards.items()
        )
        return selected

    def jobs(self, script: str = r"\w+") -> list[int]:
        """Return the processes that run a script here."""
        words = re.compile(rf"\.snakemake/scripts/tmp\w*\.{script}\.py".encode())
        numbers = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                here = (entry / "cwd").readlink() == self.path
                if here and words.search((entry / "cmdline").read_bytes()):
                    numbers.append(int(entry.name))
        return numbers

    def results(self) -> dict[str, str]:
        """Hash every product, by path; logs, benchmarks and Snakemake's time stamps left out."""
        root = self.path / "results"
        return {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(root.rglob("*"))
            if path.is_file()
            and path.name != ".snakemake_timestamp"
            and path.relative_to(root).parts[0] not in ("logs", "benchmarks")
        }


def assign(config: object, path: str, value: object) -> None:
    """Set one value of a nested configuration by its dotted path; one past a list's end appends."""
    *parents, last = path.split(".")
    for name in parents:
        config = config[int(name)] if isinstance(config, list) else config.setdefault(name, {})
    if isinstance(config, list):
        config[int(last) : int(last) + 1] = [value]
    else:
        config[last] = value


def flip_a_byte(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def forget() -> None:
    """Forget what was computed of modules: the next key reads them again."""
    functions = (
        keys.parse_module,
        keys.module_file,
        keys.closure,
        keys.hash_step,
        keys._used_by,
        keys._file,
        keys.is_outside,
    )
    for function in functions:
        function.cache_clear()
