"""Mistakes and damage: one message with the place and a remedy, and no half-written result."""

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from harness import ROOT, Clone, assign, flip_a_byte
from representatives import one_of

from bindscope.core.errors import BindscopeError
from bindscope.core.graph import Product
from bindscope.studies.build import read_graph

pytestmark = [pytest.mark.workflow, pytest.mark.slow, pytest.mark.timeout(900)]
CHANGED = "the file is truncated or was changed (its digest differs)"
FULL_DISK = Path(__file__).parent / "full_disk"
GROUPS = [{"name": "color", "size": 3}, {"name": "shape", "size": 2}]

# --- mistakes in the configuration: nothing is planned -------------------------------------------

MISTAKES = {
    "unknown key": (
        {"studies.binding_information.probes.1.rankk": 3},
        "studies.binding_information.probes.1.rankk: unknown key; did you mean 'rank'?",
        "config/README.md lists every key",
    ),
    "no weights in a folder": (
        {"models.1": {"name": "identity", "source": "hf:path:/no/such", "n_layers": 2}},
        "/no/such: there is no such file or folder",
        "correct the `path:` of the source",
    ),
    "more objects than cells": (
        {
            "datasets.0.space": {
                "kind": "uniform",
                "groups": GROUPS,
                "min_objects": 7,
                "max_objects": 9,
            }
        },
        "datasets.0.space: min_objects is 7, but the feature groups make only 6 cells",
        "config/README.md lists every key",
    ),
    "objects that do not fit their image together": (
        {"datasets.0.render.object_px": 20},
        "datasets.0: 3 objects of 20 px with margins of 1 px do not fit an image of 32 px",
        "config/README.md lists every key",
    ),
    "a split without feature codes": (
        {"datasets.0.split": {"rule": "hashed_feature_codes", "buckets": 5000}},
        "datasets.tiny.split.val: none of the space's 15 feature codes falls into the val split",
        "give val more buckets",
    ),
    "more feature codes than there are": (
        {
            "datasets.0.split": {
                "rule": "ranked_feature_codes",
                "n_feature_codes": {"train": 16, "val": 2, "test": 2},
            }
        },
        "datasets.tiny.split.n_feature_codes: the splits ask for 20 feature codes, the space has ",
        "lower train, val or test",
    ),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone in which nothing has run."""
    return Clone.make(tmp_path_factory.mktemp("source") / "clone")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_its_key_and_a_remedy(mistake: str) -> None:
    change, problem, remedy = MISTAKES[mistake]
    content = yaml.safe_load((ROOT / "config/presets/ci.yaml").read_text())
    for path, value in change.items():
        assign(content, path, value)
    with pytest.raises(BindscopeError) as refused:
        read_graph(content, "my.yaml")
    message = str(refused.value)
    assert message.startswith(f"my.yaml: {problem}")
    assert message.count("remedy: ") == 1
    assert remedy in message.partition("remedy: ")[2]


@pytest.mark.parametrize(
    "mistake", one_of(["unknown key", "a split without feature codes"], "unknown key")
)
def test_a_dry_run_says_it_once_and_nothing_else(mistake: str, source: Clone) -> None:
    """Of the configuration, and of what is made of it; Snakemake adds no words of its own."""
    change, problem, _ = MISTAKES[mistake]
    clone = source.with_configfile(f"config/{mistake.replace(' ', '-')}.yaml")
    clone.edit(change)
    done = clone.snakemake("--dry-run", check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 1
    assert output.count(problem) == 1
    assert output.count("remedy: ") == 1
    assert f"{clone.configfile}: {problem}" in output
    for noise in ("Traceback", 'File "', "Error"):
        assert noise not in output
    assert not (clone.path / "results").exists()


# --- what only a job can see: all of it in one run ------------------------------------------------

BAD_MODELS = {
    "models.2": {"name": "hub", "source": f"hf:some/model@{'0' * 40}", "n_layers": 2},
    "models.3": {
        "name": "odd",
        "source": "timm:vit_tiny_patch16_224",
        "n_layers": 1,
        "pretrained": False,
        "input_px": 100,
        "overrides": {"depth": 1, "embed_dim": 16, "num_heads": 2},
    },
    "studies.binding_information.fits.3": {
        "name": "bad",
        "datasets": ["tiny"],
        "models": ["hub", "odd"],
        "probes": ["linear"],
    },
}


@dataclass(frozen=True)
class Case:
    """A job that must fail.

    Attributes
    ----------
    job
        The job's product.
    message
        What is said, up to the remedy.
    remedy
        A part of the remedy.
    """

    job: Product
    message: str
    remedy: str

    def outputs(self) -> list[str]:
        """Paths of what the job would make."""
        return [self.job.path(output) for output in self.job.step.outputs]


@dataclass(frozen=True)
class Run:
    """What a run with all of the cases did and said."""

    clone: Clone
    cases: dict[str, Case]
    returncode: int
    output: str


CASES = (
    "flipped byte",
    "missing chunk",
    "truncated manifest",
    "another configuration",
    "missing weights",
    "wrong image size",
    "no room before",
    "no room while writing",
)


def damage(clone: Clone) -> dict[str, Case]:
    """Damage the clone's products; say which job finds it, and in which words."""
    again = f"snakemake --cores all --forcerun {{}} --configfile {clone.configfile}"
    product = clone.product

    train, val, test = (product("codes", split=split) for split in ("train", "val", "test"))
    flipped = Path(train.path("store"), "objects", "c.0.0")
    flip_a_byte(clone.path / flipped)
    missing = Path(val.path("store"), "objects", "c.0.0")
    (clone.path / missing).unlink()
    truncated = clone.path / test.path()
    truncated.write_text(truncated.read_text()[:100])

    first_part, foreign = (product("encoded", part=part) for part in ("first", "train-00001"))
    (clone.path / foreign.path()).write_bytes((clone.path / first_part.path()).read_bytes())

    anchors = {split: product("anchors", split=split) for split in ("train", "val", "test")}
    weights = product("weights", model="hub")
    priors = product("priors")
    pooled = product("pooled", model="vit", part="first")
    return {
        "flipped byte": Case(
            anchors["train"],
            f"{flipped}: the chunk is damaged (its checksum differs)",
            again.format(train.path()),
        ),
        "missing chunk": Case(
            anchors["val"], f"{missing}: the chunk is missing", again.format(val.path())
        ),
        "truncated manifest": Case(
            anchors["test"],
            f"{test.path()}: {CHANGED}",
            again.format(test.path()),
        ),
        "another configuration": Case(
            product("index", array="encoded"),
            f"{foreign.path()}: {CHANGED}",
            again.format(foreign.path()),
        ),
        "missing weights": Case(
            weights,
            f"some/model@{'0' * 40}: the download failed",
            f"where there is a network, run `snakemake --cores all --force {weights.path()} "
            f"--configfile {clone.configfile}`",
        ),
        "wrong image size": Case(
            product("pooled", model="odd", part="first"),
            "model odd (timm:vit_tiny_patch16_224): an input of 100 px is not a whole number of "
            "patches of 16 px",
            "set `input_px: 96` or `input_px: 112`",
        ),
        "no room before": Case(
            pooled, f"{Path(pooled.path()).parent}: ", "free space (`bindscope gc`"
        ),
        "no room while writing": Case(
            priors, f"{priors.path()}: the disk is full", "free space (`bindscope gc`"
        ),
    }


@pytest.fixture(scope="module")
def failed(finished: Clone, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which a job meets each of the cases."""
    clone = finished.copy(tmp_path_factory.mktemp("failed") / "clone")
    clone = clone.with_configfile("config/failing.yaml")
    clone.edit(BAD_MODELS)
    cases = damage(clone)
    path = os.pathsep.join(map(str, (FULL_DISK, ROOT / "src")))
    done = clone.snakemake(
        "--keep-going",
        "--forcerun",
        "anchors",
        "pooled",
        "priors",
        "--",
        *(case.job.path() for case in cases.values()),
        environment={"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    return Run(clone, cases, done.returncode, done.stdout + done.stderr)


@pytest.mark.parametrize("name", CASES)
def test_a_job_says_once_what_is_wrong_and_what_to_do(name: str, failed: Run) -> None:
    case = failed.cases[name]
    assert failed.returncode == 1
    assert failed.output.count(case.message) == 1
    remedy = failed.output.partition(case.message)[2].splitlines()[1]
    assert remedy.startswith("  remedy: ")
    assert case.remedy in remedy
    for output in case.outputs():
        assert not (failed.clone.path / output).exists()


def test_no_traceback_is_shown_and_nothing_half_written_is_left(failed: Run) -> None:
    assert "Traceback" not in failed.output
    assert failed.output.count("remedy: ") == len(CASES)
    assert not list(failed.clone.path.glob("results/**/*.tmp-*"))


@pytest.mark.whole
def test_after_the_remedies_everything_is_as_in_an_undisturbed_run(
    failed: Run, finished: Clone
) -> None:
    """The commands of the messages, restricted to the jobs that failed, mend all that can be."""
    clone = Clone(failed.clone.path)  # with the configuration that has no bad models
    bad = re.findall(r"remedy: .*--forcerun (\S+)", failed.output)
    assert len(bad) == 4
    models = ("hub", "odd")
    jobs = [case.job for case in failed.cases.values()]
    good = [job.path() for job in jobs if job.wildcards.get("model") not in models]
    clone.snakemake("--forcerun", *bad, "--", *good)
    assert clone.results() == finished.results()
    assert clone.bindscope("verify").returncode == 0
    assert clone.would_run() == Counter()
