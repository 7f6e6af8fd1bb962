"""Files that other code or another configuration made are made again, whoever remembers them.

Snakemake knows what made a file from records in the clone. Each of these cases takes them away, or
lets them speak of other files than those that are there.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from harness import Clone

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
    assert not clone.would_run()
    assert not bad(clone)
    edit(clone)
    expected = {"fit", *AT_THE_END}
    assert expected <= clone.would_run().keys()
    fit = clone.product("fit", model="identity")
    assert f"{fit.path()}: made by other code" in bad(clone)
    assert "made by other code" in clone.snakemake("--dry-run").stdout
    clone.snakemake("--", fit.path())
    before, after = (json.loads((at.path / fit.path()).read_text()) for at in (finished, clone))
    assert after["code_key"] != before["code_key"]
    assert fit.path() not in "".join(bad(clone))


def test_results_of_older_code_that_were_restored_are_made_again(
    finished: Clone, tmp_path: Path
) -> None:
    """The records are those of a later run, which would be believed."""
    clone = finished.copy(tmp_path / "clone")
    edit(clone)
    clone.snakemake()
    assert not clone.would_run()
    shutil.rmtree(clone.path / "results")
    shutil.copytree(finished.path / "results", clone.path / "results", symlinks=True)
    assert {"fit", *AT_THE_END} <= clone.would_run().keys()


def test_pages_of_another_configuration_are_made_again(finished: Clone, tmp_path: Path) -> None:
    clone = finished.copy(tmp_path / "clone")
    other = clone.with_configfile("config/other.yaml")
    other.edit({"studies.binding_information.probes.0.steps": 41})
    other.snakemake()
    forget_records(clone)
    assert clone.would_run().keys() == AT_THE_END
    page = clone.product("report").path()
    assert f"{page}: made from another configuration" in bad(clone)
    assert not other.would_run()


def test_clones_that_share_results_see_each_others_pages(finished: Clone, tmp_path: Path) -> None:
    ours = finished.copy(tmp_path / "ours")
    theirs = finished.copy(tmp_path / "theirs")
    shutil.rmtree(theirs.path / "results")
    (theirs.path / "results").symlink_to(ours.path / "results")
    theirs.edit({"studies.binding_information.probes.0.steps": 41})
    theirs.snakemake()
    assert ours.would_run().keys() == AT_THE_END
    ours.snakemake()
    assert ours.results()["report.html"] == finished.results()["report.html"]
    assert theirs.would_run().keys() == AT_THE_END


def test_only_what_a_target_is_made_from_is_made_again(finished: Clone, tmp_path: Path) -> None:
    clone = finished.copy(tmp_path / "clone")
    forget_records(clone)
    edit(clone)
    fit = clone.product("fit", model="identity").path()
    assert clone.would_run("--", fit).keys() == {"fit"}
    assert clone.would_run("--rerun-triggers", "mtime", "--").total() == 0
