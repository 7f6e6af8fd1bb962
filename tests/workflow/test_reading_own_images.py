"""Snakemake plans a dataset that is read, as docs/own_datasets.md prints it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT, Clone


@pytest.mark.workflow
@pytest.mark.slow
@pytest.mark.whole
def test_the_rules_know_what_is_read(tmp_path: Path) -> None:
    clone = Clone.make(tmp_path / "clone")
    script = ROOT / "docs" / "examples" / "own_images.py"
    subprocess.run([sys.executable, script, clone.path / "own_images"], check=True)
    (text,) = re.findall(
        r"```yaml\n(datasets:.*?)```", (ROOT / "docs" / "own_datasets.md").read_text(), flags=re.S
    )
    clone.configfile = "config/kitchen.yaml"
    (clone.path / clone.configfile).write_text(text)
    jobs = clone.would_run()
    assert {rule: jobs[rule] for rule in jobs if rule.startswith(("record", "counted"))} == {
        "records": 1,
        "record_codes": 3,
        "record_scenes": 3,
        "counted_priors": 1,
        "counted_anchors": 3,
    }
    assert jobs["training"] == jobs["fit"] == jobs["null"] == 1
    assert not {"codes", "scenes", "priors", "anchors"} & set(jobs)
