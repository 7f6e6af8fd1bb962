"""Checkpoints are data: what they name or contain is never run."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import save_file

from bindscope.config.models import Pretrained
from bindscope.core.errors import ModelError
from bindscope.models import hf_adapter, hf_texts, remote_code
from bindscope.studies.binding_id.config import VisionLanguageModel
from bindscope.studies.binding_id.vlm import loading


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint that wants its own Python run, and a user who answers the prompt with yes."""
    monkeypatch.setattr(builtins, "input", lambda *_: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path))
    names = {"AutoConfig": "code.Any", "AutoTokenizer": ["code.Any", None]}
    for file in "config.json", "tokenizer_config.json":
        (tmp_path / file).write_text(json.dumps({"model_type": "mine", "auto_map": names}))
    (tmp_path / "code.py").write_text(f'from pathlib import Path\nPath("{tmp_path}/ran").touch()\n')
    save_file({"w": torch.zeros(1)}, tmp_path / "model.safetensors")
    return tmp_path


def pretrained(folder: Path) -> Pretrained:
    return Pretrained(name="theirs", source=f"hf:path:{folder}", n_layers=1)


def load_vision(folder: Path) -> None:
    hf_adapter.load(pretrained(folder), None, torch.device("cpu"))


def load_texts(folder: Path) -> None:
    hf_texts._settings(pretrained(folder), folder, "here")


def load_tokenizer(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "vit"}')
    (folder / "vocab.json").write_text("{}")
    hf_texts._tokenizer(folder, "here")


def load_both(folder: Path) -> None:
    theirs = VisionLanguageModel(name="theirs", source=f"hf:path:{folder}")
    loading._opened(theirs, None, "here")


@pytest.mark.parametrize("load", [load_vision, load_texts, load_tokenizer, load_both])
def test_python_of_a_checkpoint_is_not_run(load: Callable[[Path], None], folder: Path) -> None:
    with pytest.raises(ModelError, match="brings Python of its own"):
        load(folder)
    assert not (folder / "ran").exists()


def test_remote_code_needs_a_word_and_a_commit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: dict[str, object] = {}
    monkeypatch.setattr(
        transformers.AutoModel, "from_pretrained", lambda *_, **options: passed.update(options)
    )
    for options, message in (
        ({"revision": "0" * 40}, "set `options: {trust_remote_code: true}`"),
        ({"revision": "0" * 40, "trust_remote_code": "yes"}, "runs the repository's Python"),
        ({"revision": "main", "trust_remote_code": True}, "'main' pins no commit"),
    ):
        with pytest.raises(ModelError, match=message):
            remote_code.load(str(folder), **options)
    assert not passed
    remote_code.load(str(folder), "0" * 40, trust_remote_code=True)
    assert passed["revision"] == passed["code_revision"] == "0" * 40
