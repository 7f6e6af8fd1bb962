"""config/schema.json and config/README.md agree with the models, and the presets with both."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from bindscope.commands.documentation import generated
from bindscope.config.documentation import readme
from bindscope.config.root import Config
from bindscope.config.structure import keys

FOLDER = Path("config")
VALIDATOR = jsonschema.Draft202012Validator(json.loads((FOLDER / "schema.json").read_text()))
FILES = [FOLDER / "config.yaml", *sorted((FOLDER / "presets").glob("*.yaml"))]


def test_the_page_has_every_key() -> None:
    page = readme()
    # A key that selects a kind of section is in its heading.
    missing = {k for _, _, k in keys() if f"| `{k}` |" not in page and f": `{k}: " not in page}
    # The splits' names are in the type (`{train, val, test}`), sections in headings.
    assert missing <= {"train", "val", "test", *Config.model_fields}


@pytest.mark.parametrize("path", generated(FOLDER), ids=str)
def test_generated_files_have_not_drifted(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == generated(FOLDER)[path], "run `make docs`, commit"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_files_name_the_schema_and_are_valid_by_it(path: Path) -> None:
    first, second, *_ = path.read_text(encoding="utf-8").splitlines()
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    schema = (path.parent / first.removeprefix(prefix)).resolve()
    assert schema == (FOLDER / "schema.json").resolve()
    assert second.startswith("# "), "the second line says what the file is, for docs/presets.md"
    VALIDATOR.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("studies.binding_information.probes.0.rankk", 4),
        ("models.0", {"name": "m", "source": "controlled:objects"}),
        ("dataset", []),
    ],
)
def test_the_schema_refuses_mistakes(place: str, value: object) -> None:
    raw = yaml.safe_load((FOLDER / "config.yaml").read_text())
    *parents, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    here = raw
    for part in parents:
        here = here[part]
    here[last] = value
    assert not VALIDATOR.is_valid(raw)


def test_the_schema_is_one() -> None:
    VALIDATOR.check_schema(VALIDATOR.schema)
