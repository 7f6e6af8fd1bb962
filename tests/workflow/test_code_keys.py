"""Every module: which rules run after a change to it, by a table written by hand.

The modules come from the tree, so a new one whose room has no entry fails.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from harness import ROOT

from bindscope.config.root import Config
from bindscope.core import keys
from bindscope.core.errors import BindscopeError
from bindscope.core.graph import Product, roots
from bindscope.core.job import _refuse_other_code
from bindscope.studies.build import build

SOURCE = ROOT / "src" / "bindscope"
MODULES = sorted(
    str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if path.name != "__init__.py"
)

DRAW = {"codes", "encoded", "scenes"}
LABELS = {"codes", "anchors", "priors", "scenes", "encoded", "truth", "training"}
VISION = {"pooled", "patches", "training"}
FIT = {"fit", "null"}
PROBE = {"fit", "null", "attention"}
TABLES = {"table_priors", "table_binding_information", "table_attention"}
SHOWN = {"figure", "report"}
STORES = {"codes", "anchors", "scenes", "encoded", "pooled", "patches"}
LISTINGS = {"index", "labels"}
READERS = {"anchors", "training", "pooled", "patches", "fit", "null", "attention"}

# The longest prefix wins. A rule stands here when its own script imports the module; rules further
# down follow by the chain.
ROOMS: dict[str, set[str]] = {
    "activations/encoded.py": {"encoded"},
    "activations/estimate.py": {"pooled", "patches"},
    "activations/extraction.py": {"pooled", "patches"},
    "activations/index.py": {"index"},
    "activations/reader.py": {"fit", "null", "attention"},
    "activations/utilisation.py": {"pooled", "patches"},
    "cli.py": set(),
    "codes/": LABELS,
    "codes/balanced.py": set(),  # no balanced space in this preset
    "codes/copies.py": set(),  # for renderers of scenes with repeats
    "codes/draws.py": set(),  # no space of draws in this preset
    "codes/prefix.py": {*DRAW, "anchors", "truth"},
    "codes/sampling.py": {*DRAW, "truth"},
    "codes/splits.py": {*DRAW, "priors", "truth"},
    "commands/": set(),
    "config/": set(),  # all it decides stands in the spec
    "core/errors.py": set(),
    "figures/": {"figure"},
    "core/files.py": {"everything"},
    "sources/genome/": set(),  # for datasets whose scenes are observed
    "graph/": set(),
    "studies/binding_information/": FIT,
    "studies/binding_information/attention_maps.py": {"attention"},
    "statistics/bootstrap.py": {*FIT, "attention"},
    "studies/binding_information/attention_share.py": {"attention", "figure"},
    "core/keys.py": set(),
    "models/": VISION,
    "models/base.py": {*VISION, *PROBE, "encoded", "truth"},
    "core/devices.py": {*VISION, "fit", "null"},
    "models/hf_adapter.py": set(),  # none of these adapters is used by this preset
    "models/known_answer": {"encoded", "truth"},
    "models/loading.py": {"pooled", "patches"},
    "models/python_adapter.py": set(),
    "models/timm_adapter.py": set(),
    "core/torchvision_shim.py": set(),
    "models/training.py": {"training"},
    "models/weights.py": set(),
    "notebook.py": set(),
    "priors/": {"priors", "encoded", "truth"},
    "priors/anchors.py": {"anchors"},
    "priors/labels.py": {"labels", *FIT},
    "priors/assignments.py": set(),  # for datasets whose scenes are observed
    "priors/loose.py": set(),
    "priors/shared_codes.py": set(),
    "priors/supply.py": set(),
    "studies/binding_information/probes/": FIT,
    "studies/binding_information/probes/attention.py": PROBE,
    "studies/binding_information/probes/maps.py": {"attention"},
    "studies/binding_information/probes/base.py": PROBE,
    "studies/binding_information/probes/module.py": PROBE,
    "fitting/standardise.py": PROBE,
    "fitting/": FIT,
    "fitting/adam.py": {*FIT, "training"},
    "fitting/checkpoint.py": {*FIT, "training"},
    "fitting/descent.py": {*FIT, "training"},
    "fitting/generators.py": PROBE,
    "fitting/rows.py": PROBE,
    "studies/binding_information/probes/weights.py": PROBE,
    "studies/binding_information/probes/dnn.py": set(),
    "studies/binding_information/probes/multilinear.py": set(),
    "core/progress.py": set(),
    "priors/counted.py": set(),  # no scenes of this preset are read
    "core/registries.py": set(),
    "report/": {"report"},
    "scenes/": {"scenes"},
    "scenes/solids/": set(),  # no solids in this preset
    "scenes/statistics.py": set(),  # of solids
    "scenes/palette.py": {"scenes", "figure"},
    "sources/metadata.py": {"figure"},
    "sources/": set(),  # no scenes of this preset are read
    "core/job.py": set(),
    "core/store/arrays.py": {"codes", "anchors"},
    "core/store/background.py": STORES,
    "core/store/chunks.py": {*STORES, *READERS, *LISTINGS, "figure"},
    "core/store/dtypes.py": {*STORES, *READERS, *LISTINGS, "figure"},
    "core/store/listing.py": {*LISTINGS, *FIT, "attention"},
    "core/store/manifest.py": {*STORES, *READERS, *LISTINGS, "figure"},
    "core/store/reader.py": {*READERS, *LISTINGS, "figure"},
    "core/store/verify.py": set(),
    "core/store/writer.py": STORES,
    "tables/": {*TABLES, *SHOWN},
    "tables/build.py": TABLES,
    "tables/compare.py": set(),  # for CI, not for a rule
    "tables/describe.py": set(),  # for the documentation
    "studies/binding_information/published.py": SHOWN,
    "studies/binding_information/views.py": SHOWN,
}


def expected(module: str) -> set[str]:
    """Look a module's rules up."""
    prefixes = [prefix for prefix in ROOMS if module.startswith(prefix)]
    assert prefixes, f"{module}: its room has no entry in ROOMS"
    return ROOMS[max(prefixes, key=len)]


def ci_products() -> list[Product]:
    config = Config.model_validate(yaml.safe_load((ROOT / "config/presets/ci.yaml").read_text()))
    return list(build(config).products.values())


@pytest.fixture(scope="module")
def importers() -> dict[str, set[str]]:
    """Module -> rules whose own code it is part of."""
    found: dict[str, set[str]] = {module: set() for module in MODULES}
    for product in ci_products():
        files, _ = keys.closure(roots(product.rule, json.loads(product.spec)))
        for path in files.values():
            if path.is_relative_to(SOURCE) and path.name != "__init__.py":
                found[str(path.relative_to(SOURCE))].add(product.rule)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_in_the_code_of_its_rooms_rules(
    module: str, importers: dict[str, set[str]]
) -> None:
    rules = {product.rule for product in ci_products()}
    wanted = rules if expected(module) == {"everything"} else expected(module)
    assert importers[module] == wanted


def test_a_fit_hangs_on_the_module_of_its_own_family() -> None:
    """Editing attention must not fit linear probes again."""
    families = {"attention", "convex", "dnn", "linear", "multilinear", "quadratic"}
    wanted = {
        "linear": {"linear", "convex"}, "quadratic": {"quadratic"},
        "attention_quadratic": {"attention"},
    }  # fmt: skip
    seen = set()
    for product in ci_products():
        if product.rule == "fit":
            spec = json.loads(product.spec)
            files, _ = keys.closure(roots(product.rule, spec))
            modules = {path.stem for path in files.values() if path.parent.name == "probes"}
            assert modules & families == wanted[spec["probe"]["family"]]
            seen.add(spec["probe"]["family"])
    assert seen == set(wanted)


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the library that the keys are computed from."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(keys, "SOURCE", tmp_path / "src")
    forget()
    yield tmp_path / "src" / "bindscope"
    forget()


def forget() -> None:
    for function in (keys.parse_module, keys.closure, keys.own_code):
        function.cache_clear()


Codes = dict[str, tuple[set[str], set[str]]]


def codes() -> Codes:
    """Return own and chained codes of each rule's products."""
    forget()
    found: Codes = {p.rule: (set(), set()) for p in ci_products()}
    for product in ci_products():
        for seen, code in zip(found[product.rule], product.code.split(":"), strict=True):
            seen.add(code)
    return found


def changed(after: Codes, before: Codes, i: int) -> set[str]:
    return {rule for rule in after if after[rule][i] != before[rule][i]}


def test_a_change_reaches_its_rules_and_by_the_chain_all_below(copied: Path) -> None:
    before = codes()
    with (copied / "studies/binding_information/flags.py").open("a") as handle:
        handle.write("\n_CHANGED = 1\n")
    after = codes()
    assert changed(after, before, 0) == FIT
    assert changed(after, before, 1) == {
        *FIT, "attention", "table_attention", "table_binding_information", "figure", "report",
    }  # fmt: skip


def test_comments_and_docstrings_are_not_code(copied: Path) -> None:
    before = codes()
    for path in copied.rglob("*.py"):
        path.write_text(path.read_text().replace('"""', '"""Changed. ', 1) + "\n# a comment\n")
    assert codes() == before


def test_an_edit_after_planning_is_refused(copied: Path) -> None:
    product = next(p for p in ci_products() if p.rule == "priors")
    spec = json.loads(product.spec)
    _refuse_other_code("priors", spec, product.code)
    with (copied / "priors/entropies.py").open("a") as handle:
        handle.write("\n_CHANGED = 1\n")
    forget()
    with pytest.raises(BindscopeError, match="start snakemake again"):
        _refuse_other_code("priors", spec, product.code)
