"""Every small preset runs, with few scenes and steps (`make test-presets`, not `make test`).

The jobs are forked from one process (`forked.py`); Snakemake, which plans the same ones, finds all
of them done in the end. In `test_deaths.py` Snakemake runs every rule that they use.

A preset that is added to `config/presets` is found here by its name.
"""

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import ROOT, Clone
from PIL import Image
from quick import PROBE_STEPS, SCENES, TRAINING_STEPS, quick, without_embeddings

from bindscope.config.loading import load_file
from bindscope.config.root import Config
from bindscope.core.contents import file_sha256
from bindscope.studies.build import build
from bindscope.tables.schema import declared
from bindscope.tables.write import read_table

PRESETS = sorted((ROOT / "config/presets").glob("*_small.yaml"), key=lambda path: path.stem)
each_preset = pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)


@pytest.mark.presets
@pytest.mark.timeout(1200)
@pytest.mark.slow
@pytest.mark.workflow
@each_preset
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

    Toys come there in the same way: `tests/studies/binding_id/test_stored_toys.py`.
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


@each_preset
def test_a_quick_preset_has_every_kind_of_thing_that_the_preset_has(preset: Path) -> None:
    full = load_file(preset)
    config = Config.model_validate(quick(full))
    assert kinds(config) == kinds(without_embeddings(full))
    assert len(build(config).products) <= len(build(full).products)
    for dataset in config.datasets:
        assert dataset.n_scenes == dataset.shard_size
        assert dataset.n_scenes.train <= SCENES["train"]
    probes = [
        probe for section in sections(config).values() for probe in getattr(section, "probes", ())
    ]
    stepped = [p for p in probes if p.family != "linear" and hasattr(p, "steps")]
    assert all(p.steps <= PROBE_STEPS for p in stepped)


def sections(config: Config) -> dict[str, Any]:
    """Return the sections of the studies that take part, by study."""
    by_study = {name: getattr(config.studies, name) for name in type(config.studies).model_fields}
    return {name: section for name, section in by_study.items() if section is not None}


def kinds(config: Config) -> dict[str, set[object]]:
    """Return what an experiment has, told apart by kind: not every seed, size and layer."""
    graph = build(config)
    products = graph.products.values()
    fits = graph.select("fit", "same_object_fit")
    covered: dict[str, set[object]] = {
        "rules": {product.rule for product in products},
        "tables": {product.wildcards["table"] for product in graph.select("table")},
        "figures": {product.wildcards["figure"] for product in graph.select("figure")},
        # Objectives; whether the input's size is the model's own. Encoders of vectors are one kind,
        # files of the zoo another: the default run has them.
        "models": {
            (
                re.sub(r"^(known-answer:)(?!token).*|^(zoo:|toy:).*|-?\d+$", r"\1\2", model.source),
                getattr(model, "input_px", None) is None,
            )
            for model in config.models
        },
        "data": {
            (dataset.space.kind, *(group.name for group in dataset.space.groups))
            for dataset in config.datasets
        },
    }
    for part in ("probe", "tokens", "control"):
        covered[part] = {fit.wildcards.get(part) for fit in fits}
    blocks = [fit.wildcards.get("layers", fit.wildcards.get("layer", "")) for fit in fits]
    layers = [int(layer) for block in blocks for layer in block.split("-") if layer.isdigit()]
    covered["layers"] = {min(layers), max(layers)} if layers else set()
    for name, section in sections(config).items():
        covered[name] = {key for key in type(section).model_fields if getattr(section, key)}
    return covered


def test_draws_that_differ_in_the_seed_alone_are_one_in_a_quick_preset() -> None:
    def datasets(name: str) -> list[str]:
        content = quick(load_file(ROOT / f"config/presets/{name}.yaml"))
        return [dataset["name"] for dataset in content["datasets"]]

    assert datasets("calibration_small") == ["grid-02"]
    # a seed of its own, but cameras of its own too
    assert datasets("occlusion_small")[-1] == "all-heights"
