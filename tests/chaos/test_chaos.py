"""Rounds of `chaos.py`, late in the pipeline, where little is to be made again."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import yaml
from chaos import (
    FAULTS,
    Clone,
    delete,
    exchange,
    flip,
    kinds,
    one_round,
    rounds,
    truncate,
)

from bindscope.commands.verify import product_problems
from bindscope.config.root import Config
from bindscope.core.digests import digests_path, read_keys, write_digests
from bindscope.studies.build import build

pytestmark = [pytest.mark.workflow, pytest.mark.slow, pytest.mark.timeout(1200)]
SUFFIXES = ("csv", "html", "parquet")
FIT, REPORT = 7, 13  # in chaos.RULES
# A fault, and the number of its target, a rule or a kind of file. `test_commands.py` repairs files
# that are damaged or deleted, `test_bad_input.py` exchanged ones; `test_deaths.py` kills jobs and
# Snakemake, `test_project_run.py` all processes of a run.
ROUNDS = {
    "truncated file": "tables .csv",
    "Ctrl-C": REPORT,
    "full disk": FIT,
    "two runs": REPORT,
}


@pytest.fixture(scope="module")
def clone(finished: Clone, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return finished.copy(tmp_path_factory.mktemp("chaos") / "clone")


@pytest.mark.parametrize("damage", [flip, truncate, delete, exchange])
def test_verify_names_damage_to_any_file(
    damage: Callable[[Path, Random], None], clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file that the run has made, one after the other; and then all are sound again."""
    monkeypatch.chdir(clone.path)
    configured = yaml.safe_load(Path(clone.configfile).read_text())
    products = build(Config.model_validate(configured)).products.values()
    owners = {
        str(digests_path(path)): product
        for product in products
        for path in map(product.path, product.step.outputs)
    }
    chance, unseen = Random(0), []
    for name in clone.results():
        path = Path("results", name)
        before, when = path.read_bytes(), path.stat()
        damage(path, chance)
        # An exchange may bring the same bytes.
        changed = not path.exists() or path.read_bytes() != before
        if changed and not product_problems(owners[str(digests_path(path))]):
            unseen.append(name)
        path.write_bytes(before)
        # Files that look newer than what was made of them would be made again by the next test.
        os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns))
    assert unseen == []
    assert not any(map(product_problems, products))


@pytest.mark.whole
def test_faults_end_well(clone: Clone) -> None:
    numbers = {kind: i for i, kind in enumerate(sorted(kinds(clone)))}
    faults = [(fault, numbers.get(target, target)) for fault, target in ROUNDS.items()]
    ended = list(rounds(clone, faults))
    notes = [each.note for each in ended if each.verdict == "wrong"]
    assert notes == [], "\n".join(notes)
    verdicts = {each.fault: each.verdict for each in ended}
    assert verdicts["truncated file"] == "healed", ended


@pytest.mark.whole
def test_another_result_that_passes_for_sound_is_counted_as_wrong(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forge(_: int, copy: Clone, __: object) -> tuple[str, str]:
        files = [copy.path / f"results/tables/priors.{suffix}" for suffix in SUFFIXES]
        files[0].write_text("forged")
        write_digests(map(str, files), read_keys(files[0]))
        return "tables .csv", ""

    monkeypatch.setitem(FAULTS, "forged", forge)
    ended = one_round(clone, clone.results(), "forged", 0)
    assert ended.verdict == "wrong"
    assert "2 files differ: tables/priors.csv, tables/priors.sha256" in ended.note
