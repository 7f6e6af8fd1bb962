"""Write a configuration for models of a user's choice, next to the zoo's objectives."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import TypeAdapter, ValidationError

from bindscope.config.loading import load_config
from bindscope.config.models import AnyModel, Pretrained
from bindscope.core.errors import BindscopeError, InputError
from bindscope.core.files import write_atomic
from bindscope.graph.towers import settings, tower_of

STUDIES = ("binding_information", "same_object")
_DEPTHS = {"tiny": 12, "small": 12, "base": 12, "large": 24, "huge": 32, "giant": 40}
_SCENES_PX = 96
_HEAD = """\
# Written by `bindscope new`; every key: config/README.md. Show what would run: `bindscope plan
# --configfile {file}`; run it: `make run CONFIG={file}`.

datasets:
  # Colored shapes, 6 of 8 colors with 6 of 8 shapes, each once. Only the pairing is left open.
  - name: matching
    space: {{kind: balanced, chosen: [6, 6], n_objects: 6,
            groups: [{{name: color, size: 8}}, {{name: shape, size: 8}}]}}
    split: {{rule: random}}
    n_scenes: &counts {{train: 4000, val: 500, test: 1000}}
    shard_size: *counts
    render: {{kind: shapes, size_px: 96, object_px: 24, margin_px: 2, placement: grid}}

models:
{models}
  # The zoo: small models that differ in their training objective, three training seeds of each.
  - {{name: objects, source: "zoo:matching-objects-{{seed}}", seeds: [0, 1, 2]}}
  - {{name: features, source: "zoo:matching-features-{{seed}}", seeds: [0, 1, 2]}}
  - {{name: untrained, source: "zoo:matching-none-{{seed}}", seeds: [0, 1, 2]}}

studies:
{study}
report: {{title: "{title}"}}
"""
_SECTIONS = {
    "binding_information": """\
  binding_information:
    probes:
      - {{name: linear, family: linear, targets: [chained]}}
    fits:
      - {{name: last-layers, datasets: [matching], models: [{names}, objects, features, untrained],
         layers: last, tokens: [cls, mean], probes: [linear]}}
""",
    "same_object": """\
  same_object:
    sampling: {{class_groups: [color, shape]}}
    scenes: {{train: 600, val: 300, test: 600}}
    probes:
      - {{name: quadratic, family: quadratic, l2: [0.1, 0.01]}}
      - {{name: position, family: position}}
    fits:
      - {{name: zoo, datasets: [matching], models: [objects, features, untrained], layers: last,
         probes: [quadratic, position]}}
{fits}""",
}


class Entry(NamedTuple):
    """A model of the configuration: its keys, and what is known of it, in a line."""

    keys: dict[str, Any]
    comment: str
    grid: tuple[int, int]


def write_new(path: Path, models: Sequence[str], study: str) -> int:
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

    Raises
    ------
    BindscopeError
        If a model cannot be used, or `path` holds something else.
    """
    entries: list[Entry] = []
    for source in models:
        entry = describe(source, [old.keys["name"] for old in entries])
        print(f"{entry.keys['name']}: {entry.comment}")
        entries.append(entry)
    names = ", ".join(entry.keys["name"] for entry in entries)
    lines = "\n".join(f"  # {e.comment}\n  - {_flow(e.keys)}" for e in entries)
    # Rows and columns of patches are the model's own, which pairs of patches have to fit.
    fits = "".join(
        f"      - {{name: {e.keys['name']}, datasets: [matching], models: [{e.keys['name']}], "
        f"layers: last,\n         patch_grid: {list(e.grid)}, probes: [quadratic, position]}}\n"
        for e in entries
    )
    section = _SECTIONS[study].format(names=names, fits=fits)
    text = _HEAD.format(file=path, models=lines, study=section, title=f"{names} next to the zoo")
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise InputError(
            str(path), "is there already, with other content", "name another file, or delete it"
        )
    load_config(yaml.safe_load(text), str(path))
    write_atomic(path, text)
    print(f"{path}: written. Next: bindscope plan --configfile {path}")
    return 0


def describe(source: str, taken: Sequence[str] = ()) -> Entry:
    """Return the entry of a model, whose shape and files are looked up on this machine."""
    scheme, _, rest = source.partition(":")
    if scheme == "path":
        source, scheme = f"hf:path:{Path(rest).expanduser().resolve()}", "hf"
    if scheme not in ("hf", "timm", "python"):
        raise InputError(
            source, "is no model that can be used here",
            "write hf:<repo>@<commit>, timm:<model>, path:<folder> or python:<module>:<function>",
        )  # fmt: skip
    keys: dict[str, Any] = {"name": _slug(source, taken), "source": source}
    keys["n_layers"], known = _depth(scheme, source)
    return Entry(keys, *_check(keys, known))


def _slug(source: str, taken: Sequence[str]) -> str:
    last = re.split(r"[/:]", source.partition("@")[0].rstrip("/"))[-1].split(".")[0]
    name = re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-")[:29].strip("-") or "model"
    reserved = {*taken, "objects", "features", "untrained"}
    copies = (f"{name}-{i}" for i in range(2, len(reserved) + 3))
    return next(slug for slug in (name, *copies) if slug not in reserved)


def _depth(scheme: str, source: str) -> tuple[int, bool]:
    """Return the number of blocks, and whether it is known and not guessed from the name."""
    if scheme == "timm":
        from bindscope.core.workarounds import declare_torchvision_operators

        declare_torchvision_operators()
        import timm
        import torch

        name = source.partition(":")[2].partition("@")[0]
        if not timm.is_model(name):
            raise InputError(source, "timm knows no such model", "choose one of timm.list_models()")
        with torch.device("meta"):
            made: Any = timm.create_model(name, pretrained=False)
        return len(getattr(made, "blocks", ())), True
    if scheme == "python":
        from bindscope.core.registries import resolve

        try:
            model = resolve(source.partition(":")[2])()
            return int(model.n_layers), True
        except (ImportError, AttributeError, TypeError) as error:
            raise InputError(
                source, f"does not give a model with n_layers ({error})",
                "name a function without required arguments, in a module on PYTHONPATH; for an "
                "nn.Module, see `modules` in docs/add_model.md",
            ) from error  # fmt: skip
    found = settings(source)
    depth = found.get("vision_config", found).get("num_hidden_layers")
    if depth:
        return int(depth), True
    return next((n for word, n in _DEPTHS.items() if word in source.lower()), 12), False


def _check(keys: dict[str, Any], known: bool) -> tuple[str, tuple[int, int]]:
    """Load a model and describe it; one that is not on this machine is described by its name."""
    from bindscope.models.loading import load_model
    from bindscope.models.weights import resolve

    source, revision = str(keys["source"]).partition("@")[::2]
    try:
        model_config = TypeAdapter[Any](AnyModel).validate_python(keys)
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(str(keys["source"]), problem, "see `models` in config/README.md") from None
    try:
        model = load_model(model_config, None, "cpu", _SCENES_PX)
    except BindscopeError as error:
        if "not on this machine" not in error.problem:
            raise
        tower = tower_of(keys, _SCENES_PX)
        depth = f"{keys['n_layers']} blocks" + ("" if known else " (guessed from the name: check)")
        repo = source.partition(":")[2]
        command = f"hf download {repo} --revision {revision}" if source[:3] == "hf:" else "make run"
        side = tower.input_px // tower.patch_px
        patches = f"{side} x {side} patches of {tower.patch_px} px"
        return f"{depth}, {patches}; not downloaded yet: `{command}` does", (side, side)
    tokens = model.token_map
    size = ""
    if isinstance(model_config, Pretrained):
        files = resolve(model_config, None).files
        size = f", {sum(file['bytes'] for file in files) / 1e6:.1f} MB on disk"
    text = (
        f"{model.n_layers} blocks of width {model.dim}, {tokens.grid[0]} x {tokens.grid[1]} patches"
        f" of {tokens.patch_px} px, {tokens.registers} registers{size}"
    )
    return text, tokens.grid


def _flow(keys: dict[str, Any]) -> str:
    pairs = [f"{key}: {json.dumps(value)}" for key, value in keys.items()]
    return "{" + ", ".join(pairs) + "}"


def ask() -> tuple[Path, list[str], str]:
    """Ask for what the command line left out."""
    if not sys.stdin.isatty():
        raise InputError(
            "bindscope new", "needs a file and a model where there is no terminal",
            "bindscope new my-run.yaml --model timm:vit_small_patch16_224.augreg_in21k",
        )  # fmt: skip
    model = input("Model (hf:<repo>@<commit>, timm:<model>, path:<folder>, python:...): ").strip()
    more = input("Further models, separated by spaces [none]: ").split()
    study = input(f"Study, {' or '.join(STUDIES)} [{STUDIES[0]}]: ").strip() or STUDIES[0]
    if study not in STUDIES:
        raise InputError(study, "is no study of `bindscope new`", f"choose {' or '.join(STUDIES)}")
    path = Path(input("File to write [my-run.yaml]: ").strip() or "my-run.yaml")
    return path, [model, *more], study
