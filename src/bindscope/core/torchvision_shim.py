"""Lets timm and transformers import on a CPU-only torch beside PyPI's torchvision.

PyPI's torchvision is built against CUDA; beside a CPU-only torch its compiled operators do not
load, and its import fails with "operator torchvision::nms does not exist" although no model here
calls them. Declaring the schemas of the two operators that torchvision registers further Python
parts for is enough. On a torch with CUDA or HIP, and wherever the compiled operators load,
`apply` does nothing.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_kept: list[torch.library.Library] = []  # a library's schemas vanish with the object


def needed(folder: Path | None) -> bool:
    """Tell whether torchvision, in `folder`, cannot load its compiled operators here."""
    if folder is None or torch.version.cuda is not None or torch.version.hip is not None:
        return False
    for library in sorted(folder.glob("_C*.so")):
        try:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        except (OSError, ImportError):
            continue
        return False
    return True


def apply() -> bool:
    """Declare the operators if they are missing; call it before importing timm or transformers.

    Returns
    -------
    Whether this call declared them.
    """
    if _kept or "torchvision" in sys.modules:
        return False
    found = importlib.util.find_spec("torchvision")
    if not needed(Path(found.origin).parent if found and found.origin else None):
        return False
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(name + _SCHEMA)  # type: ignore[no-untyped-call]
    _kept.append(library)
    return True
