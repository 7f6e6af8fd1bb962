"""A store is whole and on the disk, or it is not there."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bindscope.core.store.writer as writer_module
from bindscope.core.errors import StoreError
from bindscope.core.files import sha256, temporary_path
from bindscope.core.store.reader import open_store
from bindscope.core.store.verify import verify
from bindscope.core.store.writer import StoreWriter, write_arrays

SPEC = '{"x":1}'
HOST = socket.gethostname()


def writer(folder: Path, **attributes) -> StoreWriter:
    return StoreWriter(
        folder / "x.zarr", folder / "x.json", spec=SPEC, code="c", attributes=attributes
    )


def write(folder: Path, dtype: str, *parts, axis: int = 0, **attributes) -> None:
    """Write an array `a` from parts: the shape of the whole, then values in turn."""
    shape, *parts = parts
    with writer(folder, **attributes) as w:
        w.create("a", shape, dtype, axis)
        for values in parts:
            w.write("a", values)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_store_and_its_manifest_appear_at_the_end(tmp_path):
    with writer(tmp_path, model="m") as w:
        w.create("cls", (4, 3), "float16")
        w.write("cls", np.ones((4, 3), np.float32))
        assert names(tmp_path) == {temporary_path(tmp_path / "x.zarr").name}
    assert names(tmp_path) == {"x.zarr", "x.json"}
    manifest = json.loads((tmp_path / "x.json").read_text())
    assert manifest["spec"] == SPEC
    assert manifest["spec_key"] == sha256(SPEC)
    assert manifest["code"] == "c"
    assert manifest["store"] == "x.zarr"
    assert manifest["attributes"] == {"model": "m"}
    assert manifest["arrays"]["cls"]["n_chunks"] == 1
    assert {"bindscope", "numpy", "zarr"} <= set(manifest["versions"])
    assert verify(tmp_path / "x.json") == []


def test_all_is_forced_to_the_disk_before_the_manifest_is_there(tmp_path, monkeypatch):
    forced, force = [], os.fsync

    def record(descriptor):
        forced.append((Path(f"/proc/self/fd/{descriptor}").resolve(), names(tmp_path)))
        force(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    write(tmp_path, "float16", (4, 3), np.ones((4, 3)))
    temporary = temporary_path(tmp_path / "x.zarr")
    inside = {path for path, there in forced if "x.json" not in there}
    expected = {"", "zarr.json", "a", "a/zarr.json", "a/c.0.0"}
    assert {temporary / name for name in expected} <= inside
    after = [path for path, there in forced if "x.zarr" in there]
    assert after[0] == after[-1] == tmp_path  # the rename of the folder, then the manifest's


def test_the_same_content_gives_the_same_bytes(tmp_path):
    rng = np.random.default_rng(0)
    floats, bytes_ = rng.standard_normal((50, 7)), rng.integers(0, 255, (50, 9), dtype=np.uint8)
    files_written = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        arrays = {"f": floats, "b": bytes_}
        write_arrays(folder / "x.zarr", folder / "x.json", arrays, spec=SPEC, code="c")
        files = [path for path in sorted(folder.rglob("*.*")) if path.is_file()]
        files_written.append({path.relative_to(folder): path.read_bytes() for path in files})
    assert files_written[0] == files_written[1]


@pytest.mark.parametrize(
    ("parts", "attributes", "message"),
    [
        (((6, 2), np.zeros((3, 2)), np.zeros((1, 2))), {}, "only 4 of 6 scenes were written"),
        (((6, 2), np.zeros((2, 2)), np.zeros((5, 2))), {}, r"a takes up to \(4, 2\) now"),
        (((6, 2), np.zeros((2, 2)), np.zeros((2, 3))), {}, r"a takes up to \(4, 2\) now"),
        (((6, 2), np.zeros((2, 2)), np.zeros(2)), {}, r"a takes up to \(4, 2\) now"),
        (((2,), np.zeros(2)), {"bad": float("nan")}, "JSON"),
        (((2,), np.zeros(2)), {"bad": object()}, "JSON"),
    ],
)
def test_what_is_refused_leaves_nothing(tmp_path, parts, attributes, message):
    with pytest.raises((StoreError, TypeError, ValueError), match=message):
        write(tmp_path, "float32", *parts, **attributes)
    assert names(tmp_path) == set()


def test_after_an_exception_the_earlier_store_is_still_there(tmp_path):
    class Interrupted:
        def __array__(self, *args, **kwargs):
            raise KeyboardInterrupt

    write(tmp_path, "float32", (2,), np.full(2, 1))
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, "float32", (2,), Interrupted())
    assert names(tmp_path) == {"x.zarr", "x.json"}
    assert open_store(tmp_path / "x.json").read("a").tolist() == [1, 1]
    write(tmp_path, "float32", (2,), np.full(2, 3))
    assert open_store(tmp_path / "x.json").read("a").tolist() == [3, 3]
    assert names(tmp_path) == {"x.zarr", "x.json"}


def test_leftovers_of_dead_processes_are_removed(tmp_path, monkeypatch):
    """Those of this machine only: of another one's processes nothing is known here."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    alive = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    def name_leftover(name, process, host=HOST, kind="tmp"):
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(os, "getpid", lambda: process.pid)
            elsewhere.setattr(socket, "gethostname", lambda: host)
            return temporary_path(tmp_path / name, kind).name

    gone = {name_leftover("x.zarr", dead), name_leftover("x.zarr", dead, kind="tmp-old")}
    surviving = {
        name_leftover("x.zarr", alive),
        name_leftover("y.zarr", dead),
        name_leftover("x.zarr", dead, host="node17"),
        f"x.zarr.tmp-{dead.pid}",
    }
    try:
        for name in gone | surviving:
            (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name_leftover("x.json", dead)).write_text("half")
        with writer(tmp_path) as w:
            w.create("a", (2,), "float32")
            w.write("a", np.zeros(2))
        assert names(tmp_path) == {"x.zarr", "x.json"} | surviving
    finally:
        alive.kill()
        alive.wait()


def test_a_link_under_a_temporary_name_is_removed_and_not_followed(tmp_path):
    """Somebody put it there: what it leads to is neither written nor deleted."""
    for name in ("folder/deep", "file"):
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
    (tmp_path / "elsewhere/file.txt").write_text("precious")
    temporary_path(tmp_path / "x.zarr").symlink_to(tmp_path / "elsewhere/folder")
    temporary_path(tmp_path / "x.json").symlink_to(tmp_path / "elsewhere/file.txt")
    with writer(tmp_path) as w:
        w.create("a", (2,), "float32")
        w.write("a", np.zeros(2))
    assert names(tmp_path) == {"x.zarr", "x.json", "elsewhere"}
    assert (tmp_path / "elsewhere/folder/deep").is_dir()
    assert (tmp_path / "elsewhere/file.txt").read_text() == "precious"


# --- values that are not finite ---------------------------------------------------------------


def test_overflow_names_model_layer_maximum_and_remedy(tmp_path):
    values = np.ones((2, 2, 3), np.float32)
    values[1, 1, 1] = -70000
    with pytest.raises(StoreError) as caught:
        write(tmp_path, "float16", (2, 4, 3), values, axis=1, model="m", layers=["0", "final"])
    assert str(caught.value) == (
        "m (a, layer final): values up to 70000 are infinite in float16\n"
        "  remedy: set extraction.dtype: bfloat16 or float32"
    )
    assert names(tmp_path) == set()
    with pytest.raises(StoreError, match=r"m \(a, layer 3\): values up to 1e\+06"):  # of patches
        write(tmp_path, "float16", (2, 2, 2), np.full((2, 2, 2), 1e6), model="m", layer="3")


@pytest.mark.parametrize(("dtype", "bad"), [("float16", np.nan), ("bfloat16", np.inf)])
def test_a_model_that_gives_nan_is_told_apart_from_overflow(tmp_path, dtype, bad):
    values = np.ones((2, 2, 2), np.float32)
    values[1, 0, 0] = bad
    with pytest.raises(StoreError, match="the model gave NaN or infinity") as caught:
        write(tmp_path, dtype, (2, 2, 2), values, axis=1, model="m", layers=["0", "1"])
    assert "layer 1" in caught.value.where
    assert "extraction.precision: float32" in caught.value.remedy


# --- disks ------------------------------------------------------------------------------------


_FAILING = {
    "start": "bindscope.core.store.writer.zarr.create_group",
    "write": "zarr.Array.__setitem__",
    "flush": "bindscope.core.store.writer.array_entry",
    "force": "bindscope.core.store.writer.sync_tree",
    "rename": "bindscope.core.store.writer.fsync_directory",
    "manifest": "bindscope.core.store.writer.write_json",
}


@pytest.mark.parametrize(("earlier", "number"), [(False, errno.EDQUOT), (True, errno.ENOSPC)])
@pytest.mark.parametrize("moment", list(_FAILING))
def test_a_full_disk_is_one_message_and_leaves_nothing(
    tmp_path, monkeypatch, moment, number, earlier
):
    def full(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    part = np.zeros(2)
    if earlier:
        write(tmp_path, "float32", (2,), part)
    monkeypatch.setattr(_FAILING[moment], full)
    with pytest.raises(StoreError, match="the disk is full") as caught:
        write(tmp_path, "float32", (2,), part)
    monkeypatch.undo()
    assert str(tmp_path / "x.zarr") in caught.value.where
    assert "free space" in caught.value.remedy
    surviving = {"x.zarr", "x.json"} if earlier and moment not in ("rename", "manifest") else set()
    assert names(tmp_path) == surviving
    assert all(verify(tmp_path / name) == [] for name in surviving if name == "x.json")


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "there")

    monkeypatch.setattr(writer_module.zarr, "create_group", refuse)
    with pytest.raises(StoreError, match=r"cannot be written \(Permission denied: there\)"):
        write(tmp_path, "float32", (2,))


# --- kill -9 ----------------------------------------------------------------------------------


def _write_and_die(folder, moment):
    """Write a store in a process that is killed at a moment of it."""

    def die(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)

    with StoreWriter(folder / "x.zarr", folder / "x.json", spec="{}", code="new") as w:
        w.create("a", (8, 1024), "float32")
        for i in range(8):
            w.write("a", np.full((1, 1024), 2.0))
            if moment == "write" and i == 5:
                die()
        if moment == "flush":
            writer_module.array_entry = die
        elif moment == "between renames":
            rename = Path.replace
            Path.replace = lambda a, b: die() if str(b).endswith("x.zarr") else rename(a, b)
        elif moment == "manifest":
            writer_module.write_json = die


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("moment", ["write", "flush", "between renames", "manifest"])
def test_kill_9_leaves_no_store_that_opens(tmp_path, moment, earlier):
    manifest = tmp_path / "x.json"
    old = {"a": np.ones((8, 1024), np.float32)}
    if earlier:
        write_arrays(tmp_path / "x.zarr", manifest, old, spec="{}", code="old")
    child = os.fork()
    if not child:
        try:
            _write_and_die(tmp_path, moment)
        finally:
            os._exit(1)  # it was not killed
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    if earlier and moment in ("write", "flush"):
        np.testing.assert_array_equal(open_store(manifest, code="old").read("a"), old["a"])
    else:
        with pytest.raises(StoreError, match="no such manifest"):
            open_store(manifest)
    new = {"a": np.full((8, 1024), 3, np.float32)}
    write_arrays(tmp_path / "x.zarr", manifest, new, spec="{}", code="newer")
    np.testing.assert_array_equal(open_store(manifest).read("a"), new["a"])
    assert names(tmp_path) == {"x.zarr", "x.json"}
