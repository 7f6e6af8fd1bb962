"""Every small preset runs, with few scenes and steps (`make test-presets`, not `make test`).

The jobs are forked from one process (`forked.py`); Snakemake, which plans the same ones, finds all
of them done in the end. In `test_deaths.py` Snakemake runs every rule that they use.

A preset that is added to `config/presets` is found here by its name.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml
from harness import ROOT, Clone
from PIL import Image
from quick import TRAINING_STEPS, quick

from bindscope.config.loading import load_file
from bindscope.config.root import Config
from bindscope.core.contents import file_sha256
from bindscope.studies.build import build
from bindscope.tables.schema import declared
from bindscope.tables.write import read_table

PRESETS = sorted((ROOT / "config/presets").glob("*_small.yaml"), key=lambda path: path.stem)


@pytest.mark.presets
@pytest.mark.timeout(1200)
@pytest.mark.slow
@pytest.mark.workflow
@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_a_small_preset_runs(preset: Path, tmp_path: Path) -> None:
    clone = Clone.make(tmp_path / "clone")
    clone.configfile = "config/quick.yaml"
    content = quick(load_file(preset))
    (clone.path / clone.configfile).write_text(yaml.safe_dump(content, sort_keys=False))
    graph = build(Config.model_validate(content))
    clone.run_jobs()

    figures = {path.stem: path for path in (clone.path / "results/figures").glob("*.png")}
    assert set(figures) == {product.wildcards["figure"] for product in graph.select("figure")}
    for name, path in figures.items():
        with Image.open(path) as image:
            low, high = image.convert("L").getextrema()
        assert low < high, f"nothing is drawn: {name}"
    assert graph.select("table")
    for product in graph.select("table"):
        name = product.wildcards["table"]
        table = read_table(clone.path / product.path("parquet"), declared()[name])  # checks it
        assert not table.empty, name
        if "status" in table:
            assert list(table[table["status"] == "failed"]["reason"]) == []
    assert (clone.path / "results/report.html").is_file()
    assert clone.would_run() == Counter()


@pytest.mark.presets
@pytest.mark.timeout(1200)
@pytest.mark.slow
@pytest.mark.workflow
def test_the_zoo_is_trained_and_written(tmp_path: Path) -> None:
    """One seed, few steps; what is written is what a source `zoo:` then loads.

    Toys come there in the same way: `tests/unit/test_binding_id_stored_toys.py`.
    """
    clone = Clone.make(tmp_path / "clone")
    clone.configfile = "config/quick.yaml"
    content = quick(load_file(ROOT / "config/presets/zoo.yaml"))
    content["models"] = [model for model in content["models"] if model["seed"] == 0]
    content["studies"]["binding_id"] = None
    (clone.path / clone.configfile).write_text(yaml.safe_dump(content, sort_keys=False))
    shutil.rmtree(clone.path / "resources/zoo")
    unfinished = clone.bindscope("zoo", check=False)
    assert unfinished.returncode == 1
    assert "counting-objects-0               not trained yet" in unfinished.stdout
    clone.snakemake("--cores", "1")
    written = clone.bindscope("zoo").stdout.splitlines()
    names = [model["name"] for model in content["models"]]
    assert [line.split()[0] for line in written[:-1]] == names
    for name in names:
        manifest = json.loads((clone.path / f"resources/zoo/{name}.json").read_text())
        assert manifest["sha256"] == file_sha256(clone.path / f"resources/zoo/{name}.safetensors")
        trained = manifest["objective"] != "none"
        assert len(manifest["history"]) == (2 * TRAINING_STEPS + 1 if trained else 0)
        assert not trained or manifest["cpu_seconds"] is not None  # a warm job measures its caller
    assert clone.would_run() == Counter()
