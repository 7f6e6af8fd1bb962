"""Visual Genome's files: streamed, joined, and refused where they are not whole."""

import json
import tracemalloc
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from bindscope.core.errors import InputError
from bindscope.sources import json_list
from bindscope.sources.genome import files
from bindscope.sources.genome.files import read_annotations, stream

DATA = Path(__file__).parents[1] / "fixtures" / "visual_genome"


def values(path):
    return [value for _, value in stream(path)]


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", ["objects.json", "image_data.json"])
def test_a_file_is_read_as_json_reads_it_whatever_the_chunks(name, chunk, monkeypatch):
    monkeypatch.setattr(json_list, "_CHUNK", chunk)
    assert values(DATA / name) == json.loads((DATA / name).read_text())


@pytest.mark.parametrize("text", [" \n[ ]\n", '\ufeff[{"a": "]"}, "b,c" ,\n[2, {}]]'])
def test_small_arrays(text, tmp_path):
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    assert values(tmp_path / "a.json") == json.loads(text.lstrip("\ufeff"))


def test_the_archives_of_the_release_are_read_as_they_are(tmp_path):
    path = tmp_path / "objects.json.zip"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.write(DATA / "objects.json", "objects.json")
    assert values(path) == values(DATA / "objects.json")
    assert next(stream(path))[0] == f"{path}, element 0"
    with ZipFile(path, "a") as archive:
        archive.writestr("more.json", "[]")
    with pytest.raises(InputError, match="holds 2 JSON files, not one"):
        values(path)


@pytest.mark.parametrize("cut", [1, 1000])
def test_a_file_that_was_cut_off_is_refused_with_the_element(cut, tmp_path):
    path = tmp_path / "objects.json"
    path.write_text((DATA / "objects.json").read_text().rstrip()[:-cut])
    with pytest.raises(InputError, match=r"objects.json, element \d: is no whole JSON .*\n.*again"):
        values(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not begin with a JSON array"),
        (b'{"image_id": 1}', "does not begin with a JSON array"),
        (b"[1, nonsense]", "element 1: is no whole JSON"),
        (b"[1}", "element 1: is no whole JSON"),
        (b'["\xff"]', "cannot be read"),
        (None, "does not exist"),
    ],
)
def test_what_is_no_array_is_refused(content, message, tmp_path):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        values(tmp_path / "a.json")


def test_an_endless_element_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(json_list, "_CHUNK", 100)
    monkeypatch.setattr(json_list, "_LONGEST", 1000)
    (tmp_path / "a.json").write_text('["' + "a" * 100_000 + '"]')
    with pytest.raises(InputError, match="element 0: is no whole JSON"):
        values(tmp_path / "a.json")


def test_objects_get_the_attributes_of_their_number_and_of_merged_ones():
    annotated = dict(read_annotations(DATA / "objects.json", DATA / "attributes.json"))
    assert list(annotated) == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert annotated[4] == []
    man, shirt, *_ = annotated[2]
    assert man == (("man",), (), (0, 0, 50, 100))
    assert shirt == (("shirt",), ("Blue",), (10, 20, 30, 30))
    assert [thing.names for thing in annotated[6]] == [("wheel", "car"), ("men",), ("shirt",)]
    assert annotated[6][2].attributes == ("white", "white")
    assert [thing.attributes for thing in annotated[8]] == [(), ()]  # attributes.json lacks image 8


def test_a_few_images_wait_and_no_more(tmp_path, monkeypatch):
    paths = DATA / "objects.json", DATA / "attributes.json"
    expected = list(read_annotations(*paths))
    monkeypatch.setattr(files, "MAX_WAITING", 3)
    assert list(read_annotations(*paths)) == expected  # image 8 is missing, not late
    backwards = tmp_path / "attributes.json"
    backwards.write_text(json.dumps(json.loads(paths[1].read_text())[::-1]))
    with pytest.raises(InputError, match="other orders of images: 1 is not among the 3 next"):
        list(read_annotations(paths[0], backwards))
    monkeypatch.setattr(files, "MAX_WAITING", 30)
    assert list(read_annotations(paths[0], backwards)) == expected


def test_a_damaged_end_of_the_attributes_is_noticed(tmp_path):
    cut = tmp_path / "attributes.json"
    cut.write_text((DATA / "attributes.json").read_text().rstrip()[:-1])
    with pytest.raises(InputError, match=r"attributes.json, element 9"):
        list(read_annotations(DATA / "objects.json", cut))


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ({"id": 1, "objects": []}, "element 0: 'image_id' is missing"),
        ({"image_id": "1", "objects": []}, "element 0: 'image_id' is 1"),
        ({"image_id": 1, "objects": [{"object_id": 1}]}, "element 0: 'names' is missing"),
        ([], "element 0: 'image_id' is not in an object"),
    ],
)
def test_elements_of_another_form_are_refused(element, message, tmp_path):
    (tmp_path / "objects.json").write_text(json.dumps([element]))
    with pytest.raises(InputError, match=message):
        list(read_annotations(tmp_path / "objects.json", DATA / "attributes.json"))


def peak_of_reading(folder):
    """Traced bytes at the peak; other threads of the test run may add theirs."""
    tracemalloc.start()
    try:
        for _ in read_annotations(folder / "objects.json", folder / "attributes.json"):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(json_list, "_CHUNK", 1 << 14)
    thing = {"object_id": 1, "names": ["tree"], "x": 0, "y": 0, "w": 1, "h": 1}
    peaks = []
    for n in (100, 800):
        for name in ("objects", "attributes"):
            rows = [{"image_id": i, name: [thing] * 10} for i in range(n)]
            (tmp_path / f"{name}.json").write_text(json.dumps(rows))
        del rows
        peaks.append(min(peak_of_reading(tmp_path) for _ in range(3)))
    assert peaks[1] < 1.3 * peaks[0]
    assert peaks[1] < 0.5 * (tmp_path / "objects.json").stat().st_size
