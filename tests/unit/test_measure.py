"""`bindscope.measure`: known answers, any framework's arrays, errors, and no workflow needed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bindscope
from bindscope.codes.space import feature_code
from bindscope.config.codes import UniformSpace
from bindscope.core.errors import InputError
from bindscope.studies.binding_information.measured import Measured

ROOT = Path(__file__).parents[2]
SPACE: dict[str, Any] = {
    "kind": "uniform", "groups": {"colour": 3, "shape": 3}, "min_objects": 3, "max_objects": 3,
}  # fmt: skip
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
def identity() -> Measured:
    return bindscope.measure(OBJECTS.astype(float), OBJECTS, space=SPACE, probes=[LINEAR])


def test_a_representation_that_knows_everything(identity: Measured) -> None:
    best = identity.best
    assert best["probe"] == "best"
    assert best["h_object_bits"] == pytest.approx(np.log2(84), abs=1e-9)
    assert best["binding_lower_bound_bits"] == pytest.approx(np.log2(84), abs=EXACT)
    for part in ("feature", "count", "pairing"):
        entropy = {"feature": "h_feature_bits", "count": "h_counts_given_feature_bits",
                   "pairing": "h_object_given_counts_bits"}[part]  # fmt: skip
        # In expectation the entropy; 120 test scenes have an entropy of their own.
        assert best[f"{part}_lower_bound_bits_low"] - EXACT <= best[entropy]
        assert best[entropy] <= best[f"{part}_lower_bound_bits_high"] + EXACT
    assert [*identity.table["probe"]] == ["linear", "best"]
    assert [*identity.table["tokens"]] == ["vectors", "vectors"]
    assert identity.table["n_train"].iloc[0] == 420


def test_features_and_counts_alone() -> None:
    features = feature_code(OBJECTS, (3, 3))
    grid = OBJECTS.reshape(-1, 3, 3)
    counts = np.concatenate([grid.sum(2), grid.sum(1)], axis=1)
    what = bindscope.measure(features, OBJECTS, space=SPACE, features=features, probes=[LINEAR])
    many = bindscope.measure(np.eye(4)[counts].reshape(N, -1), OBJECTS, space=SPACE,
                             probes=[LINEAR])  # fmt: skip
    for found in (what.best, many.best):
        assert found["feature_lower_bound_bits_high"] >= found["h_feature_bits"] - EXACT
        assert abs(found["pairing_lower_bound_bits"]) <= EXACT
    assert abs(what.best["count_lower_bound_bits"]) <= EXACT
    known = many.best["h_counts_given_feature_bits"]
    assert known > 0.5
    assert many.best["count_lower_bound_bits_high"] >= known - EXACT


def test_shuffled_labels_read_nothing() -> None:
    found = bindscope.measure(
        OBJECTS, OBJECTS, space=SPACE, probes=[LINEAR], control="shuffled_labels"
    )
    assert found.best["binding_lower_bound_bits"] == 0  # before: -0.08 to 0.02, by the seed
    assert "prior" in found.best["flags"].split(";")
    assert {*found.table["control"]} == {"shuffled_labels"}


@pytest.mark.parametrize("width", [192, pytest.param(768, marks=pytest.mark.slow)])
def test_random_features_of_few_scenes_read_nothing(width: int) -> None:
    """Of 6 x 6 objects and 419 scenes; without the prior in the family: -0.1 to -0.7 of counts."""
    rng = np.random.default_rng(width)
    space = {"kind": "uniform", "groups": {"colour": 6, "shape": 6},
             "min_objects": 9, "max_objects": 9}  # fmt: skip
    objects = np.zeros((419, 36), np.uint8)
    np.put_along_axis(objects, rng.random((419, 36)).argsort(1)[:, :9], 1, axis=1)
    probe: Any = {"family": "linear", "targets": ["chained", "anchored"]}
    found = bindscope.measure(rng.normal(size=(419, width)), objects, space=space, probes=[probe])
    for row in found.table.to_dict("records"):
        for part in ("feature", "count", "pairing", "conditional_binding", "binding"):
            ends = [row[f"{part}_lower_bound_bits{end}"] for end in ("", "_low", "_high")]
            assert ends == [0, 0, 0], part
        assert row["flags"] == "prior"
    assert "above_prior" not in found.best["flags"]


def test_a_part_that_is_decoded_stands_beside_one_that_is_the_prior() -> None:
    """Features among noise: what occurs is decoded, what goes with what is the prior."""
    noise = np.random.default_rng(0).normal(size=(N, 64))
    z = np.hstack([feature_code(OBJECTS, (3, 3)), noise])
    probe: Any = {"family": "linear", "targets": ["chained"]}
    found = bindscope.measure(z, OBJECTS, space=SPACE, probes=[probe])
    assert found.best["feature_lower_bound_bits"] > 0.9 * found.best["h_feature_bits"]
    assert found.best["pairing_lower_bound_bits"] == 0
    assert found.best["loss_object_given_counts_bits"] == pytest.approx(
        found.best["prior_loss_object_given_counts_bits"]
    )


def test_probes_that_are_fitted_in_steps_contain_the_prior_too() -> None:
    rng = np.random.default_rng(1)
    probe: Any = {"family": "quadratic", "targets": ["chained"], "steps": 40}
    found = bindscope.measure(rng.normal(size=(N, 32)), OBJECTS, space=SPACE, probes=[probe])
    assert found.best["binding_lower_bound_bits"] == 0
    assert found.best["flags"] == "prior"


def test_the_seed_decides_everything(identity: Measured) -> None:
    again = bindscope.measure(OBJECTS.astype(float), OBJECTS, space=SPACE, probes=[LINEAR])
    assert again.table.equals(identity.table)


def test_any_frameworks_arrays_and_grids(identity: Measured) -> None:
    space = UniformSpace.model_validate(
        {**SPACE, "groups": [{"name": n, "size": s} for n, s in SPACE["groups"].items()]}
    )
    found = bindscope.measure(
        torch.tensor(OBJECTS, dtype=torch.bfloat16, requires_grad=False),
        torch.tensor(OBJECTS).reshape(-1, 3, 3).bool(),
        space=space,
        probes=[LINEAR],
    )
    assert found.table.equals(identity.table)


@pytest.mark.slow
def test_patch_tokens() -> None:
    """Every token shows one object; the [CLS] token shows nothing."""
    tokens = np.zeros((N, 3, 9), np.float32)
    where = np.argwhere(OBJECTS)[:, 1].reshape(N, 3)
    np.put_along_axis(tokens, where[:, :, None], 1, axis=2)
    cls = np.zeros((N, 9))
    of_set = {"family": "set", "hidden": 16, "summed": 16, "steps": 20}
    found = bindscope.measure(tokens, OBJECTS, cls=cls, space=SPACE, probes=[LINEAR, of_set])
    read = found.table.set_index(["probe", "tokens"])["binding_lower_bound_bits"]
    vectors = [*product(("linear", "best"), ("cls", "mean"))]
    assert {*read.index} == {*vectors, ("set", "patches"), ("best", "patches")}
    # It starts from the optimum of the linear probe on [CLS] and the mean of the patches.
    assert read["set", "patches"] >= read["linear", "mean"] - EXACT
    assert read["linear", "mean"] == pytest.approx(np.log2(84), abs=EXACT)
    assert abs(read["linear", "cls"]) <= EXACT
    assert not found.notes
    without = bindscope.measure(tokens, OBJECTS, space=SPACE, probes=[LINEAR])
    assert {*without.table["tokens"]} == {"mean"}


def test_scenes_of_an_unknown_distribution() -> None:
    found = bindscope.measure(OBJECTS, OBJECTS.reshape(-1, 3, 3), probes=[LINEAR])
    assert (found.table["flags"] == "assumed_prior").all()
    assert found.table["pairing_lower_bound_bits"].isna().all()
    assert found.best["h_object_bits"] > np.log2(84) - EXACT
    text = repr(found)
    assert ">=" not in text
    assert "~ " in text
    assert "no number is a bound" in text
    by_sizes = bindscope.measure(OBJECTS, OBJECTS, space=(3, 3), probes=[LINEAR])
    assert by_sizes.table.equals(found.table)
    assert len(found.plot().axes[0].patches) == 2 * 2


def test_what_is_shown(identity: Measured, tmp_path: Path) -> None:
    text = repr(identity)
    assert re.search(r">= 6\.3\d", text)
    for heading in ("what occurs, of", "how many, of", "what goes with what, of", "To quote: best"):
        assert heading in text
    page = identity._repr_html_()
    assert page.count("<table") == 1
    assert "&gt;= 6.3" in page
    figure = identity.plot()
    (axes,) = figure.axes
    assert len(axes.patches) == 2 * 3
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
    assert max(ends) == pytest.approx(np.log2(84), abs=0.1)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["linear, vectors",
                                                                    "best, vectors"]  # fmt: skip
    figure.savefig(tmp_path / "plot.png")


def test_probes_of_patches_are_left_out_of_vectors() -> None:
    found = bindscope.measure(OBJECTS, OBJECTS, space=SPACE, probes=[LINEAR, "attention_quadratic"])
    assert found.notes == ("attention-quadratic was not fitted: it reads patch tokens (N, T, d).",)
    assert found.notes[0] in repr(found)


Z = np.ones((N, 4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activations": Z[0]}, r"`activations` is \(4,\)(.|\n)*\(N, d\) or \(N, T, d\)"),
        ({"activations": np.where(np.arange(N)[:, None] == 7, np.nan, Z)},
         "not finite in 1 scenes, the first of them scene 7"),
        ({"activations": Z[:50]}, "600 object codes for 50 scenes"),
        ({"activations": Z.astype(str)}, "`activations` is an array of <U"),
        ({"cls": Z}, r"`cls` goes with patch tokens \(N, T, d\)"),
        ({"activations": Z[:, None], "cls": Z[:, :2]}, r"`cls` is \(600, 2\)"),
        ({"objects": OBJECTS * 2}, "holds other values than 0 and 1"),
        ({"objects": OBJECTS[:, :8]}, r"objects are \(600, 8\)(.|\n)*codes \(N, 9\) or grids"),
        ({"objects": np.eye(9, dtype=int)[np.arange(N) % 9]},
         r"scene 0 has an object code outside the space(.|\n)*'max_objects': 3"),
        ({"objects": OBJECTS[:20], "activations": Z[:20]}, "there are 20 scenes"),
        ({"space": None}, "do not say what the feature groups are"),
        ({"space": {"kind": "uniform", "groups": {"a": 3, "b": 3}}}, "max_objects: Field required"),
        ({"space": {**SPACE, "kind": "unifrom"}}, "`space` is not as it must be"),
        ({"features": np.zeros((N, 6))}, "not those that follow from `objects`"),
        ({"probes": ["liner"]}, r"no probe family 'liner'; did you mean 'linear'\?"),
        ({"probes": [{"family": "linear", "rank": 3}]}, r"rank: Extra inputs"),
        ({"probes": ["attention_quadratic"]}, "no probe can read activations"),
        ({"shares": (0.5, 0.5, 0.5)}, "add up to 1"),
    ],
)  # fmt: skip
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"activations": Z, "objects": OBJECTS, "space": SPACE, **changes}
    with pytest.raises(InputError, match=message):
        bindscope.measure(given.pop("activations"), given.pop("objects"), **given)


# --- the pages, and what is installed --------------------------------------------------------


def example(page: str, heading: str) -> str:
    """The first Python block under a heading."""
    text = (ROOT / page).read_text().partition(heading)[2]
    return text.partition("```python\n")[2].partition("```")[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "heading"),
    [("README.md", "## For people with arrays"), ("docs/arrays.md", "# Arrays of your own")],
)
def test_examples_run_as_they_are_written(
    page: str, heading: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    code = example(page, heading)
    assert len([line for line in code.splitlines() if line.strip()]) <= 11
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, page, "exec"), names)
    assert "To quote: best" in capsys.readouterr().out
    best = names["result"].best
    assert best["binding_lower_bound_bits"] > 0.95 * best["h_object_bits"]


# What `pip install .` does not bring, by the name that is imported.
EXTRAS = {"psutil": "psutil", "pygments": "pygments", "snakemake": "snakemake"}
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
found = bindscope.measure(objects, objects, space=space)
print(found)
found.plot()
import bindscope.notebook, bindscope.models.loading, bindscope.scenes.shapes
assert not {names} & {{name.partition(".")[0] for name in sys.modules}}
"""


def test_measure_needs_no_workflow(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = {re.split(r"[^\w-]", text)[0] for text in project["optional-dependencies"]["workflow"]}
    assert extra == {*EXTRAS}
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED.format(names={*EXTRAS.values()})],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ">= 1.99" in done.stdout
    assert "set was not fitted" in done.stdout
