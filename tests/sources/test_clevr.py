"""CLEVR's official files (a small copy in their format) and the download of the archive."""

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import datasets_by_hand
import numpy as np
import pytest
from jobs_by_hand import job_by_hand, linear_fit_graph, script
from releases import write_clevr, zipped

from bindscope.config.codes import Dataset
from bindscope.core.errors import BindscopeError, InputError
from bindscope.core.graph import Graph
from bindscope.core.store.reader import open_store
from bindscope.graph.data import add_records
from bindscope.graph.steps import SHARED_STEPS
from bindscope.scenes.solids.values import VALUES
from bindscope.sources.download import fetch
from bindscope.sources.reading import read_source
from bindscope.sources.records import objects_of

GROUPS = [{"name": name, "size": len(values)} for name, values in VALUES.items()]
COUNTS = {"train": 4, "val": 1, "test": 2}
FEWER = COUNTS | {"test": 1}


def dataset(path: Path | None, counts: dict[str, int] = COUNTS, **changes: Any) -> Dataset:
    source = {"kind": "clevr", **({"path": str(path)} if path else {}), **changes}
    space = {"kind": "draws", "groups": GROUPS, "n_objects": 6}
    split, render = {"rule": "index", "sizes": counts}, {"kind": "photos", "size_px": 16}
    return datasets_by_hand.dataset(
        space, split, counts, name="clevr", source=source, render=render
    )


def test_six_object_scenes_become_codes_over_96_types(tmp_path: Path) -> None:
    parts = write_clevr(tmp_path)
    with pytest.raises(Exception, match="ask for 7 scenes, the source has 6"):
        read_source(dataset(tmp_path))
    _, splits, *_ = read_source(dataset(tmp_path, FEWER))
    chosen = [s for part in parts.values() for s in part if len(s["objects"]) == 6]
    records = [record for mine in splits.values() for record in mine]
    assert [record.image.rpartition("/")[2] for record in records] == [
        scene["image_filename"] for scene in chosen
    ]
    objects = objects_of(records, 96)
    for code, record, scene in zip(objects, records, chosen, strict=True):
        # By hand: color is slowest, size fastest.
        cells = [
            (
                (VALUES["color"].index(o["color"]) * 3 + VALUES["shape"].index(o["shape"])) * 2
                + VALUES["material"].index(o["material"])
            )
            * 2
            + VALUES["size"].index(o["size"])
            for o in scene["objects"]
        ]
        assert list(record.cells) == cells
        assert set(np.flatnonzero(code)) == set(cells)


def test_archive_and_folder_are_the_same_down_to_the_pixels(tmp_path: Path) -> None:
    write_clevr(tmp_path / "clevr")
    archive = zipped(tmp_path / "clevr", tmp_path / "CLEVR_v1.0.zip")
    images = {}
    for path in (tmp_path / "clevr", archive):
        graph = linear_fit_graph(dataset(path, FEWER).model_dump(mode="json"))
        (records,) = graph.select("records")
        script("records").main(job_by_hand(records, tmp_path))
        shard = next(p for p in graph.select("record_scenes") if p.wildcards["split"] == "train")
        script("record_scenes").main(job_by_hand(shard, tmp_path))
        images[path] = open_store(tmp_path / shard.path()).read("images")
        assert not graph.select("counted_priors", "download")
    assert images[archive].shape == (4, 16, 16, 3)
    # Scenes 0, 1, 3, 4 of train: the third of every three has five objects.
    assert images[archive][:, 0, 0].tolist() == [[i * 20, 100, 100] for i in (0, 1, 3, 4)]
    assert (images[archive] == images[tmp_path / "clevr"]).all()


ARCHIVE, SCENES = "CLEVR_v1.0.zip", "clevr/scenes/CLEVR_train_scenes.json"


def flip(content: bytes) -> bytes:
    place = max(content.find(b'"image_index"'), 200)
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (ARCHIVE, lambda content: content[: len(content) // 2], "zip: is no whole zip archive"),
        (ARCHIVE, flip, r"CLEVR_train_scenes\.json|CLEVR_v1\.0\.zip"),
        (
            SCENES,
            lambda content: content[: len(content) // 2],
            r"train_scenes\.json, scenes \d: is no whole JSON",
        ),
        (
            SCENES,
            lambda content: content.replace(b'"objects"', b'"things"', 1),
            r"train_scenes\.json, scenes 0: is no scene of CLEVR",
        ),
    ],
)
def test_damaged_files_are_named(
    name: str, damage: Callable[[bytes], bytes], message: str, tmp_path: Path
) -> None:
    write_clevr(tmp_path / "clevr")
    zipped(tmp_path / "clevr", tmp_path / ARCHIVE)
    path = tmp_path / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=message):
        read_source(dataset(path if name == ARCHIVE else tmp_path / "clevr"))


def test_planning_reads_the_scene_files_and_no_image(tmp_path: Path) -> None:
    write_clevr(tmp_path)

    def key() -> str:
        return add_records(Graph(SHARED_STEPS), dataset(tmp_path)).key

    before = key()
    image = tmp_path / "images" / "train" / "CLEVR_train_000000.png"
    image.write_bytes(b"other pixels")
    assert key() == before
    scenes = tmp_path / "scenes" / "CLEVR_val_scenes.json"
    scenes.write_text(scenes.read_text() + "\n")
    assert key() != before
    shutil.rmtree(tmp_path / "scenes")
    with pytest.raises(BindscopeError, match="there is no such file or folder"):
        key()


# --- download -------------------------------------------------------------------------------------


@dataclass
class Server:
    """What a local server does, and what it was asked for."""

    content: bytes
    ranges: bool = True
    missing: bool = False
    cut_after: list[int] = field(default_factory=list)  # bytes per answer, then all
    requests: list[str | None] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def server() -> Iterator[Server]:
    """A file behind http://127.0.0.1."""
    state = Server(np.random.default_rng(0).bytes(200_000))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer with the file, or the part of it that is asked for."""
            requested = self.headers.get("Range")
            state.requests.append(requested)
            start = (
                int(requested.removeprefix("bytes=").rstrip("-"))
                if requested and state.ranges
                else 0
            )
            if state.missing or start >= len(state.content):
                self.send_error(404 if state.missing else 416)
                return
            body = state.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.cut_after.pop(0)] if state.cut_after else body)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{running.server_port}/data/CLEVR_v1.0.zip"
    thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield state
    running.shutdown()
    running.server_close()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_download_is_checked_and_not_repeated(server: Server, tmp_path: Path) -> None:
    about = fetch(server.url, digest(server.content), tmp_path)
    assert Path(about["path"]).read_bytes() == server.content
    assert about["bytes"] == len(server.content)
    assert "CC BY 4.0" in about["licence"]
    assert fetch(server.url, digest(server.content), tmp_path) == about
    assert server.requests == [None]
    Path(about["path"]).write_bytes(b"something else")
    with pytest.raises(InputError, match=r"(?s)its SHA-256 is .*delete .*CLEVR_v1\.0\.zip and run"):
        fetch(server.url, digest(server.content), tmp_path)


@pytest.mark.parametrize(
    ("part", "ranges"),
    [(slice(150_000), True), (slice(200_000), True), (slice(70_000, 140_000), False)],
    ids=["completed", "complete", "started over"],
)
def test_a_part_that_is_there(part: slice, ranges: bool, server: Server, tmp_path: Path) -> None:
    """With a server that cannot resume it does not count."""
    server.ranges = ranges
    content = server.content[part]
    (tmp_path / "CLEVR_v1.0.zip.part").write_bytes(content)
    about = fetch(server.url, digest(server.content), tmp_path)
    assert server.requests[0] == f"bytes={len(content)}-"
    assert Path(about["path"]).read_bytes() == server.content
    assert not list(tmp_path.glob("*.part"))


def test_a_connection_that_ends_early_is_taken_up_again(server: Server, tmp_path: Path) -> None:
    server.cut_after = [50_000, 60_000]
    about = fetch(server.url, digest(server.content), tmp_path, wait_s=0)
    assert server.requests == [None, "bytes=50000-", "bytes=110000-"]
    assert Path(about["path"]).read_bytes() == server.content


def test_what_has_come_is_kept_when_the_server_gives_up(server: Server, tmp_path: Path) -> None:
    server.cut_after = [10_000, 10_000, 10_000, 10_000]
    with pytest.raises(InputError, match=r"40,000 bytes are in .*\.part") as error:
        fetch(server.url, digest(server.content), tmp_path, wait_s=0)
    assert "run again" in error.value.remedy
    assert not (tmp_path / "CLEVR_v1.0.zip").exists()
    fetch(server.url, digest(server.content), tmp_path)
    assert server.requests[-1] == "bytes=40000-"


def test_a_wrong_checksum_leaves_no_archive(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"its SHA-256 is .*, not 0000") as error:
        fetch(server.url, "0" * 64, tmp_path)
    assert "source.sha256" in error.value.remedy
    assert not (tmp_path / "CLEVR_v1.0.zip").exists()


def test_an_address_without_a_file_is_not_asked_again(server: Server, tmp_path: Path) -> None:
    server.missing = True
    with pytest.raises(InputError, match="the server says 404"):
        fetch(server.url, "0" * 64, tmp_path, wait_s=0)
    assert len(server.requests) == 1
    with pytest.raises(InputError, match="the download failed"):
        fetch("http://127.0.0.1:9/CLEVR_v1.0.zip", "0" * 64, tmp_path / "other", wait_s=0)
