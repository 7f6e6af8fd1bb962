"""Images and captions of a CLIP of a local folder, through the graph and the workflow's scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clip_checkpoint import model, write_clip
from planted_analyses import run, table

from bindscope.config.root import Config
from bindscope.core.interfaces import Inputs
from bindscope.core.store.reader import open_store
from bindscope.models.loading import load_model, load_texts
from bindscope.studies.build import build
from bindscope.studies.concepts.claims import ACROSS, ALIGNED, effects
from bindscope.studies.concepts.findings import chapter
from bindscope.tables.rows import rows_with

pytestmark = pytest.mark.slow
GROUPS = [{"name": "color", "size": 4}, {"name": "shape", "size": 2}]
MADE = ("codes", "scenes", "captions", "pooled", "index", "joint", "text_embeddings")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip"))


def dataset(name: str, space: dict[str, Any], counts: tuple[int, int, int]) -> dict[str, Any]:
    """Scenes of which each is there once, drawn small, with captions."""
    sizes = dict(zip(("train", "val", "test"), counts, strict=True))
    return {
        "name": name,
        "space": {"groups": GROUPS, **space},
        "slots": 2,
        "n_scenes": sizes,
        "split": {"rule": "enumerated", "sizes": sizes},
        "shard_size": sizes,
        "render": {"kind": "clevr_2d", "size_px": 32},
        "captions": {},
    }


@pytest.fixture(scope="module")
def geometry(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The table of a CLIP of random weights, both of its towers."""
    analysis = {
        "name": "towers",
        "datasets": ["pairs"],
        "singles": "alone",
        "models": ["clip"],
        "vectors": ["joint", "text"],
        "estimators": ["avg_pos", "single"],
        "strengths": [],
    }
    clip = {"name": "clip", "source": f"hf:path:{folder}", "n_layers": 2, "pretrained": False}
    graph = build(
        Config.model_validate(
            {
                "datasets": [
                    dataset("pairs", {"kind": "draws", "n_objects": 2}, (40, 12, 12)),
                    dataset("alone", {"kind": "uniform", "max_objects": 1}, (8, 4, 4)),
                ],
                "models": [clip],
                "studies": {"concepts": {"analyses": [analysis]}},
            }
        )
    )
    out = tmp_path_factory.mktemp("towers")
    run(graph, out, *MADE, "concept_geometry")
    shapes = {
        open_store(out / product.path()).read("test").shape for product in graph.select("joint")
    }
    assert shapes == {(12, 8), (4, 8)}
    return table(graph, out)


def test_random_towers_are_the_same_where_there_are_no_weights_to_keep(
    folder: Path,
    tmp_path: Path,
) -> None:
    """Every tensor is drawn: without the checkpoint's file both towers come out as with it."""
    for file in folder.iterdir():
        if file.suffix == ".json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    pixels = np.random.default_rng(0).integers(0, 255, (2, 32, 32, 3), np.uint8)
    outputs = []
    for source in (folder, tmp_path):
        config = model(source=f"hf:path:{source}", pretrained=False)
        image, texts = load_model(config, None, "cpu"), load_texts(config, None, "cpu")
        ((_, tokens),) = image.residual_stream(image.preprocess(pixels), ["final"])
        joint = texts.project(tokens[:, 0].numpy())
        outputs.append((tokens.numpy(), joint, texts.embed(["a red square"], [()])))
    for with_weights, without in zip(*outputs, strict=True):
        np.testing.assert_array_equal(with_weights, without)


def test_both_towers_are_read_by_probes_and_by_each_other(geometry: pd.DataFrame) -> None:
    read = rows_with(geometry, analysis_kind="recognition", stratum="all", measure="object")
    by_vectors = read.set_index(["vectors", "variant"])
    assert set(by_vectors.index) == {
        ("joint", "probes"),
        ("joint", "captions"),
        ("text", "probes"),
    }
    assert (by_vectors["bag_of_concepts_floor"] > 0).all()
    # Towers that nothing has brought together tell each other nothing.
    across = by_vectors.loc[[("joint", "captions")]]
    assert (across["value_low"] <= across["bag_of_concepts_floor"]).all()
    assert (geometry["dim"] == 8).all()


def test_captions_of_one_object_are_no_worse_than_nothing(geometry: pd.DataFrame) -> None:
    sums = rows_with(geometry, analysis_kind="decomposition", level=1, measure="r2")
    assert set(sums["variant"]) == {"avg_pos", "single"}
    assert (rows_with(sums, variant="avg_pos")["value"] > 0.3).all()
    assert (rows_with(sums, variant="single")["n_skipped"] == 0).all()  # 8 objects: one has no pair


def test_the_modalities_are_laid_on_each_other_by_held_out_objects(geometry: pd.DataFrame) -> None:
    maps = rows_with(geometry, analysis_kind="alignment")
    assert set(maps["vectors"]) == {"joint"}
    assert set(maps["variant"]) == {"orthogonal", "identity", "permuted"}
    n_held_out = rows_with(maps, measure="cosine").groupby("level")["n_scenes"].agg(set)
    assert dict(n_held_out) == {1: {4}, 2: {3}}  # of 8 objects, and of 4 + 2 values
    claim_names = {row.claim for row in effects({"concepts": geometry})}
    assert {ACROSS.name, ALIGNED.name} <= claim_names
    (section,) = [
        s for s in chapter({"concepts": geometry}, Inputs()).sections if s.name == "geometry"
    ]
    titles = [row.title for row in section.tables]
    assert titles[2:] == [
        "Probes and queries of the other modality",
        "One orthogonal map from images to captions",
    ]
