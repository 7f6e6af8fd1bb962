"""Stand-ins are as released, and what no preset reads runs on them: a cut of `make rehearse`."""

import json
import subprocess
import sys
from pathlib import Path

import data
import numpy as np
import pytest
from hub import Hub
from languages import LANGUAGES
from PIL import Image
from rehearse import FURTHER, HERE, presets
from representatives import one_of
from tokenizers_made import SPLIT
from towers import HF, NARROW

from bindscope.config.models import Pretrained
from bindscope.models.loading import load_model
from bindscope.studies.binding_id.config import VisionLanguageModel
from bindscope.studies.binding_id.tasks.images import LayoutImages
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs
from bindscope.studies.binding_id.vlm.loading import load_engine

# Of a repository: blocks, tokens before the patches, rows of patches at its own input.
TOWERS = {
    "facebook/dinov2-base": (12, 1, 16),
    "facebook/dinov2-giant": (40, 1, 16),
    "facebook/dinov2-with-registers-base": (12, 5, 16),
    "google/vit-large-patch16-224": (24, 1, 14),
    "facebook/vit-mae-base": (12, 1, 14),
    "openai/clip-vit-base-patch32": (12, 1, 7),
    "openai/clip-vit-large-patch14": (24, 1, 16),
    "openai/clip-vit-large-patch14-336": (24, 1, 24),
    "google/siglip-base-patch16-256": (12, 0, 16),
}


@pytest.mark.parametrize("repo", one_of(TOWERS, "facebook/dinov2-with-registers-base"))
def test_a_tower_has_the_depth_and_the_tokens_of_its_release(repo: str, tmp_path: Path) -> None:
    folder = Hub(tmp_path).snapshot(repo, None)
    HF[repo](folder, NARROW)
    n_layers, prefix, side = TOWERS[repo]
    config = Pretrained(name="tower", source=f"hf:path:{folder}", n_layers=n_layers)
    model = load_model(config, None, "cpu")
    assert (model.token_map.prefix, model.token_map.grid) == (prefix, (side, side))
    images = np.random.default_rng(0).integers(0, 256, (1, 97, 97, 3), np.uint8)
    ((_, last),) = model.residual_stream(model.preprocess(images), [n_layers])
    assert last.shape[:2] == (1, prefix + side**2)


@pytest.mark.parametrize("repo", LANGUAGES)
def test_words_split_unequally_but_those_of_alike_objects(repo: str, tmp_path: Path) -> None:
    folder = Hub(tmp_path).snapshot(repo, None)
    LANGUAGES[repo](folder)
    config = VisionLanguageModel(name="model", source=f"hf:path:{folder}")
    engine = load_engine(config)
    words = [f" {word}" for word in ("prism", "red", "A", *SPLIT)]
    lengths = [len(numbers) for numbers, _ in engine.adapter.tokenize(words)]
    assert lengths[:3] == [1, 1, 1]
    assert min(lengths[3:]) > 1
    text = f"<|im_start|>user {engine.adapter.image_text}\n\nAnswer"
    image = np.zeros((1, 384, 384, 3), np.uint8)
    read = engine.adapter.read([text], image)
    # 27 x 27 of the whole image, and of its crop with an end of each row; or 28 x 28 by fours.
    assert read.image.length == (27 * 27 + 27 * 28 if "llava" in repo else 14 * 14)
    # Of objects that are alike, words take equally many tokens.
    rule = Rule(alike=True)
    engine = load_engine(config, rule=rule)
    scenes = draw_pairs(rule, "estimation", 4, 0).base
    state = engine.contexts(scenes, LayoutImages(rule.layout)(scenes))
    n_tokens = {engine.positions(state, "color", role).shape[1] for role in (0, 1)}
    assert len(n_tokens) == 1


def test_every_large_preset_is_rehearsed() -> None:
    named = presets()
    assert set(FURTHER) <= set(named)
    assert {"same_object", "concepts", "natural", "layers", "occlusion"} <= set(named)


def test_photos_are_of_every_kind(tmp_path: Path) -> None:
    pictures = list(data.photos(24, "train2017", [1, 3], "photo"))
    for photo in pictures:
        photo.save(Image.fromarray(photo.image), tmp_path / f"{photo.name}.jpg")
    opened = [Image.open(path) for path in sorted(tmp_path.iterdir())]
    assert {image.mode for image in opened} == {"RGB", "L", "CMYK"}
    assert any(image.getexif() for image in opened)
    broken = data.broken("train2017", [1, 3], "photo")
    broken.save(Image.fromarray(broken.image), tmp_path / "cut.jpg")
    with pytest.raises(OSError, match="truncated"), Image.open(tmp_path / "cut.jpg") as image:
        image.load()


def test_memory_of_a_job_is_not_that_of_who_started_it() -> None:
    numbers = np.ones(100_000_000)
    code = f"import sys; sys.path[:0] = {sys.path!r}; import jobs; print(jobs.peak_gb())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.02 < float(done.stdout) < numbers.nbytes / 1e9


@pytest.mark.slow
@pytest.mark.workflow
@pytest.mark.timeout(1200)
@pytest.mark.whole
def test_other_sources_are_rehearsed(tmp_path: Path) -> None:
    """All jobs of `other_sources.yaml`, in a process of its own: the hub's client is offline."""
    done = subprocess.run(
        [sys.executable, str(HERE / "rehearse.py"), "other_sources", "--keep", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    problems = json.loads((tmp_path / "other_sources.json").read_text())
    assert problems == [], done.stdout
    assert done.returncode == 0, done.stderr
    assert "54 jobs, 0 not done" in done.stdout
