"""What Snakemake runs again after a run, a change, a touch, a deletion; and its own report."""

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml
from harness import Clone

from bindscope.config.root import Config
from bindscope.studies.build import build, captions

pytestmark = [pytest.mark.workflow, pytest.mark.slow, pytest.mark.timeout(900)]
TABLE = "results/tables/binding_information.parquet"


def products(config: dict[str, object]) -> dict[str, tuple[str, str, str]]:
    graph = build(Config.model_validate(config))
    return {p.path(): (p.rule, p.spec, p.code) for p in graph.products.values()}


def test_touching_every_file_runs_nothing(finished: Clone, tmp_path: Path) -> None:
    clone = finished.copy(tmp_path / "clone")
    for path in clone.path.rglob("*"):
        if ".snakemake" not in path.parts:
            os.utime(path)
    assert clone.would_run() == Counter()


@pytest.mark.parametrize(
    "change",
    [
        {"studies.binding_information.fits.0.seed_blocks": [[0], [1]]},
        pytest.param({"models.0.training.steps": 5}, marks=pytest.mark.whole),
    ],
    ids=lambda change: next(iter(change)),
)
def test_snakemake_runs_what_the_graph_says(
    finished: Clone, tmp_path: Path, change: dict[str, object]
) -> None:
    """Of further changes in `test_forecast.py`."""
    before = products(yaml.safe_load((finished.path / finished.configfile).read_text()))
    clone = finished.copy(tmp_path / "clone")
    clone.edit(change)
    after = products(yaml.safe_load((clone.path / clone.configfile).read_text()))
    changed = Counter(entry[0] for p, entry in after.items() if before.get(p) != entry)
    assert clone.would_run() == changed
    assert 0 < changed.total() < len(after)


@pytest.mark.whole
def test_going_back_to_a_configuration_makes_only_what_is_not_keyed(
    finished: Clone, tmp_path: Path
) -> None:
    clone = finished.copy(tmp_path / "clone")
    clone.edit({"studies.binding_information.probes.0.steps": 41})
    clone.snakemake("--", TABLE)
    added = {path for path in clone.results() if path not in finished.results()}
    assert any(path.startswith("fits/") for path in added)
    shutil.copy2(finished.path / finished.configfile, clone.path / clone.configfile)
    again = clone.would_run()
    assert again.keys() <= {"table", "figure", "report"}
    clone.snakemake("--", TABLE)
    rest = {path: digest for path, digest in clone.results().items() if path not in added}
    assert rest == finished.results()


@pytest.mark.whole
def test_deleted_store_is_made_again_and_a_damaged_manifest_is_refused(
    finished: Clone, tmp_path: Path
) -> None:
    clone = finished.copy(tmp_path / "clone")
    shutil.rmtree(next((clone.path / "results/codes/tiny").glob("test-*.zarr")))
    # Snakemake makes an intermediate again when a job needs it, not before.
    assert clone.would_run() == Counter()
    assert clone.would_run("--forcerun", "anchors")["codes"] == 1
    fit = clone.product("fit", model="identity").path()
    clone.snakemake("--forcerun", "anchors", "--", fit)
    assert clone.results() == finished.results()
    manifest = next((clone.path / "results/codes/tiny").glob("test-*.json"))
    content = json.loads(manifest.read_text())
    content["spec_key"] = "0" * 64
    manifest.write_text(json.dumps(content))
    failed = clone.snakemake("--forcerun", "anchors", "--", fit, check=False)
    assert failed.returncode != 0
    assert str(manifest.relative_to(clone.path)) in failed.stdout + failed.stderr
    assert "remedy" in failed.stdout + failed.stderr


@pytest.mark.whole
def test_snakemakes_own_report_has_our_captions(finished: Clone, tmp_path: Path) -> None:
    clone = finished.copy(tmp_path / "clone")
    clone.snakemake("--report", "results/snakemake-report.html")
    page = (clone.path / "results/snakemake-report.html").read_text()
    assert captions()["tokens"][:40] in page
    assert "The table priors; docs/tables.md describes" in page
