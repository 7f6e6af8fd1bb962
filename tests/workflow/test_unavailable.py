"""A checkpoint that cannot be had: the others' tables and the report are made, and say so."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from harness import Clone, warm_python

COUNTS = {"train": 64, "val": 32, "test": 32}
GATED = "hf:nobody/gated@0000000000000000000000000000000000000000"
CONFIG: dict[str, Any] = {
    "datasets": [
        {
            "name": "tiny",
            "space": {
                "kind": "uniform",
                "groups": [{"name": "color", "size": 3}, {"name": "shape", "size": 2}],
                "max_objects": 3,
            },
            "split": {"rule": "random"},
            "n_scenes": COUNTS,
            "shard_size": COUNTS,
            "render": {
                "kind": "shapes",
                "size_px": 32,
                "object_px": 8,
                "margin_px": 1,
                "area": "released",
            },
        }
    ],
    "models": [
        {"name": "identity", "source": "known-answer:identity"},
        {"name": "gated", "source": GATED, "n_layers": 1},
    ],
    "studies": {
        "binding_information": {
            "probes": [{"name": "linear", "family": "linear"}],
            "fits": [
                {
                    "name": "both",
                    "datasets": ["tiny"],
                    "models": ["identity", "gated"],
                    "layers": "last",
                    "tokens": ["cls"],
                    "probes": ["linear"],
                }
            ],
            "information": {"bootstrap_samples": 20},
        }
    },
    "report": {"title": "Gated", "figures": []},
}


@pytest.mark.workflow
@pytest.mark.whole
def test_a_model_that_cannot_be_had_leaves_the_results_of_the_others(tmp_path: Path) -> None:
    clone = Clone.make(tmp_path / "clone")
    (clone.path / "config/gated.yaml").write_text(yaml.safe_dump(CONFIG))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": "src"}
        command = [warm_python(), "-m", "bindscope.commands.run", "--cores", "2", *arguments]
        return subprocess.run(
            [*command, "--configfile", "config/gated.yaml"],
            cwd=clone.path,
            text=True,
            env={**os.environ, **offline},
            capture_output=True,
            timeout=600,
        )

    planned = run("--dry-run")
    assert not planned.returncode
    assert re.search(r"^ +1  weights +new$", planned.stdout, re.MULTILINE)
    done = run()
    assert done.returncode == 1, done.stderr
    assert "Not in the results: model 'gated'" in done.stderr
    (log,) = (clone.path / "results/logs/weights").glob("gated-*.log")
    assert f"results/logs/weights/{log.name}" in done.stderr
    table = pd.read_parquet(clone.path / "results/tables/binding_information.parquet")
    assert set(table["model"]) == {"identity"}
    page = (clone.path / "results/report.html").read_text()
    assert "The weights of gated could not be downloaded" in page
    # It is not forgotten: the next run asks for it again, and computes nothing else anew.
    again = run()
    assert again.returncode == 1
    assert "Nothing to be done" in again.stdout + again.stderr
    assert "weights gated failed, " in again.stderr
