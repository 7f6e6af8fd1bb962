"""What a job is said to take is what its arrays have; what memory cannot hold is refused."""

import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from jobs_by_hand import loaded
from pydantic import TypeAdapter
from safetensors.torch import save_file

from bindscope.cli import main
from bindscope.commands import cost, hours
from bindscope.config.root import Config
from bindscope.config.training import Architecture
from bindscope.core.errors import ConfigError
from bindscope.core.graph import Graph, Product
from bindscope.core.job import BENCHMARKS
from bindscope.core.provenance import record_path, recorded_spec
from bindscope.core.registries import resolve
from bindscope.core.store.writer import write_arrays
from bindscope.core.work import PROCESS_MB, stored
from bindscope.graph import language, towers
from bindscope.graph.steps import SHARED_STEPS
from bindscope.graph.towers import Tower
from bindscope.models import known_answer
from bindscope.models.vit import build as build_vit
from bindscope.statistics import bootstrap
from bindscope.studies.binding_id.vlm.loading import FAMILIES
from bindscope.studies.binding_information import cost as fits
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probes.base import Target
from bindscope.studies.binding_information.probes.module import InputShape
from bindscope.studies.build import all_steps, build
from bindscope.studies.concepts import cost as concepts
from bindscope.studies.concepts.config import Encoder
from bindscope.studies.concepts.dual import encoders

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


@pytest.mark.parametrize("path", sorted(RULES.glob("*.smk")), ids=lambda path: path.stem)
def test_every_rule_asks_for_what_its_step_declares(path: Path) -> None:
    text = path.read_text()
    rules = re.findall(r"^(?:rule (\w+):|use rule \w+ as (\w+) with:)", text, re.MULTILINE)
    names = [rule or alias for rule, alias in rules]
    assert re.findall(r'mem_mb=memory_of\("(\w+)"\)', text) == names
    assert re.findall(r'units=units_of\("(\w+)"\)', text) == names


def test_every_step_is_counted_by_a_function_that_there_is() -> None:
    assert all(callable(resolve(step.work)) for step in all_steps().values())


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
    assert 1024 + 300 < little < 2300 + 1024
    assert 16384 + 300 < much < 30_000


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


def test_a_tower_of_texts_is_loaded_with_that_of_images() -> None:
    from transformers import CLIPTextConfig, CLIPTextModel

    text = {"hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 500, "intermediate_size": 256}
    model = {"source": "hf:a/clip", "overrides": {"model_type": "clip", "text_config": text}}
    tower = CLIPTextModel(CLIPTextConfig(**text, num_attention_heads=2))
    real = sum(part.numel() for part in tower.parameters())
    assert towers.text_weights(model) == pytest.approx(real, rel=0.05)
    assert towers.text_weights({"source": "zoo:captions-0"}) == 0


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


def plan_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Print the forecast of the CI's preset in the current folder."""
    configfile = str(ROOT / "config/presets/ci.yaml")
    assert main(["plan", "--cost", "--configfile", configfile]) == 0
    return capsys.readouterr().out.splitlines()


def leave_record(product: Product, seconds: float, share: float = 1) -> None:
    """Write the record of a job like a product, of a share of its size."""
    record = {
        "rule": product.rule,
        "wildcards": dict(product.wildcards),
        "s": seconds,
        "device": product.work.device,
        "units": share * product.work.units,
    }
    file = BENCHMARKS / product.rule / f"{product.key}-{share}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record))


def test_plan_cost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines, graph = plan_lines(capsys), planned()
    assert len(lines) <= 25
    (total,) = [line.split() for line in lines if line.startswith("all")]
    assert total[1] == str(len(graph.products))
    assert any(line.startswith("time          not known, as no job") for line in lines)
    (command,) = [line for line in lines if "--until" in line]
    assert re.search(r'make run CONFIG=\S+ARGS="--until results/', command.replace(" ARGS", "ARGS"))
    for product in graph.products.values():
        if product.rule != "report":
            leave_record(product, 2)
    some = plan_lines(capsys)
    assert any(re.match(r"time +more than .* not known of 1 jobs", line) for line in some)
    assert any(line.endswith("not known of: report") for line in some)
    leave_record(graph.select("report")[0], 2)
    whole = plan_lines(capsys)
    assert not any("not known" in line or "--until" in line for line in whole)
    assert any(re.match(r"time +about \d+ (s|min) on \d+ cores", line) for line in whole)


def test_time_is_that_of_jobs_of_the_same_kind_and_about_the_same_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    fits = planned().select("fit")
    first = fits[0]
    by_another = next(fit for fit in fits if fit.wildcards["probe"] != first.wildcards["probe"])
    leave_record(first, 3, share=1 / 100)  # of another size
    assert hours.seconds_of(first, hours.read_records()) is None
    leave_record(first, 10, share=1 / 2)
    leave_record(first, 20, share=1)
    records = hours.read_records()
    assert hours.seconds_of(first, records) == pytest.approx(1.2 * 30 / 1.5)
    assert hours.seconds_of(by_another, records) is None
    assert hours.hours_of([first, by_another]).unknown == (by_another,)


def test_records_that_are_cut_off_or_of_others_are_passed_over(tmp_path: Path) -> None:
    texts = {
        "a": "{",
        "b": "[1]",
        "c": '{"s": 1}',
        "d": '{"rule": "x", "device": "cpu"}',
        "e": '{"rule": "x", "device": "cpu", "wildcards": {}, "units": null}',
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.json").write_text(text)
    assert not any(hours.read_records(tmp_path).values())
    assert hours.read_records(tmp_path / "none") == {}


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


def test_a_record_is_read_as_snakemake_quotes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = {"caption": 'the probe\'s "query"'}
    texts = ["a code", json.dumps(spec), "<a parameter of another package>"]
    metadata = record_path("results/report.html")
    metadata.parent.mkdir(parents=True)
    metadata.write_text(json.dumps({"params": [*map(repr, texts[:2]), texts[2]]}))
    assert recorded_spec(Path("results/report.html")) == spec


# --- Arithmetic against arrays -----------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 40_000, 24), (1, 10, 7)])
def test_floats_of_a_store(shape: tuple[int, ...], tmp_path: Path) -> None:
    store, manifest = tmp_path / "a.zarr", tmp_path / "a.json"
    write_arrays(store, manifest, {"z": np.ones(shape, np.float32)}, spec="{}", code="c")
    files = [manifest, *(path for path in store.rglob("*") if path.is_file())]
    size = sum(path.stat().st_size for path in files)
    assert stored("float32", shape) == pytest.approx(size, rel=0.01, abs=1500)


@pytest.mark.parametrize(
    "probe",
    [
        {"family": "linear"},
        {"family": "quadratic", "rank": 3},
        {"family": "dnn", "hidden": 8},
        {"family": "quadratic_reuse", "rank": 3},
        {"family": "set", "hidden": 8, "summed": 6},
        {"family": "attention_quadratic", "rank": 3},
    ],
    ids=lambda probe: "-".join(map(str, probe.values())),
)
def test_weights_of_a_probe(probe: dict[str, Any]) -> None:
    config = TypeAdapter(AnyProbe).validate_python({"name": "probe", **probe})
    tokens = 5 if probe["family"] in ("set", "attention_quadratic") else 0
    shape = InputShape(11, bool(tokens), *([tokens] if tokens else []))
    target = Target("object", (4, 3))
    (heads,) = target.heads(True)
    family = type(config).load()(config, heads, shape, torch.Generator())
    real = sum(p.numel() for p in family.parameters() if p.requires_grad)
    counted, _ = config.count(heads, 11, max(tokens, 1))
    assert counted == pytest.approx(real, rel=0.12)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "product", "dim": 6},
        {"kind": "mlp_set", "dim": 6, "hidden": 10},
        {"kind": "transformer", "dim": 6, "width": 8, "heads": 2, "hidden": 12, "layers": 2},
    ],
    ids=lambda options: str(options["kind"]),
)
def test_weights_of_a_dual_encoder(options: dict[str, Any]) -> None:
    config = TypeAdapter[Any](Encoder).validate_python(options)
    encoder = encoders.ENCODERS[options["kind"]]((4, 3, 2), config, 0)
    counted = concepts.encoder_weights(config.model_dump(), [4, 3, 2])
    assert counted == sum(p.numel() for p in encoder.parameters())


def test_weights_of_a_transformer() -> None:
    vit = build_vit(
        Architecture(n_layers=3, width=48, n_heads=4, patch_px=8), 32, torch.Generator()
    )
    real = sum(p.numel() for p in vit.parameters())
    assert Tower(3, 48, 8, 32).weights == pytest.approx(real, rel=0.05)
    assert Tower(3, 48, 8, 32).tokens == 17


# --- Memory that arrays take, as tracemalloc counts it -----------------------------------------


def peak_of(function: Callable[[], object]) -> float:
    """Return the bytes that a call holds at most."""
    tracemalloc.start()
    try:
        function()
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def test_a_proof_that_codes_differ_fits_beside_what_small_jobs_have() -> None:
    """The largest that is tried; the job imports neither torch nor pandas."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (36, 36 - known_answer.PROVABLE))
    peak = peak_of(lambda: known_answer.injective(signs, 9, 9))
    assert peak > 4 * 3**known_answer.PROVABLE * known_answer.PROVABLE
    assert peak < (PROCESS_MB - 100) * 2**20


def test_intervals_hold_what_is_drawn() -> None:
    values = np.random.default_rng(0).normal(size=(5000, 3))
    peak = peak_of(lambda: bootstrap.resampled_means(values, 1000, 0))
    assert 0.4 * fits.BESIDE < peak < fits.BESIDE - 6e7  # of a descent


# --- Vision-language models ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llava-hf/llava-onevision-qwen2-7b-ov-hf", 8.03),
        ("llava-hf/llava-onevision-qwen2-0.5b-ov-hf", 0.894),
        ("Qwen/Qwen2-VL-2B-Instruct", 2.21),
        ("Qwen/Qwen2-VL-7B-Instruct", 8.29),
        ("Qwen/Qwen2-VL-72B-Instruct", 73.4),
        ("Qwen/Qwen2.5-VL-3B-Instruct", 3.75),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 8.29),
        ("Qwen/Qwen2.5-VL-32B-Instruct", 33.5),
        ("llava-hf/llava-1.5-7b-hf", 7.06),
        ("llava-hf/llava-1.5-13b-hf", 13.4),
        ("llava-hf/llava-v1.6-mistral-7b-hf", 7.57),
        ("llava-hf/llava-v1.6-vicuna-7b-hf", 7.06),
        ("OpenGVLab/InternVL3-1B-hf", 0.938),
        ("OpenGVLab/InternVL3-2B-hf", 2.09),
        ("OpenGVLab/InternVL3-8B-hf", 7.94),
    ],
)
def test_weights_of_released_language_models(
    name: str, billions: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A gated block has three matrices; 7 billion were forecast at 70 % of their size."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    source = f"hf:{name}@{'0' * 40}"
    assert language.names_language_model(source)
    assert not language.unknown_size(source)
    weights = language.language_model(source).weights
    assert weights == pytest.approx(billions * 1e9, rel=0.04)
    content = {"model": {"source": source}, "texts": True}
    product = Graph(SHARED_STEPS).add("weights", {"model": "m"}, content)
    assert product.work.bytes_disk == pytest.approx(2e9 * billions, rel=0.04)


def test_a_language_model_of_no_known_size_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert language.unknown_size("hf:a/vlm-13b@main") == "the size of hf:a/vlm-13b"
    assert language.unknown_size("hf:OpenGVLab/InternVL3_5-8B-HF@main")
    for tower in ("openai/clip-vit-large-patch14", "facebook/dinov3-vit7b16"):
        assert not language.names_language_model(f"hf:{tower}")


def test_a_released_llava_has_numbers_of_llama_where_its_file_has_none(tmp_path: Path) -> None:
    """Its keys and values are eight times as many as those of Qwen2 with as many weights."""
    text = {"model_type": "llama", "vocab_size": 32_064}
    content = {"model_type": "llava", "text_config": text, "vision_config": {"hidden_size": 1024}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    source = f"hf:path:{tmp_path}"
    assert language.names_language_model(source)
    assert language.language_model(source).cached == 2 * 4096
    assert language.language_model(source).weights == pytest.approx(7.06e9, rel=0.04)


def test_weights_that_are_here_are_counted_by_their_headers(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3, 5), "b": torch.zeros(7)}, tmp_path / "model-1.safetensors")
    save_file({"c": torch.zeros(2, dtype=torch.float16)}, tmp_path / "model-2.safetensors")
    n_bytes, numbers = towers.stored_weights(f"hf:path:{tmp_path}")
    assert numbers == 3 * 5 + 7 + 2
    assert n_bytes == sum(file.stat().st_size for file in tmp_path.iterdir())
    assert towers.stored_weights("timm:vit_base") == (0, 0)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "model.safetensors").write_bytes(b"\xff" * 100)  # a header of 2^64 bytes
    assert towers.stored_weights(f"hf:path:{damaged}") == (0, 0)


def plan_of_heads() -> Graph:
    """Plan the experiment on heads with a model of 7 billion parameters that is not here."""
    source = f"hf:Qwen/Qwen2-VL-7B-Instruct@{'0' * 40}"
    suite = {
        "name": "s",
        "tasks": ["t"],
        "models": ["m"],
        "experiments": ["heads"],
        "batch_size": 20,
        "device": "cpu",
    }
    section = {
        "tasks": [{"name": "t"}],
        "suites": [suite],
        "models": [{"name": "m", "source": source}],
    }
    return build(Config.model_validate({"datasets": [], "studies": {"binding_id": section}}))


def test_conditions_are_answered_several_at_once() -> None:
    """`heads` of a 7B model would answer under 2,440 conditions one by one."""
    several = plan_of_heads()
    (model,) = several.select("binding_id_interventions")[0].content["models"]
    assert model["batch_size"] == 4 * 20
    assert resolve(several.select("weights")[0].content["types"]) == tuple(FAMILIES)
