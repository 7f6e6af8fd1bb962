"""What a job is said to take is what its arrays have; what memory cannot hold is refused."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from jobs_by_hand import loaded
from PIL import Image

from bindscope.cli import main
from bindscope.commands import calibration, cost
from bindscope.commands.plan import recorded
from bindscope.config.root import Config
from bindscope.core.errors import ConfigError
from bindscope.core.graph import Graph, Product
from bindscope.core.registries import resolve
from bindscope.core.work import LIBRARIES_MB, MARGIN, REFERENCE, Work, refuse
from bindscope.fitting import lbfgs, regressions
from bindscope.graph import cost as shared_cost
from bindscope.graph import output_cost, towers
from bindscope.models import known_answer, training
from bindscope.scenes import sprite_palette
from bindscope.statistics import bootstrap
from bindscope.studies.binding_id import cost as vlm
from bindscope.studies.binding_id import oracle
from bindscope.studies.binding_id.tasks.scenes import LAYOUTS
from bindscope.studies.binding_information import cost as fits
from bindscope.studies.binding_information.probes import batches, convex
from bindscope.studies.build import all_steps, build
from bindscope.studies.concepts import alignment
from bindscope.studies.concepts import cost as concepts
from bindscope.studies.datasets import figures as sheets
from bindscope.studies.same_object import cost as pairs
from bindscope.studies.same_object import data as pair_data
from bindscope.studies.same_object.effects import passes

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "workflow" / "rules"


def planned(change: Callable[[dict[str, Any]], None] = lambda _: None) -> Graph:
    """Return the graph of the CI's preset, changed."""
    content = yaml.safe_load((ROOT / "config/presets/ci.yaml").read_text())
    change(content)
    return build(Config.model_validate(content))


def a_fit(graph: Graph) -> Product:
    return graph.select("fit")[0]


# --- Every step --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", all_steps())
def test_every_step_declares_its_work(name: str) -> None:
    assert callable(resolve(f"{all_steps()[name].work}:{name}"))


@pytest.mark.parametrize("path", sorted(RULES.glob("*.smk")), ids=lambda path: path.stem)
def test_every_rule_asks_for_what_its_step_declares(path: Path) -> None:
    text = path.read_text()
    rules = re.findall(r"^(?:rule (\w+):|use rule \w+ as (\w+) with:)", text, re.MULTILINE)
    names = [rule or alias for rule, alias in rules]
    assert re.findall(r'mem_mb=memory_of\("(\w+)"\)', text) == names
    assert re.findall(r'runtime=minutes_of\("(\w+)"\)', text) == names


def test_all_work_is_counted_without_torch() -> None:
    """Each start of Snakemake counts it."""
    code = (
        "import yaml; from bindscope.config.root import Config\n"
        "from bindscope.studies.build import build\n"
        f"content = yaml.safe_load(open('{ROOT}/config/presets/ci.yaml'))\n"
        "products = build(Config.model_validate(content)).products.values()\n"
        "assert all(made.work.memory_mb > 0 for made in products)"
    )
    assert not {"torch", "pandas"} & loaded(code)


def test_constants_beside_torch_are_those_of_the_science() -> None:
    assert (pair_data.PAIR_BYTES, pair_data.BLOCK) == (pairs.PAIR_BYTES, pairs.BLOCK)
    assert (pairs._BATCH, pairs._ATTENDED, pairs._MASKS) == (
        passes.BATCH,
        passes.WEIGHTS,
        passes.MASKS,
    )
    assert fits._CONVEX_WORK == batches.WORK
    assert (len(convex.STRENGTHS), regressions.REFRESH) == (fits._STRENGTHS, fits._REFRESH)
    assert (4 * lbfgs.MEMORY + 10) / 4 == fits._MOVED
    assert (bootstrap.BLOCK, known_answer.PROVABLE) == (fits._RESAMPLED, shared_cost._PROVABLE)
    assert (vlm._ORACLE_WIDTH, vlm._SPRITE_PX) == (oracle.WIDTH, sprite_palette.SLOT_PX)
    for name, layout in LAYOUTS.items():
        assert vlm._SLOTS.get(name, 9) == len(layout.regions)
        if not layout.sprites:
            sides = [x1 - x0 for x0, _, x1, _ in layout.regions]
            assert (layout.size_px, max(sides)) == (vlm._IMAGE_PX, vlm._SLOT_PX)
    assert concepts._ALIGNED == 1 + alignment.PERMUTATIONS + 6
    evaluated = (shared_cost._EVALUATIONS, shared_cost._VAL_SCENES)
    assert evaluated == (training.EVALUATIONS, training.VAL_SCENES)
    assert (output_cost._SHEET_COLUMNS, output_cost._SHEET_PX) == (
        sheets.COLUMNS,
        sheets._LARGEST_PX,
    )


# --- Memory ------------------------------------------------------------------------------------


def test_a_rule_follows_the_memory_of_a_probe() -> None:
    """`memory_mb: 16384` planned 3,000 MB."""

    def large(memory_mb: int) -> Callable[[dict[str, Any]], None]:
        def change(content: dict[str, Any]) -> None:
            for dataset in content["datasets"]:
                dataset["n_scenes"] = {"train": 40_000_000, "val": 1000, "test": 1000}
                dataset["shard_size"] = dict(dataset["n_scenes"])
            for probe in content["studies"]["binding_information"]["probes"]:
                probe["memory_mb"] = memory_mb

        return change

    def most(graph: Graph) -> int:
        return max(product.work.memory_mb for product in graph.select("fit"))

    little, much = (most(planned(large(memory))) for memory in (1024, 16384))
    assert 1024 + 300 < little < 2000 + 1024
    assert 16384 + 300 < much < 30_000


def test_memory_has_a_margin_over_what_is_counted() -> None:
    assert Work("torch", bytes_peak=2.0**30).memory_mb >= MARGIN * (1024 + LIBRARIES_MB["torch"])


def test_a_job_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph = planned()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(cost.MEMORY_MB, raising=False)
    cost.refuse_too_large(graph, None, "config.yaml")  # nothing is said of memory
    cost.refuse_too_large(graph, 16_000, "config.yaml")
    with pytest.raises(ConfigError) as caught:
        cost.refuse_too_large(graph, 200, "config.yaml")
    text = str(caught.value)
    largest = max(graph.products.values(), key=lambda product: product.work.memory_mb)
    assert text.startswith("config.yaml: ")
    assert largest.path() in text
    assert f"mem_mb={largest.work.memory_mb}" in text


def test_what_is_done_is_not_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph = planned()
    monkeypatch.chdir(tmp_path)
    for product in graph.products.values():
        path = Path(product.path())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    cost.refuse_too_large(graph, 1, "config.yaml")
    assert cost.would_run(graph) == []
    fit = a_fit(graph)
    Path(fit.path()).unlink()
    remade = cost.would_run(graph)
    assert fit in remade
    assert {product.rule for product in remade} <= {
        "fit",
        "attention",
        "table",
        "figure",
        "report",
    }
    with pytest.raises(ConfigError, match=re.escape(fit.path())):
        refuse([fit], 1, "config.yaml")


@pytest.mark.parametrize(("rule", "power"), [("scenes", 1), ("record_scenes", 2)])
def test_pictures_that_are_made_smaller_lose_pixels_or_contours(rule: str, power: int) -> None:
    def picture(side: int) -> float:
        content = {"start": 0, "stop": 10, "render": {"size_px": side}}
        work = Work(bytes_disk=1e7)
        shard = SimpleNamespace(rule=rule, content=content, work=work, inputs={})
        empty, full = ({"scenes": shards} for shards in ([], [shard]))
        sizes = [
            output_cost.figure(SimpleNamespace(inputs=inputs)).bytes_disk  # type: ignore[arg-type]
            for inputs in (empty, full)
        ]
        return sizes[1] - sizes[0]

    assert picture(160) / picture(320) == pytest.approx(2**power)
    assert picture(100) == picture(160)


def test_a_table_that_sums_rows_up_has_those_of_the_other_role() -> None:
    def size(*roles: str) -> float:
        job = SimpleNamespace(work=Work(bytes_rows=1e6))
        inputs = {role: [job] * (3 if role == "rows" else 1) for role in roles}
        return output_cost.table(SimpleNamespace(inputs=inputs, reads={})).bytes_disk  # type: ignore[arg-type]

    assert size("rows", "geometry") == size("geometry") < size("rows")


def test_a_table_is_made_of_the_rows_that_it_reads_and_not_of_others() -> None:
    job = SimpleNamespace(work=Work(bytes_rows=1e3, rows_of={"strata": 1e6}))

    def read(*outputs: str) -> float:
        product = SimpleNamespace(inputs={"fits": [job] * 3}, reads={"fits": outputs})
        return output_cost.rows_read(product)  # type: ignore[arg-type]

    assert (read(), read("images"), read("strata")) == (3e3, 3e3, 3e6)


def test_records_are_those_of_the_splits_where_these_are_known() -> None:
    def work(split: dict[str, Any]) -> Work:
        content = {"dataset": {"split": split}}
        product = SimpleNamespace(content=content, wildcards={"dataset": "photos"})
        return shared_cost.records(product)  # type: ignore[arg-type]

    few, many = (work({"sizes": {"train": n, "val": 10, "test": 10}}) for n in (100, 1100))
    assert many.bytes_disk - few.bytes_disk == 1000 * shared_cost._RECORD
    assert not few.unknown
    assert work({"rule": "column"}).unknown == "how many scenes photos has"
    assert work({"rule": "column"}).bytes_disk < few.bytes_disk


def test_a_fit_has_memory_for_its_intervals() -> None:
    def fit_of(samples: int) -> Work:
        def change(content: dict[str, Any]) -> None:
            information = content["studies"]["binding_information"].setdefault("information", {})
            information["bootstrap_samples"] = samples

        return a_fit(planned(change)).work

    assert fit_of(100_000).bytes_peak >= fits._resampled(1e7) > fit_of(2).bytes_peak


def test_a_tower_of_texts_is_loaded_with_that_of_images() -> None:
    from transformers import CLIPTextConfig, CLIPTextModel

    text = {"hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 500, "intermediate_size": 256}
    model = {"source": "hf:a/clip", "overrides": {"model_type": "clip", "text_config": text}}
    tower = CLIPTextModel(CLIPTextConfig(**text, num_attention_heads=2))
    real = sum(part.numel() for part in tower.parameters())
    assert towers.text_weights(model) == pytest.approx(real, rel=0.05)
    assert towers.text_weights({"source": "zoo:captions-0"}) == 0


@pytest.mark.parametrize(("rule", "width"), [("joint", 640), ("text_embeddings", 640), ("x", 1024)])
def test_embeddings_where_images_and_texts_meet_have_the_width_of_texts(
    rule: str, width: int
) -> None:
    overrides = {"model_type": "clip", "text_config": {"hidden_size": 640}, "hidden_size": 1024}
    model = {"source": "hf:a/clip", "n_layers": 2, "overrides": overrides}
    embedding = SimpleNamespace(rule=rule, content={"model": model})
    codes = SimpleNamespace(content={"n_scenes": 3})
    inputs = {"embeddings": [embedding], "codes": [codes, codes]}
    if rule == "x":
        assert towers.tower_of(model, 224).width == width
    else:
        assert concepts._read(SimpleNamespace(inputs=inputs)) == (6, width)  # type: ignore[arg-type]


def test_a_large_figure_has_memory_for_its_canvas(tmp_path: Path) -> None:
    """Modules, fonts and pixels, in a process of its own."""
    code = f"""
import re, matplotlib, pandas
matplotlib.use("agg")
from bindscope.core.store import writer
from matplotlib import pyplot
figure, axes = pyplot.subplots(4, 3, figsize=(12, 13.7), layout="constrained")
for each in axes.flat:
    each.plot(range(50), label="a line")
    each.set(xlabel="layer", ylabel="bits", title="a panel")
    each.legend()
for kind in ("png", "svg"):
    figure.savefig({str(tmp_path)!r} + "/x." + kind, dpi=170, bbox_inches="tight")
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    peak = int(done.stdout) * 1024
    width, height = Image.open(tmp_path / "x.png").size
    assert width * height == pytest.approx(5e6, rel=0.2)
    work = output_cost.figure(SimpleNamespace(inputs={}))  # type: ignore[arg-type]
    assert 1 < work.memory_mb * 2**20 / peak < 1.6


def test_solids_take_longer_by_rays_and_by_objects() -> None:
    def work(objects: int, antialias: int) -> Work:
        render = {"kind": "solids", "size_px": 48, "backend": {"antialias": antialias}}
        space = {"max_objects": objects, "min_objects": objects}
        content = {"start": 0, "stop": 10, "dataset": {"render": render, "space": space}}
        return shared_cost.scenes(SimpleNamespace(content=content))  # type: ignore[arg-type]

    few, many, fine = work(2, 1), work(12, 1), work(2, 4)
    assert fine.elements == 16 * few.elements
    assert many.python - few.python == 10 * 10 * shared_cost._PLACED
    assert many.bytes_disk - few.bytes_disk == 10 * 10 * shared_cost._DESCRIBED


def test_a_training_draws_scenes_where_it_reads_none() -> None:
    (job,) = planned().select("training")
    content = job.content
    draws, reads = (SimpleNamespace(content=content, inputs=inputs, wildcards=job.wildcards)
                    for inputs in ({}, {"scenes": [job]}))  # fmt: skip
    more = shared_cost.training(draws).elements - shared_cost.training(reads).elements  # type: ignore[arg-type]
    assert more == pytest.approx(shared_cost._drawn_in_training(content))
    none = {**content, "model": {**content["model"], "source": "controlled:none"}}
    untrained = SimpleNamespace(content=none, inputs={}, wildcards=job.wildcards)
    assert shared_cost.training(untrained).elements == 0  # type: ignore[arg-type]


def test_a_short_training_is_mostly_evaluated() -> None:
    def steps(number: int) -> float:
        def change(content: dict[str, Any]) -> None:
            content["models"][0]["training"]["steps"] = number

        (job,) = planned(change).select("training")
        return job.work.passes

    assert steps(10) == 10 * 16 + 11 * training.VAL_SCENES
    assert steps(1000) == 1000 * 16 + 21 * training.VAL_SCENES


def test_figures_grow_with_rows_and_with_pictures_and_the_page_holds_them() -> None:
    def more(content: dict[str, Any]) -> None:
        fits = content["studies"]["binding_information"]["fits"]
        fits[0]["seed_blocks"] = [[seed] for seed in range(40)]
        content["datasets"][0]["render"]["object_px"] *= 2

    small, large = planned(), planned(more)
    sizes = [
        {product.wildcards["figure"]: product.work.bytes_disk for product in graph.select("figure")}
        for graph in (small, large)
    ]
    assert sizes[0]["scenes"] < sizes[1]["scenes"]
    assert sizes[0]["training"] < sizes[1]["training"]
    (page,), (longer,) = small.select("report"), large.select("report")
    grown = sum(sizes[1].values()) - sum(sizes[0].values())
    assert longer.work.bytes_disk - page.work.bytes_disk == pytest.approx(0.55 * grown)


def test_the_key_is_what_decides() -> None:
    def wide(content: dict[str, Any]) -> None:
        section = content["studies"]["binding_information"]
        section["probes"] = [{"name": "wide", "family": "dnn", "hidden": 4096}]
        del section["learning_curves"]
        for block in section["fits"]:
            block |= {"probes": ["wide"], "tokens": ["cls"]}

    content = planned(wide)
    assert a_fit(content).work.key == "studies.binding_information.probes[wide].hidden"


# --- What is printed ---------------------------------------------------------------------------


def test_plan_cost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    configfile = str(ROOT / "config/presets/ci.yaml")
    assert main(["plan", "--cost", "--device", "l4", "--configfile", configfile]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 25
    graph = planned()
    total = next(line for line in lines if line.startswith("all"))
    assert total.split()[1] == str(len(graph.products))
    assert lines[-1].endswith("rates of l4")
    disk = sum(product.work.bytes_disk for product in graph.products.values())
    assert f"{disk / 1e9:.2f} GB of disk" in lines[-1]


def test_rates_are_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibration, "_EACH_S", 0.01)
    first = calibration.this_machine()
    monkeypatch.setattr(calibration, "measure", lambda: pytest.fail("measured again"))
    assert calibration.this_machine() == first
    assert first.flops > 1e8
    assert first.start_s.keys() == REFERENCE.start_s.keys()


def test_seconds_are_of_what_is_counted() -> None:
    work = Work("torch", flops=2 * REFERENCE.flops, elements=4 * REFERENCE.elements, threads=2)
    assert REFERENCE.seconds(work) == pytest.approx(REFERENCE.start_s["torch"] + 3)


def test_a_job_that_no_gpu_holds_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def on_gpu(content: dict[str, Any]) -> None:
        for probe in content["studies"]["binding_information"]["probes"]:
            probe["device"] = "cuda"

    graph = planned(on_gpu)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(cost.MEMORY_MB, raising=False)
    monkeypatch.setattr(cost, "gpu_memory_mb", lambda: 0.0)  # a login node: nothing is known
    cost.refuse_too_large(graph, None, "config.yaml")
    monkeypatch.setattr(cost, "gpu_memory_mb", lambda: 400.0)
    with pytest.raises(
        ConfigError, match=r"(?s)GPU memory, and 400 MB are configured.*`device: cpu`"
    ):
        cost.refuse_too_large(graph, None, "config.yaml")
    largest = max(product.work.device_mb for product in graph.products.values())
    cost.refuse_too_large(graph, None, "config.yaml", largest)  # what is given counts
    with pytest.raises(ConfigError, match=f"gpu_mb={largest}"):
        cost.refuse_too_large(graph, None, "config.yaml", largest - 1)


def test_jobs_without_a_gpu_are_not_asked_for_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "gpu_memory_mb", lambda: 1.0)
    graph = planned()
    assert not any(product.work.device_mb for product in graph.products.values())
    cost.refuse_too_large(graph, None, "config.yaml")


def test_a_record_is_read_as_snakemake_quotes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = {"caption": 'the probe\'s "query"'}
    texts = ["a code", json.dumps(spec), "<a parameter of another package>"]
    name = base64.b64encode(b"results/report.html").decode()
    metadata = tmp_path / ".snakemake" / "metadata" / name
    metadata.parent.mkdir(parents=True)
    metadata.write_text(json.dumps({"params": [*map(repr, texts[:2]), texts[2]]}))
    assert recorded(Path("results/report.html")) == (spec, texts)


def test_small_fits_take_the_calls_of_their_iterations_and_steps() -> None:
    """However few scenes and weights there are."""
    probes = {job.wildcards["probe"]: job.work.python for job in planned().select("fit")}
    assert probes["quadratic"] - probes["linear"] > fits._BACKWARD
    n_problems = 4  # both plain ones, counts and objects of the chain
    least = fits._CALL * fits._ITERATION * fits._PATH * n_problems
    assert least < probes["linear"] < 3 * least
