"""Every configuration key: which rules run after a change, by tables written by hand.

The keys come from the schema, so a new one without an entry fails. The table of the shared sections
stands here, that of a study in ``tests/studies/<name>/keys.py``. What would run is read off the
graph; `test_reruns.py` shows on a sample that Snakemake agrees with the graph.
"""

from __future__ import annotations

import runpy
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from harness import assign

from bindscope.commands.effects import COLLECTING, example
from bindscope.config.root import Config
from bindscope.config.structure import keys
from bindscope.core.graph import Graph
from bindscope.core.registries import STUDIES
from bindscope.graph.steps import SHARED_STEPS
from bindscope.studies.build import build

BY_STUDY = {
    name: runpy.run_path(str(Path(__file__).parents[1] / "studies" / name / "keys.py"))
    for name in STUDIES
}
EXTRACTION = {"pooled", "patches", "index"}
PRETRAINED = {"pooled", "index"}
OF_TOYS = {"patches_temporary", "index"}
TRAINING = {"training", *EXTRACTION}
CODES = {"codes", "anchors", "labels"}
LABELS = {*CODES, "scenes", "encoded", "index", "truth", *TRAINING}
PRIORS = {"priors"}  # of a dataset that nothing is fitted to
SPACE = {"priors", *LABELS}
KNOWN = {"encoded", "index", "truth"}
DRAWN = {"scenes", *PRETRAINED}  # of a dataset that a pretrained model reads
TEXTS = {"captions", "text_embeddings"}
IN_SLOTS = {*CODES, *DRAWN, *TEXTS, "joint"}  # of a dataset whose objects are in order
READ = {"records", "record_codes", "counted_priors"}
CLEVR = {"download", *READ}
GENOME = READ
DOWNLOADED = {"download", *READ}
SYNTHETIC_RELEASE = {"synthetic_release", *READ}
SEEN = {"record_scenes", *PRETRAINED}
OWN = {*READ, *SEEN, "counted_anchors", "labels"}  # a dataset that is read and fitted
OWN_IMAGES = "tests/fixtures/own_images"
READER = "bindscope.sources.clevr:ClevrReader"


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


# Class.key -> (path in the example, new value, shared rules that run)
TABLE: dict[str, tuple[str, object, set[str]]] = {
    "Config.datasets": ("datasets.0.seed", 7, LABELS),
    "Config.models": ("models.0.seed", 7, TRAINING),
    "Config.report": ("report.title", "Other", set()),
    "Dataset.name": ("datasets.2.name", "renamed", PRIORS),
    "Dataset.space": ("datasets.0.space.max_objects", 4, SPACE),
    "Dataset.split": ("datasets.1.split.salt", "x", PRIORS),
    "Dataset.seed": ("datasets.0.seed", 7, LABELS),
    "Dataset.render": ("datasets.0.render.object_px", 6, {"scenes", *TRAINING}),
    "Dataset.n_scenes": ("datasets.0.n_scenes.test", 128,
                         {*CODES, "scenes", "encoded", "truth", "pooled", "patches", "index"}),
    "Dataset.shard_size": ("datasets.0.shard_size.test", 32,
                           {"scenes", "encoded", "pooled", "patches", "index"}),
    "Group.name": ("datasets.2.space.groups.0.name", "hue", PRIORS),
    "Group.size": ("datasets.2.space.groups.0.size", 4, PRIORS),
    "UniformSpace.kind": ("datasets.1.space",
                          {"kind": "balanced", "n_objects": 2, "chosen": [2, 2],
                           "groups": [{"name": "a", "size": 3}, {"name": "b", "size": 3}]},
                          PRIORS),
    "UniformSpace.groups": ("datasets.0.space.groups.0.name", "colour", SPACE),
    "UniformSpace.min_objects": ("datasets.0.space.min_objects", 1, SPACE),
    "UniformSpace.max_objects": ("datasets.0.space.max_objects", 4, SPACE),
    "BalancedSpace.kind": ("datasets.2.space",
                           {"kind": "uniform", "max_objects": 4,
                            "groups": [{"name": "a", "size": 3}, {"name": "b", "size": 3}]},
                           PRIORS),
    "BalancedSpace.groups": ("datasets.2.space.groups.0.size", 4,
                             PRIORS),
    "BalancedSpace.chosen": ("datasets.2.space.chosen", [3, 2],
                             PRIORS),
    "BalancedSpace.n_objects": ("datasets.2.space.n_objects", 2,
                                PRIORS),
    "DrawsSpace.kind": ("datasets.4.space",
                        {"kind": "uniform", "max_objects": 4,
                         "groups": [{"name": "a", "size": 3}, {"name": "b", "size": 3}]},
                        PRIORS),
    "DrawsSpace.groups": ("datasets.4.space.groups.0.size", 4, PRIORS),
    "DrawsSpace.n_objects": ("datasets.4.space.n_objects", 2, PRIORS),
    "Dataset.source": ("datasets.5.source.images", "elsewhere", OWN),
    "CountedSpace.kind": ("datasets.6.space",
                          {"kind": "uniform", "max_objects": 4,
                           "groups": [{"name": "a", "size": 3}, {"name": "b", "size": 3}]},
                          PRIORS),
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
    "TableSource.kind": ("datasets.5.source", {"kind": "python", "reader": READER}, OWN),
    "TableSource.path": ("datasets.5.source.path", f"{OWN_IMAGES}/corrected.csv", OWN),
    "TableSource.images": ("datasets.5.source.images", "elsewhere", OWN),
    "TableSource.image": ("datasets.5.source.image", "file", OWN),
    "TableSource.values": ("datasets.5.source.values.color", ["blue", "red"], OWN),
    "TableSource.box": ("datasets.5.source.box", ["x0", "y0", "x1", "y1"], OWN),
    "TableSource.repeats": ("datasets.5.source.repeats", True, OWN),
    "TableSource.slots": ("datasets.21.source.slots.0.a", "other", READ),
    **{
        f"PugSpareSource.{key}": (f"datasets.22.source{at}", value, READ)
        for key, at, value in (
            ("kind", "", {"kind": "python", "reader": READER}),
            ("path", ".path", f"{OWN_IMAGES}/corrected.csv"), ("world", ".world", "Arena"),
        )
    },
    "PugSpareSource.terms_accepted": ("datasets.22.source",
                                      {"kind": "python", "reader": READER}, READ),
    "ClevrSource.kind": ("datasets.8.source", {"kind": "python", "reader": READER}, READ),
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
    # another dataset of this configuration reads the same synthetic release
    "GenomeSource.synthetic": ("datasets.13.source.synthetic", {"n_images": 64}, GENOME),
    "Download.url": ("datasets.13.source.downloads.0.url", "https://example.org/b.zip",
                     DOWNLOADED),
    "Download.sha256": ("datasets.13.source.downloads.0.sha256", "2" * 64, DOWNLOADED),
    **{
        f"SyntheticRelease.{key}": (f"datasets.14.source.synthetic.{key}", value, SYNTHETIC_RELEASE)
        for key, value in {
            "n_images": 65, "size_px": 48, "n_categories": 6, "n_colors": 6, "max_objects": 5,
            "unannotated": 0.5, "seed": 1,
        }.items()
    },
    "GenomeSource.kind": ("datasets.9.source", {"kind": "python", "reader": READER},
                          READ),
    "GenomeSource.feature": ("datasets.9", genome(feature="attribute"), GENOME),
    "GenomeSource.n_categories": ("datasets.9", genome(n_categories=3), GENOME),
    "GenomeSource.n_values": ("datasets.9", genome(n_values=3), GENOME),
    "PythonSource.kind": ("datasets.6.source",
                          {"kind": "table", "path": f"{OWN_IMAGES}/objects.csv",
                           "values": {"a": ["p", "q", "r"], "b": ["s", "t", "u"]}}, READ),
    "PythonSource.reader": ("datasets.6.source.reader", "bindscope.sources.table:Other", READ),
    "PythonSource.path": ("datasets.6.source.path", OWN_IMAGES, READ),
    "PythonSource.options": ("datasets.6.source.options", {"a": 1}, READ),
    "PythonSource.repeats": ("datasets.6.source.repeats", True, READ),
    **{
        f"{section}.{key}": (
            f"datasets.{at}.source" + ("" if key == "kind" else f".{key}"), value, READ
        )
        for at, section, changes in (
            (17, "Ade20kSource", {"parts": ["validation"], "classes": "benchmark",
                                  "other": "ignore"}),
            (18, "CocoPanopticSource", {"parts": ["val2017"]}),
        )
        for key, value in {
            "kind": {"kind": "python", "reader": READER}, "path": "tests/fixtures/segmented",
            "skip": ["other.jpg"], "bad_masks": "skip", **changes,
        }.items()
    },
    "Dataset.slots": ("datasets.0.slots", 3, LABELS),
    "Dataset.captions": ("datasets.20.captions.templates.0.join", ", ", TEXTS),
    "EnumeratedSplit.rule": ("datasets.20.split", {"rule": "random"}, IN_SLOTS),
    "EnumeratedSplit.sizes": ("datasets.20.split.sizes.test", 65, IN_SLOTS),
    "Clevr2dRenderer.kind": ("datasets.20.render",
                             {"kind": "shapes", "size_px": 32, "object_px": 8},
                             {*DRAWN, "joint"}),
    "Clevr2dRenderer.size_px": ("datasets.20.render.size_px", 40, {*DRAWN, "joint"}),
    "SpritesRenderer.kind": ("datasets.27.render",
                             {"kind": "shapes", "size_px": 32, "object_px": 8}, DRAWN),
    "SpritesRenderer.words": ("datasets.27.render.words", "estimation", DRAWN),
    "SpritesRenderer.jitter": ("datasets.27.render.jitter", True, DRAWN),
    "Captions.templates": ("datasets.20.captions.templates", [{}, {"name": "b"}], TEXTS),
    "Captions.words": ("datasets.20.captions.words.shape", ["a", "b", "c"], TEXTS),
    **{
        f"CaptionTemplate.{key}": (f"datasets.20.captions.templates.0.{key}", value, TEXTS)
        for key, value in {
            "name": "other", "object": "{shape} {color}", "join": ", ", "scene": "{objects}.",
            "concept": "a {value} thing",
        }.items()
    },
    "PhotosRenderer.fit": ("datasets.5.render.fit", "letterbox", SEEN),
    "PhotosRenderer.kind": ("datasets.7.render", {"kind": "photos"}, set()),
    "PhotosRenderer.size_px": ("datasets.5.render.size_px", 64, SEEN),
    "RandomSplit.rule": ("datasets.0.split", {"rule": "hashed_feature_codes"}, SPACE),
    "RankedSplit.rule": ("datasets.2.split", {"rule": "random"},
                         PRIORS),
    "RankedSplit.salt": ("datasets.2.split.salt", "x", PRIORS),
    "RankedSplit.n_feature_codes": ("datasets.2.split.n_feature_codes.train", 4,
                                    PRIORS),
    "HashedSplit.rule": ("datasets.1.split", {"rule": "random"},
                         PRIORS),
    "HashedSplit.salt": ("datasets.1.split.salt", "x", PRIORS),
    "HashedSplit.buckets": ("datasets.1.split.buckets", 11, PRIORS),
    "HashedSplit.test": ("datasets.1.split.test", [3], PRIORS),
    "HashedSplit.val": ("datasets.1.split.val", [4], PRIORS),
    "SplitCounts.train": ("datasets.0.n_scenes.train", 192,
                          {*CODES, "scenes", "encoded", "index", *EXTRACTION}),
    "SplitCounts.val": ("datasets.0.n_scenes.val", 128,
                        {*CODES, "scenes", "encoded", "index", *EXTRACTION}),
    "SplitCounts.test": ("datasets.0.n_scenes.test", 128,
                         {*CODES, "scenes", "encoded", "truth", "pooled", "patches", "index"}),
    "ShapesRenderer.kind": ("datasets.2.render", {"kind": "shapes"}, set()),
    "ShapesRenderer.size_px": ("datasets.0.render.size_px", 40, {"scenes", *TRAINING}),
    "ShapesRenderer.object_px": ("datasets.0.render.object_px", 6, {"scenes", *TRAINING}),
    "ShapesRenderer.margin_px": ("datasets.0.render.margin_px", 2, {"scenes", *TRAINING}),
    "ShapesRenderer.placement": ("datasets.0.render.placement", "grid", {"scenes", *TRAINING}),
    "ShapesRenderer.antialias": ("datasets.0.render.antialias", 2, {"scenes", *TRAINING}),
    "ClutterRenderer.kind": ("datasets.19.render", {"kind": "shapes"}, DRAWN),
    **{
        f"ClutterRenderer.{key}": (f"datasets.19.render.{key}", value, DRAWN)
        for key, value in {
            "size_px": 56, "object_px": [14], "small_px": 11, "small": 0.2,
            "textures": ["plain", "dots"], "two_textures": 0.1, "duplicates": 0.1, "patch_px": 7,
            "touching": 0.1, "occluders": 0.1, "occluder_px": 3, "stuff": 3, "unlabelled": 0.1,
        }.items()
    },
    "SolidsRenderer.kind": ("datasets.10.render", {"kind": "shapes"}, DRAWN),
    "SolidsRenderer.backend": ("datasets.10.render.backend", {"kind": "mitsuba"}, DRAWN),
    "SolidsRenderer.size_px": ("datasets.10.render.size_px", 40, DRAWN),
    "SolidsRenderer.colors": ("datasets.10.render.colors", ["red", "blue"], DRAWN),
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
    "SolidsRenderer.hidden": ("datasets.20.render",
                              {"kind": "solids", "size_px": 32, "hidden": [0.1, 0.3]},
                              {*DRAWN, "joint"}),
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
    "KnownAnswer.name": ("models.1.name", "other", KNOWN),
    "KnownAnswer.source": ("models.1.source", "known-answer:conjunctive",
                           KNOWN),
    "KnownAnswer.dim": ("models.1.dim", 9, KNOWN),
    "KnownAnswer.probability": ("models.5.probability", 0.25,
                                KNOWN),
    "KnownAnswer.seed": ("models.1.seed", 3, KNOWN),
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
    "Training.dataset": ("models.0.training.dataset", "drawn", TRAINING),
    "Training.scenes": ("models.0.training.scenes", "dataset", TRAINING),
    "Training.input_px": ("models.0.training.input_px", 16, TRAINING),
    "Training.steps": ("models.0.training.steps", 5, TRAINING),
    "Training.batch_size": ("models.0.training.batch_size", 8, TRAINING),
    "Training.learning_rate": ("models.0.training.learning_rate", 1e-3, TRAINING),
    "Training.weight_decay": ("models.0.training.weight_decay", 0.0, TRAINING),
    "Training.threads": ("models.0.training.threads", 2, TRAINING),
    "Training.device": ("models.0.training.device", "cuda", TRAINING),
    "Training.coverage": ("models.0.training.coverage", 0.5, TRAINING),
    "Training.same_object": ("models.0.training.same_object", None, TRAINING),
    "SameObjectLoss.weight": ("models.0.training.same_object.weight", -2.0, TRAINING),
    "SameObjectLoss.layer": ("models.0.training.same_object.layer", 0, TRAINING),
    "Zoo.name": ("models.8.name", "other", PRETRAINED),
    "Zoo.source": ("models.8.source", "zoo:matching-objects-1", PRETRAINED),
    "Zoo.input_px": ("models.8.input_px", 64, PRETRAINED),
    "Zoo.extraction": ("models.8.extraction", {"batch_size": 8}, PRETRAINED),
    "Pretrained.name": ("models.2.name", "other", PRETRAINED),
    "Pretrained.source": ("models.2.source", "timm:vit_small_patch16_224", PRETRAINED),
    "Pretrained.n_layers": ("models.2.n_layers", 11, PRETRAINED),
    "Pretrained.pretrained": ("models.2.pretrained", True, {"weights", *PRETRAINED}),
    "Pretrained.seed": ("models.2.seed", 1, PRETRAINED),
    "Pretrained.input_px": ("models.2.input_px", 64, PRETRAINED),
    "Pretrained.overrides": ("models.2.overrides", {"depth": 2}, PRETRAINED),
    "Pretrained.extraction": ("models.2.extraction.batch_size", 8, PRETRAINED),
    "PythonModel.name": ("models.3.name", "other", PRETRAINED),
    "PythonModel.source": ("models.3.source", "python:bindscope.models.vit:other", PRETRAINED),
    "PythonModel.n_layers": ("models.3.n_layers", 3, PRETRAINED),
    "PythonModel.options": ("models.3.options", {"a": 1}, PRETRAINED),
    "PythonModel.extraction": ("models.3.extraction.batch_size", 8, PRETRAINED),
    "PythonModel.modules": ("models.7.modules", ["layer2"], PRETRAINED),
    "PythonModel.seed": ("models.7.seed", 1, PRETRAINED),
    "PythonModel.has_cls": ("models.7.has_cls", True, PRETRAINED),
    "PythonModel.registers": ("models.7.registers", 1, PRETRAINED),
    "PythonModel.prefix": ("models.7.prefix", 1, PRETRAINED),
    "PythonModel.grid": ("models.7.grid", [3, 2], PRETRAINED),
    "PythonModel.transform": ("models.7.transform", {"input_px": 8}, PRETRAINED),
    "Pixels.input_px": ("models.7.transform.input_px", 8, PRETRAINED),
    "Pixels.mean": ("models.7.transform.mean", [0, 0, 0], PRETRAINED),
    "Pixels.std": ("models.7.transform.std", [1, 1, 1], PRETRAINED),
    "Pixels.interpolation": ("models.7.transform.interpolation", "nearest", PRETRAINED),
    "Extraction.batch_size": ("models.2.extraction.batch_size", 8, PRETRAINED),
    "Extraction.precision": ("models.2.extraction.precision", "bfloat16", PRETRAINED),
    "Extraction.dtype": ("models.2.extraction.dtype", "float32", PRETRAINED),
    "Extraction.attention": ("models.2.extraction.attention", "eager", PRETRAINED),
    "Extraction.device": ("models.2.extraction.device", "cuda", PRETRAINED),
    "Extraction.threads": ("models.2.extraction.threads", 2, PRETRAINED),
    "Extraction.keep_patches": ("models.0.extraction.keep_patches", False,
                                {"patches_temporary", "index"}),
    "ToyVision.name": ("models.11.name", "other", OF_TOYS),
    "ToyVision.source": ("models.11.source", "toy:free", OF_TOYS),
    "ToyVision.n_layers": ("models.11.n_layers", 6, OF_TOYS),
    "ToyVision.extraction": ("models.11.extraction.batch_size", 8, OF_TOYS),
    "Report.title": ("report.title", "Other", set()),
    "Report.figures": ("report.figures", ["tokens"], set()),
}  # fmt: skip

# What the studies' rules do after that follows from it.
KEYS: dict[str, str] = {}  # Class.key -> the study whose section it is in, or nothing
for _section, _class, _key in keys():
    _of_study = _section.split(".")[1] if _section.startswith("studies.") else ""
    if _class != "Studies" and _key != "studies":
        # pydantic puts modules before the names of classes that there are twice
        KEYS[f"{_class.rpartition('__')[2]}.{_key}"] = _of_study.removesuffix("[]")


def expected(key: str) -> tuple[str, object, set[str]]:
    """Return a key's path, its new value, and the rules that run by the tables."""
    if study := KEYS[key]:
        path, value, rules = BY_STUDY[study]["KEYS"][key]
        return f"studies.{study}.{path}", value, rules
    path, value, shared = TABLE[key]
    following: set[str] = set()
    for module in BY_STUDY.values():
        for pattern, rules in module["FOLLOWING"].items():
            if pattern in shared or fnmatch(key, pattern):
                following |= rules
    return path, value, shared | following


def identities(graph: Graph) -> dict[str, tuple[str, str, str]]:
    """What decides whether a product is made: path, spec and code."""
    return {p.path(): (p.rule, p.spec, p.code) for p in graph.products.values()}


def test_every_key_of_the_schema_has_an_entry() -> None:
    assert sorted(TABLE) == sorted(key for key, study in KEYS.items() if not study)
    for name, module in BY_STUDY.items():
        assert sorted(module["KEYS"]) == sorted(key for key, study in KEYS.items() if study == name)
    assert set().union(*(rules for _, _, rules in TABLE.values())) <= set(SHARED_STEPS)


@pytest.fixture(scope="module")
def before() -> dict[str, tuple[str, str, str]]:
    return identities(build(Config.model_validate(example())))


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_change_runs_its_rules_and_no_other(
    key: str, before: dict[str, tuple[str, str, str]]
) -> None:
    path, value, rules = expected(key)
    config = example()
    if key.endswith(".name"):
        rename(config, path, str(value))
    assign(config, path, value)
    after = identities(build(Config.model_validate(config)))
    changed = {entry[0] for p, entry in after.items() if before.get(p) != entry}
    if KEYS[key]:  # a study knows which of its tables and figures follow
        assert changed - {"report"} == rules
    else:
        assert changed - COLLECTING == rules
    assert "report" in changed  # it shows the whole configuration
    assert any(before.get(p) == entry for p, entry in after.items())


def rename(section: Any, path: str, new: str) -> None:
    """Rename an entry where lists of a configuration refer to it: `models` to one of `models`."""
    kind = path.split(".")[-3]
    old = section
    for part in path.split("."):
        old = old[int(part) if part.isdigit() else part]
    _replace(section, kind, str(old), new)


def _replace(section: Any, kind: str, old: str, new: str) -> None:
    for key, inner in section.items() if isinstance(section, dict) else enumerate(section):
        if key == kind and all(isinstance(name, str) for name in inner):
            section[key] = [new if name == old else name for name in inner]
        elif isinstance(inner, dict | list):
            _replace(inner, kind, old, new)


def test_models_that_are_trained_alike_share_one_training() -> None:
    config = example()
    config["models"].append({**config["models"][0], "name": "larger", "input_px": 64})
    config["studies"]["binding_information"]["fits"][0]["models"].append("larger")
    graph = build(Config.model_validate(config))
    trainings = {p.wildcards["model"]: p for p in graph.of("training")}
    assert "vit" in trainings
    assert "larger" not in trainings
    weights = {
        p.wildcards["model"]: [w.path() for w in p.inputs["weights"]] for p in graph.of("pooled")
    }
    assert weights["vit"] == weights["larger"] == [trainings["vit"].path()]
    keys = {p.key for p in graph.of("index") if p.wildcards["model"] in ("vit", "larger")}
    assert len(keys) > 1
    config["models"][-1]["seed"] = 1
    assert len(build(Config.model_validate(config)).of("training")) == len(trainings) + 1
