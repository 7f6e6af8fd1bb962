"""Every module: which rules run after a change to it, by a table written by hand.

The modules come from the tree, so a new one whose room has no entry fails.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from harness import ROOT

from bindscope import keys
from bindscope.config.root import Config
from bindscope.graph.build import build

SOURCE = ROOT / "src" / "bindscope"
MODULES = sorted(
    str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if path.name != "__init__.py"
)

DRAW = {"figure"}
PAGE = {"report"}
TABLE = {"table_priors", "table_binding_information"}
FIT = {"fit", "null"}

# Longest prefix wins. A rule stands here when its own script imports the module.
ROOMS: dict[str, set[str]] = {}


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the library that the keys are computed from."""
    shutil.copytree(ROOT / "src", tmp_path / "src")
    monkeypatch.setattr(keys, "SOURCE", tmp_path / "src")
    forget()
    yield tmp_path / "src" / "bindscope"
    forget()


def forget() -> None:
    for function in (keys.parse_module, keys.closure, keys.own_code):
        function.cache_clear()


def own_codes() -> dict[str, str]:
    """Return each rule's own code hash under the CI preset."""
    forget()
    config = Config.model_validate(yaml.safe_load((ROOT / "config/presets/ci.yaml").read_text()))
    products = build(config).products.values()
    return {product.rule: product.code.partition(":")[0] for product in products}


def expected(module: str) -> set[str]:
    prefixes = [prefix for prefix in ROOMS if module.startswith(prefix)]
    assert prefixes, f"{module}: its room has no entry in ROOMS"
    return ROOMS[max(prefixes, key=len)]


@pytest.mark.parametrize("module", MODULES)
def test_a_changed_module_runs_the_rules_of_its_room(module: str, copied: Path) -> None:
    before = own_codes()
    with (copied / module).open("a") as handle:
        handle.write("\n_CHANGED = 1\n")
    after = own_codes()
    assert {rule for rule in after if after[rule] != before[rule]} == expected(module)


def test_comments_and_docstrings_are_not_code(copied: Path) -> None:
    before = own_codes()
    for path in copied.rglob("*.py"):
        path.write_text(path.read_text().replace('"""', '"""Changed. ', 1) + "\n# a comment\n")
    assert own_codes() == before


def test_what_is_left_out_of_the_keys_holds_no_rule() -> None:
    """Modules outside the keys may be imported by scripts only through `bindscope.start`."""
    outside = {module for module in MODULES if not expected(module)}
    named = {name.removeprefix("bindscope.").replace(".", "/") for name in keys.OUTSIDE[1:]}
    assert all(any(m == f"{n}.py" or m.startswith(f"{n}/") for n in named) for m in outside)
