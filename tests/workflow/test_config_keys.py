"""Every configuration key: which rules run after a change, by a table written by hand.

The keys come from the schema, so a new one without an entry fails. What would run is read off the
graph; `test_reruns.py` shows on a sample that Snakemake agrees with the graph.
"""

from __future__ import annotations

import copy
import types
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import assign
from pydantic import BaseModel

from bindscope.config.root import Config
from bindscope.core.graph import Graph
from bindscope.studies.build import build

TABLES = {"table_binding_information", "figure", "report"}
FITS = {"fit", "null", *TABLES}
LOOK = {"attention", "table_attention"}
READOUT = {"fit", *LOOK, *TABLES}  # what stands behind an index
PRETRAINED = {"pooled", "index", "fit", *TABLES}
EXTRACTION = {"pooled", "patches", "index", *READOUT}
TRAINING = {"training", *EXTRACTION}
CODES = {"codes", "anchors", "labels"}
LABELS = {*CODES, "scenes", "encoded", "index", *TRAINING, *FITS}
SPACE = {"priors", "truth", "table_priors", *LABELS}
FIGURES = {"figure", "report"}
DRAWN = {
    "scenes",
    "scene_statistics",
    "table_scene_statistics",
    *PRETRAINED,
}  # of a dataset that a pretrained model reads
READ = {"records", "record_codes", "counted_priors", "table_priors", *TABLES}
CLEVR = {"download", *READ}
GENOME = {"assignment_priors", *READ}
DOWNLOADED = {"download", *GENOME}
DRAWN_RELEASE = {"drawn_release", *GENOME}
SEEN = {"record_scenes", "pooled", "index", "fit", *TABLES}
OWN = {*READ, *SEEN, "counted_anchors", "labels", "null"}  # a dataset that is read and fitted
OWN_IMAGES = "tests/fixtures/own_images"


def genome(**changes: Any) -> dict[str, Any]:
    """A dataset read from Visual Genome's files."""
    source: dict[str, Any] = {
        "kind": "visual_genome", "feature": "color", "n_categories": 4, "n_values": 5,
        "path": "tests/fixtures/visual_genome", "images": "photos", **changes,
    }  # fmt: skip
    groups = [{"name": "category", "size": source["n_categories"]},
              {"name": source["feature"], "size": source["n_values"] + 1}]  # fmt: skip
    counts = {"train": 64, "val": 64, "test": 64}
    return {
        "name": "genome", "space": {"kind": "counted", "groups": groups, "max_objects": 20},
        "split": {"rule": "hashed_images"}, "source": source, "n_scenes": counts,
        "shard_size": counts,
    }  # fmt: skip


# Class.field -> (path in the configuration below, new value, rules that run)
TABLE: dict[str, tuple[str, object, set[str]]] = {
    "Config.datasets": ("datasets.0.seed", 7, LABELS),
    "Config.models": ("models.0.seed", 7, TRAINING),
    "Config.probes": ("probes.1.rank", 3, {"fit", "null", *TABLES}),
    "Config.fits": ("fits.0.seed_blocks", [[0], [1]], {"fit", "null", *TABLES}),
    "Config.information": ("information.bootstrap_samples", 60, {*FITS, *LOOK}),
    "Config.report": ("report.title", "Other", {"report"}),
    "Dataset.name": ("datasets.2.name", "renamed", {"priors", "table_priors", *TABLES}),
    "Dataset.space": ("datasets.0.space.max_objects", 4, SPACE),
    "Dataset.split": ("datasets.1.split.salt", "x", {"priors", "table_priors", *TABLES}),
    "Dataset.seed": ("datasets.0.seed", 7, LABELS),
    "Dataset.render": ("datasets.0.render.object_px", 6, {"scenes", *TRAINING}),
    "Dataset.n_scenes": ("datasets.0.n_scenes.test", 128,
                         {*CODES, "scenes", "encoded", "pooled", "patches", "index",
                          *READOUT, *FITS}),
    "Dataset.shard_size": ("datasets.0.shard_size.test", 32,
                           {"scenes", "encoded", "pooled", "patches", "index", *READOUT}),
    "Group.name": ("datasets.2.space.groups.0.name", "hue", {"priors", "table_priors", *TABLES}),
    "Group.size": ("datasets.2.space.groups.0.size", 4, {"priors", "table_priors", *TABLES}),
    "UniformSpace.kind": ("datasets.1.space",
                          {"kind": "balanced", "n_objects": 2, "chosen": [2, 2],
                           "groups": [{"name": "a", "size": 3}, {"name": "b", "size": 3}]},
                          {"priors", "table_priors", *TABLES}),
    "UniformSpace.groups": ("datasets.0.space.groups.0.name", "colour", SPACE),
    "UniformSpace.min_objects": ("datasets.0.space.min_objects", 1, SPACE),
    "UniformSpace.max_objects": ("datasets.0.space.max_objects", 4, SPACE),
    "BalancedSpace.kind": ("datasets.2.space",
                           {"kind": "uniform", "max_objects": 4,
                            "groups": [{"name": "a", "size": 3}, {"name": "b", "size": 3}]},
                           {"priors", "table_priors", *TABLES}),
    "BalancedSpace.groups": ("datasets.2.space.groups.0.size", 4,
                             {"priors", "table_priors", *TABLES}),
    "BalancedSpace.chosen": ("datasets.2.space.chosen", [3, 2],
                             {"priors", "table_priors", *TABLES}),
    "BalancedSpace.n_objects": ("datasets.2.space.n_objects", 2,
                                {"priors", "table_priors", *TABLES}),
    "DrawsSpace.kind": ("datasets.4.space",
                        {"kind": "uniform", "max_objects": 4,
                         "groups": [{"name": "a", "size": 3}, {"name": "b", "size": 3}]},
                        {"priors", "table_priors", *TABLES}),
    "DrawsSpace.groups": ("datasets.4.space.groups.0.size", 4, {"priors", "table_priors", *TABLES}),
    "DrawsSpace.n_objects": ("datasets.4.space.n_objects", 2, {"priors", "table_priors", *TABLES}),
    "Dataset.source": ("datasets.5.source.images", "elsewhere", OWN),
    "CountedSpace.kind": ("datasets.6.space",
                          {"kind": "uniform", "max_objects": 4,
                           "groups": [{"name": "a", "size": 3}, {"name": "b", "size": 3}]},
                          {"priors", "table_priors", *TABLES}),
    "CountedSpace.groups": ("datasets.6.space.groups.0.size", 4, READ),
    "CountedSpace.max_objects": ("datasets.6.space.max_objects", 4, READ),
    "IndexSplit.rule": ("datasets.6.split", {"rule": "hashed_images"}, READ),
    "IndexSplit.sizes": ("datasets.6.split.sizes.test", 65, READ),
    "ColumnSplit.rule": ("datasets.5.split", {"rule": "hashed_images"}, OWN),
    "ColumnSplit.column": ("datasets.5.split.column", "part", OWN),
    "HashedImagesSplit.rule": ("datasets.7.split", {"rule": "hashed_feature_codes"}, READ),
    "HashedImagesSplit.salt": ("datasets.7.split.salt", "x", READ),
    "HashedImagesSplit.buckets": ("datasets.7.split.buckets", 11, READ),
    "HashedImagesSplit.test": ("datasets.7.split.test", [3], READ),
    "HashedImagesSplit.val": ("datasets.7.split.val", [4], READ),
    "TableSource.kind": ("datasets.5.source", {"kind": "python", "reader": "harness:Reader"}, OWN),
    "TableSource.path": ("datasets.5.source.path", f"{OWN_IMAGES}/corrected.csv", OWN),
    "TableSource.images": ("datasets.5.source.images", "elsewhere", OWN),
    "TableSource.image": ("datasets.5.source.image", "file", OWN),
    "TableSource.values": ("datasets.5.source.values.color", ["blue", "red"], OWN),
    "TableSource.box": ("datasets.5.source.box", ["x0", "y0", "x1", "y1"], OWN),
    "TableSource.repeats": ("datasets.5.source.repeats", True, OWN),
    "ClevrSource.kind": ("datasets.8.source", {"kind": "python", "reader": "harness:Reader"}, READ),
    "ClevrSource.path": ("datasets.8.source.path", f"{OWN_IMAGES}/objects.csv", READ),
    "ClevrSource.url": ("datasets.8.source.url", "https://example.org/CLEVR_v1.0.zip", CLEVR),
    "ClevrSource.sha256": ("datasets.8.source.sha256", "0" * 64, CLEVR),
    "ClevrSource.folder": ("datasets.8.source.folder", "/data", CLEVR),
    "ClevrSource.parts": ("datasets.8.source.parts", ["val"], READ),
    "ClevrSource.n_objects": ("datasets.8.source.n_objects", 5, READ),
    **{
        f"GenomeSource.{key}": (f"datasets.9.source.{key}", value, GENOME)
        for key, value in {
            "path": OWN_IMAGES, "images": "elsewhere", "coco_only": False,
            "min_category_images": 2, "min_value_images": 2, "several": "commonest",
            "duplicate_iou": 0.5, "min_objects": 1, "max_objects": 5,
        }.items()
    },
    "GenomeSource.downloads": ("datasets.13.source.downloads",
                               [{"url": "https://example.org/a.zip", "sha256": "1" * 64}],
                               DOWNLOADED),
    "GenomeSource.folder": ("datasets.13.source.folder", "/data", DOWNLOADED),
    # another dataset of this configuration reads the same drawn release
    "GenomeSource.drawn": ("datasets.13.source.drawn", {"n_images": 64}, GENOME),
    "Download.url": ("datasets.13.source.downloads.0.url", "https://example.org/b.zip",
                     DOWNLOADED),
    "Download.sha256": ("datasets.13.source.downloads.0.sha256", "2" * 64, DOWNLOADED),
    **{
        f"SyntheticRelease.{key}": (f"datasets.14.source.drawn.{key}", value, DRAWN_RELEASE)
        for key, value in {
            "n_images": 65, "size_px": 48, "n_categories": 6, "n_colors": 6, "max_objects": 5,
            "unannotated": 0.5, "seed": 1,
        }.items()
    },
    "GenomeSource.kind": ("datasets.9.source", {"kind": "python", "reader": "harness:Reader"},
                          READ),
    "GenomeSource.feature": ("datasets.9", genome(feature="attribute"), GENOME),
    "GenomeSource.n_categories": ("datasets.9", genome(n_categories=3), GENOME),
    "GenomeSource.n_values": ("datasets.9", genome(n_values=3), GENOME),
    "PythonSource.kind": ("datasets.6.source",
                          {"kind": "table", "path": f"{OWN_IMAGES}/objects.csv",
                           "values": {"a": ["p", "q", "r"], "b": ["s", "t", "u"]}}, READ),
    "PythonSource.reader": ("datasets.6.source.reader", "harness:Other", READ),
    "PythonSource.path": ("datasets.6.source.path", OWN_IMAGES, READ),
    "PythonSource.options": ("datasets.6.source.options", {"a": 1}, READ),
    "PythonSource.repeats": ("datasets.6.source.repeats", True, READ),
    "PhotosRenderer.kind": ("datasets.7.render", {"kind": "photos"}, {"report"}),
    "PhotosRenderer.size_px": ("datasets.5.render.size_px", 64, SEEN),
    "RandomSplit.rule": ("datasets.0.split", {"rule": "hashed_feature_codes"}, SPACE),
    "RankedSplit.rule": ("datasets.2.split", {"rule": "random"},
                         {"priors", "table_priors", *TABLES}),
    "RankedSplit.salt": ("datasets.2.split.salt", "x", {"priors", "table_priors", *TABLES}),
    "RankedSplit.n_feature_codes": ("datasets.2.split.n_feature_codes.train", 4,
                                    {"priors", "table_priors", *TABLES}),
    "HashedSplit.rule": ("datasets.1.split", {"rule": "random"},
                         {"priors", "table_priors", *TABLES}),
    "HashedSplit.salt": ("datasets.1.split.salt", "x", {"priors", "table_priors", *TABLES}),
    "HashedSplit.buckets": ("datasets.1.split.buckets", 11, {"priors", "table_priors", *TABLES}),
    "HashedSplit.test": ("datasets.1.split.test", [3], {"priors", "table_priors", *TABLES}),
    "HashedSplit.val": ("datasets.1.split.val", [4], {"priors", "table_priors", *TABLES}),
    "SplitCounts.train": ("datasets.0.n_scenes.train", 192,
                          {*CODES, "scenes", "encoded", "index", *TRAINING, *FITS}),
    "SplitCounts.val": ("datasets.0.n_scenes.val", 128,
                        {*CODES, "scenes", "encoded", "index", *TRAINING, *FITS}),
    "SplitCounts.test": ("datasets.0.n_scenes.test", 128,
                         {*CODES, "scenes", "encoded", "pooled", "patches", "index",
                          *READOUT, *FITS}),
    "ShapesRenderer.kind": ("datasets.2.render", {"kind": "shapes"}, {"figure", "report"}),
    "ShapesRenderer.size_px": ("datasets.0.render.size_px", 40, {"scenes", *TRAINING}),
    "ShapesRenderer.object_px": ("datasets.0.render.object_px", 6, {"scenes", *TRAINING}),
    "ShapesRenderer.margin_px": ("datasets.0.render.margin_px", 2, {"scenes", *TRAINING}),
    "ShapesRenderer.placement": ("datasets.0.render.placement", "grid", {"scenes", *TRAINING}),
    "ShapesRenderer.antialias": ("datasets.0.render.antialias", 2, {"scenes", *TRAINING}),
    "SolidsRenderer.kind": ("datasets.10.render", {"kind": "solids"}, DRAWN),
    "SolidsRenderer.backend": ("datasets.10.render.backend", {"kind": "mitsuba"}, DRAWN),
    "SolidsRenderer.size_px": ("datasets.10.render.size_px", 40, DRAWN),
    "SolidsRenderer.colors": ("datasets.10.render.colors", ["red", "blue"], {*DRAWN, *FIGURES}),
    "SolidsRenderer.fixed": ("datasets.10.render.fixed", {"size": "large"}, DRAWN),
    "SolidsRenderer.camera_height": ("datasets.10.render.camera_height", 3.0, DRAWN),
    "SolidsRenderer.camera_distance": ("datasets.10.render.camera_distance", 12.0, DRAWN),
    "SolidsRenderer.camera_pitch": ("datasets.10.render.camera_pitch", 9.0, DRAWN),
    "SolidsRenderer.camera_jitter": ("datasets.10.render.camera_jitter", 0.1, DRAWN),
    "SolidsRenderer.light_jitter": ("datasets.10.render.light_jitter", 0.1, DRAWN),
    "SolidsRenderer.extent": ("datasets.10.render.extent", 2.5, DRAWN),
    "SolidsRenderer.min_distance": ("datasets.10.render.min_distance", 0.1, DRAWN),
    "SolidsRenderer.margin": ("datasets.10.render.margin", 0.1, DRAWN),
    "SolidsRenderer.min_visible_px": ("datasets.10.render.min_visible_px", 1, DRAWN),
    "SolidsFixed.color": ("datasets.10.render.fixed.color", "red", DRAWN),
    "SolidsFixed.shape": ("datasets.10.render.fixed.shape", "sphere", DRAWN),
    "SolidsFixed.material": ("datasets.10.render.fixed.material", "metal", DRAWN),
    "SolidsFixed.size": ("datasets.10.render.fixed.size", "large", DRAWN),
    "RaycastBackend.kind": ("datasets.10.render.backend", {"kind": "mitsuba"}, DRAWN),
    "RaycastBackend.antialias": ("datasets.10.render.backend.antialias", 1, DRAWN),
    "MitsubaBackend.kind": ("datasets.11.render.backend", {"kind": "raycast"}, DRAWN),
    "MitsubaBackend.variant": ("datasets.11.render.backend.variant", "cuda_ad_rgb", DRAWN),
    "MitsubaBackend.samples": ("datasets.11.render.backend.samples", 4, DRAWN),
    "BlenderBackend.kind": ("datasets.12.render.backend", {"kind": "raycast"}, DRAWN),
    "BlenderBackend.version": ("datasets.12.render.backend.version", "4.2", DRAWN),
    "BlenderBackend.samples": ("datasets.12.render.backend.samples", 4, DRAWN),
    "KnownAnswer.name": ("models.1.name", "other", {"encoded", "index", "truth", "fit", *TABLES}),
    "KnownAnswer.source": ("models.1.source", "known-answer:conjunctive",
                           {"encoded", "index", "truth", "fit", *TABLES}),
    "KnownAnswer.dim": ("models.1.dim", 9, {"encoded", "index", "truth", "fit", *TABLES}),
    "KnownAnswer.probability": ("models.5.probability", 0.25,
                                {"encoded", "index", "truth", "fit", *TABLES}),
    "KnownAnswer.seed": ("models.1.seed", 3, {"encoded", "index", "truth", "fit", *TABLES}),
    "Controlled.name": ("models.0.name", "other", TRAINING),
    "Controlled.source": ("models.0.source", "controlled:features", TRAINING),
    "Controlled.architecture": ("models.0.architecture.width", 8, TRAINING),
    "Controlled.training": ("models.0.training.steps", 5, TRAINING),
    "Controlled.seed": ("models.0.seed", 7, TRAINING),
    "Controlled.input_px": ("models.0.input_px", 16, EXTRACTION),
    "Controlled.extraction": ("models.0.extraction", {"batch_size": 8}, EXTRACTION),
    "Architecture.n_layers": ("models.0.architecture.n_layers", 2, TRAINING),
    "Architecture.width": ("models.0.architecture.width", 8, TRAINING),
    "Architecture.n_heads": ("models.0.architecture.n_heads", 1, TRAINING),
    "Architecture.patch_px": ("models.0.architecture.patch_px", 16, TRAINING),
    "Training.dataset": ("models.0.training.dataset", "drawn", TRAINING | {"codes", "scenes"}),
    "Training.input_px": ("models.0.training.input_px", 16, TRAINING),
    "Training.steps": ("models.0.training.steps", 5, TRAINING),
    "Training.batch_size": ("models.0.training.batch_size", 8, TRAINING),
    "Training.learning_rate": ("models.0.training.learning_rate", 2e-3, TRAINING),
    "Training.weight_decay": ("models.0.training.weight_decay", 0.0, TRAINING),
    "Training.threads": ("models.0.training.threads", 2, TRAINING),
    "Training.device": ("models.0.training.device", "cuda", TRAINING),
    "Pretrained.name": ("models.2.name", "other", PRETRAINED),
    "Pretrained.source": ("models.2.source", "timm:vit_small_patch16_224", PRETRAINED),
    "Pretrained.n_layers": ("models.2.n_layers", 11, PRETRAINED),
    "Pretrained.pretrained": ("models.2.pretrained", True, {"weights", *PRETRAINED}),
    "Pretrained.seed": ("models.2.seed", 1, PRETRAINED),
    "Pretrained.input_px": ("models.2.input_px", 64, PRETRAINED),
    "Pretrained.overrides": ("models.2.overrides", {"depth": 2}, PRETRAINED),
    "Pretrained.extraction": ("models.2.extraction.batch_size", 8, PRETRAINED),
    "PythonModel.name": ("models.3.name", "other", PRETRAINED),
    "PythonModel.source": ("models.3.source", "python:harness:other", PRETRAINED),
    "PythonModel.n_layers": ("models.3.n_layers", 3, PRETRAINED),
    "PythonModel.options": ("models.3.options", {"a": 1}, PRETRAINED),
    "PythonModel.extraction": ("models.3.extraction.batch_size", 8, PRETRAINED),
    "Extraction.batch_size": ("models.2.extraction.batch_size", 8, PRETRAINED),
    "Extraction.precision": ("models.2.extraction.precision", "bfloat16", PRETRAINED),
    "Extraction.dtype": ("models.2.extraction.dtype", "float32", PRETRAINED),
    "Extraction.attention": ("models.2.extraction.attention", "eager", PRETRAINED),
    "Extraction.device": ("models.2.extraction.device", "cuda", PRETRAINED),
    "Extraction.threads": ("models.2.extraction.threads", 2, PRETRAINED),
    "Extraction.keep_patches": ("models.0.extraction.keep_patches", False,
                                {"patches_temporary", "index", *READOUT}),
    "FitBlock.name": ("fits.0.name", "other", {"report"}),
    "FitBlock.datasets": ("fits.2.datasets", ["tiny", "hashed"],
                          {*CODES, "encoded", "index", "truth", *FITS}),
    "FitBlock.models": ("fits.0.models", ["vit", "wide", "timm"], {"fit", *TABLES}),
    "FitBlock.layers": ("fits.0.layers", "last", TABLES),
    "FitBlock.tokens": ("fits.0.tokens", ["cls", "mean"], {"fit", *TABLES}),
    "FitBlock.probes": ("fits.0.probes", ["p1"], TABLES),
    "FitBlock.seed_blocks": ("fits.0.seed_blocks", [[0], [1]], FITS),
    "FitBlock.controls": ("fits.0.controls", ["none", "shuffled_labels"], {"fit", *TABLES}),
    "Information.bootstrap_samples": ("information.bootstrap_samples", 60, {*FITS, *LOOK}),
    "Information.bootstrap_seed": ("information.bootstrap_seed", 1, {*FITS, *LOOK}),
    "Report.families": ("report.families", [{"name": "other", "models": ["vit", "hf"]}],
                        {"figure", "report"}),
    "Family.name": ("report.families.0.name", "other", {"figure", "report"}),
    "Family.models": ("report.families.0.models", ["vit", "hf"], {"figure", "report"}),
    "Report.title": ("report.title", "Other", {"report"}),
    "Report.figures": ("report.figures", ["tokens"], {"report"}),
}  # fmt: skip

COMMON_PROBE = {
    "name": "other", "protocol": "paper", "standardise": False, "conditioned": False, "steps": 7,
    "batch_size": 32, "patience": 3, "threads": 2, "device": "cuda", "memory_mb": 5,
}  # fmt: skip
RANKED = {"rank": 3, "learning_rate": 0.5, "weight_decay": 0.5}
PROBES: dict[str, tuple[int, dict[str, object]]] = {
    "LinearProbe": (0, {"l2": [0.5]}),
    "QuadraticProbe": (1, RANKED),
    "AttentionProbe": (2, RANKED),
    "QuadraticReuseProbe": (3, RANKED),
    "MultilinearReuseProbe": (4, RANKED),
    "DnnProbe": (5, {"hidden": 3, "learning_rate": 0.5, "weight_decay": 0.5}),
}
for _cls, (_i, _own) in PROBES.items():
    _rules = {*FITS, *LOOK} if _cls == "AttentionProbe" else FITS
    for _field, _value in {**COMMON_PROBE, **_own}.items():
        TABLE[f"{_cls}.{_field}"] = (f"probes.{_i}.{_field}", _value, _rules)
    _other = "dnn" if _cls == "LinearProbe" else "linear"
    if _cls != "AttentionProbe":
        TABLE[f"{_cls}.family"] = (f"probes.{_i}", {"name": f"p{_i}", "family": _other}, FITS)
TABLE["AttentionProbe.family"] = ("fits.1.probes", ["attention2"], {*FITS, *LOOK})


def broad() -> dict[str, Any]:
    """The CI preset with an entity of every kind beside its own."""
    config = yaml.safe_load(Path("config/presets/ci.yaml").read_text())
    groups = [{"name": "a", "size": 3}, {"name": "b", "size": 3}]
    counts = {"train": 64, "val": 64, "test": 64}
    common = {"n_scenes": counts, "shard_size": counts}
    config["datasets"] += [
        {"name": "hashed", "space": {"kind": "uniform", "groups": groups, "max_objects": 3},
         "split": {"rule": "hashed_feature_codes"}, **common},
        {"name": "ranked", "space": {"kind": "balanced", "groups": groups, "chosen": [2, 2],
                                     "n_objects": 3},
         "split": {"rule": "ranked_feature_codes",
                   "n_feature_codes": {"train": 1, "val": 1, "test": 1}}, **common},
        {**copy.deepcopy(config["datasets"][0]), "name": "drawn"},
        {"name": "repeats", "space": {"kind": "draws", "groups": groups, "n_objects": 3},
         "split": {"rule": "random"}, **common},
    ]  # fmt: skip
    config["datasets"] += read_datasets(groups, common)
    config["datasets"] += solid_datasets(common)
    file = {"url": "https://example.org/images.zip", "sha256": "0" * 64}
    config["datasets"] += [
        {**genome(path=None, images=None, downloads=[file]), "name": "genome-downloaded"},
        {**genome(path=None, images=None, drawn={"n_images": 64}), "name": "genome-drawn"},
    ]
    config["models"][1] = {"name": "wide", "source": "known-answer:rotated", "dim": 8}
    config["models"] += [
        {"name": "timm", "source": "timm:vit_tiny_patch16_224", "n_layers": 12,
         "pretrained": False, "extraction": {"batch_size": 4}},
        {"name": "mine", "source": "python:harness:model", "n_layers": 2,
         "extraction": {"batch_size": 4}},
        {"name": "hf", "source": f"hf:a/b@{'0' * 40}", "n_layers": 2},
        {"name": "noisy", "source": "known-answer:erasure"},
    ]  # fmt: skip
    config["probes"] += [
        {"name": "p3", "family": "quadratic_reuse"},
        {"name": "p4", "family": "multilinear_reuse"},
        {"name": "p5", "family": "dnn"},
        {"name": "attention2", "family": "attention_quadratic", "rank": 3},
    ]
    for i, name in ((0, "p0"), (1, "p1")):
        config["probes"][i]["name"] = name
    config["fits"][0]["probes"] = ["p0", "p1"]
    config["fits"][2] |= {"probes": ["p0", "p3", "p4", "p5"], "models": ["wide", "noisy"]}
    config["fits"] += [
        {"name": "timm", "datasets": ["tiny"], "models": ["timm", "mine", "hf"], "probes": ["p0"]},
        {"name": "own", "datasets": ["own"], "models": ["timm"], "probes": ["p0"]},
        {"name": "solids", "models": ["timm"], "probes": ["p0"],
         "datasets": ["solids-raycast", "solids-mitsuba", "solids-blender"]},
    ]  # fmt: skip
    config["report"] = {"families": [{"name": "sizes", "models": ["vit", "timm"]}]}
    return config


def read_datasets(groups: list[dict[str, Any]], common: dict[str, Any]) -> list[dict[str, Any]]:
    """Datasets whose scenes are read; the first one is fitted."""
    counted = {"kind": "counted", "groups": copy.deepcopy(groups), "max_objects": 3}
    own = [{"name": "color", "size": 2}, {"name": "shape", "size": 2}]
    python = {"kind": "python", "reader": "harness:Reader"}
    return [
        {"name": "own", "space": {**counted, "groups": own}, "split": {"rule": "column"},
         "source": {"kind": "table", "path": f"{OWN_IMAGES}/objects.csv",
                    "values": {"color": ["red", "blue"], "shape": ["circle", "square"]}},
         "render": {"kind": "photos", "size_px": 32}, **common},
        {"name": "read-index", "space": counted, "source": python,
         "split": {"rule": "index", "sizes": dict(common["n_scenes"])}, **common},
        {"name": "read-hashed", "space": copy.deepcopy(counted), "source": python,
         "split": {"rule": "hashed_images"}, **common},
        {"name": "clevr", "space": {**counted, "groups": [{"name": "color", "size": 8}]},
         "source": {"kind": "clevr"}, "split": {"rule": "hashed_images"}, **common},
        genome(),
    ]  # fmt: skip


def solid_datasets(common: dict[str, Any]) -> list[dict[str, Any]]:
    """Datasets of solids, one per backend."""
    groups = [{"name": "color", "size": 2}, {"name": "shape", "size": 2}]
    return [
        {"name": f"solids-{kind}", "space": {"kind": "uniform", "max_objects": 2, "groups": groups},
         "split": {"rule": "random"},
         "render": {"kind": "solids", "size_px": 32, "backend": {"kind": kind}}, **common}
        for kind in ("raycast", "mitsuba", "blender")
    ]  # fmt: skip


def models_of(kind: Any) -> set[type[BaseModel]]:
    """All configuration models that an annotation reaches."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        found = {kind}
        for field in kind.model_fields.values():
            found |= models_of(field.annotation)
        return found
    if typing.get_origin(kind) in (
        tuple,
        list,
        dict,
        typing.Union,
        types.UnionType,
        typing.Annotated,
    ):
        return set().union(*(models_of(part) for part in typing.get_args(kind)))
    return set()


KEYS = sorted(
    f"{model.__name__}.{name}" for model in models_of(Config) for name in model.model_fields
)


def identities(graph: Graph) -> dict[str, tuple[str, str, str]]:
    """What decides whether a product is made: path, spec and code."""
    return {p.path(): (p.rule, p.spec, p.code) for p in graph.products.values()}


def test_every_key_of_the_schema_has_an_entry() -> None:
    assert sorted(TABLE) == KEYS


@pytest.fixture(scope="module")
def before() -> dict[str, tuple[str, str, str]]:
    return identities(build(Config.model_validate(broad())))


@pytest.mark.parametrize("key", KEYS)
def test_a_change_runs_its_rules_and_no_other(
    key: str, before: dict[str, tuple[str, str, str]]
) -> None:
    path, value, expected = TABLE[key]
    config = broad()
    if key.endswith(".name") and path.count(".") == 2 and not path.startswith("fits"):
        rename(config, path, str(value))
    else:
        assign(config, path, value)
    after = identities(build(Config.model_validate(config)))
    assert {entry[0] for p, entry in after.items() if before.get(p) != entry} == expected
    assert any(before.get(p) == entry for p, entry in after.items())


def rename(config: dict[str, Any], path: str, new: str) -> None:
    """Rename an entity wherever it is referred to."""
    kind, number, *_ = path.split(".")
    old = config[kind][int(number)]["name"]
    assign(config, path, new)
    families = config["report"]["families"] if kind == "models" else []
    for block in [*config["fits"], *families]:
        block[kind] = [new if name == old else name for name in block[kind]]


def test_models_that_are_trained_alike_share_one_training() -> None:
    config = broad()
    config["models"].append({**config["models"][0], "name": "larger", "input_px": 64})
    config["fits"][0]["models"].append("larger")
    graph = build(Config.model_validate(config))
    (training,) = graph.of("training")
    assert training.wildcards["model"] == "vit"
    weights = {
        p.wildcards["model"]: [w.path() for w in p.inputs["weights"]] for p in graph.of("pooled")
    }
    assert weights["vit"] == weights["larger"] == [training.path()]
    keys = {p.key for p in graph.of("index") if p.wildcards["model"] in ("vit", "larger")}
    assert len(keys) > 1
    config["models"][-1]["seed"] = 1
    assert len(build(Config.model_validate(config)).of("training")) == 2
