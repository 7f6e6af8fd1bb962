"""`bindscope.binding_information`: known answers, any arrays, errors, and no workflow needed."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
import time
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import zarr

import bindscope
from bindscope import binding_information, example
from bindscope.arrays.result import MOST_LINES, Result
from bindscope.codes.space import feature_code
from bindscope.config.codes import UniformSpace
from bindscope.core.errors import InputError
from bindscope.studies.binding_information.quantities import QUANTITIES

ROOT = Path(__file__).parents[2]
SPACE: dict[str, Any] = {
    "kind": "uniform",
    "groups": {"color": 3, "shape": 3},
    "min_objects": 3,
    "max_objects": 3,
}
LINEAR: Any = "linear"
N = 600


def scenes(n: int = N) -> np.ndarray:
    """Object codes of `SPACE`."""
    rng = np.random.default_rng(0)
    objects = np.zeros((n, 9), np.uint8)
    chosen = np.array([rng.choice(9, 3, replace=False) for _ in range(n)])
    np.put_along_axis(objects, chosen, 1, axis=1)
    return objects


OBJECTS = scenes()
EXACT = 0.08  # bits that a fit on few scenes may miss


@pytest.fixture(scope="module")
def identity() -> Result:
    return binding_information(OBJECTS.astype(float), OBJECTS, space=SPACE, probes=[LINEAR])


def test_a_representation_that_knows_everything(identity: Result) -> None:
    best = identity.best
    assert best["probe"] == "best"
    assert best["h_object_bits"] == pytest.approx(np.log2(84), abs=1e-9)
    assert best["binding_lower_bound_bits"] == pytest.approx(np.log2(84), abs=EXACT)
    for part in ("feature", "count", "pairing"):
        entropy = {
            "feature": "h_feature_bits",
            "count": "h_counts_given_feature_bits",
            "pairing": "h_object_given_counts_bits",
        }[part]
        # In expectation the entropy; 120 test scenes have an entropy of their own.
        assert best[f"{part}_lower_bound_bits_low"] - EXACT <= best[entropy]
        assert best[entropy] <= best[f"{part}_lower_bound_bits_high"] + EXACT
    assert [*identity.table["probe"]] == ["linear", "best"]
    assert [*identity.table["tokens"]] == ["vectors", "vectors"]
    assert identity.table["n_train"].iloc[0] == 420


def assert_nothing(row: Any) -> None:
    """What a sample's luck leaves of no information: some hundredths of a bit, never a low end."""
    for quantity in QUANTITIES:
        assert row[f"{quantity.value}_low"] == 0, quantity.name
        assert row[quantity.value] <= 0.02, quantity.name
    assert row["pairing_evidence"] < -np.log2(0.025)


def test_shuffled_labels_read_nothing() -> None:
    result = binding_information(
        OBJECTS,
        OBJECTS,
        space=SPACE,
        probes=[LINEAR, "attention_quadratic"],
        control="shuffled_labels",
    )
    assert result.notes == ("attention-quadratic was not fitted: it reads patch tokens (N, T, d).",)
    assert_nothing(result.best)
    assert {*result.table["control"]} == {"shuffled_labels"}


def test_random_features_of_few_scenes_read_nothing() -> None:
    """Of 6 x 6 objects and 419 scenes; without the prior in the family: -0.1 to -0.7 of counts."""
    rng = np.random.default_rng(192)
    space = {
        "kind": "uniform",
        "groups": {"color": 6, "shape": 6},
        "min_objects": 9,
        "max_objects": 9,
    }
    objects = np.zeros((419, 36), np.uint8)
    np.put_along_axis(objects, rng.random((419, 36)).argsort(1)[:, :9], 1, axis=1)
    probe: Any = {"family": "linear", "targets": ["chained", "anchored"]}
    result = binding_information(rng.normal(size=(419, 192)), objects, space=space, probes=[probe])
    for row in result.table.to_dict("records"):
        assert_nothing(row)
        for quantity in QUANTITIES:  # and nothing is lost
            assert row[quantity.loss] <= row[quantity.prior_loss] + 0.02, quantity.name


def test_a_part_that_is_decoded_stands_beside_one_that_is_the_prior() -> None:
    """Features among noise: what occurs is decoded, what goes with what is the prior."""
    noise = np.random.default_rng(0).normal(size=(N, 64))
    z = np.hstack([feature_code(OBJECTS, (3, 3)), noise])
    probe: Any = {"family": "linear", "targets": ["chained"]}
    result = binding_information(z, OBJECTS, space=SPACE, probes=[probe])
    assert result.best["feature_lower_bound_bits"] > 0.9 * result.best["h_feature_bits"]
    assert result.best["pairing_lower_bound_bits"] == 0
    assert result.best["loss_object_given_counts_bits"] == pytest.approx(
        result.best["prior_loss_object_given_counts_bits"]
    )


def test_any_frameworks_arrays_and_grids(identity: Result) -> None:
    space = UniformSpace.model_validate(
        {**SPACE, "groups": [{"name": n, "size": s} for n, s in SPACE["groups"].items()]}
    )
    result = binding_information(
        torch.tensor(OBJECTS, dtype=torch.bfloat16, requires_grad=False),
        torch.tensor(OBJECTS).reshape(-1, 3, 3).bool(),
        space=space,
        probes=[LINEAR],
    )
    assert result.table.equals(identity.table)


@pytest.mark.slow
def test_patch_tokens_and_layers() -> None:
    """Every token shows one object; the [CLS] token shows nothing."""
    tokens = np.zeros((N, 3, 9), np.float32)
    where = np.argwhere(OBJECTS)[:, 1].reshape(N, 3)
    np.put_along_axis(tokens, where[:, :, None], 1, axis=2)
    of_set = {"family": "set", "hidden": 16, "summed": 16, "steps": 20}
    layers = {"cls": np.zeros((N, 9)), 6: tokens}
    result = binding_information(layers, OBJECTS, space=SPACE, probes=[LINEAR, of_set])
    read = result.table.set_index(["probe", "layer", "tokens"])["binding_lower_bound_bits"]
    vectors = [*product(("linear", "best"), (("cls", "vectors"), ("6", "mean")))]
    places = {(probe, *place) for probe, place in vectors}
    assert {*read.index} == places | {("set", "6", "patches"), ("best", "6", "patches")}
    # It starts from the optimum of the linear probe on the mean of the patches.
    assert read["set", "6", "patches"] >= read["linear", "6", "mean"] - EXACT
    assert read["linear", "6", "mean"] == pytest.approx(np.log2(84), abs=EXACT)
    assert abs(read["linear", "cls", "vectors"]) <= EXACT
    assert result.notes == ("Layer cls: 9 of 9 columns are constant and were not read.",)
    assert result.best["layer"] == "6"


def test_arrays_on_disk_are_read_in_parts(identity: Result, tmp_path: Path) -> None:
    floats = OBJECTS.astype(np.float32)
    np.save(tmp_path / "z.npy", floats)
    mapped = np.load(tmp_path / "z.npy", mmap_mode="r")
    stored = zarr.create_array(tmp_path / "z.zarr", data=floats, chunks=(100, 9))
    for z in (mapped, stored):
        result = binding_information(z, OBJECTS, space=SPACE, probes=[LINEAR])
        pd.testing.assert_frame_equal(result.table, identity.table)
    tokens = zarr.create_array(tmp_path / "t.zarr", data=floats[:, None], chunks=(100, 1, 9))
    result = binding_information(tokens, OBJECTS, space=SPACE, probes=[LINEAR])
    columns = [name for name in result.table if name != "tokens"]
    pd.testing.assert_frame_equal(result.table[columns], identity.table[columns])
    stored[7, 0] = np.nan
    with pytest.raises(InputError, match=r"not finite in 1 scenes, the first of them scene 7"):
        binding_information(stored, OBJECTS, space=SPACE, probes=[LINEAR])


def test_a_table_with_a_row_per_object(identity: Result) -> None:
    scene, cell = np.nonzero(OBJECTS)
    frame = pd.DataFrame(
        {"scene": scene, "color": np.array([*"abc"])[cell // 3], "shape": cell % 3}
    ).sample(frac=1, random_state=0)
    z = OBJECTS.astype(float)
    drawn = {"kind": "uniform", "min_objects": 3, "max_objects": 3}
    result = binding_information(z, frame, space=drawn, probes=[LINEAR])
    pd.testing.assert_frame_equal(result.table, identity.table)
    names = frame.assign(scene="img" + frame["scene"].astype(str))
    order = [f"img{i}" for i in range(len(z))]
    result = binding_information(z, names, space=drawn, probes=[LINEAR], scenes=order)
    pd.testing.assert_frame_equal(result.table, identity.table)
    counted = binding_information(z, pd.concat([frame, frame[:1]]), probes=[LINEAR])
    assert counted.notes == (
        "1 scenes have equal objects; a code says which objects occur, not how many.",
    )
    assert (counted.table["flags"] == "assumed_prior").all()


def test_near_duplicates_stay_on_one_side() -> None:
    """Of 300 scenes with four copies each, a vector per scene says nothing of new scenes."""
    objects = np.repeat(OBJECTS[:300], 4, axis=0)
    group = np.repeat(np.arange(300), 4)
    z = np.random.default_rng(0).normal(size=(300, 64))[group]
    probe: Any = {"family": "linear", "targets": ["chained"]}

    def decoded(**how: Any) -> Any:
        return binding_information(z, objects, space=SPACE, probes=[probe], **how).best

    assert decoded()["binding_lower_bound_bits"] > 1  # copies in train and test
    assert_nothing(decoded(groups=group))
    words = np.where(group < 200, "train", np.where(group < 240, "val", "test"))
    assert_nothing(decoded(split=words))


def test_scenes_of_an_unknown_distribution() -> None:
    result = binding_information(OBJECTS, OBJECTS.reshape(-1, 3, 3), probes=[LINEAR])
    assert (result.table["flags"] == "assumed_prior").all()
    assert result.table["pairing_lower_bound_bits"].isna().all()
    assert result.best["h_object_bits"] > np.log2(84) - EXACT
    text = repr(result)
    assert "≥" not in text
    assert "~ " in text
    assert "no number is a bound" in text
    by_sizes = binding_information(OBJECTS, OBJECTS, space=(3, 3), probes=[LINEAR])
    assert by_sizes.table.equals(result.table)
    assert len(result.plot().axes[0].patches) == 2 * 2


def test_what_is_shown(identity: Result, tmp_path: Path) -> None:
    text = repr(identity)
    assert len(text.splitlines()) <= MOST_LINES
    assert re.search(r"≥ 6\.3\d", text)
    assert identity._repr_html_().count("<table") == 1
    (axes,) = identity.plot().axes
    boxes, bars = ([patch.get_width() for patch in axes.patches[i::2]] for i in (0, 1))
    assert sum(boxes) == pytest.approx(np.log2(84))
    assert sum(bars) == pytest.approx(np.log2(84), abs=0.1)
    assert len(bars) == len([text for text in axes.texts if text.get_text().startswith("≥")])
    identity.to_parquet(tmp_path / "table.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "table.parquet"), identity.table)


def test_the_example_has_the_truth_that_is_planted() -> None:
    data = example("matching", n=600)
    result = binding_information(data.arrays, data.objects, space=data.space, probes=[LINEAR])
    best = result.table[result.table["probe"] == "best"].set_index("layer")
    for name, truth in data.truth.items():
        for part, bits in truth.items():
            bound = best.loc[name, f"{part.removesuffix('_bits')}_lower_bound_bits"]
            assert bound == pytest.approx(bits, abs=EXACT), (name, part)
    with pytest.raises(InputError, match=r"no example 'matchin'.*\n.*matching, clutter, pairs"):
        example("matchin")
    with pytest.raises(InputError, match="n is -1"):
        example("matching", n=-1)


Z = np.ones((N, 4))
_SCENE, _CELL = np.nonzero(OBJECTS)
FRAME = pd.DataFrame({"scene": _SCENE, "color": _CELL // 3, "shape": _CELL % 3})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Z": Z[0]}, r"`Z` is \(4,\)(.|\n)*\(N, d\) or \(N, T, d\)"),
        (
            {"Z": np.where(np.arange(N)[:, None] == 7, np.nan, Z)},
            "not finite in 1 scenes, the first of them scene 7",
        ),
        ({"Z": {"a": Z, "b": Z[1:]}}, r"differ in their number of scenes \(a: 600, b: 599\)"),
        ({"objects": OBJECTS * 2}, "holds other values than 0 and 1"),
        ({"objects": OBJECTS[:, :8]}, r"objects are \(600, 8\)(.|\n)*codes \(N, 9\) or grids"),
        (
            {"objects": np.eye(9, dtype=int)[np.arange(N) % 9]},
            r"scene 0 has an object code outside the space(.|\n)*'max_objects': 3",
        ),
        ({"space": None}, "do not say what the feature groups are"),
        (
            {"space": {"kind": "uniform", "groups": {"a": 3, "b": 3}}},
            "`space.max_objects` is missing",
        ),
        ({"objects": np.tile(OBJECTS[0], (N, 1))}, "all scenes have the same objects"),
        ({"objects": FRAME.drop(columns="scene")}, "`objects` has the columns color, shape"),
        (
            {"objects": FRAME[3:].assign(scene="img" + FRAME["scene"][3:].astype(str))},
            "`objects` has in row 0 the scene 'img1'",
        ),
        (
            {"objects": FRAME, "space": {**SPACE, "groups": {"color": 3, "shape": 4}}},
            r"`space` has feature groups of \(3, 4\) values, `objects` of \(3, 3\)",
        ),
        ({"groups": np.zeros(N)}, r"no scene is left for \w+ \(1 groups of 600 scenes\)"),
        ({"split": ["train"] * N}, "`split` has train: 600, val: 0, test: 0"),
        ({"probes": ["liner"]}, r"no probe family 'liner'; did you mean 'linear'\?"),
        ({"probes": ["attention_quadratic"]}, "no probe can read `Z`"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"Z": Z, "objects": OBJECTS, "space": SPACE, **changes}
    with pytest.raises(InputError, match=message) as caught:
        binding_information(arguments.pop("Z"), arguments.pop("objects"), **arguments)
    assert len(str(caught.value).splitlines()) == 2  # what, and the remedy


# --- the pages, and what is installed --------------------------------------------------------


STUDY_PAGES = [
    page
    for page in sorted((ROOT / "docs/studies").glob("*.md"))
    if "```python\n" in page.read_text()
]


def snippets(page: str) -> list[str]:
    """The Python blocks of a page that call a public function of arrays."""
    blocks = (ROOT / page).read_text().split("```python\n")[1:]
    code = [block.partition("```")[0] for block in blocks]
    called = re.compile(r"bs\.(binding_information|binding_ids\(data|concepts|same_object)\b")
    return [block for block in code if called.search(block)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/arrays.md", *(str(p.relative_to(ROOT)) for p in STUDY_PAGES)],
)
def test_snippets_run_as_they_are_written(
    page: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocks = snippets(page)
    assert blocks
    for code in blocks:
        assert len([line for line in code.splitlines() if line.strip()]) <= 5
        monkeypatch.chdir(tmp_path)
        before = time.process_time()
        exec(compile(code, page, "exec"), {})
        assert time.process_time() - before < 60
        out = capsys.readouterr().out
        assert any(words in out for words in ("≥ 4.5", "points above", "objects: 100.0 %"))
        if "same_object" in code and page == "docs/arrays.md":
            assert_same_output(out, (ROOT / page).read_text())


def assert_same_output(out: str, text: str) -> None:
    """The page prints this, but for what rounding on another type of CPU moves: .2 points."""
    number = re.compile(r"\d+\.\d")
    printed = [block.partition("```")[0] for block in text.split("```text\n")[1:]]
    (like,) = [block for block in printed if number.sub("", block) == number.sub("", out)]
    quoted, measured = ([float(x) for x in number.findall(block)] for block in (like, out))
    np.testing.assert_allclose(measured, quoted, rtol=0, atol=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["binding_information", "concepts", "example", "same_object"])
def test_docstring_examples(name: str) -> None:
    parsed = doctest.DocTestFinder().find(getattr(bindscope, name), name)
    examples = [case for test in parsed for case in test.examples]
    assert examples
    runner = doctest.DocTestRunner()
    for test in parsed:
        runner.run(test)
    assert not runner.failures


# What `pip install .` does not bring, by the name that is imported.
EXTRAS = {"psutil": "psutil", "pygments": "pygments", "rich": "rich", "snakemake": "snakemake"}
_BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"{{name}} is an extra", name=name)

sys.meta_path.insert(0, Blocker())
import bindscope
assert not {{"numpy", "torch", "pandas"}} & {{*sys.modules}}, "importing bindscope is not light"
import numpy as np
objects = np.eye(4, dtype=int)[np.arange(200) % 4]
space = {{"kind": "uniform", "groups": {{"a": 2, "b": 2}}, "max_objects": 1}}
found = bindscope.binding_information(objects, objects, space=space)
print(found)
found.plot()
import bindscope.notebook, bindscope.models.loading, bindscope.scenes.shapes
assert not {names} & {{name.partition(".")[0] for name in sys.modules}}
"""


def test_arrays_need_no_workflow(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = {re.split(r"[^\w-]", text)[0] for text in project["optional-dependencies"]["workflow"]}
    assert extra == {*EXTRAS}
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED.format(names={*EXTRAS.values()})],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert "≥ 1.92 (" in done.stdout
    assert "set was not fitted" in done.stdout


def test_features_and_counts_alone() -> None:
    features = feature_code(OBJECTS, (3, 3))
    grid = OBJECTS.reshape(-1, 3, 3)
    counts = np.concatenate([grid.sum(2), grid.sum(1)], axis=1)
    what = binding_information(features, OBJECTS, space=SPACE, probes=[LINEAR])
    many = binding_information(
        np.eye(4)[counts].reshape(N, -1), OBJECTS, space=SPACE, probes=[LINEAR]
    )
    for row in (what.best, many.best):
        assert row["feature_lower_bound_bits_high"] >= row["h_feature_bits"] - EXACT
        assert abs(row["pairing_lower_bound_bits"]) <= EXACT
    assert abs(what.best["count_lower_bound_bits"]) <= EXACT
    known = many.best["h_counts_given_feature_bits"]
    assert known > 0.5
    assert many.best["count_lower_bound_bits_high"] >= known - EXACT


def test_the_seed_decides_everything(identity: Result) -> None:
    again = binding_information(OBJECTS.astype(float), OBJECTS, space=SPACE, probes=[LINEAR])
    assert again.table.equals(identity.table)


@pytest.mark.parametrize("name", bindscope.__all__)
def test_public_names_are_documented_and_shown_by_tab_completion(name: str) -> None:
    function = getattr(bindscope, name)
    assert name in dir(bindscope)
    assert function.__doc__
