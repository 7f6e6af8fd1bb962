"""What a user gives or downloads is data to check: no traceback, no read elsewhere, no bomb."""

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from bindscope.config.genome import Download
from bindscope.config.loading import load_config
from bindscope.config.observed import PhotosRenderer, TableSource
from bindscope.config.yaml_files import read_yaml
from bindscope.core.errors import BindscopeError, ConfigError, InputError
from bindscope.sources import base, download, masks
from bindscope.sources.ade20k_index import read_index
from bindscope.sources.base import SourceFiles
from bindscope.sources.genome.files import stream
from bindscope.sources.image_checks import check_present
from bindscope.sources.json_list import entries
from bindscope.sources.photos import load_image
from bindscope.sources.problems import Problems
from bindscope.sources.records import Record
from bindscope.sources.table import TableReader

# --- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "a.zip",
        "https:///a.zip",
        "https://host/",
        "https://host/data/..",
        "https://host/" + "a" * 300,
        "https://[host/a.zip",
        "https://host:99999/a.zip",
        "https://host/a\n.zip",
        "https://ada:secret@host/a.zip",
    ],
)
def test_addresses_that_are_not_downloaded(url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the address (?s:.)*remedy") as refused:
        download.fetch(url, "0" * 64, tmp_path, wait_s=0)
    assert "secret" not in str(refused.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValidationError, match="the address"):
        Download(url=url, sha256="0" * 64)


def test_keys_in_an_address_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = "http://host/CLEVR_v1.0.zip?signature=secret#secret"

    def refuse(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(download, "urlopen", refuse)
    with caplog.at_level("INFO"), pytest.raises(InputError) as refused:
        download.fetch(url, "0" * 64, tmp_path, wait_s=0)
    assert "http://host/CLEVR_v1.0.zip?..." in str(refused.value)
    (tmp_path / "CLEVR_v1.0.zip").write_bytes(b"")
    about = download.fetch(url, download.file_sha256(tmp_path / "CLEVR_v1.0.zip"), tmp_path)
    assert "secret" not in f"{refused.value} {caplog.text} {about}"


# --- YAML ----------------------------------------------------------------------------------------


def aliases(depth: int) -> str:
    """Nine entries, each of them the nine entries of the line before."""
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, depth)]
    return "\n".join(["a0: &a0 [0, 0, 0, 0, 0, 0, 0, 0, 0]", *lines])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: caf\xe9\n", "line 2: is not UTF-8"),
        (b"a: &a [*a]", r"line 1, column 8: \*a refers to a part that it is in"),
        (b"a: " + b"[" * 3000, "is nested more than 50 deep"),
        (aliases(60).encode(), r"line 6, .*more than 200,000 entries"),
        (b"a: " + b"9" * 5000, "a value that cannot be read"),
    ],
)
def test_yaml_that_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"x\.yaml: (?s:.)*{message}"):
        read_yaml(path)
    with pytest.raises(ConfigError, match=message):  # and where Snakemake has read it
        load_config({"a": 1}, str(path))


def test_aliases_are_welcome(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(aliases(4) + "\nb: &b {c: 1}\nd: {<<: *b, e: 2}\n")
    assert read_yaml(path)["d"] == {"c": 1, "e": 2}


# --- archives ------------------------------------------------------------------------------------


def packed(path: Path, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.json", content)
    return path


def encrypted(path: Path) -> Path:
    return patched(packed(path, b"[1]"), flags=1)


def of_unknown_method(path: Path) -> Path:
    return patched(packed(path, b"[1]"), method=97)


def bomb(path: Path) -> Path:
    return packed(path, b"[" + b" " * 100_000 + b"1]")


def patched(path: Path, flags: int = 0, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """Change what both headers of the only member say of it."""
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = content.index(mark) + place
        content[at : at + 4] = flags.to_bytes(2, "little") + method.to_bytes(2, "little")
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("make", [encrypted, of_unknown_method, bomb])
def test_members_that_are_not_unpacked(
    make: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "LARGEST_BYTES", 1000)
    path = make(tmp_path / "a.zip")
    with pytest.raises(InputError, match=r"a\.json: cannot be read"):
        SourceFiles(path).read("a.json")
    with pytest.raises(InputError, match=r"a\.zip: cannot be read"):
        list(stream(path))


@pytest.mark.parametrize("archive", [False, True])
def test_a_file_too_large_for_an_image_is_not_read_whole(
    archive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "LARGEST_BYTES", 1000)
    (tmp_path / "a.json").write_bytes(bytes(range(250)) * 5)
    path = packed(tmp_path / "a.zip", (tmp_path / "a.json").read_bytes(), zipfile.ZIP_STORED)
    with pytest.raises(InputError, match="is larger than"):
        SourceFiles(path if archive else tmp_path).read("a.json")


@settings(max_examples=50, deadline=None)
@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
def test_an_archive_with_another_byte(
    place: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = packed(tmp_path_factory.getbasetemp() / "flipped.zip", b"[" + b"1, " * 50 + b"1]")
    content = bytearray(path.read_bytes())
    content[place % len(content)] = value
    path.write_bytes(content)
    try:
        read = SourceFiles(path).read("a.json")
    except InputError:
        return
    assert json.loads(read) == [1] * 51


# --- JSON, tables, pickles -----------------------------------------------------------------------


@pytest.mark.parametrize("entry", ["[" * 100_000, "9" * 5000])
def test_json_that_python_does_not_read(entry: str) -> None:
    with pytest.raises(InputError, match=r"a\.json, element 0: is no such entry"):
        list(entries(io.StringIO(f"[{entry}]"), "a.json", remedy="another", damaged="damaged"))


def table(path: Path) -> TableReader:
    return TableReader(TableSource(kind="table", path=str(path), values={"color": ("red",)}))


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("image,color,color\na.png,red,blue\n")
    with pytest.raises(InputError, match=r"a\.csv: has 2 columns 'color'"):
        list(table(path).scenes())
    path = tmp_path / "a.parquet"
    columns = [pa.array(["a.png"]), pa.array(["red"]), pa.array(["blue"])]
    pq.write_table(pa.Table.from_arrays(columns, ["image", "color", "color"]), path)
    with pytest.raises(InputError, match=r"a\.parquet: has 2 columns 'color'"):
        list(table(path).scenes())


def test_a_parquet_file_with_another_byte(tmp_path: Path) -> None:
    """Every flip is refused or read, most are refused: none ends in another library's error."""
    path = tmp_path / "a.parquet"
    rows = {"image": [f"{i}.png" for i in range(40)], "color": ["red"] * 40}
    pq.write_table(pa.table(rows), path, compression="none")
    whole, read = path.read_bytes(), 0
    places = range(0, len(whole), 9)
    for place in places:
        content = bytearray(whole)
        content[place] ^= 0xFF
        path.write_bytes(content)
        with contextlib.suppress(BindscopeError):
            list(table(path).scenes())
            read += 1
    assert 0 < read < len(places) / 2, read


class Claims:
    """Unpickled, it is an array that claims a terabyte."""

    def __init__(self, shape: tuple[int, ...], direct: bool) -> None:
        self.shape, self.direct = shape, direct

    def __reduce__(self) -> Any:
        function, (kind, _, code), *_ = np.empty(0).__reduce__()
        return (np.ndarray, (self.shape,)) if self.direct else (function, (kind, self.shape, code))


def nested() -> list[Any]:
    """Return a small list that is endless once written out."""
    value: list[Any] = ["x"]
    for _ in range(60):
        value = [value] * 10
    return value


@pytest.mark.parametrize("names", [Claims((10**12,), False), Claims((10**12,), True), nested()])
def test_pickles_that_claim_memory(names: Any, tmp_path: Path) -> None:
    index = {"objectnames": names, "folder": [], "filename": []}
    (tmp_path / "index.pkl").write_bytes(pickle.dumps(index))
    with pytest.raises(InputError, match=r"index\.pkl: is no (pickle of data|index of ADE20K)"):
        read_index(SourceFiles(tmp_path), "index.pkl")


# --- names and sizes of images -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../secret.png", "a/../../secret.png", "/etc/secret.png"])
def test_no_file_is_read_outside_its_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "images/a").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(b"secret")
    files = SourceFiles(tmp_path / "images")
    for call in (files.exists, files.read, files.path):
        with pytest.raises(InputError, match="leads out of the folder"):
            call(name)
    with pytest.raises(InputError, match=r"a\.csv, row 2: '.*' leads out of the folder"):
        missing(files, name)


def missing(files: SourceFiles, name: str) -> None:
    problems = Problems()
    check_present(files, [base.Scene(name, (), "a.csv, row 2")], problems, "stop")
    problems.check("a.csv")


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no image") as refused:
        missing(SourceFiles(tmp_path), "a" * 5000)
    assert len(str(refused.value)) < 600


def load(path: Path, side: int = 8) -> tuple[Any, Any]:
    render = PhotosRenderer(kind="photos", size_px=side)
    record = Record(path.name, "row 1", (0,), None)
    return load_image(SourceFiles(path.parent), record, render)


@pytest.fixture
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("masks", "photos"):
        monkeypatch.setattr(f"bindscope.sources.{module}.LARGEST_PIXELS", 4000)


@pytest.mark.usefixtures("_small_limit")
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_jpeg_is_decoded_at_a_fraction(orientation: int, tmp_path: Path) -> None:
    image = Image.new("RGB", (80, 160), "red")
    exif = image.getexif()
    exif[274] = orientation
    image.save(tmp_path / "a.jpg", exif=exif)
    pixels, placed = load(tmp_path / "a.jpg")
    assert placed.original == ((80, 160) if orientation == 1 else (160, 80))
    assert np.abs(pixels.astype(int) - (254, 0, 0)).max() < 3


@pytest.mark.usefixtures("_small_limit")
def test_other_large_images_are_refused(tmp_path: Path) -> None:
    Image.new("RGB", (80, 160)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match="has 80 x 160 pixels; 4,000 can be read"):
        load(tmp_path / "a.png")
    with pytest.raises(InputError, match="has 80 x 160 pixels; 4,000 can be read"):
        masks.read_pixels(SourceFiles(tmp_path), "a.png", "row 1")


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK"])
def test_opaque_images_need_no_copy_with_transparency(mode: str, tmp_path: Path) -> None:
    """The pixels are those of a composite on white, whatever the mode."""
    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 4), np.uint8)
    image = Image.fromarray(noise, "RGBA")
    image = image if mode == "RGBA" else image.convert("RGB").convert(mode)
    path = tmp_path / ("a.tif" if mode in ("CMYK", "YCbCr") else "a.png")
    image.save(path)
    with Image.open(path) as opened:
        upright = opened.convert("RGBA")
        white = Image.new("RGBA", upright.size, "white")
        expected = Image.alpha_composite(white, upright).convert("RGB")
    assert (load(path)[0] == np.asarray(expected)).all()
