"""An engine of another package: one file and an entry point, no file of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jobs_by_hand import job_by_hand, script
from packages import install

from bindscope.config.root import Config
from bindscope.core.graph import Product
from bindscope.core.keys import closure
from bindscope.core.registries import plugged_in
from bindscope.studies.build import build

ENGINE = '''
"""Read the slot, or whatever the configuration names."""

from bindscope.studies.binding_id.oracle import Oracle


def load(model, rule, weights, device):
    mechanism = model["options"]["mechanism"]
    return Oracle(mechanism, noise=0.05, seed=0), None
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package as pip puts it into a folder."""
    (tmp_path / "slot_engine.py").write_text(ENGINE)
    points = {"slots": "slot_engine:load", "toy": "slot_engine:load"}
    install(tmp_path, "slot-engine", "bindscope.engines", points)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugged_in.cache_clear()
    yield tmp_path
    plugged_in.cache_clear()


def job_of(**section: Any) -> Product:
    suite = {
        "name": "known",
        "tasks": ["pairs"],
        "experiments": ["factorizability"],
        "resamples": 50,
        "device": "cpu",
    }
    for kind in ("models", "oracles"):
        suite[kind] = [model["name"] for model in section.get(kind, [])]
    section |= {"tasks": [{"name": "pairs", "rows": 20}], "suites": [suite]}
    config = {"datasets": [], "studies": {"binding_id": section}}
    (job,) = build(Config.model_validate(config)).select("binding_id_interventions")
    return job


def rows_of(job: Product, folder: Path) -> list[dict[str, Any]]:
    """Run a job; its rows without names of models and keys."""
    script(job.rule).main(job_by_hand(job, folder))
    rows = map(json.loads, (folder / job.path()).read_text().splitlines())
    names = ("model", "origin", "spec_key", "code_key")
    return [{key: row[key] for key in row if key not in names} for row in rows]


def test_an_engine_of_another_package_is_measured_as_ours_are(package: Path) -> None:
    model = {"name": "theirs", "source": "engine:slots", "options": {"mechanism": "color"}}
    theirs = job_of(models=[model])
    ours = job_of(oracles=[{"name": "ours", "mechanism": "color"}])
    assert rows_of(theirs, package) == rows_of(ours, package)
    assert "slot_engine" in closure(tuple(theirs.content["runs"])).files  # is part of the key
    assert theirs.work.unknown == "the size of engine:slots"


def test_an_engine_that_nobody_registers_is_one_message(package: Path) -> None:
    with pytest.raises(ValueError, match="no installed package registers an engine 'slot'"):
        job_of(models=[{"name": "theirs", "source": "engine:slot"}])
    with pytest.raises(ValueError, match="'toy' is an engine of bindscope"):
        job_of(models=[{"name": "theirs", "source": "engine:toy"}])
    with pytest.raises(ValueError, match="only an `engine:` has them"):
        job_of(models=[{"name": "x", "source": "hf:path:/x", "options": {"a": 1}}])
