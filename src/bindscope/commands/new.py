"""Write a configuration for models of a user's choice, next to the zoo's objectives."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from bindscope.commands.new_sections import (
    OF_IMAGES,
    RESERVED,
    STUDIES,
    ZOO_PX,
    Entry,
    UserImages,
    configuration,
    read_labels,
)
from bindscope.config.loading import load_config
from bindscope.config.models import AnyModel, Pretrained, function_of, pinned
from bindscope.core.errors import BindscopeError, InputError, first_line
from bindscope.core.files import write_atomic
from bindscope.core.registries import LANGUAGE_TYPES
from bindscope.graph.towers import settings, tower_of
from bindscope.sources.survey import with_counts

_DEPTHS = {"tiny": 12, "small": 12, "base": 12, "large": 24, "huge": 32, "giant": 40}


def write_new(
    path: Path,
    models: Sequence[str],
    study: str,
    images: Path | None = None,
    labels: Path | None = None,
) -> int:
    """Write a configuration that runs as it stands, and print what is known of its models.

    Parameters
    ----------
    path
        The file to write.
    models
        ``hf:<repo>@<commit>``, ``timm:<model>``, ``path:<folder>`` of `save_pretrained`, or
        ``python:<module>:<function>``, which returns a whole model.
    study
        One of `STUDIES`.
    images, labels
        A folder of images, and a CSV or Parquet file with a row per object; none: scenes are
        rendered.

    Raises
    ------
    BindscopeError
        If there is no such study, a model, an image or a label cannot be used, or `path` holds
        something else.
    """
    if study not in STUDIES:
        raise _no_study(study)
    dataset = _images(study, images, labels)
    entries: list[Entry] = []
    for source in models:
        reserved = [entry.keys["name"] for entry in entries]
        entries.append(
            describe_language(source, reserved)
            if study == "binding_id"
            else describe(source, reserved)
        )
        print(f"{entries[-1].keys['name']}: {entries[-1].comment}")
    text = configuration(path, study, entries, dataset)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise InputError(
            str(path), "is there already, with other content", "name another file, or delete it"
        )
    write_atomic(path, text)  # whatever is wrong with images: `source.skip` is a key of it
    print(f"{path}: written")
    load_config(with_counts(yaml.safe_load(text)), str(path))
    print(f"Next: bindscope plan --configfile {path}")
    return 0


def _images(study: str, images: Path | None, labels: Path | None) -> UserImages | None:
    """Return the user's images, and say what was read of their table."""
    if images and not labels:
        raise InputError(
            str(images),
            "has no labels",
            "add --labels FILE: a row per object (docs/own_datasets.md)",
        )
    if not labels:
        return None
    if study not in OF_IMAGES:
        raise InputError(
            study,
            "is not written for images of your own",
            "choose --study binding_information or same_object; for concepts see `slots` in "
            "docs/own_datasets.md, for binding_id `records` in docs/arrays.md",
        )
    dataset = read_labels(labels, images)
    sizes = [f"{group['name']} ({group['size']})" for group in dataset.keys["space"]["groups"]]
    print(f"{labels}: {dataset.comment}; feature groups: {', '.join(sizes)}")
    if study == "same_object" and "masks" not in dataset.keys["source"]:
        raise InputError(
            str(labels),
            "has no masks, from which the objects of patches are read",
            "add the columns `mask` (a PNG per image) and `id` (the object's number in it)",
        )
    return dataset


def describe_language(source: str, reserved: Sequence[str] = ()) -> Entry:
    """Return the entry of a vision-language model, whose files are looked up on this machine."""
    source = _with_path(source, ("hf",), "hf:<repo>@<commit> or path:<folder>")
    keys = {"name": _slug(source, reserved), "source": source}
    try:
        pinned(source)
    except ValueError as error:
        raise InputError(source, str(error), "see `models` in config/README.md") from None
    kind = settings(source).get("model_type")
    repo, _, revision = source.removeprefix("hf:").partition("@")
    if kind is None and repo.startswith("path:"):
        raise InputError(source, "has no config.json", "name a folder of `save_pretrained`")
    if kind is None:
        return Entry(keys, f"not downloaded yet: `hf download {repo} --revision {revision}` does")
    if kind not in LANGUAGE_TYPES:
        raise InputError(
            source,
            f"models of type {kind!r} are not supported",
            f"use one of {', '.join(LANGUAGE_TYPES)}",
        )
    return Entry(keys, f"a model of type {kind}{_size_on_disk(keys)}")


def describe(source: str, reserved: Sequence[str] = ()) -> Entry:
    """Return the entry of a model, whose shape and files are looked up on this machine."""
    known_schemes = ("hf", "timm", "python")
    kinds = "hf:<repo>@<commit>, timm:<model>, path:<folder> or python:<module>:<function>"
    source = _with_path(source, known_schemes, kinds)
    keys: dict[str, Any] = {"name": _slug(source, reserved), "source": source}
    keys["n_layers"], known = _depth(source.partition(":")[0], source)
    return _check(keys, known)


def _with_path(source: str, schemes: Sequence[str], kinds: str) -> str:
    """Return a source as configurations have it; a folder's is `hf:path:`."""
    scheme, _, rest = source.partition(":")
    if scheme == "path":
        return f"hf:path:{Path(rest).expanduser().resolve()}"
    if scheme not in schemes:
        raise InputError(source, "is no model that can be used here", f"write {kinds}")
    try:
        return function_of(source)
    except ValueError as error:
        raise InputError(source, str(error), f"write {kinds}") from None


def _validated(kind: Any, keys: dict[str, Any]) -> Any:
    try:
        return TypeAdapter[Any](kind).validate_python(keys)
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(str(keys["source"]), problem, "see `models` in config/README.md") from None


def _slug(source: str, reserved: Sequence[str]) -> str:
    last = re.split(r"[/:]", source.partition("@")[0].rstrip("/"))[-1].split(".")[0]
    name = re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-")[:29].strip("-") or "model"
    names = {*reserved, *RESERVED}
    copies = (f"{name}-{i}" for i in range(2, len(names) + 3))
    return next(slug for slug in (name, *copies) if slug not in names)


def _depth(scheme: str, source: str) -> tuple[int, bool]:
    """Return the number of blocks, and whether it is known and not guessed from the name."""
    if scheme == "timm":
        import timm
        import torch

        name = source.partition(":")[2].partition("@")[0]
        if not timm.is_model(name):
            raise InputError(source, "timm knows no such model", "choose one of timm.list_models()")
        with torch.device("meta"):
            network: Any = timm.create_model(name, pretrained=False)
        if not getattr(network, "blocks", ()):
            raise InputError(
                source,
                f"{type(network).__name__} is not a plain vision transformer (it has no "
                "row of blocks)",
                "choose one of timm's ViT, DeiT, BEiT, EVA, DINOv2/v3, CLIP or "
                "SigLIP models; or read its modules by `python:timm:create_model` "
                "(docs/add_model.md)",
            )
        return len(network.blocks), True
    if scheme == "python":
        from bindscope.core.registries import resolve

        try:
            model = resolve(source.partition(":")[2])()
            return int(model.n_layers), True
        except Exception as error:
            raise InputError(
                source,
                f"does not give a model with n_layers ({first_line(error)})",
                "name a function without required arguments, in a module on PYTHONPATH; for an "
                "nn.Module, see `modules` in docs/add_model.md",
            ) from error
    known = settings(source)
    depth = known.get("vision_config", known).get("num_hidden_layers")
    if depth:
        return int(depth), True
    return next((n for word, n in _DEPTHS.items() if word in source.lower()), 12), False


def _check(keys: dict[str, Any], known: bool) -> Entry:
    """Load a model and describe it; one that is not on this machine is described by its name."""
    from bindscope.models.loading import load_model

    source, revision = str(keys["source"]).partition("@")[::2]
    model_config = _validated(AnyModel, keys)
    if source.startswith("hf:"):
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model = load_model(model_config, None, "cpu", ZOO_PX)
    except BindscopeError as error:
        if "not on this machine" not in error.problem:
            raise
        tower = tower_of(keys, ZOO_PX)
        depth = f"{keys['n_layers']} blocks" + ("" if known else " (guessed from the name: check)")
        repo = source.partition(":")[2]
        command = f"hf download {repo} --revision {revision}" if source[:3] == "hf:" else "make run"
        side = tower.input_px // tower.patch_px
        patches = f"{side} x {side} patches of {tower.patch_px} px"
        text = f"{depth}, {patches}; not downloaded yet: `{command}` does"
        return Entry(keys, text, (side, side), tower.input_px, tower.vectors > 0)
    tokens = model.token_map
    text = (
        f"{model.n_layers} blocks of width {model.dim}, {tokens.grid[0]} x {tokens.grid[1]} patches"
        f" of {tokens.patch_px} px, {tokens.registers} registers"
    )
    if isinstance(model_config, Pretrained):
        text += _size_on_disk(keys)
    side = max(tokens.grid) * tokens.patch_px
    return Entry(keys, text, tokens.grid, side, tokens.has_cls)


def _size_on_disk(keys: dict[str, Any]) -> str:
    """Say what the files of a model on this machine take; empty where they are not here."""
    from bindscope.models.weights import resolve

    try:
        files = resolve(_validated(Pretrained, {"n_layers": 1, **keys}), None).files
    except BindscopeError:
        return ""
    return f", {sum(file['bytes'] for file in files) / 1e6:.1f} MB on disk"


def ask() -> tuple[Path, list[str], str, Path | None, Path | None]:
    """Ask for what the command line left out: models, study, images, file."""
    if not sys.stdin.isatty():
        raise InputError(
            "bindscope new",
            "needs a file and a model where there is no terminal",
            "bindscope new my-run.yaml --model timm:vit_small_patch16_224.augreg_in21k",
        )
    models = input(
        "Models, separated by spaces (hf:<repo>@<commit>, timm:<model>, path:<folder>, ...): "
    ).split()
    study = input(f"Study ({', '.join(STUDIES)}) [{STUDIES[0]}]: ").strip() or STUDIES[0]
    if study not in STUDIES:
        raise _no_study(study)
    if not models:
        raise InputError("bindscope new", "no model was named", "name one, such as timm:<model>")
    labels = input("Labels of your own images, a CSV or Parquet file [rendered scenes]: ").strip()
    path = Path(input("File to write [my-run.yaml]: ").strip() or "my-run.yaml")
    return path, models, study, None, Path(labels).expanduser() if labels else None


def _no_study(name: str) -> InputError:
    return InputError(name, "is no study that is written", f"choose {', '.join(STUDIES)}")
