"""A cache in the layout of the Hugging Face hub, and what is written into its snapshots."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

NO_COMMIT = "1" * 40  # of what a preset names without a commit: the main branch's


class Hub:
    """A cache that `huggingface_hub` reads with HF_HUB_CACHE=<folder> and HF_HUB_OFFLINE=1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def snapshot(self, repo: str, revision: str | None) -> Path:
        """Return the folder of a repository at a commit, made if it is not there."""
        home = self.folder / f"models--{repo.replace('/', '--')}"
        commit = revision or NO_COMMIT
        if revision is None:
            (home / "refs").mkdir(parents=True, exist_ok=True)
            (home / "refs" / "main").write_text(commit)
        snapshot = home / "snapshots" / commit
        snapshot.mkdir(parents=True, exist_ok=True)
        return snapshot


def write(folder: Path, **files: Mapping[str, Any]) -> None:
    """Write JSON files: `config={...}` is config.json."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2))


def drawn(model: torch.nn.Module, seed: int) -> dict[str, Tensor]:
    """Return a model's weights by the library's names, drawn so that signals neither die nor grow.

    A library's own initialisation is for training: with it, tokens of a deep random model differ
    by so little that probes and editing say nothing about what a released model would do.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, weight in model.state_dict().items():
        if not weight.is_floating_point():
            weights[name] = weight.clone()
        elif weight.ndim >= 2 and "embed" not in name:
            scale = 1 / math.sqrt(weight[0].numel())
            weights[name] = torch.randn(weight.shape, generator=generator) * scale
        elif weight.ndim >= 2 or "token" in name:
            weights[name] = torch.randn(weight.shape, generator=generator) * 0.5
        else:  # norms, biases and scales of layers
            weights[name] = weight + 0.05 * torch.randn(weight.shape, generator=generator)
    return weights


def save(
    folder: Path,
    model: Any,
    seed: int,
    released: Callable[[str], str | None] = str,
    shards: int = 1,
) -> None:
    """Write a model's weights in safetensors, under the names of a release.

    Parameters
    ----------
    folder
        Snapshot.
    model
        A model of transformers, whose `save_pretrained` gives the names of older versions.
    seed
        Of the weights.
    released
        From the name that `save_pretrained` writes to that of the released file; None: the release
        has no such tensor.
    shards
        Files to spread them over, with an index.
    """
    model.load_state_dict(drawn(model, seed))
    model.save_pretrained(folder / "as-saved")
    saved = folder / "as-saved" / "model.safetensors"
    from safetensors.torch import load_file

    tensors = {
        new: tensor.clone() for name, tensor in load_file(saved).items() if (new := released(name))
    }
    for path in (folder / "as-saved").iterdir():
        path.unlink()
    (folder / "as-saved").rmdir()
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    files = {
        name: f"model-{1 + i * shards // len(names):05d}-of-{shards:05d}.safetensors"
        for i, name in enumerate(names)
    }
    for file in sorted(set(files.values())):
        part = {name: tensors[name] for name in names if files[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
