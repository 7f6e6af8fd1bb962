"""Which products an edit of a module reaches: its own, all that is made of them, and no other."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import ROOT, forget

from bindscope.config.loading import load_file
from bindscope.config.root import Config
from bindscope.core import keys
from bindscope.core.errors import BindscopeError
from bindscope.core.graph import Product, roots
from bindscope.core.job import _refuse_other_code
from bindscope.core.registries import STUDIES
from bindscope.studies.build import build

SOURCE = ROOT / "src" / "bindscope"
SECTIONS = ROOT / "tests" / "studies"
# All that these decide stands in the spec, or is which code runs.
DECIDE_NOTHING = (
    "cli.py",
    "commands/",
    "graph/",
    "studies/build.py",
    "tables/compare.py",
    "tables/describe.py",
    *(f"studies/{study}/study.py" for study in STUDIES),
)


def more_sections() -> dict[str, Any]:
    """Return the sections of studies that the CI's preset leaves out, by study."""
    files = {study: SECTIONS / study / "ci.yaml" for study in STUDIES}
    return {s: yaml.safe_load(file.read_text()) for s, file in files.items() if file.is_file()}


def ci_products() -> list[Product]:
    """Products of the CI's preset, with the sections of the studies that it leaves out."""
    config = yaml.safe_load((ROOT / "config/presets/ci.yaml").read_text())
    config["studies"] |= more_sections()
    return list(build(Config.model_validate(config)).products.values())


def label(product: Product) -> str:
    """Name a product's rule; of tables and figures, which share one, each by its own name."""
    name = product.wildcards.get(product.rule, "")
    return f"{product.rule} {name}".strip()


@cache
def holders() -> dict[str, set[str]]:
    """Module -> products whose own code it is part of."""
    labels: dict[str, set[str]] = {}
    source = keys.SOURCE / "bindscope"  # this clone's, or a copy
    for product in ci_products():
        code = keys.closure(roots(json.loads(product.spec)))
        for path in code.files.values():
            if path.is_relative_to(source):
                labels.setdefault(str(path.relative_to(source)), set()).add(label(product))
    return labels


def test_what_only_plans_is_in_no_code() -> None:
    assert not [module for module in holders() if module.startswith(DECIDE_NOTHING)]


def test_studies_are_in_the_code_of_their_own_products_alone() -> None:
    """Rules tell whose a product is; toys of binding_id are models that any study may read."""
    from bindscope.core.registries import studies

    owner = {step.name: study.name for study in studies().values() for step in study.steps}
    for study in studies().values():
        owner |= {f"table {entry.name}": study.name for entry in study.tables}
        owner |= {f"figure {entry.name}": study.name for entry in study.figures}
    foreign = {
        (module, product)
        for module, products in holders().items()
        if module.startswith("studies/") and "/toys/" not in module
        for product in products - {"report"}
        if owner.get(product) != module.split("/")[1]
    }
    assert not foreign


def test_a_figure_is_in_no_code_but_that_of_figures_of_its_study() -> None:
    from bindscope.core.registries import studies

    of_study = {
        entry.name: {f"figure {figure.name}" for figure in study.figures}
        for study in studies().values()
        for entry in study.figures
    }
    for product in ci_products():
        if product.rule == "figure":
            path, _, _ = product.content["implementation"].partition(":")
            module = f"{path.removeprefix('bindscope.').replace('.', '/')}.py"
            assert label(product) in holders()[module]
            assert holders()[module] <= of_study[product.wildcards["figure"]]


@pytest.mark.parametrize(
    ("preset", "rule", "module"),
    [
        ("clevr", "records", "sources/clevr.py"),
        ("natural", "records", "sources/genome/reader.py"),
        ("clevr_rendered", "scenes", "scenes/solids/mitsuba_backend.py"),
        ("clevr_rendered", "codes", "codes/draws.py"),
    ],
)
def test_what_a_configuration_names_is_in_the_code_that_runs(
    preset: str, rule: str, module: str
) -> None:
    """Registries decide nothing by themselves, so a product has to name what it takes of them."""
    products = build(load_file(ROOT / f"config/presets/{preset}.yaml")).select(rule)
    assert products
    for product in products:
        assert SOURCE / module in keys.closure(roots(product.content)).files.values()


def test_a_fit_hangs_on_the_module_of_its_own_family() -> None:
    """Editing attention must not fit linear probes again; the others hold the linear one."""
    families = {"attention", "convex", "dnn", "linear", "multilinear", "quadratic"}
    expected = {
        "linear": {"linear", "convex"},
        "quadratic": {"linear", "convex", "quadratic"},
        "attention_quadratic": {"linear", "convex", "attention"},
    }
    covered = set()
    for product in ci_products():
        if product.rule == "fit":
            spec = json.loads(product.spec)
            code = keys.closure(roots(spec))
            modules = {path.stem for path in code.files.values() if path.parent.name == "probes"}
            assert modules & families == expected[spec["probe"]["family"]]
            covered.add(spec["probe"]["family"])
    assert covered == set(expected)


Codes = dict[str, tuple[set[str], set[str]]]


def codes() -> Codes:
    """Return own and chained codes of each label's products."""
    forget()
    by_product: Codes = {label(p): (set(), set()) for p in ci_products()}
    for product in ci_products():
        for parts, code in zip(by_product[label(product)], product.code.split(":"), strict=True):
            parts.add(code)
    return by_product


def changed(after: Codes, before: Codes, i: int) -> set[str]:
    return {name for name in after if after[name][i] != before[name][i]}


def above(products: list[Product], labels: set[str]) -> set[str]:
    """Return labels of products that are made of some, these included."""
    reached = set(labels)
    for product in products:  # inputs come before what is made of them
        inputs = {label(entry) for entry in product.sources}
        if inputs & reached:
            reached.add(label(product))
    return reached


@pytest.mark.parametrize(
    "module",
    [
        "priors/entropies.py",
        "scenes/shapes.py",
        "models/known_answer.py",
        "activations/extraction.py",
        "core/store/writer.py",
        "figures/style.py",
        "tables/write.py",
        "studies/binding_information/probes/quadratic.py",
        "studies/binding_information/estimates.py",
    ],
)
def test_an_edit_reaches_its_holders_and_by_the_chain_all_above(module: str, copied: Path) -> None:
    before, holding, products = codes(), set(holders()[module]), ci_products()
    with (copied / module).open("a") as handle:
        handle.write("\nassert True\n")
    after = codes()
    assert changed(after, before, 0) == holding
    chained = changed(after, before, 1)
    assert holding <= chained <= above(products, holding)
    assert "report" in chained
    assert chained != set(after)


def test_a_corrected_closed_form_encodes_nothing_anew(copied: Path) -> None:
    before = codes()
    truth = next(m for m, products in holders().items() if products == {"truth"})
    with (copied / truth).open("a") as handle:
        handle.write("\nassert True\n")
    after = codes()
    assert changed(after, before, 0) == {"truth"}
    below = changed(after, before, 1)
    assert {"truth", "report"} <= below
    assert not below & {"encoded", "index", "fit"}


def test_comments_and_docstrings_are_not_code(copied: Path) -> None:
    before = codes()
    for path in copied.rglob("*.py"):
        path.write_text(path.read_text().replace('"""', '"""Changed. ', 1) + "\n# a comment\n")
    assert codes() == before


def test_an_edit_after_planning_is_refused(copied: Path) -> None:
    product = next(p for p in ci_products() if p.rule == "priors")
    spec: dict[str, Any] = json.loads(product.spec)
    _refuse_other_code("priors", spec, product.code)
    with (copied / "priors/entropies.py").open("a") as handle:
        handle.write("\nassert True\n")
    forget()
    with pytest.raises(BindscopeError, match="start snakemake again"):
        _refuse_other_code("priors", spec, product.code)
