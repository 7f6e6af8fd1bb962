"""config/schema.json and config/README.md agree with the models, and the presets with both."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from bindscope.config.documentation import generated, readme
from bindscope.config.loading import load_file
from bindscope.config.root import Config
from bindscope.config.structure import keys

FOLDER = Path("config")
FILES = [FOLDER / "config.yaml", *sorted((FOLDER / "presets").glob("*.yaml"))]


@pytest.mark.parametrize("name", ["schema.json", "README.md"])
def test_generated_files_have_not_drifted(name: str) -> None:
    path = FOLDER / name
    expected = generated(FOLDER)[path]
    difference = difflib.unified_diff(
        path.read_text(encoding="utf-8").splitlines(),
        expected.splitlines(),
        f"{path} (committed)",
        f"{path} (generated)",
        lineterm="",
    )
    lines = list(difference)
    assert not lines, "run `make docs` and commit:\n" + "\n".join(lines)


def test_the_page_has_every_key() -> None:
    page = readme(FOLDER / "presets")
    missing = [path for path, _ in keys(Config) if f"`{path.rpartition('.')[2]}`" not in page]
    # The splits' names stand in the type (`{train, val, test}`), sections in headings.
    assert {path.rpartition(".")[2] for path in missing} <= {
        "train", "val", "test", *(f"{name}" for name in Config.model_fields),
    }  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=str)
def test_files_are_valid_and_name_the_schema(path: Path) -> None:
    load_file(path)
    first, second, *_ = path.read_text(encoding="utf-8").splitlines()
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    schema = (path.parent / first.removeprefix(prefix)).resolve()
    assert schema == (FOLDER / "schema.json").resolve()
    assert second.startswith("# "), "the second line says what the file is, for config/README.md"
    jsonschema.validate(
        yaml.safe_load(path.read_text(encoding="utf-8")), json.loads(schema.read_text())
    )


@pytest.mark.parametrize(
    "change",
    [
        {"probes": [{"name": "q", "family": "quadratic", "rankk": 4}]},
        {"probes": [{"name": "q", "family": "quadratc"}]},
        {"models": [{"name": "m", "source": "controlled:objects"}]},
        {"dataset": []},
    ],
)
def test_the_schema_refuses_mistakes(change: dict[str, Any]) -> None:
    schema = json.loads((FOLDER / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    raw = yaml.safe_load((FOLDER / "config.yaml").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**raw, **change}, schema)
