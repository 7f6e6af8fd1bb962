"""Files that other code or another configuration made are made again, whoever remembers them.

Snakemake knows what made a file from records in the clone. Each of these cases takes them away, or
lets them speak of other files than those that are there.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from harness import Clone

from bindscope.commands.lock import RECORD, Starter
from bindscope.core.files import write_json
from bindscope.core.standing import RECORD as STANDING

pytestmark = [pytest.mark.workflow, pytest.mark.slow, pytest.mark.timeout(900)]
REPORT = "results/report.html"
AT_THE_END = {"table", "figure", "report"}


def edit(clone: Clone) -> None:
    """Change the code of every fit."""
    path = clone.path / "src/bindscope/studies/binding_information/estimates.py"
    text = path.read_text()
    line = "    return {name: result.losses[name] for name in LOSSES if name in result.losses}"
    assert line in text
    path.write_text(text.replace(line, f"    unused = 0\n{line}"))


def forget_records(clone: Clone) -> None:
    shutil.rmtree(clone.path / ".snakemake")


def bad(clone: Clone) -> list[str]:
    """Return what `verify` finds."""
    done = clone.bindscope("verify", check=False)
    return [line for line in done.stderr.splitlines() if "made " in line]


def test_code_that_was_edited_is_seen_without_records(finished: Clone, tmp_path: Path) -> None:
    clone = finished.copy(tmp_path / "clone")
    forget_records(clone)
    edit(clone)
    fit = clone.product("fit", model="identity").path()
    planned = clone.would_run()
    assert {"fit", *AT_THE_END} <= planned.keys()
    assert clone.would_run("--", fit) == {"fit": 1}  # and nothing beside the target
    assert f"{fit}: made by other code" in bad(clone)
    clone.snakemake("--", fit)
    before, after = (json.loads((at.path / fit).read_text()) for at in (finished, clone))
    assert after["code_key"] != before["code_key"]
    assert clone.would_run()["fit"] == planned["fit"] - 1

    # An older file that is restored is not believed, though the records are of the later one.
    for path in (finished.path / fit).parent.glob(f"{Path(fit).stem}*"):
        shutil.copy2(path, clone.path / path.relative_to(finished.path))
    assert clone.would_run("--", fit) == {"fit": 1}


@pytest.mark.whole
def test_a_page_of_another_configuration_is_made_again(finished: Clone, tmp_path: Path) -> None:
    """After a run of that one here without records, and of a clone that shares the results."""
    ours = finished.copy(tmp_path / "ours")
    theirs = ours.with_configfile("config/theirs.yaml")
    theirs.edit({"report.title": "Theirs"})
    theirs.snakemake()
    forget_records(ours)
    assert ours.would_run() == {"report": 1}
    assert f"{REPORT}: made from another configuration or other inputs" in bad(ours)
    assert not theirs.would_run()

    elsewhere = finished.copy(tmp_path / "elsewhere")
    shutil.rmtree(elsewhere.path / "results")
    (elsewhere.path / "results").symlink_to(ours.path / "results")
    elsewhere.snakemake()
    assert ours.results()["report.html"] == finished.results()["report.html"]
    assert theirs.would_run() == {"report": 1}
    assert not ours.would_run()


@pytest.mark.whole
def test_snakemake_alone_keeps_to_one_run_in_the_results(finished: Clone, tmp_path: Path) -> None:
    clone = finished.copy(tmp_path / "clone")
    (clone.path / REPORT).unlink()
    record = clone.path / RECORD
    write_json(record, asdict(Starter.this_process()) | {"host": "node17"})
    failed = clone.snakemake("--", REPORT, check=False)
    assert failed.returncode == 1
    assert "another run is at work in these results" in failed.stderr
    assert not (clone.path / REPORT).exists()
    record.unlink()
    clone.snakemake("--", REPORT)
    assert not record.exists()


@pytest.mark.whole
def test_an_output_that_a_failed_job_deleted_is_made_again(finished: Clone, tmp_path: Path) -> None:
    """All that was made of it stands, and asks for nothing."""
    clone = finished.copy(tmp_path / "clone")
    script = clone.path / "workflow/scripts/anchors.py"
    works = script.read_text()
    script.write_text("raise SystemExit('no anchors')\n")
    assert clone.snakemake(check=False).returncode
    lost = 3 - len(list((clone.path / "results/anchors").rglob("*.json")))
    assert lost
    script.write_text(works)
    assert clone.would_run()["anchors"] == lost
    clone.snakemake()
    assert clone.results() == finished.results()
    assert not clone.would_run()
    assert not (clone.path / STANDING).exists()
