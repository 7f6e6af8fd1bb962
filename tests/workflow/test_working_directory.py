"""A run in a folder that is not the clone: its files are found there, the user's in the folder."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import ROOT, Clone, warm_python
from PIL import Image

GROUPS = [{"name": "color", "size": 2}, {"name": "shape", "size": 2}]
FEW, ONE = {"train": 8, "val": 4, "test": 4}, {"train": 1, "val": 1, "test": 1}
CONFIG: dict[str, Any] = {
    "datasets": [
        {
            "name": "drawn",
            "space": {"kind": "uniform", "groups": GROUPS, "max_objects": 2},
            "split": {"rule": "random"},
            "n_scenes": FEW,
            "shard_size": FEW,
            "render": {
                "kind": "shapes",
                "size_px": 32,
                "object_px": 8,
                "margin_px": 1,
                "area": "released",
            },
        },
        {
            "name": "own",
            "space": {"kind": "counted", "groups": GROUPS, "max_objects": 3},
            "split": {"rule": "column"},
            "source": {
                "kind": "table",
                "path": "mine/objects.csv",
                "values": {"color": ["red", "blue"], "shape": ["circle", "square"]},
            },
            "n_scenes": ONE,
            "shard_size": ONE,
        },
    ],
    "models": [],
    "report": {"title": "Made elsewhere"},
}
pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone.make(tmp_path_factory.mktemp("clone") / "here")


def test_a_run_elsewhere_with_a_configuration_and_data_of_its_own(
    clone: Clone, tmp_path: Path
) -> None:
    """Figures and the report read captions, a template and published numbers of the clone."""
    config = tmp_path / "config" / "config.yaml"
    config.parent.mkdir()
    config.write_text(yaml.safe_dump(CONFIG))
    (tmp_path / "mine").mkdir()
    shutil.copy2(ROOT / "tests/fixtures/own_images/objects.csv", tmp_path / "mine")
    for name in "abc":
        Image.new("RGB", (8, 8)).save(tmp_path / "mine" / f"{name}.png")

    def snakemake(*arguments: str) -> str:
        command = [warm_python(), "-m", "snakemake", "--cores", "2", "--directory", str(tmp_path)]
        done = subprocess.run(
            [*command, *arguments], cwd=clone.path, capture_output=True, text=True, timeout=600
        )
        assert not done.returncode, f"{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    snakemake()
    assert "Made elsewhere" in (tmp_path / "results/report.html").read_text()
    assert list((tmp_path / "results/records/own").glob("records-*.parquet"))
    assert not (clone.path / "results").exists()
    assert "Nothing to be done" in snakemake("--dry-run")
    config.unlink()
    assert "dual_encoder " in snakemake("--dry-run")  # of the clone's default
