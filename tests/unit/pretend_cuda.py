"""A GPU that is not there: CPU tensors that say they are on ``cuda:0`` and refuse to mix.

Inside `pretend_cuda` torch seems to have one CUDA device. Tensors that are put there are
`OnDevice`: they hold real numbers on the CPU, so that whole fits and extractions run (control flow
that depends on values too, which torch's `FakeTensorMode` cannot follow) and must give exactly the
CPU's result. What CUDA refuses is refused: operations on tensors of both devices, ``.numpy()`` of
a tensor that was not brought back, a CPU generator for numbers on the device. Kernels, memory and
speed are not tested.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

CUDA, CPU = torch.device("cuda:0"), torch.device("cpu")
_ATEN = torch.ops.aten
_INDEXED = {_ATEN.index.Tensor, _ATEN.index_put_.default, _ATEN._index_put_impl_.default}
_MOVES = {torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda}
_NEEDS_CPU = {torch.Tensor.numpy, torch.Tensor.__array__}


class OnDevice(torch.Tensor):
    """A tensor that says it is on the device; `held` are its numbers."""

    held: torch.Tensor
    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnDevice:
        """Wrap a CPU tensor; both share their numbers."""
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(),
            dtype=held.dtype,
        )  # fmt: skip
        made.held = held.detach()
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"OnDevice({self.held!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _ATEN.copy_.default:  # between devices too
            to, source = args[:2]
            getattr(to, "held", to).copy_(getattr(source, "held", source))
            return to
        _refuse_mixture(func, args, kwargs)
        args, kwargs = tree_map_only(OnDevice, lambda tensor: tensor.held, (args, kwargs))
        return tree_map_only(torch.Tensor, OnDevice, func(*args, **kwargs))


def _refuse_mixture(func: Any, args: Any, kwargs: Any) -> None:
    """Raise as CUDA does; it takes CPU scalars, and CPU indices into tensors on the device."""
    if func in _INDEXED and isinstance(args[0], OnDevice):
        args = (args[0], *args[2:])
    for leaf in tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, OnDevice) and leaf.dim():
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found cuda:0 and cpu! ({func})"
            )


class _Placing(TorchFunctionMode):
    """Put tensors where calls ask for them: factories with a device, `.to`, `.cpu`, `.cuda`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _MOVES:
            return _move(func, args[0], args[1:], kwargs)
        if func in _NEEDS_CPU and isinstance(args[0], OnDevice):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")
        if func is torch.Tensor.tolist and isinstance(args[0], OnDevice):
            return args[0].held.tolist()
        if func is torch.Tensor.pin_memory:
            return args[0]
        if _type(kwargs.get("device")) != "cuda":
            return func(*args, **kwargs)
        if kwargs.get("generator") is not None:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        return _put(func(*args, **{**kwargs, "device": CPU}))


def _type(device: Any) -> str | None:
    return None if device is None else torch.device(device).type


def _put(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if isinstance(tensor, OnDevice) else OnDevice(tensor)


def _move(func: Any, tensor: torch.Tensor, args: Any, kwargs: Any) -> torch.Tensor:
    """`tensor.to(...)`, `.cpu()` or `.cuda()`: the type first, then the device."""
    named = {torch.Tensor.cpu: CPU, torch.Tensor.cuda: CUDA}.get(func, kwargs.pop("device", None))
    devices = [a for a in args if isinstance(a, torch.device | str | int)]
    like = [a for a in args if isinstance(a, torch.Tensor)]
    where = named or (devices + [a.device for a in like] + [tensor.device])[0]
    types = [a for a in args if isinstance(a, torch.dtype)] + [a.dtype for a in like]
    dtype = kwargs.get("dtype") or ([*types, tensor.dtype])[0]
    cast = torch.Tensor.type(tensor, dtype) if dtype != tensor.dtype else tensor
    if _type(where) == _type(tensor.device):
        return cast
    if cast.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError("moving a tensor with a gradient between devices")
    return OnDevice(cast) if _type(where) == "cuda" else cast.held


def _no_grad(mode: Any) -> torch.no_grad:
    """What `inference_mode` is here: inference tensors cannot be wrapped."""
    mode.held = torch.no_grad()
    return mode.held


class _Stream:
    """A stream on which all is done at once."""

    def __init__(self, device: Any = None) -> None:
        """Belong to the one device."""

    def wait_stream(self, other: _Stream) -> None:
        """Wait for nothing."""

    def record_event(self) -> SimpleNamespace:
        """Return an event that has happened."""
        return SimpleNamespace(synchronize=lambda: None)


@contextlib.contextmanager
def pretend_cuda() -> Iterator[None]:
    """Give torch one pretended CUDA device."""
    device = SimpleNamespace(uuid="GPU-pretended", name="pretended")
    with pytest.MonkeyPatch.context() as patch, _Placing():
        for name, value in {
            "is_available": lambda: True, "device_count": lambda: 1,
            "get_device_properties": lambda index: device,
            "get_device_name": lambda index=0: device.name,
            "is_bf16_supported": lambda including_emulation=True: True,
            "synchronize": lambda device=None: None, "device": contextlib.nullcontext,
            "Stream": _Stream, "current_stream": _Stream, "stream": contextlib.nullcontext,
        }.items():  # fmt: skip
            patch.setattr(torch.cuda, name, value)
        patch.setattr(torch.inference_mode, "__enter__", lambda self: _no_grad(self).__enter__())
        patch.setattr(torch.inference_mode, "__exit__", lambda self, *e: self.held.__exit__(*e))
        overwrote = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)  # new ones, not new data
        try:
            yield
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(overwrote)
