"""Text towers: random weights that are all new, texts without padding's effect, one joint space."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from clip_checkpoint import CLIP, model, write_clip
from small_models import EASY, configured, trained, write

from bindscope.activations.texts import write_joint, write_text_embeddings
from bindscope.core.errors import ModelError
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.models.loading import load_model, load_texts
from bindscope.models.own_texts import OwnTexts
from bindscope.scenes.captions import Caption
from bindscope.scenes.value_names import value_names

torch.set_num_threads(1)

TEXTS = ["a red square", "a blue circle and a red square", "a"]


def random(seed: int = 0, **fields: Any) -> Any:
    return model(pretrained=False, seed=seed, overrides=CLIP, **fields)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip"))


def test_random_weights_keep_no_tensor_of_a_checkpoint(folder: Path) -> None:
    """Defect D3 of the published code: its random baseline kept the pretrained image tower."""
    from safetensors.torch import load_file

    source = f"hf:path:{folder}"
    checkpoint = load_file(folder / "model.safetensors")
    drawn = load_texts(model(source=source, pretrained=False), None, "cpu").model.state_dict()
    checked = [name for name in drawn if name in checkpoint]
    assert len(checked) == len(checkpoint) > 60
    for name in checked:
        assert not torch.equal(drawn[name], checkpoint[name]), name
    again = load_texts(model(source=source, pretrained=False, seed=1), None, "cpu").model
    for name, value in again.state_dict().items():
        constant = value.numel() and float(value.float().std(unbiased=False)) == 0
        assert constant or "position_ids" in name or not torch.equal(value, drawn[name]), name

    image = load_model(model(source=source, pretrained=False), None, "cpu")
    state = image.norm.state_dict() | {
        f"{i}.{name}": value
        for i, block in enumerate(image.blocks)
        for name, value in block.state_dict().items()
    }
    checkpoint_values = {tuple(value.flatten().tolist()) for value in checkpoint.values()}
    assert len(state) > 20
    for name, value in state.items():
        assert tuple(value.flatten().tolist()) not in checkpoint_values, name


@pytest.mark.parametrize("kind", ["bytes", "tokenizer"])
def test_what_stands_behind_a_text_has_no_effect(kind: str, folder: Path) -> None:
    """Spec 9.12: a context cut to the longest caption gives what the full one does."""
    config = random() if kind == "bytes" else model(source=f"hf:path:{folder}")
    tower = load_texts(config, None, "cpu")
    together = tower.embed(TEXTS, [()] * 3)
    assert together.shape == (3, tower.dim) == (3, 8)
    assert together.dtype == np.float32
    alone = np.concatenate([tower.embed([text], [()]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    ids, mask = tower.tokenize(TEXTS)
    full = torch.nn.functional.pad(ids, (0, 40 - ids.shape[1]))
    with torch.inference_mode():
        read = tower.model.text_model(
            input_ids=full, attention_mask=torch.nn.functional.pad(mask, (0, 40 - ids.shape[1]))
        ).pooler_output
        np.testing.assert_allclose(tower.model.text_projection(read), together, atol=1e-4)
    assert np.abs(together[0] - together[1]).max() > 1e-4
    in_batches = load_texts(
        config.model_copy(
            update={"extraction": config.extraction.model_copy(update={"batch_size": 2})}
        ),
        None,
        "cpu",
    )
    np.testing.assert_allclose(in_batches.embed(TEXTS, [()] * 3), together, atol=1e-5)


def test_images_meet_texts_where_the_library_says(folder: Path) -> None:
    """[CLS] after the final norm, projected, is the library's image embedding."""
    source = f"hf:path:{folder}"
    tower = load_texts(model(source=source), None, "cpu")
    image = load_model(model(source=source), None, "cpu")
    pixels = image.preprocess(np.random.default_rng(0).integers(0, 255, (2, 32, 32, 3), np.uint8))
    ((_, tokens),) = image.residual_stream(pixels, ["final"])
    from transformers import CLIPModel

    whole = CLIPModel.from_pretrained(folder)
    with torch.inference_mode():
        pooled = whole.vision_model(pixel_values=pixels).pooler_output
        expected = whole.visual_projection(pooled)
    np.testing.assert_allclose(tower.project(tokens[:, 0].numpy()), expected, atol=1e-5)


def test_what_reads_no_captions_says_so(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="reads no captions"):
        load_texts(model(source="timm:vit_tiny_patch16_224"), None, "cpu")
    with pytest.raises(ModelError, match="takes 44 tokens, and its text tower reads 40"):
        load_texts(random(), None, "cpu").embed(["a" * 42], [()])
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(ModelError, match="tokenizer"):
        load_texts(model(source=f"hf:path:{tmp_path}"), None, "cpu")


@pytest.fixture(scope="module", params=["captions", "captions_unpaired"])
def tower_of_ours(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> OwnTexts:
    """The text tower of a model that was trained for a few steps."""
    config = configured(request.param)
    manifest = write(trained(config), tmp_path_factory.mktemp("own"), config)
    tower = load_texts(config, manifest, "cpu")
    assert isinstance(tower, OwnTexts)
    return tower


def test_own_towers_read_words(tower_of_ours: OwnTexts) -> None:
    (color, *_), (shape, *more) = (group["values"] for group in value_names(EASY))
    pair = ((color, shape), (color, more[0]))
    vectors = tower_of_ours.embed(["x"] * 3, [pair, pair[::-1], (pair[0], pair[0])])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)  # order has no effect
    np.testing.assert_allclose(vectors[2], tower_of_ours.embed(["x"], [(pair[0],)])[0], atol=1e-6)
    code = torch.zeros(1, tower_of_ours._n_cells)
    code[0, [0, 1]] = 1
    with torch.inference_mode():
        expected = tower_of_ours.objective.text(code, tower_of_ours.objective.values)
    np.testing.assert_allclose(vectors[:1], expected, atol=1e-6)
    objects = tower_of_ours.embed(["", ""], [((color, shape),), ((color, more[0]),)])
    objects /= np.linalg.norm(objects, axis=1, keepdims=True)
    concept = tower_of_ours.embed(["x"], [((color, None),)])[0]
    np.testing.assert_allclose(concept, objects.mean(0), atol=1e-6)
    with pytest.raises(ModelError, match="does not know the word 'mauve'"):
        tower_of_ours.embed(["x"], [(("mauve", shape),)])
    with pytest.raises(ModelError, match="knows 2 words of each object"):
        tower_of_ours.embed(["x"], [((color,),)])


def test_vectors_stand_where_their_captions_do(tower_of_ours: OwnTexts, tmp_path: Path) -> None:
    colors, shapes = (group["values"] for group in value_names(EASY))
    scenes = [((colors[0], s),) for s in (shapes[1], shapes[0], shapes[1])]
    captions = [
        Caption(template, kind, i, f"{template} {words}", words)
        for template in ("one", "two")
        for kind, all_words in (("train", scenes), ("object", scenes[:2]))
        for i, words in enumerate(all_words)
    ]
    with StoreWriter(tmp_path / "t.zarr", tmp_path / "t.json", spec="{}", code="c") as writer:
        write_text_embeddings(tower_of_ours, captions, writer)
    store = open_store(tmp_path / "t.json")
    assert store.attributes["layers"] == ["one", "two"]
    for template in ("one", "two"):
        np.testing.assert_allclose(
            store.read("train", layer=template), tower_of_ours.embed([""] * 3, scenes), atol=1e-5
        )
    assert store.read("object", layer="two").shape == (2, tower_of_ours.dim)


def test_joint_images_are_projected_split_by_split(tmp_path: Path) -> None:
    tower = load_texts(random(), None, "cpu")
    images = SimpleNamespace(
        layers=("0", "final"),
        attributes={"layers": ["0", "final"]},
        pooled=lambda split, array, layer: np.full((3, 16), len(split), np.float32),
    )
    with StoreWriter(tmp_path / "j.zarr", tmp_path / "j.json", spec="{}", code="c") as writer:
        write_joint(tower, images, writer)  # type: ignore[arg-type]
    store = open_store(tmp_path / "j.json")
    for split in ("train", "val", "test"):
        expected = tower.project(np.full((3, 16), len(split)))
        np.testing.assert_array_equal(store.read(split), expected)
