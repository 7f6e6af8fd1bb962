"""What is replaced in Snakemake plans the same jobs, and refuses what Snakemake refuses."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake.api
from snakemake.exceptions import ChildIOException

from bindscope.commands import planning

ROOT = Path(__file__).resolve().parents[2]
REPLACED = (
    "ScriptProcessor.process_job",
    "DAG.check_directory_outputs",
    "Job.conda_env_spec",
    "Resource.evaluate",
    "_IOFile.is_storage",
)
FASTER = "from bindscope.commands.planning import plan_faster\nprint(plan_faster())\n"
# Scripts with a wildcard in their name, functions everywhere, an environment, a directory.
WORKFLOW = """
wildcard_constraints: kind="a|b", n="[0-9]"
rule all:
    input: expand("{kind}-{n}.txt", kind=["a", "b"], n=range(3))
rule store:
    output: directory("stores/{n}")
    conda: "env.yaml"
    script: "store.py"
rule make:
    input: "stores/{n}"
    output: "{kind}-{n}.txt"
    log: "{kind}-{n}.log"
    benchmark: "{kind}-{n}.jsonl"
    conda: "env.yaml"
    threads: 2
    params: n=lambda wildcards: int(wildcards.n)
    resources:
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=lambda wildcards, input, threads: threads * 10 + len(input),
    script: "{wildcards.kind}.py"
"""


def dry_run(folder: Path, text: str) -> tuple[int, str]:
    """Plan a workflow; return the exit status and what is said, without dates, jobs in order."""
    (folder / "Snakefile").write_text(text)
    (folder / "env.yaml").write_text("dependencies: []\n")
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--dry-run", "--cores", "2"], cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "0"},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    _, _, said = said.partition("Building DAG of jobs...")
    return done.returncode, "\n\n".join(sorted(re.split(r"\n\[.*\]|\n\n", said)))


def scripts(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch()


def test_the_plan_is_that_of_snakemake_alone(tmp_path: Path) -> None:
    scripts(tmp_path, "store.py", "a.py", "b.py")
    plain, faster = (dry_run(tmp_path, text) for text in (WORKFLOW, FASTER + WORKFLOW))
    assert plain[0] == 0
    assert faster == plain
    for line in ("make 6", "store 3", "mem_mb=1000", "runtime=21", "threads: 2"):
        assert re.search(line.replace(" ", r"\s+"), plain[1])


def test_a_missing_script_is_missed(tmp_path: Path) -> None:
    scripts(tmp_path, "store.py", "a.py")  # that of half of the jobs of a rule is missing
    status, said = dry_run(tmp_path, FASTER + WORKFLOW)
    assert status
    assert "b.py" in said


def test_an_output_in_the_directory_of_another_rule_is_refused(tmp_path: Path) -> None:
    scripts(tmp_path, "store.py", "a.py", "b.py")
    inside = WORKFLOW.replace('"{kind}-{n}.txt"', '"stores/0/{kind}-{n}.txt"')
    status, said = dry_run(tmp_path, FASTER + inside)
    assert status
    assert "ChildIOException" in said


@pytest.mark.parametrize("seed", range(20))
def test_outputs_in_directories_are_found_like_snakemake_finds_them(seed: int) -> None:
    draw = random.Random(seed)

    class Job:
        def __init__(self) -> None:
            # Few names, so that one is often in another; some not in their shortest form.
            parts = ("".join(draw.choices("ab", k=2)) for _ in range(draw.randint(1, 3)))
            self.output = [draw.choice(["", "./", "x/../"]) + "/".join(parts)]
            self.rule = SimpleNamespace(name="r")

        def __lt__(self, other: object) -> bool:
            return False

    dag = SimpleNamespace(jobs=[Job() for _ in range(draw.randint(1, 5))])
    found = []
    check = planning.outputs_by_name(found.append)
    check(dag)
    folders = [str(Path.cwd() / os.path.normpath(job.output[0])) for job in dag.jobs]
    assert bool(found) == any(a.startswith(b + "/") for a in folders for b in folders)
    if not found:
        try:
            snakemake.dag.DAG.check_directory_outputs(dag)
        except ChildIOException:
            pytest.fail("Snakemake finds one")


def test_every_function_is_there_to_be_replaced() -> None:
    code = f"{FASTER}assert plan_faster() is plan_faster()"
    said = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said == f"{REPLACED}\n"


def test_a_snakemake_without_them_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(snakemake.dag, "ScriptProcessor")
    monkeypatch.delattr(snakemake.dag.DAG, "check_directory_outputs")
    monkeypatch.delattr(snakemake.jobs.Job, "conda_env_spec")
    monkeypatch.delattr(snakemake.resources.Resource, "evaluate")
    monkeypatch.delattr(snakemake.io._IOFile, "is_storage")
    assert planning.plan_faster.__wrapped__() == ()


def test_the_environment_is_the_rules_where_it_remembers_one() -> None:
    asked = planning.environment_of_rule(property(lambda job: "asked")).fget
    of = lambda known: SimpleNamespace(rule=SimpleNamespace(_expanded_conda_env=known))  # noqa: E731
    assert asked(of("remembered")) == "remembered"
    assert asked(of(None)) is None
    assert asked(of(snakemake.rules._NOT_CACHED)) == "asked"
    assert asked(SimpleNamespace(rule=SimpleNamespace())) == "asked"
