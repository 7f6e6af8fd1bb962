"""Extraction against an oracle in numpy."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from activations_by_hand import TinyModel, extraction, images, store

from bindscope.activations.extraction import (
    extract,
)
from bindscope.activations.images import StoreImages
from bindscope.core.errors import BindscopeError, ModelError, StoreError
from bindscope.core.store.dtypes import from_bfloat16, to_bfloat16
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import write_arrays

LAYERS = [0, 1, 2, 3, "final"]
ROUND = {
    "float16": lambda x: x.astype(np.float16),
    "bfloat16": lambda x: from_bfloat16(to_bfloat16(x)),
    "float32": lambda x: x,
}


@pytest.mark.parametrize("dtype", list(ROUND))
def test_all_layers_of_all_pooled_tokens(tmp_path, dtype):
    model, scenes = TinyModel(), images(10)
    with store(tmp_path / "x", model="tiny") as writer:
        extract(model, scenes, extraction(dtype=dtype), pooled=writer)
    written = open_store(tmp_path / "x.json")
    assert model.batches == [4, 4, 2]
    assert written.layers() == ("0", "1", "2", "3", "final")
    assert written.names == ("cls", "mean", "registers")
    for layer in LAYERS:
        tokens = model.tokens(scenes, layer)
        cls = ROUND[dtype](tokens[:, 0])
        np.testing.assert_array_equal(written.read("cls", layer=layer), cls)
        registers = ROUND[dtype](tokens[:, 1:3].reshape(10, -1))
        np.testing.assert_array_equal(written.read("registers", layer=layer), registers)
        mean = tokens[:, 3:].mean(1, dtype=np.float64)
        np.testing.assert_allclose(
            written.read("mean", layer=layer),
            mean,
            rtol={"float16": 2**-10, "bfloat16": 2**-7, "float32": 1e-6}[dtype],
        )


@pytest.mark.parametrize(
    ("layer", "dtype"), [(0, "float16"), (2, "bfloat16"), ("final", "float32")]
)
def test_patches_of_one_layer(tmp_path, layer, dtype):
    model, scenes = TinyModel(), images(10)
    with store(tmp_path / "x") as writer:
        extract(model, scenes, extraction(dtype=dtype), patches={layer: writer})
    written, tokens = open_store(tmp_path / "x.json"), model.tokens(scenes, layer)
    assert set(model.deepest) == {layer}
    np.testing.assert_array_equal(written.read("patches"), ROUND[dtype](tokens[:, 3:]))
    np.testing.assert_array_equal(written.read("cls"), ROUND[dtype](tokens[:, 0]))
    assert written.attributes["layer"] == str(layer)


def test_a_model_without_cls_and_registers(tmp_path):
    model, scenes = TinyModel(cls=False, registers=0), images(5)
    with store(tmp_path / "pooled") as writer:
        extract(model, scenes, extraction(), pooled=writer)
    with store(tmp_path / "patches") as writer:
        extract(model, scenes, extraction(dtype="float32"), patches={1: writer})
    assert open_store(tmp_path / "pooled.json").names == ("mean",)
    written = open_store(tmp_path / "patches.json")
    assert written.names == ("patches",)
    np.testing.assert_array_equal(written.read("patches"), model.tokens(scenes, 1))


def test_no_image_is_decoded_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("bindscope.activations.images.READ_BYTES", 3 * 64)
    scenes = images(10)
    write_arrays(tmp_path / "s.zarr", tmp_path / "s.json", {"images": scenes}, spec="{}", code="c")
    opened = open_store(tmp_path / "s.json")
    layout = opened.manifest.arrays["images"]
    monkeypatch.setitem(  # as if a chunk held two images
        opened.manifest.arrays, "images", replace(layout, chunks=(2, *layout.chunks[1:]))
    )
    read = []
    monkeypatch.setattr(
        opened, "read", lambda name, rows: read.append((rows.start, rows.stop)) or scenes[rows]
    )
    source = StoreImages(opened)
    got = [source[slice(start, min(start + 3, 10))] for start in range(0, 10, 3)]
    np.testing.assert_array_equal(np.concatenate(got), scenes)
    assert read == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]


def test_one_pass_gives_the_stores_of_several(tmp_path):
    model, scenes, options = TinyModel(), images(10), extraction(dtype="bfloat16")
    for folder in ("alone", "together"):
        (tmp_path / folder).mkdir()
    with store(tmp_path / "alone" / "pooled") as writer:
        extract(model, scenes, options, pooled=writer)
    for layer in (2, "final"):
        with store(tmp_path / "alone" / f"patches-{layer}") as writer:
            extract(model, scenes, options, patches={layer: writer})
    model.batches.clear()
    with (
        store(tmp_path / "together" / "pooled") as pooled,
        store(tmp_path / "together" / "patches-2") as second,
        store(tmp_path / "together" / "patches-final") as final,
    ):
        extract(model, scenes, options, pooled=pooled, patches={"final": final, 2: second})
    assert model.batches == [4, 4, 2]
    files = {path.name: path.read_bytes() for path in (tmp_path / "alone").glob("*.json")}
    assert len(files) == 3
    for name, content in files.items():  # digests of every chunk stand in the manifest
        assert (tmp_path / "together" / name).read_bytes() == content


def test_a_model_may_overwrite_the_tokens_it_gave(tmp_path):
    class Reusing(TinyModel):
        def residual_stream(self, pixels, layers):
            buffer = None
            for layer, tokens in super().residual_stream(pixels, layers):
                buffer = tokens.clone() if buffer is None else buffer.copy_(tokens)
                yield layer, buffer

    scenes, manifests = images(10), {}
    for model in (TinyModel(), Reusing()):
        with store(tmp_path / "pooled") as pooled, store(tmp_path / "patches") as patches:
            options = extraction(dtype="float32")  # nothing is copied to another type
            extract(model, scenes, options, pooled=pooled, patches={1: patches})
        manifests[type(model)] = [
            (tmp_path / f"{x}.json").read_bytes() for x in ("pooled", "patches")
        ]
    assert manifests[TinyModel] == manifests[Reusing]


def test_a_write_that_fails_stops_the_pass(tmp_path, monkeypatch):
    model = TinyModel()

    def full(self, name, values, exact=None):
        raise OSError("disk full")

    monkeypatch.setattr("bindscope.core.store.writer.StoreWriter.write", full)
    with pytest.raises(OSError, match="disk full"), store(tmp_path / "x") as writer:
        extract(model, images(400), extraction(), pooled=writer)
    assert len(model.batches) < 100
    assert list(tmp_path.iterdir()) == []


def test_memory_is_that_of_a_batch(tmp_path):
    n, model = 7000, TinyModel(n_layers=1, dim=500)
    model.residual_stream = lambda pixels, layers: [(1, torch.zeros(len(pixels), 9, 500))]

    class Scenes:
        def __len__(self):
            return n

        def __getitem__(self, rows):
            return np.zeros((rows.stop - rows.start, 8, 8, 3), np.uint8)

    with store(tmp_path / "x") as writer:
        tracemalloc.start()
        extract(model, Scenes(), extraction(batch_size=50, dtype="float32"), patches={1: writer})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    whole = n * 6 * 500 * 4
    assert open_store(tmp_path / "x.json").layout("patches").shape == (n, 6, 500)
    assert peak < whole / 3  # 84 MB; four copies of a chunk of 4 MiB are on their way to the disk


def test_autocast_is_what_precision_asks_for(tmp_path):
    autocast = []

    class Watched(TinyModel):
        def residual_stream(self, pixels, layers):
            autocast.append(torch.is_autocast_enabled("cpu"))
            for layer, tokens in super().residual_stream(pixels, layers):
                yield layer, tokens.to(torch.bfloat16) if autocast[-1] else tokens

    for precision in ("float32", "bfloat16"):
        with store(tmp_path / precision) as writer:
            extract(Watched(), images(4), extraction(precision=precision), pooled=writer)
    assert autocast == [False, True]
    tokens = from_bfloat16(to_bfloat16(TinyModel().tokens(images(4), 1)))
    mean = open_store(tmp_path / "bfloat16.json").read("mean", layer=1)
    # bfloat16 tokens, averaged in float32: rounding after the sum would be off by up to 2^-8
    np.testing.assert_allclose(mean, tokens[:, 3:].mean(1), rtol=2**-10)


def test_overflow_stops_with_layer_maximum_and_remedy(tmp_path):
    class Loud(TinyModel):
        def residual_stream(self, pixels, layers):
            for layer, tokens in super().residual_stream(pixels, layers):
                yield layer, tokens * 1e5 if layer == 2 else tokens

    def attempt(dtype):
        with store(tmp_path / "x", model="loud") as writer:
            extract(Loud(), images(4), extraction(dtype=dtype), pooled=writer)

    with pytest.raises(StoreError, match=r"layer 2.*float16") as caught:
        attempt("float16")
    assert "loud" in caught.value.where
    assert caught.value.remedy == "set extraction.dtype: bfloat16 or float32"
    assert list(tmp_path.iterdir()) == []
    attempt("bfloat16")


def skipping(model, pixels, layers):
    yield from (pair for pair in TinyModel.residual_stream(model, pixels, layers) if pair[0] != 2)


def endless(model, pixels, layers):
    yield from TinyModel.residual_stream(model, pixels, [*layers, 3])


def lossy(model, pixels, layers):
    for layer, tokens in TinyModel.residual_stream(model, pixels, layers):
        yield layer, tokens[:, 1:]


def attempt(folder, model, layer):
    with store(folder / "x") as writer:
        sinks = {"pooled": writer} if layer is None else {"patches": {layer: writer}}
        extract(model, images(10), extraction(), **sinks)


@pytest.mark.parametrize(
    ("stream", "message"),
    [(skipping, "out of turn"), (endless, "out of turn"), (lossy, "8 tokens")],
)
def test_a_model_is_held_to_its_word(tmp_path, stream, message):
    model = type("Liar", (TinyModel,), {"residual_stream": stream})()

    for layer in (None, 2):
        with pytest.raises(ModelError, match=message):
            attempt(tmp_path, model, layer)
        assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_too_small_stops_before_the_forward_pass(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr("bindscope.core.files.shutil.disk_usage", lambda path: usage)
    model = TinyModel()

    for layer, what in ((None, "pooled tokens needs"), (2, "layer 2 as patch tokens needs")):
        with pytest.raises(BindscopeError, match=what):
            attempt(tmp_path, model, layer)
    assert model.batches == []
    assert list(tmp_path.iterdir()) == []
