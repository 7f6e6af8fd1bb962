"""What `bindscope new` writes for images of one's own runs as it stands."""

import os
import runpy
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from harness import ROOT, Clone, warm_python


@pytest.mark.presets
def test_a_written_configuration_runs_as_it_stands(tmp_path: Path) -> None:
    from transformers import Dinov2Config, Dinov2Model

    clone = Clone.make(tmp_path / "clone")
    runpy.run_path(str(ROOT / "docs/examples/own_images.py"))["main"](clone.path / "photos", 200)
    shape = Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=56, patch_size=14
    )
    Dinov2Model(shape).save_pretrained(clone.path / "vit")
    done = subprocess.run(
        [
            warm_python(),
            "-m",
            "bindscope.cli",
            "new",
            "my-run.yaml",
            "--model",
            "path:vit",
            "--labels",
            "photos/objects.csv",
        ],
        cwd=clone.path,
        env={**os.environ, "PYTHONPATH": str(clone.path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    clone.configfile = "my-run.yaml"
    clone.run_jobs()
    table = pd.read_parquet(clone.path / "results/tables/binding_information.parquet")
    assert {"vit", "objects-0", "features-1", "untrained-2"} <= {*table["model"]}
    assert table["flags"].str.contains("assumed_prior").all()
    assert (table["status"] == "ok").all()
    assert (clone.path / "results/report.html").exists()
