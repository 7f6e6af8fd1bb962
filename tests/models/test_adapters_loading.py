"""Token maps, weights on disk, devices, and a user's own model."""

import hashlib
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from bindscope.config.models import AnyModel, Pretrained, PythonModel
from bindscope.core import contents, devices
from bindscope.core.contents import content_key
from bindscope.core.devices import hold_device
from bindscope.core.errors import InputError, ModelError
from bindscope.core.files import CACHE
from bindscope.core.graph import Graph
from bindscope.core.interfaces import Model
from bindscope.core.registries import resolve
from bindscope.graph.activations import add_weights
from bindscope.graph.steps import SHARED_STEPS
from bindscope.models import weights
from bindscope.models.base import TokenMap, ordered_layers
from bindscope.models.hf_adapter import FAMILIES
from bindscope.models.loading import load_model

SHA = "47b73eefe95e8d44ec3623f8890bd894b6ea2d6c"


# --- token maps ------------------------------------------------------------------------------


@given(
    registers=st.integers(0, 8),
    others=st.integers(0, 3),
    has_cls=st.booleans(),
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    patch_px=st.integers(1, 32),
)
def test_token_map_covers_every_token_once(
    registers: int, others: int, has_cls: bool, rows: int, columns: int, patch_px: int
) -> None:
    prefix = registers + others + has_cls
    tokens = TokenMap(prefix, registers, (rows, columns), patch_px, has_cls)
    assert TokenMap(**json.loads(json.dumps(asdict(tokens)))) == tokens
    sequence = list(range(tokens.n_tokens))
    assert len(sequence[tokens.patches]) == rows * columns == tokens.n_patches
    assert len(sequence[tokens.register_tokens]) == registers
    assert sequence[: tokens.prefix] + sequence[tokens.patches] == sequence
    assert sequence[tokens.register_tokens] == sequence[prefix - registers : prefix]
    if tokens.has_cls:
        assert 0 not in sequence[tokens.register_tokens]
    tokens.check(tokens.n_tokens, "here")
    with pytest.raises(ModelError, match=f"here: {tokens.n_tokens + 1} tokens"):
        tokens.check(tokens.n_tokens + 1, "here")


@pytest.mark.parametrize(
    "fields",
    [
        (4, 4, (2, 2), 8, True),
        (1, -1, (2, 2), 8, True),
        (1, 0, (0, 2), 8, True),
    ],
)
def test_impossible_token_maps(fields: tuple[Any, ...]) -> None:
    with pytest.raises(ModelError, match="token map"):
        TokenMap(*fields)


def test_layers_are_ordered_and_checked() -> None:
    assert ordered_layers(["final", 3, 0, 3], 4, "m") == [0, 3, "final"]
    assert ordered_layers([], 4, "m") == []
    for wrong in (5, -1, "last", True, 2.0):
        with pytest.raises(ModelError, match="there is no layer"):
            ordered_layers([wrong], 4, "m")


# --- weights ---------------------------------------------------------------------------------


def pretrained(source: str, **changes: Any) -> Pretrained:
    return Pretrained(**{"name": "m", "source": source, "n_layers": 2, **changes})


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (f"hf:facebook/dinov2-large@{SHA}", ("hf", "facebook/dinov2-large", SHA, None)),
        ("timm:vit_tiny.augreg", ("timm", "vit_tiny.augreg", None, None)),
        ("timm:vit:path:/a@b/c.safetensors", ("timm", "vit", None, Path("/a@b/c.safetensors"))),
    ],
)
def test_sources(source: str, parts: tuple[Any, ...]) -> None:
    assert weights.parse_source(source) == weights.ModelSource(*parts)


def test_content_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_REMEMBER_BYTES", 5)
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        (folder / "sub").mkdir(parents=True)
        (folder / "a.safetensors").write_bytes(b"weights")
        (folder / "sub" / "b.json").write_bytes(b"{}")
    key = content_key(here)
    assert key == content_key(there) == content_key(str(here))
    (there / ".lock").touch()
    assert content_key(there) == key
    (there / "a.safetensors").rename(there / "c.safetensors")
    assert content_key(there) != key
    (here / "a.safetensors").write_bytes(b"Weights")
    assert content_key(here) != key
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 3  # three large files were seen
    with pytest.raises(InputError, match="no such file or folder"):
        content_key(tmp_path / "absent")


class Hub:
    """A pretend hub with one repository; counts what is asked of it."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.cache, self.names, self.online = folder / SHA, names, True
        self.asked: list[Any] = []

    def model_info(self, repo: str, revision: str | None) -> Any:
        """Stand in for `HfApi.model_info`."""
        if not self.online:
            raise ConnectionError("no network")
        self.asked.append((repo, revision))
        return SimpleNamespace(sha=SHA, siblings=[SimpleNamespace(rfilename=n) for n in self.names])

    def snapshot_download(
        self,
        repo: str,
        revision: str | None,
        local_files_only: bool = False,
        allow_patterns: list[str] | None = None,
    ) -> str:
        """Stand in for `huggingface_hub.snapshot_download`."""
        if local_files_only:
            if not self.cache.is_dir():
                raise huggingface_hub.errors.LocalEntryNotFoundError("not there")
            return str(self.cache)
        assert allow_patterns is not None
        self.cache.mkdir(parents=True, exist_ok=True)
        for name in allow_patterns:
            (self.cache / name).write_text(f"content of {name}")
        self.asked.append(allow_patterns)
        return str(self.cache)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    pretend = Hub(
        tmp_path,
        [
            "README.md",
            "config.json",
            "preprocessor_config.json",
            "model.safetensors",
            "pytorch_model.bin",
            "tf_model.h5",
            "onnx/model.safetensors",
        ],
    )
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: pretend)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", pretend.snapshot_download)
    return pretend


CONFIG = pretrained(f"hf:some/model@{SHA}")


def test_fetch_takes_what_is_needed_and_describes_it(hub: Hub) -> None:
    manifest = weights.fetch(CONFIG.source)
    assert hub.asked[0] == ("some/model", SHA)
    assert hub.asked[1] == ["config.json", "preprocessor_config.json", "model.safetensors"]
    assert json.loads(json.dumps(manifest)) == manifest
    assert manifest["revision"] == SHA
    assert manifest["folder"] == str(hub.cache)
    entry = next(e for e in manifest["files"] if e["path"] == "model.safetensors")
    content = b"content of model.safetensors"
    digest = hashlib.sha256(content).hexdigest()
    assert entry == {"path": "model.safetensors", "bytes": len(content), "sha256": digest}
    assert manifest["sha256"] == content_key(hub.cache)


def test_fetch_takes_shards_and_refuses_pickles(hub: Hub) -> None:
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    hub.names = ["config.json", "model.safetensors.index.json", *shards, "pytorch_model.bin"]
    files = [entry["path"] for entry in weights.fetch(CONFIG.source)["files"]]
    assert files == sorted(["config.json", "model.safetensors.index.json", *shards])
    hub.names = ["config.json", "pytorch_model.bin"]
    with pytest.raises(ModelError, match=r"no safetensors \(there are: pytorch_model.bin\)"):
        weights.fetch(CONFIG.source)


def test_a_type_that_nothing_reads_is_refused_before_its_weights_come(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(repo: str, **options: Any) -> str:
        folder = hub.snapshot_download(repo, **options)
        (hub.cache / "config.json").write_text(json.dumps(settings))
        return folder

    settings: dict[str, Any] = {"model_type": "pixtral"}

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(
        ModelError, match=r"(?s)'pixtral' are not supported.*use one of llava, qwen"
    ):
        weights.fetch(CONFIG.source, None, True, ("llava", "qwen"))
    assert hub.asked[1:] == [["config.json"]]
    assert weights.fetch(CONFIG.source, None, True, ("pixtral",))["files"]
    settings["quantization_config"] = {"quant_method": "awq", "bits": 4}
    with pytest.raises(ModelError, match=r"its weights are quantized \(awq\)"):
        weights.fetch(CONFIG.source, None, True, ("pixtral",))


def test_vision_models_are_refused_by_their_type_too() -> None:
    """What the pipeline's download rule gets of a model of `models:`."""
    timm = pretrained("timm:vit_tiny_patch16_224.augreg_in21k", name="timm")
    graph = Graph(SHARED_STEPS)
    products = [add_weights(graph, model, {}, ()) for model in (CONFIG, timm)]
    specs = [product.content for product in products if product]
    assert set(resolve(specs[0]["types"])) >= {*FAMILIES, "clip", "aimv2"}
    assert "types" not in specs[1]


def test_a_folder_is_written_as_commands_take_it() -> None:
    entry = TypeAdapter(AnyModel).validate_python(
        {"name": "mine", "source": "path:/data/my-vit", "n_layers": 2}
    )
    assert entry == pretrained("hf:path:/data/my-vit", name="mine")
    assert weights.parse_source(entry.source).path == Path("/data/my-vit")
    assert not entry.downloads


def test_fetch_without_network_takes_what_the_cache_has(hub: Hub) -> None:
    online = weights.fetch(CONFIG.source)
    hub.online = False
    assert weights.fetch(CONFIG.source) == online
    (hub.cache / "model.safetensors").unlink()
    index = {
        "weight_map": {
            "a": "model-00001-of-00002.safetensors",
            "b": "model-00002-of-00002.safetensors",
        }
    }
    (hub.cache / "model.safetensors.index.json").write_text(json.dumps(index))
    (hub.cache / "model-00001-of-00002.safetensors").write_text("the first half")
    with pytest.raises(ModelError, match="the download failed"):
        weights.fetch(CONFIG.source)
    (hub.cache / "model-00002-of-00002.safetensors").write_text("the second half")
    assert len(weights.fetch(CONFIG.source)["files"]) == 5


def test_fetch_of_local_files(hub: Hub, tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    file.write_bytes(b"weights")
    manifest = weights.fetch(f"timm:vit:path:{file}")
    assert manifest["sha256"] == content_key(file)
    assert hub.asked == []
    for wrong in ("timm:vit:path:/no/w.bin", f"hf:path:{tmp_path}"):
        with pytest.raises(ModelError):
            weights.fetch(wrong)


def test_resolve_reads_the_manifest_and_the_disk_only(hub: Hub, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(weights.fetch(CONFIG.source)))
    hub.online = False
    checkpoint = weights.resolve(CONFIG, manifest)
    assert checkpoint.tensors == [hub.cache / "model.safetensors"]
    assert checkpoint.revision == SHA
    assert checkpoint == weights.resolve(CONFIG, None)  # a notebook: the cache, no manifest

    moved = json.loads(manifest.read_text()) | {"folder": "/another/node/cache"}
    manifest.write_text(json.dumps(moved))
    assert weights.resolve(CONFIG, manifest).folder == hub.cache

    (hub.cache / "model.safetensors").write_text("content of model.safetensorz")
    with pytest.raises(ModelError, match=r"not the file that .*manifest.json describes"):
        weights.resolve(CONFIG, manifest)
    mismatched = pretrained(f"hf:other/model@{SHA}")
    with pytest.raises(ModelError, match=r"is of 'hf:some/model"):
        weights.resolve(mismatched, manifest)


def test_offline_error_names_the_command(hub: Hub, tmp_path: Path) -> None:
    manifest = tmp_path / "weights" / "m.json"
    command = f"snakemake --cores all --force {manifest}"
    with pytest.raises(ModelError, match="does not exist") as caught:
        load_model(CONFIG, manifest, "cpu")
    assert command in caught.value.remedy
    manifest.parent.mkdir()
    manifest.write_text(json.dumps(weights.fetch(CONFIG.source)))
    (hub.cache / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="is gone") as caught:
        load_model(CONFIG, manifest, "cpu")
    assert command in caught.value.remedy


# --- devices ---------------------------------------------------------------------------------


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.visible_devices() == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ModelError, match=r"sees no GPU here \(CUDA_VISIBLE_DEVICES=''\)") as caught:
        load_model(CONFIG, None, "cuda:0")
    assert "device: cpu" in caught.value.remedy
    with pytest.raises(ModelError, match="sees no GPU"), hold_device("cuda"):
        pass
    with hold_device("cpu") as device:
        assert device == "cpu"


def test_two_jobs_take_two_devices_and_a_third_waits(tmp_path: Path) -> None:
    pretend = {"devices": ["GPU-a", "GPU-b"], "folder": tmp_path / "locks", "poll_s": 0.01}
    with hold_device("cuda", **pretend) as first, hold_device("cuda", **pretend) as second:
        assert (first, second) == ("cuda:0", "cuda:1")
        with (
            pytest.raises(ModelError, match="hold all 2 GPUs") as caught,
            hold_device("cuda", patience_s=0.05, **pretend),
        ):
            pass
        assert "--resources gpu=2" in caught.value.remedy
    with hold_device("cuda", **pretend) as again:
        assert again == "cuda:0"


_HOLDER = """
import sys, time
from pathlib import Path
from bindscope.core.devices import hold_device
with hold_device("cuda", devices=["GPU-a"], folder=Path(sys.argv[1])) as device:
    print(device, flush=True)
    time.sleep(60)
"""


def test_the_lock_of_a_killed_job_is_gone(tmp_path: Path) -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    pretend = {"devices": ["GPU-a"], "folder": tmp_path, "poll_s": 0.01}
    with job:
        assert job.stdout is not None
        assert job.stdout.readline().strip() == "cuda:0"
        all_busy = pytest.raises(ModelError, match="hold all 1 GPUs")
        with all_busy, hold_device("cuda", patience_s=0, **pretend):
            pass
        job.kill()
        started = time.monotonic()
        with hold_device("cuda", patience_s=20, **pretend) as device:
            assert device == "cuda:0"
        assert time.monotonic() - started < 20


# --- a user's own model ----------------------------------------------------------------------


class Own:
    """The smallest model: pixels are tokens."""

    n_layers, dim, revision, weights_sha256 = 1, 3, "mine", "0" * 64

    def __init__(self, side: int) -> None:
        self.token_map = TokenMap(0, 0, (side, side), 1, has_cls=False)

    def preprocess(self, images: np.ndarray) -> torch.Tensor:
        """Scale to [0, 1]."""
        return torch.from_numpy(images / 255).float().permute(0, 3, 1, 2)

    def residual_stream(self, pixels: torch.Tensor, layers: Any) -> Any:
        """Give the pixels as every layer."""
        yield from ((layer, pixels.flatten(2).transpose(1, 2)) for layer in layers)


def make(scale: int, device: torch.device, input_px: int) -> Own:
    assert device.type == "cpu"
    return Own(scale * input_px)


def make_broken() -> Any:
    return SimpleNamespace(n_layers="2", token_map={}, preprocess=print)


def make_plain(scale: int = 1) -> Own:
    return Own(scale)


def ours(function: str, n_layers: int = 1, **options: Any) -> PythonModel:
    source = f"python:{__name__}:{function}"
    return PythonModel(name="own", source=source, n_layers=n_layers, options=options)


def test_own_model() -> None:
    model = load_model(ours("make", scale=2), None, "cpu", 4)
    assert isinstance(model, Model)
    assert model.token_map.grid == (8, 8)
    assert load_model(ours("make_plain", scale=3), None, "cpu", 4).token_map.grid == (3, 3)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            ours("make_broken"),
            r"`n_layers` is str, not int; `dim` \(int\) is missing; `token_map` "
            r"is dict, not TokenMap; (.|\n)*method `residual_stream` is missing(.|\n)*add_model.md",
        ),
        (ours("make_absent"), "has no function 'make_absent'"),
        (ours("make"), "missing a required argument: 'scale'"),
        (ours("make_plain", n_layers=2), "it has 1 blocks, the configuration says 2"),
        (
            pretrained(f"hf:some/model@{SHA}", overrides={"depth": 2}),
            "`overrides` change the architecture",
        ),
    ],
)
def test_models_that_make_no_sense(config: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(config, None, "cpu", 4)
