"""The steps of the pipeline as functions of one quantity each, for ``cost_growth.py``.

Each step is a pair: `prepare(case)` makes the inputs (not timed, but in memory), `work(inputs)` is
what a job does. A case says how many scenes, layers, heads, tokens, seeds and steps.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from problems import dataset, probe, probe_data, vit

from bindscope.activations.extraction import extract_patches, extract_pooled
from bindscope.codes.sampling import sample_codes
from bindscope.studies.binding_information.config import Information
from bindscope.config.models import Extraction
from bindscope.core.store.writer import StoreWriter
from bindscope.core.workarounds import declare_torchvision_operators
from bindscope.models.loading import load_model
from bindscope.priors.anchors import anchors
from bindscope.priors.entropies import entropies
from bindscope.scenes.render import write_scenes
from bindscope.studies.binding_information.estimates import estimate
from bindscope.studies.binding_information.probes.base import FitResult, all_targets
from bindscope.studies.binding_information.probes.fitting import fit

declare_torchvision_operators()
import timm  # noqa: E402, F401  (here, and not in every fork)

PATCH_PX = 8


@dataclass(frozen=True)
class Case:
    """One point of a curve.

    Attributes
    ----------
    scenes
        Scenes of a shard (render, priors, extraction, rows), or of the train split (fits).
    layers
        Blocks of the model.
    side
        Values per feature group; K = side^2 heads, a quarter of them present in a scene.
    tokens
        Patch tokens, a square.
    seeds
        Seeds of a fit.
    dim
        Width of the model, dimension of z.
    steps
        Optimiser steps of a fit.
    batch
        Scenes per step, and per forward pass.
    px
        Side of an image.
    jobs
        Models of the workflow that is planned.
    """

    scenes: int = 1024
    layers: int = 4
    side: int = 6
    tokens: int = 64
    seeds: int = 1
    dim: int = 128
    steps: int = 40
    batch: int = 128
    px: int = 96
    jobs: int = 1

    @property
    def heads(self) -> int:
        """K."""
        return self.side**2


@dataclass(frozen=True)
class Step:
    """What is timed, and how it is fed."""

    prepare: Callable[[Case], Any]
    work: Callable[[Any], Any]


def _codes(case: Case) -> tuple[Any, Any]:
    object_px = max(8, case.px // 16)  # 16 px in 256 px, as in the paper
    n_objects = max(1, case.heads // 4)
    scenes = dataset(case.side, n_objects, 8 * case.scenes, case.px, object_px)
    return scenes, sample_codes(scenes, "train", 0, case.scenes)


def _render(given: tuple[Any, Any]) -> int:
    """Write the scenes of a shard; returns the bytes on the disk."""
    scenes, objects = given
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "s.zarr", Path(folder) / "s.json"
        write_scenes(scenes, "train", 0, objects, *paths, spec="{}", code="")
        return _size(folder)


def _priors(given: tuple[Any, Any]) -> None:
    scenes, objects = given
    anchors(scenes, objects)
    entropies(scenes)


def _images(case: Case) -> tuple[Case, Any]:
    side = round(case.tokens**0.5)
    px = side * PATCH_PX
    rng = np.random.default_rng(0)
    extraction = Extraction(batch_size=min(case.batch, case.scenes))
    model = load_model(vit(case.layers, case.dim, px, PATCH_PX, extraction), None, "cpu")
    images = rng.integers(0, 256, (case.scenes, px, px, 3), dtype=np.uint8)
    return case, (model, images, extraction)


def _extract(patches: bool) -> Callable[[Any], int]:
    def work(given: Any) -> int:
        case, (model, images, extraction) = given
        with tempfile.TemporaryDirectory() as folder:
            paths = Path(folder) / "a.zarr", Path(folder) / "a.json"
            with StoreWriter(*paths, spec="{}", code="") as writer:
                if patches:
                    extract_patches(model, case.layers, images, writer, extraction)
                else:
                    extract_pooled(model, images, writer, extraction)
            return _size(folder)

    return work


def _size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _data(family: str) -> Callable[[Case], Any]:
    def prepare(case: Case) -> Any:
        tokens = case.tokens if family == "attention_quadratic" else 0
        scenes = dataset(case.side, max(1, case.heads // 4), case.scenes)
        fields: dict[str, Any] = {"steps": case.steps, "patience": 0, "batch_size": case.batch}
        if family == "linear":
            fields["l2"] = [0.001, 0.01]
        return probe(family, **fields), probe_data(scenes, case.dim, tokens), range(case.seeds)

    return prepare


def _fit(given: Any) -> None:
    config, data, seeds = given
    fit(config, data, list(seeds))


def _losses(case: Case) -> Any:
    scenes, objects = _codes(case)
    from bindscope.codes.space import feature_code

    sizes = (case.side, case.side)
    features = feature_code(objects, sizes)
    rng = np.random.default_rng(0)
    targets = all_targets(sizes)
    losses = {p.name: p.count * rng.random(case.scenes) for t in targets for p in t.parts}
    val = {t.name: sum(float(losses[p.name].mean()) for p in t.parts) for t in targets}
    per_head = {t.name: rng.random(t.n_heads) for t in targets}
    result = FitResult(0, losses, per_head, val, 0.5, 0.5, 0.5, [], {}, {}, 1, (), "linear")
    prior = next(row for row in entropies(scenes) if row["split"] == "test")
    return result, prior, objects, features, case.seeds


def _rows(given: Any) -> None:
    result, prior, objects, features, seeds = given
    for _ in range(seeds):
        estimate(result, prior, objects, features, Information())


def _workflow(case: Case) -> Path:
    """Write a configuration with `case.jobs` models into a copy of the working tree."""
    from default_run import fresh_copy
    from workflow_overhead import many_jobs

    folder = fresh_copy()
    config = many_jobs(models=case.jobs, probes=4, shards=32)
    (folder / "many.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return folder


def n_jobs(case: Case) -> int:
    """Return how many jobs `_workflow` asks for."""
    from workflow_overhead import many_jobs

    from bindscope.studies.build import read_graph

    graph = read_graph(many_jobs(models=case.jobs, probes=4, shards=32), "many.yaml")
    return len(graph.products)


def _plan(folder: Path) -> None:
    """Dry run in this process; Snakemake says what it has to say into nothing."""
    import shutil

    from workflow_overhead import DRY

    os.chdir(folder)
    try:
        from snakemake.cli import main

        with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):  # noqa: PTH123
            main([*DRY[2:], "--configfile", "many.yaml"])
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError("the dry run failed") from None
    finally:
        os.chdir("/")
        shutil.rmtree(folder)


STEPS: dict[str, Step] = {
    "render": Step(_codes, _render),
    "priors": Step(_codes, _priors),
    "pooled": Step(_images, _extract(False)),
    "patches": Step(_images, _extract(True)),
    "linear": Step(_data("linear"), _fit),
    "quadratic": Step(_data("quadratic"), _fit),
    "quadratic_reuse": Step(_data("quadratic_reuse"), _fit),
    "multilinear_reuse": Step(_data("multilinear_reuse"), _fit),
    "dnn": Step(_data("dnn"), _fit),
    "attention_quadratic": Step(_data("attention_quadratic"), _fit),
    "rows": Step(_losses, _rows),
    "plan": Step(_workflow, _plan),
}
