"""A user's own model: a function that returns a `Model`, or any module that hooks can read."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bindscope.config.models import PythonModel
from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Model
from bindscope.models.base import TokenMap
from bindscope.models.hooked import HookedModule

_ATTRIBUTES: dict[str, type] = {
    "n_layers": int,
    "dim": int,
    "token_map": TokenMap,
    "revision": str,
    "weights_sha256": str,
}
_METHODS = ("preprocess", "residual_stream")


def load(
    config: PythonModel, weights: Path | None, device: torch.device, input_px: int | None = None
) -> Model:
    """Call the user's function and check what it returns (`load_model`).

    The function gets ``config.options``, and `device` and `input_px` if it has such arguments; it
    finds its own weights. ModelError if there is no such function, or what it returns lacks
    something of `Model`; with ``config.modules``, if it is no module that hooks can read.
    """
    where = f"model {config.name} ({config.source})"
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)  # each shard's job makes the same random weights
        side = config.transform.input_px or input_px
        model = _called(config, where, device, side)
    if config.modules:
        if not isinstance(model, nn.Module):
            raise ModelError(
                where,
                f"its function returns {type(model).__name__}, which has no submodules",
                "return an `nn.Module`, or leave out `modules` (docs/add_model.md)",
            )
        hooked = HookedModule(where, model, config, device, input_px)
        hooked.check()
        return hooked
    problems = complaints(model)
    if problems and isinstance(model, nn.Module):
        raise ModelError(
            where,
            "its function returns a plain `nn.Module`",
            "name the submodules to read, such as `modules: "
            f"[{', '.join(name for name, _ in list(model.named_children())[-2:])}]`, and leave "
            "out `n_layers` (docs/add_model.md)",
        )
    if problems:
        raise ModelError(
            where,
            f"what its function returns is no model: {'; '.join(problems)}",
            "see docs/add_model.md, `Your own function`, for the attributes and methods",
        )
    checked: Model = model
    return checked


def _called(config: PythonModel, where: str, device: torch.device, input_px: int | None) -> Any:
    """Call the function with its options, and with what else it has arguments for."""
    function = _function(config.source, where)
    offered = {"device": device, "input_px": input_px, **config.options}
    signature = inspect.signature(function)
    accepted = {*signature.parameters, *config.options}
    accepted_settings = {key: value for key, value in offered.items() if key in accepted}
    try:
        signature.bind(**accepted_settings)
    except TypeError as error:
        raise ModelError(
            where,
            f"its function does not take the options ({error})",
            f"set `options` to arguments of {signature}",
        ) from error
    return function(**accepted_settings)


def complaints(model: Any) -> list[str]:
    """List what an object lacks to be a `Model`; empty if nothing."""
    lines = []
    for name, kind in _ATTRIBUTES.items():
        if not hasattr(model, name):
            lines.append(f"`{name}` ({kind.__name__}) is missing")
        elif not isinstance(getattr(model, name), kind):
            lines.append(f"`{name}` is {type(getattr(model, name)).__name__}, not {kind.__name__}")
    lines += [
        f"method `{name}` is missing"
        for name in _METHODS
        if not callable(getattr(model, name, None))
    ]
    return lines


def _function(source: str, where: str) -> Any:
    _, module, name = source.split(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModelError(
            where,
            f"Python cannot import {error.name}",
            f"put {module.partition('.')[0]} on PYTHONPATH, or install it in this environment",
        ) from error
    if not callable(getattr(loaded, name, None)):
        raise ModelError(
            where,
            f"{loaded.__file__} has no function {name!r}",
            "correct the source: python:<module>:<function>",
        )
    return getattr(loaded, name)
