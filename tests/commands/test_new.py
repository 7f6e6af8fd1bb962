"""`bindscope new`: a file that plans as it stands, for each kind of model."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from packages import install
from PIL import Image

from bindscope.cli import main
from bindscope.commands.new import describe, write_new
from bindscope.commands.new_sections import read_labels
from bindscope.config.loading import load_config, load_file
from bindscope.core.errors import BindscopeError
from bindscope.core.registries import plugged_in
from bindscope.graph.towers import settings
from bindscope.sources.survey import with_counts
from bindscope.studies.build import build, read_graph

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "rehearsals"))
from hub import Hub, save  # noqa: E402

TOWER = """
from bindscope.config.models import Zoo
from bindscope.models.loading import load_model

def load():
    return load_model(Zoo(name='z', source='zoo:matching-none-0'), None, 'cpu', 96)
"""
COMMIT = "f9e44c814b77203eaa57a6bdbbd535f21ede1415"


def write_tiny_dinov2(folder: Path) -> None:
    from transformers import Dinov2Config, Dinov2Model

    shape = Dinov2Config(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=2, image_size=28, patch_size=14
    )
    shape.save_pretrained(folder)
    save(folder, Dinov2Model(shape), 0)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """An empty cache of the hub, without a network."""
    cache = tmp_path / "hub"
    cache.mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return Hub(cache)


def test_models_of_all_kinds_are_checked_and_planned(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tiny_dinov2(hub.snapshot("facebook/tiny-dinov2", COMMIT))
    folder = tmp_path / "saved-model"
    folder.mkdir()
    write_tiny_dinov2(folder)
    file = tmp_path / "my-run.yaml"
    sources = [f"hf:facebook/tiny-dinov2@{COMMIT}", f"path:{folder}"]
    for study in ("binding_information", "same_object", "concepts"):
        file.unlink(missing_ok=True)
        assert write_new(file, sources, study) == 0
        lines = file.read_text().splitlines()
        assert len(lines) <= 40
        # How long the user's own path is depends on the machine, and on the worker of a test.
        assert all(len(line.replace(str(tmp_path), "")) <= 200 for line in lines)
        graph = build(load_file(file))
        read = {p.wildcards["model"] for p in graph.select("pooled", "sampled")}
        assert {"tiny-dinov2", "saved-model", "objects-0", "untrained-2"} <= read
    printed = capsys.readouterr().out
    assert "3 blocks of width 32, 2 x 2 patches of 14 px, 0 registers" in printed
    assert "MB on disk" in printed


def test_a_vision_language_model_stands_next_to_known_ones(
    tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = hub.snapshot("Qwen/tiny-vl", COMMIT)
    (folder / "config.json").write_text('{"model_type": "qwen2_vl"}')
    file = tmp_path / "my-run.yaml"
    sources = [f"hf:Qwen/tiny-vl@{COMMIT}", f"hf:llava-hf/onevision@{COMMIT}"]
    assert main(["new", str(file), "--study", "binding_id", "--model", *sources]) == 0
    assert len(file.read_text().splitlines()) <= 40
    printed = capsys.readouterr().out
    assert "tiny-vl: a model of type qwen2_vl" in printed
    assert f"not downloaded yet: `hf download llava-hf/onevision --revision {COMMIT}`" in printed
    (suite, toys) = load_file(file).studies.binding_id.suites
    assert suite.models == ("tiny-vl", "onevision")
    assert suite.oracles
    assert toys.toys == ("toy-free", "toy-interchange")
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    settings.cache_clear()
    assert main(["new", "no.yaml", "--study", "binding_id", "--model", sources[0]]) == 1
    assert "models of type 'qwen2' are not supported" in capsys.readouterr().err


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The photos, masks and labels of docs/own_datasets.md, and a model in a folder."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "docs/examples/own_images.py"))["main"](Path("photos"), 60)
    (tmp_path / "vit").mkdir()
    write_tiny_dinov2(tmp_path / "vit")
    return Path("photos/objects.csv")


@pytest.mark.parametrize("study", ["binding_information", "same_object"])
def test_images_of_ones_own_are_read_with_boxes_and_masks(
    study: str, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["new", "my-run.yaml", "--model", "path:vit", "--study", study]
    assert main([*arguments, "--images", "photos", "--labels", str(photos)]) == 0
    text = Path("my-run.yaml").read_text()
    assert len(text.splitlines()) <= 40
    assert "feature groups: color (3), shape (2)" in capsys.readouterr().out
    (dataset,) = load_config(with_counts(yaml.safe_load(text)), "my-run.yaml").datasets
    assert dataset.source.boxes.format == "xywh"
    assert dataset.source.masks
    assert dataset.space.max_objects == 3
    assert sum(dataset.n_scenes.model_dump().values()) == 60


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (lambda text: text.replace("mask,id", "m,i"), ["--study", "same_object"], "has no masks"),
        (lambda text: text.replace("image,", "file,"), [], "has no column `image`"),
        (lambda text: text.replace("photos/003.jpg", "photos/0.jpg"), [], "there is no image"),
        (lambda text: text, ["--study", "concepts"], "is not written for images of your own"),
    ],
)
def test_labels_that_cannot_be_used_are_one_message(
    change: Callable[[str], str],
    more: list[str],
    message: str,
    photos: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    photos.write_text(change(photos.read_text()))
    assert main(["new", "my-run.yaml", "--model", "path:vit", "--labels", str(photos), *more]) == 1
    assert message in capsys.readouterr().err
    # Images are left out by a key of the file.
    assert Path("my-run.yaml").exists() == (message == "there is no image")


def test_images_that_are_left_out_are_counted_in_the_plan(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dry run decodes: a truncated photo, a mask of another size, a photo that is not there."""
    Path("photos/photos/001.jpg").write_bytes(Path("photos/photos/002.jpg").read_bytes()[:400])
    Image.new("L", (9, 9)).save("photos/masks/003.png")
    Path("photos/photos/004.jpg").unlink()
    new = ["new", "my-run.yaml", "--model", "path:vit", "--labels", str(photos)]
    assert main(new) == 1
    printed = capsys.readouterr()
    assert "my-run.yaml: written" in printed.out
    assert "3 problems" in printed.err
    file = Path("my-run.yaml")
    file.write_text(
        file.read_text().replace("      values:", "      bad_images: skip\n      values:")
    )
    (note,) = read_graph(yaml.safe_load(file.read_text()), "my-run.yaml").notes
    assert note.startswith("images: 57 scenes")
    assert note.endswith("3 images left out")


def test_a_value_may_be_called_none(tmp_path: Path) -> None:
    labels = tmp_path / "objects.csv"
    labels.write_text("image,color,shape\na.png,None, ball\na.png,NA,box\nb.png,,ball\n")
    values = read_labels(labels, None).keys["source"]["values"]
    assert values == {"color": ["NA", "None"], "shape": ["ball", "box"]}


def test_a_model_that_is_not_here_is_said_so_and_the_file_is_written(
    tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my-run.yaml"
    source = f"hf:facebook/dinov2-large@{COMMIT}"
    assert main(["new", str(file), "--model", source]) == 0
    printed = capsys.readouterr().out
    assert f"hf download facebook/dinov2-large --revision {COMMIT}" in printed
    assert "24 blocks (guessed from the name: check)" in printed
    assert build(load_file(file)).select("weights", model="dinov2-large")


def test_a_model_of_the_working_directory_is_checked(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Snakemake finds it: the command adds the folder to the search path."""
    (tmp_path / "own_tower.py").write_text(TOWER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    assert main(["new", "my-run.yaml", "--model", "python:own_tower:load"]) == 0
    assert "4 blocks of width 96, 6 x 6 patches of 16 px" in Path("my-run.yaml").read_text()
    assert main(["path", "report", "--configfile", "my-run.yaml"]) == 0


def test_a_model_of_another_package_is_used_by_its_name(
    tmp_path: Path,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """One file and an entry point, as pip installs them."""
    (tmp_path / "tower_package.py").write_text(TOWER)
    install(tmp_path, "tower", "bindscope.models", {"tower": "tower_package:load"})
    monkeypatch.syspath_prepend(str(tmp_path))
    plugged_in.cache_clear()
    request.addfinalizer(plugged_in.cache_clear)
    file = tmp_path / "my-run.yaml"
    assert main(["new", str(file), "--model", "python:tower"]) == 0
    text = file.read_text()
    file.write_text(text.replace("python:tower_package:load", "python:tower"))
    by_name, by_function = (
        build(load_config(yaml.safe_load(t), "x")) for t in (file.read_text(), text)
    )
    assert by_name.products.keys() == by_function.products.keys()
    assert main(["new", str(file), "--model", "python:towr"]) == 1
    assert "registers a model 'towr'" in capsys.readouterr().err


def test_a_file_with_other_content_is_kept(tmp_path: Path, hub: Hub) -> None:
    file = tmp_path / "my-run.yaml"
    source = f"hf:facebook/dinov2-base@{COMMIT}"
    assert main(["new", str(file), "--model", source]) == 0
    assert main(["new", str(file), "--model", source]) == 0
    file.write_text(f"{file.read_text()}# edited\n")
    assert main(["new", str(file), "--model", source]) == 1
    assert file.read_text().endswith("# edited\n")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("timm:vit_nothing", "timm knows no such model"),
        ("timm:swin_tiny_patch4_window7_224", "SwinTransformer is not a plain vision transformer"),
        ("hf:facebook/dinov2-base", "has no pinned revision"),
        ("python:no_such_module:load", "does not give a model"),
        ("path:/no/such/folder", "has no config.json"),
    ],
)
def test_a_wrong_model_is_one_message(hub: Hub, source: str, message: str) -> None:
    with pytest.raises(BindscopeError, match=message):
        describe(source)


def test_without_arguments_and_terminal_the_command_names_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert main(["new"]) == 1
    assert "--model timm:" in capsys.readouterr().err


def test_on_a_terminal_four_questions_are_asked(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "asked.yaml"
    answers = iter([f"hf:facebook/dinov2-base@{COMMIT}", "same_object", "", str(file)])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    assert main(["new"]) == 0
    assert load_file(file).studies.same_object is not None
    assert not list(answers)
