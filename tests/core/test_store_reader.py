"""Whatever happens to a store, the reader says so and names the file."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr

from bindscope.core.errors import StoreError
from bindscope.core.files import sha256
from bindscope.core.store.reader import Store, open_store
from bindscope.core.store.verify import verify
from bindscope.core.store.writer import StoreWriter, write_arrays

N, LAYERS = 40, ["0", "1", "final"]
SPEC = '{"a":1}'
ARRAYS = ("boxes", "cls", "images", "patches")


def build(folder: Path, spec: str = SPEC) -> Path:
    """Write a store with every kind of array, several chunks each."""
    rng = np.random.default_rng(0)
    values = {
        "cls": rng.standard_normal((3, N, 32)).astype(np.float32),
        "patches": rng.standard_normal((N, 4, 16)).astype(np.float32),
        "images": rng.integers(0, 3, (N, 8, 8, 3), dtype=np.uint8),
        "boxes": np.full((N, 2, 4), -1, np.int16),
    }
    dtypes = {"cls": "bfloat16", "patches": "float16", "images": "uint8", "boxes": "int16"}
    manifest = folder / "x.json"
    attributes = {"layers": LAYERS}
    with StoreWriter(folder / "x.zarr", manifest, spec=spec, code="k", attributes=attributes) as w:
        for name, array in values.items():
            axis = int(name == "cls")
            w.create(name, array.shape, dtypes[name], axis)
            w.write(name, array)
    return manifest


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bindscope.core.store.manifest.CHUNK_BYTES", 1000)
        build(folder)
    return folder


@pytest.fixture
def manifest(sound, tmp_path):
    return Path(shutil.copytree(sound, tmp_path / "copy")) / "x.json"


def chunks(manifest: Path) -> list[Path]:
    return sorted(manifest.parent.glob("x.zarr/*/c.*"))


def read_all(store: Store) -> None:
    for name in store.names:
        store.read(name)


def refusal(manifest: Path, **expected) -> StoreError:
    with pytest.raises(StoreError) as caught:
        read_all(open_store(manifest, **expected))
    return caught.value


def flipped(content: bytes, position: int, bit: int = 0) -> bytes:
    return content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :]


# --- reading ------------------------------------------------------------------------------------


def test_a_sound_store(manifest):
    store = open_store(manifest, code="k", spec_key=sha256(SPEC))
    assert store.names == ARRAYS
    assert store.layers() == ("0", "1", "final")
    layout = store.layout("cls")
    assert (layout.shape, layout.n_rows, layout.dtype) == ((3, N, 32), N, "bfloat16")
    assert verify(manifest) == []
    assert {name: len(list(manifest.parent.glob(f"x.zarr/{name}/c.*"))) for name in ARRAYS} == {
        "boxes": 1,
        "cls": 6,
        "images": 7,
        "patches": 5,
    }


def test_rows_and_layers(manifest):
    store = open_store(manifest)
    whole = store.read("cls")
    assert (whole.dtype, whole.shape) == (np.float32, (3, N, 32))
    for layer, i in (("final", 2), (1, 1), ("0", 0)):
        np.testing.assert_array_equal(store.read("cls", layer=layer), whole[i])
        np.testing.assert_array_equal(store.read("cls", slice(3, 20), layer), whole[i, 3:20])
    images = store.read("images")
    for rows in (slice(5, 5), slice(-3, None), slice(7, 2), slice(30, 2 * N)):
        np.testing.assert_array_equal(store.read("images", rows), images[rows])
    with pytest.raises(ValueError, match="in steps of 2"):
        store.read("images", slice(0, N, 2))


def test_one_layer_is_read_from_its_own_chunks(manifest):
    store = open_store(manifest)
    for path in manifest.parent.glob("x.zarr/cls/c.[02].*"):
        path.unlink()
    assert np.isfinite(store.read("cls", layer=1)).all()
    with pytest.raises(StoreError, match="the chunk is missing"):
        store.read("cls", layer="final")


def test_what_is_not_there(manifest):
    store = open_store(manifest)
    for name, layer, message in (
        ("mask", None, "no array 'mask'; there are: boxes, cls, images, patches"),
        ("cls", 7, "no layer 7; it has: 0, 1, final"),
        ("patches", 0, "'patches' has no layer 0"),
    ):
        with pytest.raises(StoreError, match=message):
            store.read(name, layer=layer)


def test_a_moved_folder_still_opens(manifest, tmp_path):
    before = open_store(manifest).read("images")
    moved = manifest.parent.rename(tmp_path / "elsewhere")
    store = open_store(moved / "x.json")
    read_all(store)
    assert np.array_equal(store.read("images"), before)


def test_files_of_snakemake_are_not_foreign(manifest):
    (manifest.parent / "x.zarr" / ".snakemake_timestamp").touch()
    assert verify(manifest) == []
    read_all(open_store(manifest))


def test_store_and_manifest_in_different_folders(tmp_path):
    arrays = {"a": np.arange(3)}
    write_arrays(tmp_path / "deep/er/x.zarr", tmp_path / "m/x.json", arrays, spec="{}", code="c")
    assert open_store(tmp_path / "m/x.json").read("a").tolist() == [0, 1, 2]


# --- damage -------------------------------------------------------------------------------------


def damaged(manifest: Path) -> Iterator[tuple[Path, bytes | None, str]]:
    """Yield files, what stands in them instead (None: nothing) and what is said of it."""
    for path in chunks(manifest)[::3]:
        intact = path.read_bytes()
        yield path, flipped(intact, len(intact) // 2, 3), "damaged"
        for length in (0, len(intact) - 1):
            yield path, intact[:length], "damaged"
        yield path, None, "the chunk is missing"
    for path in manifest.parent.glob("x.zarr/**/zarr.json"):
        yield path, path.read_bytes().replace(b"3", b"4", 1), ""
        yield path, (manifest.parent / "x.zarr/zarr.json").read_bytes() + b" ", ""
        yield path, None, "missing"
    intact = manifest.read_bytes()
    for length in (0, len(intact) // 2, len(intact) - 2):
        yield manifest, intact[:length], "truncated"
    for content in (b"[]", b'{"digest": 1}', b"\xff\xfe"):
        yield manifest, content, "truncated"
    for position in range(0, len(intact), 301):
        if (content := flipped(intact, position, 1)).split() != intact.split():
            yield manifest, content, ""


def test_damage_is_named_with_its_file_and_a_remedy(manifest):
    for path, content, problem in list(damaged(manifest)):
        intact = path.read_bytes()
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        error = refusal(manifest)
        assert error.where == str(path)
        assert problem in error.problem
        if "x.zarr" in str(path):
            assert error.remedy == f"snakemake --cores all --forcerun {manifest}"
        if "c." in path.name and len(content or b"") < len(intact):
            with pytest.raises(StoreError, match=problem):
                open_store(manifest)  # before anything is read
        if content is None or "c." not in path.name or len(content) == len(intact):
            assert verify(manifest) == [f"{path}: {error.problem}"]
        path.write_bytes(intact)
    assert verify(manifest) == []


def test_two_chunks_swapped_are_found_by_the_deep_check(manifest):
    first, second = (manifest.parent / f"x.zarr/patches/c.{i}.0.0" for i in (0, 1))
    first.rename(first.with_name("x"))
    second.rename(first)
    first.with_name("x").rename(second)
    assert [problem.split(": ")[0] for problem in verify(manifest)] == [str(first), str(second)]


def test_a_chunk_too_many(manifest):
    extra = manifest.parent / "x.zarr/patches/c.9.0.0"
    extra.write_bytes(b"")
    assert refusal(manifest).where == str(extra)


def test_a_missing_array_or_store(manifest):
    shutil.rmtree(manifest.parent / "x.zarr/cls")
    assert refusal(manifest).where == str(manifest.parent / "x.zarr/cls/zarr.json")
    shutil.rmtree(manifest.parent / "x.zarr")
    error = refusal(manifest)
    assert (error.where, error.problem) == (
        str(manifest.parent / "x.zarr"),
        "the store is missing",
    )
    assert len(verify(manifest)) == 1


def test_a_store_from_another_configuration(manifest):
    error = refusal(manifest, spec_key=sha256("other"))
    assert "a store from another configuration" in error.problem
    assert error.where == str(manifest)
    assert "--forcerun" in error.remedy
    assert "a store from another version of the code" in refusal(manifest, code="k2").problem


def test_a_chunk_that_may_not_be_read_is_not_called_damaged(manifest, monkeypatch):
    """`bindscope verify --repair` deletes what is damaged."""
    whole = Path.open

    def refuse(path, *args, **kwargs):
        if path.name.startswith("c."):
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(PermissionError):
        verify(manifest)


# --- into memory of the caller ----------------------------------------------------------


@pytest.mark.parametrize(("name", "layer"), [("patches", None), ("cls", "1")])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rows_are_read_into_the_memory_that_is_given(manifest, name, layer, dtype, monkeypatch):
    monkeypatch.setattr("bindscope.core.store.reader.READ_BYTES", 2000)  # two chunks at a time
    store = open_store(manifest)
    whole = store.read(name, layer=layer)
    raw = zarr.open_group(manifest.with_suffix(".zarr"), mode="r")[name][...]
    if name != "cls":
        np.testing.assert_array_equal(whole, raw)
    for start, stop in ((0, N), (3, 4), (1, N - 1), (7, 7)):
        out = np.full((stop - start, *whole.shape[1:]), -7, dtype)
        assert store.read_into(name, start, out, layer) is out
        np.testing.assert_array_equal(out, whole[start:stop].astype(dtype))
    wide = np.zeros((N, *whole.shape[1:-1], whole.shape[-1] + 2), dtype)
    store.read_into(name, 0, wide[..., 1:-1], layer)
    np.testing.assert_array_equal(wide[..., 1:-1], whole.astype(dtype))
    assert not wide[..., 0].any()


@pytest.mark.parametrize("damage", ["flip", "longer", "gone"])
def test_reading_into_memory_sees_damage(manifest, damage):
    store = open_store(manifest)
    path = sorted(manifest.parent.glob("x.zarr/patches/c.*"))[1]
    if damage == "flip":
        path.write_bytes(flipped(path.read_bytes(), 5))
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"0")
    out = np.empty(store.layout("patches").shape, np.float16)
    with pytest.raises(StoreError, match=r"chunk is (damaged|missing)") as caught:
        store.read_into("patches", 0, out)
    assert str(path) in str(caught.value)


def test_no_manifest(tmp_path):
    assert "no such manifest" in refusal(tmp_path / "x.json").problem
