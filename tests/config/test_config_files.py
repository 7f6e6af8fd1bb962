"""Configurations in several files, and models that are given by a list of seeds."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bindscope.config.composition import read_configuration
from bindscope.config.loading import load_file
from bindscope.config.seeds import write_out
from bindscope.core.errors import ConfigError

CONFIG = Path(__file__).resolve().parents[2] / "config"
MODELS = [
    {"name": "objects", "source": "zoo:matching-objects-{seed}", "seeds": [0, 2]},
    {"name": "identity", "source": "known-answer:identity"},
    {"name": "rotated", "source": "known-answer:rotated", "seeds": [3, 4]},
]


def write(folder: Path, **files: Any) -> Path:
    """Write YAML files; return the last one's path."""
    for name, content in files.items():
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{list(files)[-1]}.yaml"


def test_what_is_included_lies_below_key_by_key_and_lists_are_replaced(tmp_path: Path) -> None:
    top = write(
        tmp_path,
        deepest={"a": 1, "section": {"x": 1, "y": 1, "z": 1}, "list": [1, 2, 3]},
        first={"include": "deepest.yaml", "section": {"y": 2, "z": 2}},
        second={"section": {"z": 3}, "b": 3},
        top={"include": ["first.yaml", "second.yaml"], "b": 4, "list": [9]},
    )
    assert read_configuration(top) == {
        "a": 1,
        "b": 4,
        "section": {"x": 1, "y": 2, "z": 3},
        "list": [9],
    }


def test_files_of_the_command_line_lie_over_all_that_is_included(tmp_path: Path) -> None:
    below = write(tmp_path, base={"a": 1, "b": 1}, below={"include": "base.yaml", "b": 2, "c": 2})
    above = write(tmp_path, base2={"b": 3, "d": 3}, above={"include": "base2.yaml", "c": 4})
    assert read_configuration(below, above) == {"a": 1, "b": 2, "c": 4, "d": 3}


@pytest.mark.parametrize(
    ("include", "problem"),
    [
        ("none.yaml", "there is no file"),
        ("around.yaml", "includes this file again"),
    ],
)
def test_a_wrong_include_is_named_with_file_and_line(
    tmp_path: Path, include: str, problem: str
) -> None:
    top = write(tmp_path, around="include: top.yaml\n", top=f"# comment\ninclude: {include}\n")
    with pytest.raises(ConfigError, match=problem) as caught:
        read_configuration(top)
    assert "(line " in caught.value.problem


def test_a_mistake_in_an_included_file_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    content = yaml.safe_load((CONFIG / "presets/ci.yaml").read_text())
    content["report"] = {"titel": "x"}
    top = write(tmp_path, base=content, top="include: base.yaml\nstudies: {}\n")
    line = (tmp_path / "base.yaml").read_text().splitlines().index("  titel: x") + 1
    with pytest.raises(ConfigError, match=rf"report.titel: .*\({tmp_path}/base.yaml:{line}\)"):
        load_file(top)


def test_seeds_make_models_and_names_stand_for_all_of_them() -> None:
    alone = {"name": "alone", "source": "known-answer:rotated", "seeds": [5]}
    fits = [{"models": ["objects", "identity", "rotated-4", "alone"]}]
    studies = {"binding_information": {"fits": fits}}
    written, _ = write_out({"models": [*MODELS, alone], "studies": studies})
    assert written["models"] == [
        {"name": "objects-0", "source": "zoo:matching-objects-0"},
        {"name": "objects-2", "source": "zoo:matching-objects-2"},
        {"name": "identity", "source": "known-answer:identity"},
        {"name": "rotated-3", "source": "known-answer:rotated", "seed": 3},
        {"name": "rotated-4", "source": "known-answer:rotated", "seed": 4},
        {"name": "alone-5", "source": "known-answer:rotated", "seed": 5},
    ]
    section = written["studies"]["binding_information"]
    names = ["objects-0", "objects-2", "identity", "rotated-4", "alone-5"]
    assert section["fits"][0]["models"] == names
    # Of `rotated` one seed is read, and `alone` has no other: one model is no group.
    assert section["groups"] == [{"name": "objects", "models": ["objects-0", "objects-2"]}]


def test_groups_that_are_given_are_kept() -> None:
    groups = [{"name": "all", "models": ["objects", "rotated"]}]
    section = {"fits": [{"models": ["objects"]}], "groups": groups}
    written, _ = write_out({"models": MODELS, "studies": {"binding_information": section}})
    assert written["studies"]["binding_information"]["groups"] == [
        {"name": "all", "models": ["objects-0", "objects-2", "rotated-3", "rotated-4"]}
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"seeds": [0], "seed": 1}, "models.0.seeds: give `seed` or `seeds`, not both"),
        ({"seeds": [0, 0]}, "models.0.seeds: names a seed twice"),
        ({"source": "zoo:x", "seeds": [0]}, "models.0.seeds: the source has no place for a seed"),
        ({"source": "zoo:x-{seed}"}, "models.0: source: {seed} needs a list `seeds`"),
        ({"seeds": [0, 1], "dimm": 3}, "models.0.dimm: unknown key"),
    ],
)
def test_wrong_seeds_are_named_where_the_file_has_them(
    tmp_path: Path, entry: dict[str, Any], message: str
) -> None:
    entry = {"name": "m", "source": "known-answer:rotated", **entry}
    path = write(tmp_path, top={"datasets": [], "models": [entry]})
    with pytest.raises(ConfigError) as caught:
        load_file(path)
    assert message in str(caught.value)
    assert "(line " in str(caught.value)


def test_a_model_may_not_have_the_name_of_a_list_of_seeds(tmp_path: Path) -> None:
    models = [MODELS[0], {"name": "objects", "source": "known-answer:identity"}]
    path = write(tmp_path, top={"datasets": [], "models": models})
    with pytest.raises(ConfigError, match=r"models\.1\.name: 'objects' is also the name of a list"):
        load_file(path)
