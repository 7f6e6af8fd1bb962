"""The scripts of the workflow as modules: importable and runnable without Snakemake."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml
from test_job import HEAVY, loaded

from bindscope.config.root import Config
from bindscope.graph.build import build
from bindscope.graph.paths import PATHS
from bindscope.graph.product import Graph, Product
from bindscope.job import Job
from bindscope.store.reader import open_store

SCRIPTS = Path("workflow/scripts")


class Names(dict[str, Any]):
    """Values by name, as items and as attributes, like Snakemake's lists."""

    __getattr__ = dict.__getitem__


def script(name: str) -> ModuleType:
    """Import a script as a module."""
    spec = spec_from_file_location(f"script_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def graph() -> Graph:
    return build(Config.model_validate(yaml.safe_load(Path("config/presets/ci.yaml").read_text())))


def job(product: Product, folder: Path) -> Job:
    """Make a job by hand; its paths lie in `folder`."""
    here = {name: str(folder / product.path(name)) for name in PATHS[product.rule]}
    given = {
        role: [str(folder / p.path()) for p in products]
        for role, products in product.inputs.items()
    }
    return Job(
        product.rule, json.loads(product.spec), product.spec, product.code, Names(given),
        Names(here), Names(product.wildcards),
    )  # fmt: skip


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_a_script_has_a_main_and_runs_nothing_on_import(path: Path) -> None:
    assert callable(script(path.stem).main)


def test_scripts_run_with_a_job_made_by_hand(graph: Graph, tmp_path: Path) -> None:
    codes = next(p for p in graph.of("codes") if p.wildcards["split"] == "val")
    anchors = next(p for p in graph.of("anchors") if p.wildcards["split"] == "val")
    (priors,) = graph.of("priors")
    for product in (codes, anchors, priors):
        script(product.rule).main(job(product, tmp_path))

    labels = open_store(tmp_path / codes.path(), spec_key=codes.key, code=codes.code)
    assert labels.read("objects").shape == (64, 6)
    assert labels.read("features").shape == (64, 5)
    logits = open_store(tmp_path / anchors.path(), spec_key=anchors.key).read("object")
    assert logits.dtype == np.float32
    assert logits.shape == (64, 6)
    rows = json.loads((tmp_path / priors.path()).read_text())
    assert [row["split"] for row in rows] == ["train", "val", "test"]
    assert {row["spec_key"] for row in rows} == {priors.key}
    assert {row["code_key"] for row in rows} == {priors.code}


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("fit", {"numpy", "scipy", "torch", "zarr"}),
        ("scenes", {"numpy", "zarr"}),
        ("index", {"numpy", "zarr"}),
        ("priors", {"numpy"}),
    ],
)
def test_a_script_imports_no_heavy_package_that_it_does_not_need(
    name: str, allowed: set[str]
) -> None:
    always = {"pydantic", "huggingface_hub"}  # the configuration and the graph
    code = f"import runpy; runpy.run_path('workflow/scripts/{name}.py')"
    assert set(HEAVY) & loaded(code) - always <= allowed
