"""A row of a run is the row of `bindscope.binding_information` of the same arrays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from jobs_by_hand import ROOT, ci_graph, job_by_hand, make_by_hand

from bindscope import binding_information
from bindscope.activations.reader import Activations
from bindscope.config.loading import load_file
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store

# What names the run, and what arrays have no name for.
OF_A_RUN = {"dataset", "model", "layer", "tokens", "spec_key", "code_key", "parts"}


@pytest.mark.slow
def test_a_runs_row_is_that_of_the_function(tmp_path: Path) -> None:
    graph = ci_graph({"information": {}})
    product = next(p for p in graph.select("fit") if p.wildcards["model"] == "identity")
    make_by_hand(product, tmp_path, set())
    (line,) = (tmp_path / product.path()).read_text().splitlines()

    spec = json.loads(product.spec)
    files = job_by_hand(product, tmp_path).input
    activations, layer = Activations(files["index"][0]), spec["representation"]["layer"]
    z = np.concatenate([activations.pooled(split, "cls", layer) for split in SPLITS])
    codes = {p.wildcards["split"]: open_store(tmp_path / p.path()) for p in graph.select("codes")}
    objects = np.concatenate([codes[split].read("objects") for split in SPLITS])
    words = np.repeat(SPLITS, [codes[split].read("objects").shape[0] for split in SPLITS])
    (dataset,) = load_file(ROOT / "config/presets/ci.yaml").datasets
    result = binding_information(
        z, objects, space=dataset.space, probes=["linear"], split=words, device="cpu"
    )
    row, best = result.rows["binding_information"]
    written = {**dict.fromkeys(row), **json.loads(line)}
    assert {key: row[key] for key in row if key not in OF_A_RUN} == {
        key: written[key] for key in row if key not in OF_A_RUN
    }
    assert row["binding_lower_bound_bits"] > 0.5
    assert best["probe"] == "best"
