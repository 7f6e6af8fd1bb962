"""Mistakes in a configuration: each is named with its key, its line and what to do."""

import copy
from pathlib import Path

import pytest
import yaml
from example_config import EXAMPLE

from bindscope.config.loading import load_config, load_file
from bindscope.config.yaml_files import read_yaml
from bindscope.core.errors import ConfigError
from bindscope.core.graph import Graph
from bindscope.studies.build import build


def problem(path: str, value: object) -> str:
    """Set (or delete, with None) one key of the example and return what load_config says."""
    raw = copy.deepcopy(EXAMPLE)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    here = raw
    for part in parents:
        here = here[part]
    if value is None:
        del here[last]
    else:
        here[last] = value
    with pytest.raises(ConfigError) as caught:
        load_config(raw, "example.yaml")
    assert caught.value.where == "example.yaml"
    assert "config/README.md" in caught.value.remedy
    return caught.value.problem


STUDY = "studies.binding_information."
# In places and messages `~` is the study's section.
CASES = [
    ("~probes.0.rankk", 4, "~probes.0.rankk: unknown key; did you mean 'rank'?"),
    ("dataset", [], "dataset: unknown key; did you mean 'datasets'?"),
    (
        "~probes.0.family",
        "quadratc",
        "~probes.0.family: unknown family 'quadratc'; did you mean 'quadratic'?",
    ),
    ("~probes.0.family", None, "~probes.0.family: missing; "),
    (
        "models.0.source",
        "python:vit",
        "models.0.source: no installed package registers a model 'vit': give module:function",
    ),
    ("models.0", "vit", "models.0.source: missing; it decides which other keys there are"),
    ("models.0.name", "My Model", "models.0.name: 'My Model' is not a name: lower-case letters"),
    ("models.0.training.steps", "many", "models.0.training.steps: must be a whole number, not "),
    ("models.0.training.steps", 0, "models.0.training.steps: must be at least 1, not 0"),
    (
        "~probes.0.protocol",
        "papr",
        "~probes.0.protocol: must be converged or paper, not 'papr'; did you mean 'paper'?",
    ),
    ("datasets.0.space.min_objects", 5, "datasets.0.space: min_objects (5) is above max_objects"),
    (
        "datasets.0.space.max_objects",
        7,
        "datasets.0: space.max_objects is 7, and the feature groups make ",
    ),
    ("datasets.0.n_scenes.train", 100, "datasets.0: n_scenes.train is 100, which is not a multi"),
    ("~fits.0.layers.0", "finel", "~fits.0.layers.0: must be a whole number or final, not 'finel'"),
    ("~fits.0.models", [], "~fits.0.models: needs at least 1 entry, has 0"),
    ("~fits.0.models", ["vti"], "~fits.0.models: 'vti' is not defined; did you mean 'vit'?"),
    ("~fits.0.layers", [2], "~fits.0.layers: model 'vit' has layers 0 to 1, not 2"),
    ("~fits.0.tokens", ["patches"], "~fits.0.tokens: probe 'quadratic' (quadratic) cannot read"),
    ("~probes.1.family", "attention_quadratic", "~fits.1.tokens: probe 'linear' (attention_quadr"),
    ("~probes.1.name", "quadratic", "~probes: the name 'quadratic' is used 2 times"),
    ("datasets.0.render", None, "~fits.0: model 'vit' sees images, but dataset 'tiny' has no rend"),
    ("models.0.training.dataset", "tny", "models.0.training.dataset: 'tny' is not defined; did y"),
    (
        "~families",
        [{"name": "f", "models": ["vit"]}],
        "~families.0.models: needs at least 2 entries, has 1",
    ),
    (
        "~groups",
        [
            {"name": "g", "models": ["vit", "identity"]},
            {"name": "h", "models": ["identity", "vit"]},
        ],
        "~groups.1.models: 'identity' is already in the model group 'g'",
    ),
    (
        "~groups",
        [{"name": "vit", "models": ["identity", "half"]}],
        "~groups.0.name: 'vit' is also a model that is not in the model group",
    ),
    ("probes", [], "probes: unknown key; it stands under studies.binding_information"),
    ("report", {"families": []}, "report.families: unknown key; it stands under studies.binding_i"),
    ("models.0.patch_px", 8, "models.0.patch_px: unknown key; it stands under models[].architectu"),
    ("models.0.architecture.patch_px", 5, "models.0.architecture.patch_px: 5 px patches do not "),
]


@pytest.mark.parametrize(("path", "value", "expected"), CASES, ids=[str(c[:2]) for c in CASES])
def test_a_mistake_is_named_in_plain_words(path: str, value: object, expected: str) -> None:
    message = problem(path.replace("~", STUDY), value)
    assert expected.replace("~", STUDY) in message
    for jargon in ("pydantic", "http", "Input should", "tuple", "literal[", "validation error"):
        assert jargon not in message


def test_every_problem_is_listed() -> None:
    raw = copy.deepcopy(EXAMPLE)
    raw["studies"]["binding_information"]["probes"][0]["rankk"] = 4
    raw["models"][0]["training"]["steps"] = 0
    raw["datasets"][0]["shard_size"]["val"] = 63
    with pytest.raises(ConfigError) as caught:
        load_config(raw, "example.yaml")
    first, *rest = caught.value.problem.splitlines()
    assert first == "3 problems"
    assert [line.split(":")[0].strip() for line in rest] == [
        "datasets.0",
        "models.0.training.steps",
        f"{STUDY}probes.0.rankk",
    ]


def test_messages_name_the_line_of_a_file_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    raw = copy.deepcopy(EXAMPLE)
    raw["studies"]["binding_information"]["probes"][0]["rnk"] = 1
    path.write_text(yaml.safe_dump(raw))
    line = 1 + next(i for i, text in enumerate(path.read_text().splitlines()) if "rnk" in text)
    with pytest.raises(
        ConfigError, match=rf"binding_information\.probes\.0\.rnk: .* \(line {line}\)"
    ):
        load_file(path)


def test_a_key_given_twice_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("report:\n  title: a\n  title: b\n")
    with pytest.raises(ConfigError, match=r"report\.title: given twice, in lines 2 and 3"):
        load_file(path)
    with pytest.raises(ConfigError, match="given twice"):  # Snakemake's own reader is silent.
        load_config(EXAMPLE, str(path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "holds no keys"),
        ("- a\n", "holds no keys"),
        ("a: [1, 2\nb: 3\n", "line 2, column 2: "),
        ("a: b: c\n", "line 1, column 5: "),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)) as caught:
        read_yaml(path)
    assert caught.value.problem.startswith(expected)


def test_numbers_as_yaml_1_1_reads_them() -> None:
    raw = copy.deepcopy(EXAMPLE)
    raw["studies"]["binding_information"]["probes"][0]["learning_rate"] = (
        "1e-3"  # what YAML makes of an unquoted 1e-3
    )
    assert (
        load_config(raw, "example.yaml").studies.binding_information.probes[0].learning_rate == 1e-3
    )


def with_blocks(*seed_blocks: list[list[int]], control: str = "none") -> Graph:
    raw = copy.deepcopy(EXAMPLE)
    known = raw["studies"]["binding_information"]["fits"][1]
    raw["studies"]["binding_information"]["fits"] = [
        {**known, "name": f"block-{i}", "seed_blocks": blocks}
        | ({"controls": [control]} if i else {})
        for i, blocks in enumerate(seed_blocks)
    ]
    return build(load_config(raw, "example.yaml"))


def test_blocks_that_share_a_seed_share_its_null_probe() -> None:
    """Shuffled labels with more seeds than the fits beside them, as in `calibration.yaml`."""
    graph = with_blocks([[0]], [[0, 1], [2]], control="shuffled_labels")
    assert [null.wildcards["seeds"] for null in graph.select("null")] == ["0", "1", "2"]


def test_a_seed_is_fitted_to_the_same_once() -> None:
    assert len(with_blocks([[0]], [[0]]).select("fit")) == 1
    with pytest.raises(
        ConfigError, match="two seed blocks fit seed 0 to identity 0 cls none tiny lin"
    ):
        with_blocks([[0]], [[0, 1]])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("datasets.0.n_scenes.train", 10**12),
        ("datasets.0.n_scenes.train", 64 * 10_001),  # shards
        ("datasets.0.space.groups.0.size", 10**12),
        ("models.0.training.steps", 10**12),
        ("models.0.architecture.n_layers", 10**6),
        ("studies.binding_information.information", {"bootstrap_samples": 10**9}),
    ],
)
def test_counts_that_no_run_has_are_refused_before_they_are_planned(
    path: str, value: object
) -> None:
    """1e12 scenes took 24 GB in a dry run."""
    assert path.split(".")[2] in problem(path, value)
