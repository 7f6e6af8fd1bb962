"""The `bindscope` command and `bindscope.open`, on the products of a finished run."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from harness import Clone, flip_a_byte

import bindscope
from bindscope.cli import main
from bindscope.config.root import Config
from bindscope.core.digests import digests_path
from bindscope.core.errors import StoreError
from bindscope.studies.build import build

pytestmark = [pytest.mark.workflow, pytest.mark.slow, pytest.mark.timeout(900)]

Command = Callable[..., tuple[int, str, str]]
FILES = (".json", ".jsonl", ".safetensors")
STUDY = "studies.binding_information"


@pytest.fixture
def command(
    finished: Clone, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run a command in a clone: exit code, what it printed, what it complained about."""

    def run(*arguments: str, clone: Clone = finished) -> tuple[int, str, str]:
        monkeypatch.chdir(clone.path)
        capsys.readouterr()
        code = main([*arguments, "--configfile", clone.configfile])
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def clone(finished: Clone, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A copy of the finished run that a test may change where no other one looks."""
    return finished.copy(tmp_path_factory.mktemp("commands") / "clone")


# --- path ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["priors"], [r"results/priors/tiny-\w{8}\.json"]),
        (
            ["codes", "split=test"],
            [rf"results/codes/tiny/test-\w{{8}}\.{kind}" for kind in ("json", "zarr")],
        ),
        (
            ["fit", "model=vit", "layer=0", "probe=linear", "--output", "rows"],
            [r"results/fits/tiny/vit/cls-0/linear-none-0-\w{8}\.jsonl"],
        ),
    ],
    ids=" ".join,
)
def test_path_prints_files_that_are_there(
    arguments: list[str], expected: list[str], command: Command
) -> None:
    code, printed, complaints = command("path", *arguments)
    assert (code, complaints) == (0, "")
    lines = printed.splitlines()
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line)
        assert Path(line).exists()  # the command runs in the clone's folder


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["codes", "split=tset"], "no codes with split=tset is configured\n  remedy: `bindscope "),
        (["weights"], "no weights with any name is configured\n  remedy: `bindscope plan "),
        (["cods"], "cods: is no rule\n  remedy: choose codes, "),
        (["codes", "--output", "rows"], "codes: has no output 'rows'\n  remedy: choose manifest, "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_path_of_what_is_not_configured(
    arguments: list[str], expected: str, command: Command
) -> None:
    code, printed, complaints = command("path", *arguments)
    assert (code, printed) == (1, "")
    assert expected in complaints
    assert complaints.count("remedy: ") == 1


def test_help_is_short_and_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("new", "plan", "path", "show", "verify", "gc", "zoo"):
        with pytest.raises(SystemExit):
            main([name, "--help"])
        text = capsys.readouterr().out
        assert f"example: bindscope {name}" in text
        assert len(text.splitlines()) < 25
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"bindscope {bindscope.__version__}\n"


def test_a_command_without_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["path", "priors"]) == 1
    assert "config/config.yaml: cannot be read" in capsys.readouterr().err


# --- plan ----------------------------------------------------------------------------------------


def test_plan_after_a_run_and_after_a_comment(clone: Clone) -> None:
    module = clone.path / "src/bindscope/studies/binding_information/views.py"
    text = module.read_text()
    module.write_text(f"{text}\n# Another comment.\n")
    assert clone.bindscope("plan").stdout.strip() == "nothing to be done"
    module.write_text(f"{text}\nassert True\n")
    code_changed = clone.bindscope("plan").stdout
    module.write_text(text)
    # the figures that use it; not those of stored maps and of scenes
    assert re.search(r"^ +8 +figure +made by other code", code_changed, re.MULTILINE)
    assert re.search(r"^ +1 +report +input is made anew", code_changed, re.MULTILINE)
    assert code_changed.splitlines()[-1].split() == ["9", "jobs"]


def test_plan_names_the_changed_key_the_new_entity_and_a_mistake(clone: Clone) -> None:
    changed = clone.with_configfile("config/other.yaml")
    changed.edit(
        {
            f"{STUDY}.probes.1.rank": 3,
            f"{STUDY}.probes.3": {"name": "dnn", "family": "dnn"},
            f"{STUDY}.fits.0.probes": ["linear", "quadratic", "dnn"],
        }
    )
    plan = changed.bindscope("plan").stdout
    assert re.search(r"^ +2 +fit +changed: probe\.rank 2 -> 3$", plan, re.MULTILINE)
    assert re.search(r"^ +2 +fit +new$", plan, re.MULTILINE)
    assert re.search(r"^ +1 +null +changed: probe\.rank 2 -> 3$", plan, re.MULTILINE)
    assert re.search(r"^ +1 +table +", plan, re.MULTILINE)
    assert "pooled" not in plan
    changed.edit({f"{STUDY}.probes.3.hiden": 4})
    failed = changed.bindscope("plan", check=False)
    assert failed.returncode == 1
    assert (
        f"{changed.configfile}: {STUDY}.probes.3.hiden: unknown key; did you mean 'hidden'?"
        in failed.stderr
    )
    assert "Traceback" not in failed.stderr


# --- verify --------------------------------------------------------------------------------------


def test_verify_finds_a_flipped_byte_and_deleted_stores_and_repairs_them(
    finished: Clone, tmp_path: Path, command: Command
) -> None:
    """Snakemake misses no deleted store: all that was made of it is there. The next fit would."""
    clone = finished.copy(tmp_path / "clone")
    configured = yaml.safe_load((clone.path / clone.configfile).read_text())
    blocks = configured["studies"]["binding_information"]["fits"]
    clone.edit(
        {  # less to make again
            f"{STUDY}.fits": [b for b in blocks if b["models"] == ["identity"]],
            f"{STUDY}.learning_curves": [],
            "report.figures": ["calibration"],
        }
    )
    clone.snakemake()
    sound_lines = checked(clone, 0)
    assert command("verify", clone=clone) == (0, sound_lines, "")

    damaged = clone.product("encoded", part="train-00001")
    chunk = Path(damaged.path("store"), "cls", "c.0.0.0")
    flip_a_byte(clone.path / chunk)
    deleted = clone.product("encoded", part="first"), clone.product("codes", split="val")
    for product in deleted:
        (clone.path / product.path()).unlink()
        (clone.path / digests_path(product.path())).unlink()
        shutil.rmtree(clone.path / product.path("store"))
    code, printed, complaints = command("verify", clone=clone)
    assert (code, printed) == (1, checked(clone, 3, extra=-2))
    *lines, remedy = complaints.splitlines()
    assert f"{chunk}: the chunk is damaged (its checksum differs)" in lines
    for product in deleted:
        (line,) = (line for line in lines if line.startswith(product.path()))
        assert ": is missing, and results/" in line
    assert len(lines) == 3
    again = re.fullmatch(
        rf"make them again: snakemake --cores all --forcerun (.+) --configfile {clone.configfile}",
        remedy,
    )
    assert again
    assert sorted(again[1].split()) == sorted(product.path() for product in (damaged, *deleted))

    assert f"deleted {damaged.path('store')}\n" in clone.bindscope("verify", "--repair").stdout
    assert command("verify", clone=clone) == (0, sound_lines, "")
    mended, sound = clone.results(), finished.results()
    of_other_fits = ("tables", "figures", "report.html", "report.sha256")
    same = [path for path in sound if path.partition("/")[0] not in of_other_fits]
    assert {path: mended[path] for path in same} == {path: sound[path] for path in same}


def checked(clone: Clone, bad: int, extra: int = 0) -> str:
    """Return what `verify` prints; `extra` more products than are configured are there."""
    config = yaml.safe_load((clone.path / clone.configfile).read_text())
    products = build(Config.model_validate(config)).products.values()
    stores = sum("store" in product.step.outputs for product in products)
    return f"{len(products) + extra} products checked, {stores + extra} of them stores; {bad} bad\n"


# --- gc ------------------------------------------------------------------------------------------


def test_gc_lists_and_deletes_only_what_no_configuration_asks_for(
    finished: Clone, tmp_path: Path, command: Command
) -> None:
    clone = finished.copy(tmp_path / "clone")
    stray = clone.path / "results/codes/tiny/test-00000000.zarr.tmp-1"
    stray.mkdir()
    assert (
        command("gc", clone=finished)[1] == "0 products, 0.0 MB not needed (delete with --delete)\n"
    )

    config = yaml.safe_load((clone.path / clone.configfile).read_text())
    config["models"] = config["models"][1:]
    study = config["studies"]["binding_information"]
    study["fits"], study["learning_curves"] = study["fits"][2:], []
    smaller = clone.with_configfile("config/smaller.yaml")
    (smaller.path / smaller.configfile).write_text(yaml.safe_dump(config))
    needed = keyed(config)
    everything = keyed(yaml.safe_load((clone.path / clone.configfile).read_text()))
    unneeded = everything - needed
    weights = {path for path in everything if path.startswith("results/training/")}
    weights = {path for path in weights if path.endswith(".safetensors")}
    assert weights
    for path in weights:  # of a training that was killed, or is running
        (clone.path / f"{path}.checkpoint").touch()
        unneeded |= {f"{path}.checkpoint"} if path in unneeded else set()

    both = command("gc", "--configfile", clone.configfile, clone=smaller)[1]
    assert both.splitlines()[0].split()[-1] == str(stray.relative_to(clone.path))
    assert both.splitlines()[-1].startswith("1 products, ")

    before = clone.results()
    code, printed, _ = command("gc", clone=smaller)
    assert code == 0
    listed = re.findall(r"^ +(\d+\.\d) MB  (\S+)$", printed, re.MULTILINE)
    unneeded |= {str(digests_path(path)) for path in unneeded if path.endswith(FILES)}
    unneeded.add(str(stray.relative_to(clone.path)))
    assert {path for _, path in listed} == unneeded
    assert clone.results() == before

    printed = command("gc", "--delete", clone=smaller)[1]
    assert printed.splitlines()[-1].startswith(f"{len(unneeded)} products, ")
    assert printed.splitlines()[-1].endswith(" MB deleted")
    assert not [path for path in unneeded if (clone.path / path).exists()]
    assert all((clone.path / path).exists() for path in needed)
    after = clone.results()
    assert after == {path: before[path] for path in after}
    assert command("gc", clone=smaller)[1].startswith("0 products")


def keyed(config: dict[str, object]) -> set[str]:
    """Paths, with a key in them, of all that a configuration makes."""
    return {
        product.path(output)
        for product in build(Config.model_validate(config)).products.values()
        if "key" in product.wildcards
        for output in product.step.outputs
    }


# --- open ----------------------------------------------------------------------------------------


def test_open_gives_arrays_and_labels(finished: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished.path)
    names = {"dataset": "tiny", "configfile": finished.configfile}
    cls = bindscope.open(model="vit", layer=1, **names)
    mean = bindscope.open(model="vit", layer=1, tokens="mean", split="train", **names)
    both = bindscope.open(model="vit", layer="final", tokens="cls_mean", **names)
    patches = bindscope.open(model="vit", layer=1, tokens="patches", split="train", **names)
    assert (cls.activations.shape, cls.activations.dtype) == ((64, 16), np.float32)
    assert (mean.activations.shape, both.activations.shape) == ((128, 16), (64, 32))
    assert (cls.objects.shape, cls.features.shape) == ((64, 6), (64, 5))
    assert cls.objects.dtype == cls.features.dtype == np.uint8
    grid = cls.objects.reshape(-1, 3, 2)
    np.testing.assert_array_equal(cls.features, np.hstack([grid.any(2), grid.any(1)]))

    assert patches.activations.shape == (128, 16, 16)
    tokens = patches.activations.read(10, 100)  # across the border of two shards
    np.testing.assert_allclose(
        tokens.astype(np.float32).mean(1), mean.activations[10:100], atol=2e-3
    )
    np.testing.assert_array_equal(patches.objects, mean.objects)

    identity = bindscope.open(model="identity", layer=0, **names)
    np.testing.assert_array_equal(identity.activations, identity.objects)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"layer": 7}, "array 'cls' has no layer 7; it has: 0, 1, final\n  remedy: "),
        ({"model": "vti"}, "no index with dataset=tiny, model=vti, array=pooled or encoded is con"),
    ],
    ids=str,
)
def test_open_of_what_is_not_there(
    names: dict[str, object], expected: str, finished: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.path)
    query = {"dataset": "tiny", "model": "vit", "layer": 1, "configfile": finished.configfile}
    with pytest.raises(StoreError) as caught:
        bindscope.open(**(query | names))
    assert expected in str(caught.value)


def test_open_before_the_run_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = Clone.make(tmp_path / "clone")
    monkeypatch.chdir(clone.path)
    index = clone.product("index", array="pooled").path()
    with pytest.raises(StoreError) as caught:
        bindscope.open(dataset="tiny", model="vit", layer=1, configfile=clone.configfile)
    assert str(caught.value) == (
        f"{index}: not made yet\n  remedy: snakemake --cores all {index} "
        f"--configfile {clone.configfile}"
    )
