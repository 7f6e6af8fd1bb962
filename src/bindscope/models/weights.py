"""Weights of published checkpoints: downloaded once, pinned and hashed; found again offline.

A rule that may use the network calls `fetch` and writes what it returns, the manifest; every other
rule calls `resolve` with that manifest and reads local files only. This module does not import
torch; `fetch` of a timm model does, to look up where timm keeps its weights.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from safetensors import SafetensorError

from bindscope.config.models import Pretrained
from bindscope.core.contents import combined_hash, file_sha256, list_files
from bindscope.core.errors import ModelError, first_line, snakemake_command
from bindscope.core.files import read_json

_SETTINGS = ("config.json", "preprocessor_config.json", "processor_config.json")
_WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors", "open_clip_model.safetensors")
_TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "video_preprocessor_config.json",
    "chat_template.jinja",
    "chat_template.json",
)
_SHARDS = "model.safetensors.index.json"
# Arguments of transformers' `from_pretrained`: no network, and no Python of a checkpoint is run.
LOCAL = {"local_files_only": True, "trust_remote_code": False}


# What transformers and timm raise where a file of a checkpoint is damaged or something else.
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    RuntimeError,
    SafetensorError,
)


@dataclass(frozen=True)
class ModelSource:
    """The parts of a `source`: library ("hf" or "timm"), repository or timm's name, revision.

    `path` is a local folder (hf) or file (timm) of the weights.
    """

    library: str
    name: str
    revision: str | None
    path: Path | None


@dataclass(frozen=True)
class Weights:
    """Weights that are on this machine, and what pins them, in words.

    `files` have `path`, `bytes` and `sha256` each (`bindscope.core.contents.list_files`).
    """

    folder: Path
    files: list[dict[str, Any]]
    revision: str

    @property
    def sha256(self) -> str:
        """Hash over names and contents of the files."""
        return combined_hash(self.files)

    @property
    def tensors(self) -> list[Path]:
        """The safetensors files."""
        names = [str(file["path"]) for file in self.files]
        return [self.folder / name for name in names if name.endswith(".safetensors")]


def parse_source(source: str) -> ModelSource:
    """Take a ``timm:`` or ``hf:`` source apart (see `bindscope.config.models.Pretrained`)."""
    library, _, rest = source.partition(":")
    name, marker, path = rest.partition("path:")
    if marker:
        return ModelSource(library, name.rstrip(":"), None, Path(path).expanduser())
    name, _, revision = rest.partition("@")
    return ModelSource(library, name, revision or None, None)


def read_settings(overrides: Mapping[str, Any], folder: Path | None) -> tuple[Any, dict[str, Any]]:
    """Return transformers' configuration, and the overrides that it does not have yet.

    That of random weights (no `folder`) is made of the overrides. Raises what is in `UNREADABLE`.
    """
    from transformers import AutoConfig

    changes = dict(overrides)
    kind = changes.pop("model_type", None)
    if folder is None:
        return AutoConfig.for_model(str(kind), **changes), {}
    return AutoConfig.from_pretrained(folder, **LOCAL), changes


def unread(error: Exception) -> str:
    """Say in one line why transformers did not read a checkpoint."""
    if "trust_remote_code" in str(error):
        return (
            "it brings Python of its own, which is not run; if you have read and trust it, see "
            "docs/threats.md"
        )
    return first_line(error)


def fetch(
    source: str, manifest: Path | None = None, texts: bool = False, types: Sequence[str] = ()
) -> dict[str, Any]:
    """Bring a checkpoint onto this machine and describe it, with its tokenizer if texts are needed.

    The manifest for JSON has `source`, `repo`, `revision` (the commit), `folder`, `files` (path,
    bytes, sha256 each) and `sha256` over all of them. With ``path:`` nothing is downloaded. The
    path where the caller will write it stands in the ModelError if the hub cannot be reached and
    its cache has not all files, or there are no safetensors. Where `types` are listed, those of
    other models are a ModelError before weights come.
    """
    parts = parse_source(source)
    if parts.path is not None:
        return _manifest(source, "", _local(parts, source))
    repo, patterns = _repository(parts)
    patterns = (*patterns, *_TOKENIZER) if texts else patterns
    try:
        about = huggingface_hub.HfApi().model_info(repo, revision=parts.revision)
        names = _needed([file.rfilename for file in about.siblings or ()], patterns, repo)
        if types:
            _refuse_type(repo, str(about.sha), types)
        folder = Path(
            huggingface_hub.snapshot_download(repo, revision=about.sha, allow_patterns=names)
        )
    except ModelError:
        raise
    except Exception as error:  # whatever the hub's client raises, the user can do the same
        with contextlib.suppress(ModelError):
            return _manifest(source, repo, _cached(parts, source, texts))
        raise ModelError(
            f"{repo}@{parts.revision or 'main'}",
            f"the download failed ({type(error).__name__}: {first_line(error)})",
            "check the name, the revision and the network (gated models: `hf auth login`); "
            + (_download(manifest) if manifest else "rerun")
            + "; files that arrived are kept",
        ) from error
    return _manifest(source, repo, Weights(folder, list_files(folder, names), str(about.sha)))


def resolve(config: Pretrained, manifest: Path | None) -> Weights:
    """Find the weights of a pretrained model on this machine, without any network.

    `manifest` is what the download rule wrote; None to look in the Hugging Face cache. If weights
    are missing, incomplete or not those of the manifest, a ModelError names the command to run.
    """
    source = parse_source(config.source)
    if source.path is not None:
        return _local(source, config.source)
    if manifest is None:
        return _cached(source, config.source)
    if not manifest.is_file():
        raise _missing(config.source, f"its manifest {manifest} does not exist", manifest)
    known = read_json(manifest, _download(manifest))
    if known.get("source") != config.source:
        raise _missing(config.source, f"{manifest} is of {known.get('source')!r}", manifest)
    folder = Path(known["folder"])
    if not folder.is_dir():
        folder = _snapshot(known["repo"], known["revision"], config.source, manifest)
    _compare(folder, known["files"], config.source, manifest)
    return Weights(folder, known["files"], str(known["revision"]))


def _refuse_type(repo: str, revision: str, types: Sequence[str]) -> None:
    """Refuse a model of a type that is not listed, by its config.json alone."""
    only = ["config.json"]
    folder = huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=only)
    kind = refuse_quantized(Path(folder), repo).get("model_type")
    if kind not in types:
        raise ModelError(
            repo,
            f"models of type {kind!r} are not supported; nothing else of it was downloaded",
            f"use one of {', '.join(types)}",
        )


def refuse_quantized(folder: Path, where: str) -> dict[str, Any]:
    """Return a folder's config.json; ModelError if it says that weights are quantized."""
    settings: dict[str, Any] = read_json(folder / "config.json", "take another revision")
    if how := settings.get("quantization_config"):
        raise ModelError(
            where,
            f"its weights are quantized ({how.get('quant_method')})",
            "use the checkpoint that they were made from",
        )
    return settings


def _manifest(source: str, repo: str, weights: Weights) -> dict[str, Any]:
    return {
        "source": source,
        "repo": repo,
        "revision": weights.revision,
        "folder": str(weights.folder.absolute()),
        "files": weights.files,
        "sha256": weights.sha256,
    }


def _missing(source: str, problem: str, manifest: Path | None) -> ModelError:
    remedy = (
        "where there is a network, run the pipeline's download rule, or `hf download` into the "
        "same HF_HOME"
    )
    if manifest is not None:
        remedy = f"{_download(manifest)} (HF_HOME must be a folder that the compute nodes see)"
    return ModelError(source, f"its weights are not on this machine: {problem}", remedy)


def _download(manifest: Path) -> str:
    return f"where there is a network, run `{snakemake_command(f'--force {manifest}')}`"


def _local(source: ModelSource, where: str) -> Weights:
    """Return the weights of a ``path:`` source; refuse anything but safetensors."""
    path = source.path
    assert path is not None
    if source.library == "timm":
        if not path.is_file() or path.suffix != ".safetensors":
            raise ModelError(
                where,
                f"{path} is not a safetensors file",
                "give `timm:<model>:path:/file.safetensors`; pickled weights are not read "
                "(convert them with `safetensors.torch.save_file`)",
            )
        return _pinned(path.parent, [path.name])
    if not (path / "config.json").is_file():
        raise ModelError(
            where,
            f"{path} has no config.json",
            "give the folder that `save_pretrained` wrote (`hf:path:/folder`)",
        )
    present = [entry.name for entry in sorted(path.iterdir()) if entry.is_file()]
    return _pinned(path, _needed(present, (*_SETTINGS, _SHARDS, *_WEIGHTS), str(path)))


def _pinned(folder: Path, names: Sequence[str]) -> Weights:
    """Return local files, pinned by their content."""
    files = list_files(folder, names)
    return Weights(folder, files, f"local files, content {combined_hash(files)[:12]}")


def _repository(source: ModelSource) -> tuple[str, tuple[str, ...]]:
    """Return the repository on the hub, and patterns of the files of it that are needed."""
    if source.library == "hf":
        return source.name, (*_SETTINGS, _SHARDS, *_WEIGHTS)
    from bindscope.models.timm_adapter import hub_repository

    repo, filename = hub_repository(source.name)
    return repo, ("config.json", filename) if filename else ("config.json", *_WEIGHTS)


def _needed(present: Sequence[str], patterns: Sequence[str], where: str) -> list[str]:
    """Choose the files to take; one file with all weights is preferred to shards."""
    names = [
        name for name in present if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]
    tensors = [name for name in names if name.endswith(".safetensors")]
    if not tensors:
        others = [name for name in present if name.endswith((".bin", ".pth", ".pt", ".npz", ".h5"))]
        raise ModelError(
            where,
            f"there are no safetensors (there are: {', '.join(others) or 'no weights at all'}), "
            "and pickled weights are not read",
            "take a revision with model.safetensors (the hub's conversion bot opens a pull request "
            "with one: its commit is a revision), or convert the weights and use `path:`",
        )
    if "model.safetensors" in tensors:
        loaded_names = ("model.safetensors", *_SETTINGS, *_TOKENIZER)
        return [name for name in names if name in loaded_names]
    return names


def _snapshot(repo: str, revision: str | None, source: str, manifest: Path | None) -> Path:
    try:
        return Path(
            huggingface_hub.snapshot_download(repo, revision=revision, local_files_only=True)
        )
    except OSError as error:
        problem = f"{repo}@{revision or 'main'} is not in the Hugging Face cache"
        raise _missing(source, problem, manifest) from error


def _cached(source: ModelSource, where: str, texts: bool = False) -> Weights:
    repo, patterns = _repository(source)
    patterns = (*patterns, *_TOKENIZER) if texts else patterns
    folder = _snapshot(repo, source.revision, where, None)
    names = _needed([entry.name for entry in sorted(folder.iterdir())], patterns, where)
    if _SHARDS in names:
        index = read_json(folder / _SHARDS, "delete it and download the weights again")
        shards = set(index["weight_map"].values())
        if lacking := sorted(shards - set(names)):
            raise _missing(where, f"{folder / lacking[0]} is not in the Hugging Face cache", None)
    return Weights(folder, list_files(folder, names), folder.name)


def _compare(folder: Path, entries: Sequence[dict[str, Any]], source: str, manifest: Path) -> None:
    for entry in entries:
        path = folder / str(entry["path"])
        if not path.is_file():
            raise _missing(source, f"{path} is gone", manifest)
        if path.stat().st_size != entry["bytes"] or file_sha256(path) != entry["sha256"]:
            raise ModelError(
                str(path),
                f"it is not the file that {manifest} describes",
                f"delete it; {_download(manifest)}",
            )
