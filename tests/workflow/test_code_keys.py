"""Every module: which products change after an edit of it, by tables written by hand.

The modules come from the tree, so a new one whose room has no entry fails. The table of the shared
rooms stands here, that of a study in ``tests/studies/<name>/rooms.py``.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import ROOT, forget

from bindscope.config.root import Config
from bindscope.core import keys
from bindscope.core.errors import BindscopeError
from bindscope.core.graph import Product, roots
from bindscope.core.job import _refuse_other_code
from bindscope.core.registries import STUDIES
from bindscope.studies.build import build

SOURCE = ROOT / "src" / "bindscope"
MODULES = sorted(
    str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if path.name != "__init__.py"
)
TABLES = ROOT / "tests" / "studies"


def rooms_of(study: str) -> Any:
    """Load a study's own table."""
    spec = importlib.util.spec_from_file_location(study, TABLES / study / "rooms.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def more_sections() -> dict[str, Any]:
    """Return the sections of studies that the CI's preset leaves out, by study."""
    files = {study: TABLES / study / "ci.yaml" for study in STUDIES}
    return {s: yaml.safe_load(file.read_text()) for s, file in files.items() if file.is_file()}


BY_STUDY = {study: rooms_of(study) for study in STUDIES}
DRAW = {"codes", "encoded", "scenes", "training"}
LABELS = {"codes", "anchors", "priors", "scenes", "encoded", "truth", "training"}
VISION = {"pooled", "patches", "training"}
STORES = {"codes", "anchors", "scenes", "encoded", "pooled", "patches"}
LISTINGS = {"index", "labels"}
SHEET = {"figure scenes"}  # the one figure that reads stores


def of_studies(role: str) -> set[str]:
    """Products of all studies that play a role: `fits`, `tables`, `figures`, ..."""
    return set().union(*(getattr(module, role.upper(), set()) for module in BY_STUDY.values()))


FITS, READERS = of_studies("fits"), of_studies("readers")
SHOWN = {"report", *of_studies("figures")}
READ = {"anchors", "training", "pooled", "patches", *READERS, *LISTINGS, *SHEET}

# The longest prefix wins. A product stands here when its own code holds the module; products
# further down follow by the chain.
ROOMS: dict[str, set[str]] = {
    "activations/encoded.py": {"encoded"},
    "activations/extraction.py": {"pooled", "patches"},
    "activations/images.py": {"pooled", "patches"},
    "activations/index.py": {"index"},
    "activations/parts.py": {"encoded", "pooled", "patches", "index", *READERS},
    "activations/reader.py": READERS,
    "activations/texts.py": set(),  # no captions in this preset
    "cli.py": set(),
    "codes/": LABELS,
    "codes/coverage.py": {"training"},
    "codes/balanced.py": set(),  # no balanced space in this preset
    "codes/enumeration.py": {*DRAW, "truth"},
    "codes/ranks.py": {*DRAW, "truth"},
    "codes/slots.py": {"codes"},
    "codes/type_counts.py": {"codes"},
    "codes/draws.py": {"codes"},
    "codes/prefix.py": {*DRAW, "anchors", "priors", "truth"},
    "codes/margins.py": {"anchors", "priors", "truth", "encoded"},
    "codes/sampling.py": {*DRAW, "truth"},
    "codes/splits.py": {*DRAW, "priors", "truth"},
    "codes/values.py": of_studies("value_names"),
    "commands/": set(),
    "config/": set(),  # all it decides stands in the spec
    "core/": set(),
    "core/files.py": {"everything"},
    "core/devices.py": {*VISION, *FITS},
    "core/splits.py": {*DRAW, "priors", "truth", "labels", *FITS},
    "core/store/background.py": {*STORES, "training"},
    "core/store/dtypes.py": {*STORES, *READ},
    "core/store/listing.py": {*LISTINGS, *READERS},
    "core/store/manifest.py": {*STORES, *READ},
    "core/store/reader.py": READ,
    "core/store/verify.py": set(),
    "core/store/writer.py": {*STORES, "training"},  # renderers write shards
    "figures/": of_studies("figures"),
    "figures/colours.py": SHOWN,
    "fitting/": FITS,
    **{
        f"fitting/{name}.py": {*FITS, "training"}
        for name in ("adam", "checkpoint", "denormals", "descent")
    },
    **{f"fitting/{name}.py": READERS for name in ("generators", "rows", "standardise")},
    **{f"fitting/{name}.py": {"training"} for name in ("plans", "schedules")},
    "graph/": set(),
    "models/": VISION,
    "models/base.py": {*VISION, *READERS, "encoded", "truth"},
    "models/hf_adapter.py": set(),  # none of these adapters is used by this preset
    "models/known_answer": {"encoded", "truth"},
    **{f"models/known_answer_{name}.py": {"truth"} for name in ("channels", "realised", "truth")},
    "models/loading.py": {"pooled", "patches"},
    "models/python_adapter.py": set(),
    "models/hf_texts.py": set(),
    "models/hooked.py": set(),
    "models/objectives/": set(),  # this preset trains for objects
    "models/objectives/base.py": {"training"},
    "models/objectives/codes.py": {"training"},
    "models/objectives/evaluation.py": {"training"},
    "models/own_texts.py": set(),
    "models/texts.py": set(),
    "models/pretraining_loss.py": set(),  # of studies that intervene
    "models/timm_adapter.py": set(),
    "models/training": {"training"},
    "models/weights.py": set(),
    "models/zoo.py": set(),
    "models/refitting.py": set(),  # no model of the zoo here
    "notebook.py": set(),
    "priors/": {"priors", "truth"},
    "priors/anchors.py": {"anchors"},
    "priors/counts.py": {"anchors", "priors", "truth"},
    "priors/log_ratios.py": {"anchors", "priors", "truth"},
    "priors/labels.py": {"labels", *FITS},
    "priors/assignments.py": set(),  # for datasets whose scenes are observed
    "priors/counted.py": set(),
    "priors/approximate_odds.py": set(),
    "priors/shared_codes.py": set(),
    "priors/multisets.py": set(),
    "report/": {"report"},
    "report/chapter.py": {"report", *of_studies("quoted")},
    "scenes/": {"scenes", "training"},
    "scenes/captions.py": set(),
    **{
        f"scenes/{name}.py": set()
        for name in (
            "clevr_2d",
            "clevr_2d_palette",
            "pug_spare_values",
            "sprite_palette",
            "sprites",
            "value_names",
        )
    },
    "scenes/clutter/": set(),  # no clutter in this preset
    "scenes/patch_labels.py": set(),  # of losses and studies of pairs of patches
    "scenes/solids/": set(),  # no solids in this preset
    "scenes/statistics.py": set(),  # of solids
    "sources/": set(),  # no scenes of this preset are read
    "sources/metadata.py": SHEET,
    "statistics/": set(),
    "statistics/bootstrap.py": of_studies("intervals"),
    "statistics/control_variates.py": {*of_studies("control_variates"), "truth"},
    "statistics/extrapolation.py": of_studies("extrapolation"),
    "statistics/means.py": of_studies("means"),
    "statistics/verdict.py": {"report"},
    "studies/build.py": set(),
    "tables/": of_studies("row_readers"),
    "tables/rules.py": of_studies("row_readers") - of_studies("without_rules"),
    "tables/write.py": of_studies("table_readers"),
    "tables/compare.py": set(),  # for CI, not for a rule
    "tables/describe.py": set(),  # for the documentation
    **{
        f"studies/{study}/{prefix}": products
        for study, module in BY_STUDY.items()
        for prefix, products in module.ROOMS.items()
    },
}


def expected(module: str) -> set[str]:
    """Look a module's products up: those of its room, and of studies that say so themselves."""
    prefixes = [prefix for prefix in ROOMS if module.startswith(prefix)]
    assert prefixes, f"{module}: its room has no entry in ROOMS"
    more = (getattr(study, "SHARED", {}).get(module, set()) for study in BY_STUDY.values())
    return ROOMS[max(prefixes, key=len)].union(*more)


def label(product: Product) -> str:
    """Name a product's rule; of tables and figures, which share one, each by its own name."""
    name = product.wildcards.get(product.rule, "")
    return f"{product.rule} {name}".strip()


def ci_products() -> list[Product]:
    """Products of the CI's preset, with what studies add to it for these tests."""
    config = yaml.safe_load((ROOT / "config/presets/ci.yaml").read_text())
    config["studies"] |= more_sections()
    return list(build(Config.model_validate(config)).products.values())


@pytest.fixture(scope="module")
def importers() -> dict[str, set[str]]:
    """Module -> products whose own code it is part of."""
    found: dict[str, set[str]] = {module: set() for module in MODULES}
    for product in ci_products():
        files, _ = keys.closure(roots(json.loads(product.spec)))
        for path in files.values():
            if path.is_relative_to(SOURCE) and path.name != "__init__.py":
                found[str(path.relative_to(SOURCE))].add(label(product))
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_in_the_code_of_its_rooms_products(
    module: str, importers: dict[str, set[str]]
) -> None:
    wanted = expected(module)
    if wanted == {"everything"}:
        wanted = {label(product) for product in ci_products()}
    assert importers[module] == wanted


def test_a_fit_hangs_on_the_module_of_its_own_family() -> None:
    """Editing attention must not fit linear probes again; the others hold the linear one."""
    families = {"attention", "convex", "dnn", "linear", "multilinear", "quadratic"}
    wanted = {
        "linear": {"linear", "convex"},
        "quadratic": {"linear", "convex", "quadratic"},
        "attention_quadratic": {"linear", "convex", "attention"},
    }
    seen = set()
    for product in ci_products():
        if product.rule == "fit":
            spec = json.loads(product.spec)
            files, _ = keys.closure(roots(spec))
            modules = {path.stem for path in files.values() if path.parent.name == "probes"}
            assert modules & families == wanted[spec["probe"]["family"]]
            seen.add(spec["probe"]["family"])
    assert seen == set(wanted)


def test_no_entry_is_left_over() -> None:
    assert not [prefix for prefix in ROOMS if not any(m.startswith(prefix) for m in MODULES)]


Codes = dict[str, tuple[set[str], set[str]]]


def codes() -> Codes:
    """Return own and chained codes of each label's products."""
    forget()
    found: Codes = {label(p): (set(), set()) for p in ci_products()}
    for product in ci_products():
        for seen, code in zip(found[label(product)], product.code.split(":"), strict=True):
            seen.add(code)
    return found


def changed(after: Codes, before: Codes, i: int) -> set[str]:
    return {name for name in after if after[name][i] != before[name][i]}


def with_joined(products: set[str]) -> set[str]:
    """Add what studies make that read tables of other ones."""
    joining = [m for m in BY_STUDY.values() if getattr(m, "JOINS", set()) & products]
    return products.union(*(module.TABLES | module.FIGURES for module in joining))


@pytest.mark.parametrize("study", [name for name, module in BY_STUDY.items() if module.EDITS])
def test_an_edit_reaches_its_products_and_by_the_chain_all_below(study: str, copied: Path) -> None:
    """Each study says what an edit of some of its modules changes: own code, and the chain's."""
    before = codes()
    for module, (own, chained) in BY_STUDY[study].EDITS.items():
        path = copied / "studies" / study / module
        text = path.read_text()
        path.write_text(text + "\n_CHANGED = 1\n")
        after = codes()
        path.write_text(text)
        assert changed(after, before, 0) == own, module
        assert changed(after, before, 1) == with_joined(chained), module


def test_a_corrected_closed_form_encodes_nothing_anew(copied: Path) -> None:
    before = codes()
    with (copied / "models/known_answer_truth.py").open("a") as handle:
        handle.write("\n_CHANGED = 1\n")
    after = codes()
    assert changed(after, before, 0) == {"truth"}
    below = changed(after, before, 1)
    assert {"truth", "report"} <= below
    assert not below & {"encoded", "index", *FITS}


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
