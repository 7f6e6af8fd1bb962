"""What the configuration's modules hold is in no code key, so it must not decide a result.

A value may: it stands in the spec. What may not is a constant, the order of a tuple, a method, or a
default that a job fills in because its spec lacks it.
"""

from __future__ import annotations

import ast
import importlib
import json
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness import ROOT, forget
from pydantic import BaseModel
from test_code_keys import SOURCE, changed, codes

from bindscope.config.base import ConfigModel, SplitCounts
from bindscope.config.entities import dataset_of, entity, model_of
from bindscope.config.loading import load_file
from bindscope.config.pug_spare import PugSpareSource
from bindscope.config.segmented import Ade20kSource
from bindscope.config.solids import KNOWN_VALUES
from bindscope.core import keys
from bindscope.core.graph import Product, roots
from bindscope.core.job import Job
from bindscope.core.registries import ADAPTERS, BACKENDS, READERS, RENDERERS, SPACES
from bindscope.core.splits import SPLITS
from bindscope.scenes.solids.values import VALUES
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.registry import FAMILIES, options_of
from bindscope.studies.build import build
from bindscope.studies.same_object.config import AnyScorer

PRESETS = [ROOT / "config/config.yaml", *sorted((ROOT / "config/presets").glob("*.yaml"))]
_STUDY = "src/bindscope/studies/binding_information"
_PAIRS = "src/bindscope/studies/same_object"
_CONCEPTS = "src/bindscope/studies/concepts"
_BINDING_IDS = "src/bindscope/studies/binding_id"
HARMLESS = {
    (f"{_PAIRS}/tables.py", "FAMILIES"),
    *(
        (f"{_CONCEPTS}/tables.py", name)
        for name in ("ANALYSES", "EMBEDDING_NAME", "ENCODERS", "VECTORS")
    ),
    (f"{_BINDING_IDS}/schemas.py", "EXPERIMENTS"),
    # The module that a name stands for is in the spec and in the code key.
    (f"{_PAIRS}/fit.py", "FAMILIES"),
    (f"{_CONCEPTS}/dual/training.py", "ENCODERS"),
    (f"{_CONCEPTS}/inputs.py", "DUAL_RUNS"),
    (f"{_CONCEPTS}/measure.py", "ANALYSES"),
    *((f"{_BINDING_IDS}/suite.py", name) for name in ("find_experiment", "find_judged")),
    *((f"{_BINDING_IDS}/claims.py", name) for name in ("EXPERIMENTS", "find_notes")),
    (f"{_BINDING_IDS}/suite.py", "ENGINES"),
    (f"{_BINDING_IDS}/suite.py", "RECORDS"),
    (f"{_STUDY}/probes/module.py", "options_of"),
    (f"{_STUDY}/names.py", "options_of"),  # words of families are in the spec of figures
    (f"{_STUDY}/views.py", "known_families"),  # and their order
    ("src/bindscope/scenes/value_names.py", "FAST"),  # types of renderers
    # Where the zoo is, and how its absence is worded: the weights' hash is in the spec.
    *(
        ("src/bindscope/models/pretraining_loss.py", name)
        for name in ("REMEDY", "manifest_path", "read_manifest")
    ),
    (f"{_PAIRS}/effects/job.py", "read_manifest"),
    (f"{_BINDING_IDS}/toys/adapter.py", "REMEDY"),
    (f"{_BINDING_IDS}/toys/adapter.py", "manifest_path"),
    (f"{_BINDING_IDS}/toys/model.py", "REMEDY"),
    (f"{_BINDING_IDS}/toys/model.py", "TOY"),  # tells manifests apart
    ("src/bindscope/models/zoo.py", "REMEDY"),
    ("src/bindscope/models/zoo.py", "manifest_path"),
    ("src/bindscope/models/zoo.py", "read_manifest"),
}


FIXTURES: dict[type, str] = {Ade20kSource: "segmented", PugSpareSource: "own_images/objects.csv"}


@cache
def products() -> list[Product]:
    """All products of all presets; labels of releases that users obtain are fixtures."""
    configs = [load_file(path) for path in PRESETS]
    for config in configs:
        for dataset in config.datasets:
            if name := FIXTURES.get(type(dataset.source)):
                object.__setattr__(dataset.source, "path", str(ROOT / "tests/fixtures" / name))
    return [p for config in configs for p in build(config).products.values()]


def hashed_modules() -> set[Path]:
    """The modules and scripts in the code key of any product, or behind any registered name."""
    registries = (ADAPTERS, BACKENDS, READERS, RENDERERS, SPACES)
    named = {name.partition(":")[0] for registry in registries for name in registry.values()}
    named |= {name.partition(":")[0] for family in FAMILIES for name in options_of(family).code()}
    begun = {roots(json.loads(product.spec)) for product in products()}
    return {
        path
        for start in {*begun, *((name,) for name in named)}
        for path in keys.closure(start).files.values()
    }


def runtime_imports(node: ast.AST) -> Iterator[ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.ImportFrom):
            yield child
        yield from runtime_imports(child)


def is_type(value: Any) -> bool:
    """Whether it is a configuration's class, or a union or literal of such."""
    if isinstance(value, type):
        return issubclass(value, BaseModel)
    return typing.get_origin(value) is not None


# They word messages, and read the entities of a job's spec: what they return stands in the spec.
NO_FIELDS = ("bindscope.config.entities", "bindscope.config.wording")


def is_configuration(module: str) -> bool:
    """Whether a module is outside the code keys because it holds configuration."""
    kinds = ("bindscope.config", "bindscope.studies.")
    return module.startswith(kinds) and keys.is_outside(module) and module not in NO_FIELDS


def test_code_takes_nothing_but_types_from_the_configuration() -> None:
    modules = hashed_modules()
    assert len(modules) > 100
    imported = set()
    for path in modules:
        for statement in runtime_imports(ast.parse(path.read_text())):
            module = statement.module or ""
            if is_configuration(module):
                room = importlib.import_module(module)
                imported |= {
                    (path.relative_to(ROOT).as_posix(), alias.name)
                    for alias in statement.names
                    if not is_type(getattr(room, alias.name))
                }
    assert imported <= HARMLESS


def subclasses(model: type[ConfigModel]) -> Iterator[type[ConfigModel]]:
    for child in model.__subclasses__():
        yield child
        yield from subclasses(child)


def test_configuration_classes_compute_nothing() -> None:
    for path in (*(SOURCE / "config").glob("*.py"), *(SOURCE / "studies").glob("*/*config.py")):
        name = path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".")
        importlib.import_module(f"bindscope.{name}")
    mine = [model for model in subclasses(ConfigModel) if is_configuration(model.__module__)]
    assert len(mine) > 30
    computed = {
        f"{model.__name__}.{name}"
        for model in mine
        for name, value in vars(model).items()
        if not name.startswith(("_", "model_"))
        and (callable(value) or isinstance(value, property | classmethod | staticmethod))
    }
    # What a model says of itself: of its fields, or of the manifest with whose hash it changes.
    described = {
        "ModelEntry": "depth first_layer has_final objective training_seed stored local_weights "
        "downloads has_patches",
        "KnownAnswer": "has_patches",
        "Baseline": "has_patches has_final",
        "Controlled": "depth objective training_seed",
        "Zoo": "depth seed objective training_seed stored",
        "Pretrained": "depth local_weights downloads",
        "PythonModel": "depth first_layer",
        "ToyVision": "depth first_layer zoo_source stored",
    }
    assert computed == {
        f"{model}.{name}" for model, names in described.items() for name in names.split()
    }


# Fields that a rule's job fills in because its spec lacks them: it reads none of them.
NOT_READ = {
    "priors": {"dataset.render", "dataset.seed", "dataset.source"},
    "anchors": {"dataset.render", "dataset.seed", "dataset.source"},
    "truth": {"dataset.render", "dataset.source"},
    "codes": {"dataset.render", "dataset.source"},
    "encoded": {"dataset.render", "dataset.source"},
    "scenes": {"dataset.source"},
    "training": {"dataset.source", "model.extraction", "model.input_px"},
    "pooled": {"model.extraction.keep_patches"},
    "patches": {"model.extraction.keep_patches"},
    **{
        rule: {"model.extraction.keep_patches"}
        for rule in (
            "patches_temporary",
            "sampled",
            "sampled_temporary",
            "same_object_maps",
            "joint",
            "text_embeddings",
            "same_object_effects",
        )
    },
    # What is downloaded is in the spec of the download.
    "records": {
        "dataset.render",
        "dataset.seed",
        "dataset.source.downloads",
        "dataset.source.folder",
    },
}


# In no spec while they have this value: what was made before there were such fields keeps its key.
LEFT_OUT = {
    "dataset.captions": None,
    "dataset.slots": None,
    "dataset.render.gap_px": None,
    "dataset.render.hidden": None,
    "dataset.render.places": None,
    "model.preprocessing": "own",
    "model.seeds": None,
}


def from_defaults(value: Any, name: str) -> Iterator[str]:
    """Name the fields, at any depth, that nobody set."""
    if isinstance(value, BaseModel):
        for field in type(value).model_fields:
            if field not in value.model_fields_set:
                filled = f"{name}.{field}"
                if filled not in LEFT_OUT or getattr(value, field) != LEFT_OUT[filled]:
                    yield filled
            else:
                yield from from_defaults(getattr(value, field), f"{name}.{field}")
    elif isinstance(value, tuple):
        for item in value:
            yield from from_defaults(item, f"{name}[]")


def probes_of(rule: str) -> Any:
    """Return the probes of the study that a rule is of."""
    return AnyScorer if rule.startswith("same_object") else AnyProbe


def built_by_a_job(product: Product) -> dict[str, Any]:
    spec = json.loads(product.spec)
    wildcards = SimpleNamespace(get=lambda name, default=None: product.wildcards.get(name, default))
    job = Job(product.rule, spec, product.spec, product.code, None, None, wildcards)
    entities = {}
    read = {
        "dataset": dataset_of,
        "model": model_of,
        "probe": lambda job: entity(job, "probe", probes_of(job.rule)),
    }
    for name, read_entity in read.items():
        content = spec.get(name)
        # A download's spec has the source alone, and the job reads no more.
        if isinstance(content, dict) and product.rule not in ("weights", "report"):
            entities[name] = read_entity(job)
    return entities


def test_a_job_fills_in_no_default_that_it_uses() -> None:
    filled: dict[str, set[str]] = {}
    read = ("dataset", "model", "probe")
    different = {(p.rule, *(str(p.content.get(name)) for name in read)): p for p in products()}
    for product in different.values():
        for name, value in built_by_a_job(product).items():
            filled.setdefault(product.rule, set()).update(from_defaults(value, name))
    assert {rule: names for rule, names in filled.items() if names} == NOT_READ


def step_codes(preset: str, *rules: str) -> dict[str, str]:
    """Code keys of a preset's products of some rules, by path."""
    forget()
    graph = build(load_file(ROOT / "config/presets" / preset))
    return {p.path(): p.code.partition(":")[0] for p in graph.select(*rules)}


def swap(path: Path, first: str, second: str) -> None:
    text = path.read_text()
    assert f"{first}, {second}" in text
    path.write_text(text.replace(f"{first}, {second}", f"{second}, {first}"))


@pytest.mark.parametrize(
    ("preset", "rules"),
    [("occlusion_small.yaml", ("scenes",)), ("clevr.yaml", ("records",))],
)
def test_the_order_of_values_is_in_the_keys_of_what_it_decides(
    copied: Path, preset: str, rules: tuple[str, ...]
) -> None:
    before = step_codes(preset, *rules)
    assert before
    swap(copied / "scenes/solids/values.py", '"cube"', '"sphere"')
    after = step_codes(preset, *rules)
    assert after.keys() == before.keys()
    assert all(after[path] != code for path, code in before.items())


def test_the_order_of_splits_is_in_the_keys_of_what_it_decides(copied: Path) -> None:
    before = codes()
    swap(copied / "core/splits.py", '"train"', '"val"')
    after = codes()
    assert changed(after, before, 0) >= {"codes", "scenes", "encoded", "priors", "labels"}


def test_the_configuration_knows_the_values_that_there_are() -> None:
    assert {name: set(values) for name, values in KNOWN_VALUES.items()} == {
        name: set(values) for name, values in VALUES.items()
    }
    assert set(SPLITS) == set(SplitCounts.model_fields)
