"""Snakemake's records are corrected by what files say of themselves; runs: test_staleness.py."""

import json
import os
import time
from pathlib import Path

import pytest
from jobs_by_hand import ROOT
from snakemake.persistence.file import FilePersistence

from bindscope.config.loading import load_file
from bindscope.core.digests import digests_path, write_digests
from bindscope.core.graph import Graph, Product
from bindscope.core.provenance import (
    RECORDS,
    _longest,
    correct_records,
    end_future_times,
    record_path,
    staleness,
)
from bindscope.studies.build import build

OTHER = {"spec_key": "0" * 64, "code_key": "other:code"}
CASES = {"in order": {}, "other configuration": OTHER, "other code": {"code_key": "other:code"}}


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.chdir(tmp_path)
    return build(load_file(ROOT / "config/presets/ci.yaml"))


def make(product: Product, keys: dict[str, str]) -> None:
    path = Path(product.path())
    path.parent.mkdir(parents=True)
    path.write_text("made")
    write_digests([str(path)], product.keys | keys)


def record(product: Product, *params: str) -> None:
    place = record_path(product.path())
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps({"rule": product.rule, "params": list(map(repr, params))}))


def params(product: Product) -> list[str] | None:
    place = record_path(product.path())
    return json.loads(place.read_text())["params"] if place.exists() else None


@pytest.mark.parametrize("remembered", ["nothing", "the graph's", "others"])
@pytest.mark.parametrize("case", CASES)
def test_a_record_agrees_with_the_graph_only_where_the_file_does(
    graph: Graph, case: str, remembered: str
) -> None:
    product = graph.select("report")[0]
    make(product, CASES[case])
    of_graph = [product.spec, product.code]
    if remembered != "nothing":
        record(product, *(of_graph if remembered == "the graph's" else ["{}", "other:code"]))
    correct_records(graph)
    texts = params(product)
    if case == "in order":  # no record, or one that agrees: nothing to be done
        assert texts == (list(map(repr, of_graph)) if remembered == "the graph's" else None)
    else:
        assert texts
        assert not set(texts) & set(map(repr, of_graph))


def test_what_was_not_made_or_not_finished_is_told_apart(graph: Graph) -> None:
    product = graph.select("report")[0]
    assert staleness(product) == ""
    correct_records(graph)
    assert params(product) is None
    Path(product.path()).parent.mkdir(parents=True)
    Path(product.path()).write_text("half")
    assert "not finished" in staleness(product)


def test_a_folder_that_may_not_be_written_is_left_alone(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = graph.select("report")[0]
    make(product, OTHER)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", refuse)
        correct_records(graph)
    assert params(product) is None
    correct_records(graph)
    assert params(product)


def test_times_in_the_future_end(graph: Graph) -> None:
    """Snakemake deletes what is made of such a file: it is older than its input."""
    product = graph.select("report")[0]
    make(product, {})
    before = Path(product.path()).stat().st_mtime
    assert end_future_times(graph) == 0
    assert Path(product.path()).stat().st_mtime == before
    os.utime(product.path(), (time.time() + 1e6, time.time() + 1e6))
    assert end_future_times(graph) == 1
    assert Path(product.path()).stat().st_mtime <= time.time()


def test_times_in_the_future_keep_their_order(graph: Graph) -> None:
    """Else Snakemake takes some of these products for older than what they were made of."""
    paths = [Path(product.path()) for product in list(graph.products.values())[:20]]
    later = time.time() + 1e6
    for i, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        os.utime(path, (later, later + i // 2))
    end_future_times(graph)
    times = [path.stat().st_mtime_ns for path in paths]
    assert times == sorted(times)
    assert len(set(times)) == 10
    assert max(times) <= time.time_ns()


def test_the_time_of_a_store_is_that_of_a_file_in_it(graph: Graph) -> None:
    stamp = Path(graph.select("codes")[0].path("store"), ".snakemake_timestamp")
    stamp.parent.mkdir(parents=True)
    stamp.touch()
    os.utime(stamp, (time.time() + 1e6, time.time() + 1e6))
    end_future_times(graph)
    assert stamp.stat().st_mtime <= time.time()


def test_digests_that_cannot_be_read_are_none(graph: Graph) -> None:
    product = graph.select("report")[0]
    make(product, {})
    digests = digests_path(product.path())
    digests.unlink()
    digests.mkdir()
    assert staleness(product).startswith("not finished")
    labels = graph.select("labels")[0]
    Path("results/labels").write_text("no folder")
    assert not staleness(labels)


@pytest.mark.parametrize("longest", [255, 143, 0])
def test_records_lie_where_snakemake_looks(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of files are shorter on an encrypted disk, and some disks do not say (0)."""
    monkeypatch.setattr(os, "pathconf", lambda *_: longest)
    _longest.cache_clear()
    snakemake = FilePersistence.__new__(FilePersistence)
    snakemake._max_len = None
    for length in (50, 189, 190, 191, 380, 382, 600):
        path = "results/" + "a" * (length - 8)
        assert str(record_path(path)) == snakemake._record_path(str(RECORDS), path)
    _longest.cache_clear()
