"""The scripts of the workflow as modules: importable and runnable without Snakemake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from jobs_by_hand import SCRIPTS, ci_graph, job_by_hand, loaded, script

from bindscope.store.reader import open_store


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_a_script_has_a_main_and_runs_nothing_on_import(path: Path) -> None:
    assert callable(script(path.stem).main)


def test_scripts_run_with_a_job_made_by_hand(tmp_path: Path) -> None:
    graph = ci_graph()
    codes = next(p for p in graph.of("codes") if p.wildcards["split"] == "val")
    anchors = next(p for p in graph.of("anchors") if p.wildcards["split"] == "val")
    (priors,) = graph.of("priors")
    for product in (codes, anchors, priors):
        script(product.rule).main(job_by_hand(product, tmp_path))

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
    assert loaded(code) - always <= allowed


# Scripts that run a model or fit probes; no other needs torch, and only figures are drawn.
WITH_TORCH = {"attention", "fit", "patches", "pooled", "training", "weights"}
MODELS = {"sklearn", "timm", "torch", "torchvision", "transformers"}


def test_scripts_that_run_no_model_load_no_torch() -> None:
    """All of them in one interpreter, as each may load what it likes but for these."""
    names = {path.stem for path in SCRIPTS.glob("*.py")} - WITH_TORCH
    run = "import runpy; [runpy.run_path(f'workflow/scripts/{name}.py') for name in %r]"
    found = loaded(run % sorted(names - {"figure"}))
    assert not found & (MODELS | {"matplotlib"})
    assert not loaded(run % ["figure"]) & MODELS


def test_importing_the_library_is_light() -> None:
    assert loaded("import bindscope") == set()
    assert loaded("import bindscope.cli") <= {"pydantic", "huggingface_hub"}
