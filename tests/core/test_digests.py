"""Digests of a job's files: where they are, what they refuse, and that each job has them."""

import hashlib
import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from forked import Names
from jobs_by_hand import ROOT

from bindscope.commands.hours import read_records
from bindscope.core import job as jobs
from bindscope.core.digests import (
    check_file,
    digests_path,
    file_problem,
    read_keys,
    write_digests,
)
from bindscope.core.errors import StoreError
from bindscope.core.job import run_job
from bindscope.studies.build import all_steps


def test_the_files_of_a_product_share_their_digests_with_those_of_no_other() -> None:
    """Wildcards may hold dots and dashes, and look like keys; each step has keys of its own."""
    values = {"dataset": "feedbeef", "layer": "0.5", "probe": "a-deadbeef"}
    places: Counter[Path] = Counter()
    for number, step in enumerate(all_steps().values()):
        values["key"] = f"{number:08x}"
        paths = {digests_path(path.format_map(_Values(values))) for path in step.outputs.values()}
        assert len(paths) == 1, step.name
        places += Counter(paths)
    assert set(places.values()) == {1}


class _Values(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name


KEYS = {"spec_key": "5" * 64, "code_key": "own:chained"}


@pytest.fixture
def product(tmp_path: Path) -> list[str]:
    names = ("a-0123abcd.jsonl", "a-0123abcd.details.safetensors", "a-0123abcd/part.zip")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode() * 5)
    outputs = [str(tmp_path / name) for name in names]
    write_digests(outputs, KEYS)
    return outputs


def test_digests_are_those_of_sha256sum(product: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "a-0123abcd.sha256"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK\n") == len(product)


def test_digests_name_what_made_the_files(product: list[str]) -> None:
    assert all(read_keys(path) == KEYS for path in product)
    digests_path(product[0]).unlink()
    assert read_keys(product[0]) == {}


def test_no_byte_of_a_file_can_change(product: list[str]) -> None:
    for path in map(Path, product):
        whole = path.read_bytes()
        check_file(path)
        for place in range(0, len(whole), 7):
            for changed in (whole[:place], whole[:place] + b"?" + whole[place + 1 :]):
                path.write_bytes(changed)
                assert "its digest differs" in file_problem(path)
        path.write_bytes(whole)


def test_without_digests_a_file_is_refused(product: list[str]) -> None:
    digests_path(product[1]).unlink()
    with pytest.raises(StoreError, match="not finished") as refused:
        check_file(product[1])
    assert f"--forcerun {product[1]}" in refused.value.remedy


# --- jobs ----------------------------------------------------------------------------------------


@pytest.fixture
def snakemake(product: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """What Snakemake would give to a job, with an input, a committed file and two outputs."""
    resource = tmp_path / "committed.csv"
    resource.write_text("a")
    files = {"fit": product[:1], "resource_committed": [str(resource)]}
    output_files = {"rows": str(tmp_path / "b.json"), "store": str(tmp_path / "b.zarr")}
    job = jobs.Job("x", {}, "{}", "c", Names(files), Names(output_files), Names({}))
    monkeypatch.setattr(jobs, "start", lambda _: job)
    return SimpleNamespace(log=[])


def write(job: jobs.Job) -> None:
    """Write the outputs."""
    Path(job.output.rows).write_text(json.dumps("rows"))
    Path(job.output.store).mkdir()


def test_a_job_writes_digests(snakemake: object, tmp_path: Path) -> None:
    run_job(write, snakemake)
    digest = hashlib.sha256(b'"rows"').hexdigest()
    *keys, line = (tmp_path / "b.sha256").read_text().splitlines()
    assert line == f"{digest}  b.json"
    assert [key.split()[1] for key in keys] == ["spec_key", "code_key"]


def test_a_job_records_what_it_was_and_took(
    snakemake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    snakemake.log, snakemake.resources = ["results/logs/x/a.log"], {"units": 7}
    run_job(write, snakemake)
    ((kind, ((units, seconds),)),) = read_records().items()
    assert kind[:2] == ("x", "cpu")
    assert units == 7
    assert seconds == pytest.approx(time.time() - psutil.Process().create_time(), abs=20)


def test_a_job_does_not_begin_with_a_changed_input(
    snakemake: object, product: list[str], tmp_path: Path
) -> None:
    Path(product[0]).write_text("changed")
    with pytest.raises(StoreError, match=f"{product[0]}.*digest differs"):
        run_job(write, snakemake)
    assert not (tmp_path / "b.json").exists()


def test_a_job_that_fails_leaves_no_digests_of_what_was_there(
    snakemake: object, tmp_path: Path
) -> None:
    run_job(write, snakemake)
    with pytest.raises(ZeroDivisionError):
        run_job(lambda _: 1 / 0, snakemake)
    assert not (tmp_path / "b.sha256").exists()


def test_every_script_runs_its_job_that_way() -> None:
    for script in (ROOT / "workflow/scripts").glob("*.py"):
        assert script.read_text().endswith("    bindscope.run_job(main, snakemake)\n"), script
