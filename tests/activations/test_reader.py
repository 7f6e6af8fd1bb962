"""Index and reader: shards joined, and only those that belong together."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from activations_by_hand import SHARD, SPLITS, TinyModel, build_dataset, images, store
from activations_by_hand import extraction as options

from bindscope.activations.encoded import write_encoded
from bindscope.activations.extraction import extract
from bindscope.activations.index import build_index
from bindscope.activations.reader import Activations
from bindscope.core.errors import ModelError, StoreError
from bindscope.core.files import write_json
from bindscope.core.store.verify import verify_listing
from bindscope.models.base import TokenMap

N = {split: count * SHARD for split, count in SPLITS.items()}


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    return build_dataset(tmp_path_factory.mktemp("pooled"), TinyModel(), dtype="float32")


@pytest.fixture(scope="module")
def patches(tmp_path_factory):
    return build_dataset(tmp_path_factory.mktemp("patches"), TinyModel(), 2, dtype="bfloat16")


@pytest.fixture
def copy(pooled, tmp_path):
    return Path(shutil.copytree(pooled[0].parent, tmp_path / "copy")) / "index.json"


def manifests(index: Path) -> dict[str, list[Path]]:
    folder = index.parent / "shards"
    return {s: [folder / f"{s}-{i}.json" for i in range(n)] for s, n in SPLITS.items()}


def test_pooled_layers_over_all_shards(pooled):
    index, data = pooled
    activations, model = Activations(index), TinyModel()
    assert activations.layers == ("0", "1", "2", "3", "final")
    assert activations.token_map == model.token_map
    for split in SPLITS:
        for layer in (0, "3", "final"):
            tokens = model.tokens(data[split], layer if layer == "final" else int(layer))
            cls = activations.pooled(split, "cls", layer)
            assert cls.dtype == np.float32
            np.testing.assert_array_equal(cls, tokens[:, 0])
            mean = activations.pooled(split, "mean", layer)
            np.testing.assert_allclose(mean, tokens[:, 3:].mean(1), rtol=1e-6)
            both = activations.pooled(split, "cls_mean", layer)
            np.testing.assert_array_equal(both, np.hstack([cls, mean]))
            registers = activations.pooled(split, "registers", layer)
            np.testing.assert_array_equal(registers, tokens[:, 1:3].reshape(N[split], -1))


def test_only_the_layer_asked_for_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("bindscope.core.store.manifest.CHUNK_BYTES", 100)  # else they share a file
    index, _ = build_dataset(tmp_path, TinyModel(), dtype="float32")
    for path in tmp_path.glob("shards/*.zarr/*/c.[0134].*"):
        content = bytearray(path.read_bytes())
        content[0] ^= 1
        path.write_bytes(content)
    activations = Activations(index)
    activations.pooled("train", "cls_mean", 2)
    with pytest.raises(StoreError, match="damaged"):
        activations.pooled("train", "cls", 1)


def test_patches_across_shards(patches):
    index, data = patches
    activations, model = Activations(index), TinyModel()
    for split in SPLITS:
        reader, tokens = activations.patches(split), model.tokens(data[split], 2)
        assert reader.shape == (N[split], 6, 5)
        whole = reader.read(0, N[split])
        assert whole.dtype == reader.dtype == np.float32
        np.testing.assert_allclose(whole, tokens[:, 3:], rtol=2**-8)
        for start in range(0, N[split], 3):
            for stop in range(start, N[split] + 1, 4):
                np.testing.assert_array_equal(reader.read(start, stop), whole[start:stop])
        np.testing.assert_allclose(reader.cls().read(0, N[split]), tokens[:, 0], rtol=2**-8)
        for wrong in ((-1, 2), (0, N[split] + 1), (3, 2)):
            with pytest.raises(IndexError):
                reader.read(*wrong)


def test_float16_patches_stay_float16(tmp_path):
    index, _ = build_dataset(tmp_path, TinyModel(cls=False), 1)
    reader = Activations(index).patches("val")
    assert reader.read(0, 2).dtype == np.float16
    assert reader.cls() is None


def test_a_model_without_cls(tmp_path):
    index, _ = build_dataset(tmp_path, TinyModel(cls=False, registers=0))
    activations = Activations(index)
    for array in ("cls", "cls_mean"):
        with pytest.raises(ModelError, match=r"no \[CLS\] token\n  remedy: set tokens: mean"):
            activations.pooled("val", array, 0)
    with pytest.raises(ModelError, match="no registers"):
        activations.pooled("val", "registers", 0)
    with pytest.raises(StoreError, match="no layer 9; it has: 0, 1, 2, 3, final"):
        activations.pooled("val", "mean", 9)


def test_a_known_answer_encoder(tmp_path):
    rng = np.random.default_rng(0)
    grid = rng.standard_normal((8, 3, 4)).astype(np.float32)
    token_map = TokenMap(0, 0, (1, 3), 1, False)
    for i in range(2):
        part = slice(i * 4, i * 4 + 4)
        with store(tmp_path / f"grid-{i}") as writer:
            arrays = {"cls": grid[part, 0], "patches": grid[part]}
            write_encoded(arrays, writer, token_map=token_map)
        with store(tmp_path / f"vector-{i}") as writer:
            write_encoded({"cls": grid[part, 0]}, writer)
    for name in ("grid", "vector"):
        shards = {"test": [tmp_path / f"{name}-{i}.json" for i in range(2)]}
        write_json(tmp_path / f"{name}.index.json", build_index(shards, {"test": 8}, tmp_path))
    both, vector = (Activations(tmp_path / f"{n}.index.json") for n in ("grid", "vector"))
    np.testing.assert_array_equal(both.pooled("test", "cls", 0), grid[:, 0])
    np.testing.assert_allclose(both.pooled("test", "mean", "0"), grid.mean(1), rtol=1e-6)
    reader = both.patches("test")
    np.testing.assert_array_equal(reader.read(2, 7), grid[2:7])
    np.testing.assert_array_equal(reader.cls().read(0, 8), grid[:, 0])
    assert both.token_map == token_map
    np.testing.assert_array_equal(vector.pooled("test", "cls", 0), grid[:, 0])
    assert vector.token_map is None
    with pytest.raises(ModelError, match=r"no patch tokens\n  remedy: set tokens: cls"):
        vector.pooled("test", "mean", 0)
    with pytest.raises(ModelError, match="holds no patch tokens"):
        vector.patches("test")


def test_a_shard_of_another_model_is_refused(copy):
    shards = manifests(copy)
    attributes = {"split": "val", "start": 0, "model": "tiny"}

    def replace(**change):
        model = TinyModel(**change.pop("make", {}))
        with store(shards["val"][0], **{**attributes, **change.pop("attributes", {})}) as writer:
            writer.code = change.pop("code", "c")
            extract(model, images(10), options(**{"dtype": "float32", **change}), pooled=writer)

    def refusal():
        with pytest.raises(StoreError) as caught:
            build_index(shards, N, copy.parent)
        return caught.value

    for change, what in (
        ({"make": {"dim": 6}}, "arrays cls, mean, registers"),
        ({"make": {"registers": 0}}, "arrays registers"),
        ({"dtype": "float16"}, "arrays cls, mean, registers"),
        ({"attributes": {"model": "other"}}, "attributes model"),
        ({"code": "c2"}, "shard_code"),
    ):
        replace(**change)
        error = refusal()
        assert error.where == str(shards["val"][0])
        assert str(shards["train"][0]) in error.problem
        assert what in error.problem
        assert "--forcerun" in error.remedy
    replace()
    build_index(shards, N, copy.parent)


def test_scenes_are_counted(copy):
    shards = manifests(copy)
    shards["train"].pop()
    with pytest.raises(StoreError, match="2 shards hold 20 scenes, not 30"):
        build_index(shards, N, copy.parent)


def test_an_index_of_unequal_arrays_is_refused(tmp_path):
    with store(tmp_path / "x") as writer:
        for name, n in (("cls", 2), ("patches", 3)):
            writer.create(name, (n, 2), "float32")
            writer.write(name, np.zeros((n, 2)))
    with pytest.raises(StoreError, match=r"different numbers of scenes \(\[2, 3\]\)"):
        build_index({"test": [tmp_path / "x.json"]}, {"test": 2}, tmp_path)


def test_a_shard_that_changed_after_the_index_is_refused(copy):
    with store(manifests(copy)["val"][0], split="val", start=0, model="tiny") as writer:
        extract(TinyModel(), images(10, 77), options(dtype="float32"), pooled=writer)
    activations = Activations(copy)
    activations.pooled("train", "cls", 0)
    with pytest.raises(StoreError, match="is older than its shard") as caught:
        activations.pooled("val", "cls", 0)
    assert caught.value.remedy == f"snakemake --cores all --forcerun {copy}"


def test_what_an_index_names_is_the_same(copy):
    assert not verify_listing(copy)
    first, second = manifests(copy)["train"][:2]
    first.unlink()
    second.write_text("{")
    assert not verify_listing(copy)  # both are for `verify`
    content = json.loads(copy.read_text())
    content["splits"]["test"]["shards"][0]["digest"] = "0" * 64
    copy.write_text(json.dumps(content))
    older = f"{copy}: is older than {manifests(copy)['test'][0]}, which it names"
    assert verify_listing(copy) == [older]
    copy.write_text(copy.read_text()[:-3])
    assert verify_listing(copy) == [f"{copy}: the listing is truncated or was changed"]


def test_a_bad_index(copy):
    content = copy.read_bytes()
    for cut in (b"", content[:50], b"[]", b"{}"):
        copy.write_bytes(cut)
        with pytest.raises(StoreError, match="truncated"):
            Activations(copy)
    copy.unlink()
    with pytest.raises(StoreError, match="no such index"):
        Activations(copy)
