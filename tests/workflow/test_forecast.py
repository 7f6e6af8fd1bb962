"""The forecast of a run that was made: jobs, disk and memory; what memory cannot hold."""

import re
from collections import Counter
from pathlib import Path

import pytest
from harness import Clone

from bindscope.commands.cost import would_run
from bindscope.config.loading import load_file
from bindscope.core.graph import Graph, Product
from bindscope.studies.build import build

pytestmark = [pytest.mark.workflow, pytest.mark.slow]
ARRAYS = ("pooled", "patches", "encoded", "anchors")
OVERHEAD = 3000  # bytes of a store's own record and its digest


def graph_of(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.chdir(clone.path)
    return build(load_file(Path(clone.configfile)))


def size_of(product: Product) -> int:
    """Return the bytes of a product's files, in the current folder."""
    paths = [Path(product.path(name)) for name in product.step.outputs]
    files = [
        file
        for path in paths
        for file in (path.rglob("*") if path.is_dir() else [path])
        if file.is_file()
    ]
    return sum(file.stat().st_size for file in files)


def test_disk_is_that_of_the_files(finished: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(finished, monkeypatch)
    for product in graph.select(*ARRAYS):
        n_stores = len(product.step.outputs) * OVERHEAD
        assert product.work.bytes_disk == pytest.approx(size_of(product), rel=0.1, abs=n_stores)
    others = [each for each in graph.products.values() if each.rule not in (*ARRAYS, "report")]
    for product in others:  # what is not counted is small
        assert size_of(product) < 1.1 * product.work.bytes_disk + 2e5


def test_as_many_jobs_as_snakemake_plans(
    finished: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert would_run(graph_of(finished, monkeypatch)) == []
    clone = finished.copy(tmp_path / "clone")
    clone.edit({"studies.binding_information.probes.1.rank": 3})
    planned = Counter(each.rule for each in would_run(graph_of(clone, monkeypatch)))
    assert planned == clone.would_run()
    assert planned["fit"] > 0
    next((clone.path / "results/scenes").rglob("*.json")).unlink()
    clone.edit({"datasets.0.n_scenes.train": 192})
    planned = Counter(each.rule for each in would_run(graph_of(clone, monkeypatch)))
    assert planned == clone.would_run()
    assert planned["scenes"] > 0


def test_a_run_that_memory_cannot_hold_does_not_begin(
    finished: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `make run` adds cores and memory; where nothing is left to be done, neither starts anything.
    assert finished.would_run("--resources", "mem_mb=200") == Counter()
    clone = finished.copy(tmp_path / "clone")
    clone.edit({"studies.binding_information.probes.1.rank": 3})
    done = clone.snakemake("--resources", "mem_mb=200", check=False)
    assert done.returncode
    assert f"{clone.configfile}: studies.binding_information.probes[" in done.stderr
    assert "remedy: lower studies.binding_information.probes[" in done.stderr
    assert "Traceback" not in done.stderr
    assert "rule fit" not in done.stdout + done.stderr


def test_rules_ask_for_the_memory_of_their_jobs(
    finished: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = finished.copy(tmp_path / "clone")
    clone.edit({"studies.binding_information.probes.1.rank": 3})
    text = clone.snakemake("--dry-run", "--verbose").stdout
    fits = {each.path(): each.work.memory_mb for each in graph_of(clone, monkeypatch).select("fit")}
    requested = re.findall(r"output: (results/fits\S+?),.*?mem_mb=(\d+)", text, re.DOTALL)
    assert requested
    assert all(fits[path] == int(mem_mb) for path, mem_mb in requested)
