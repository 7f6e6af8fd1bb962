"""What cannot be done with the public interface of a library: at most three entries.

1. `declare_torchvision_operators`: PyPI's torchvision beside a CPU-only torch.
   Fact: PyPI's torchvision is built against CUDA. Beside a CPU-only torch its compiled operators
   do not load, and `import torchvision` fails with "operator torchvision::nms does not exist",
   although no model here calls them (https://github.com/pytorch/vision/issues/9085).
   It fails where torchvision registers Python parts of two operators that have no schema; to
   declare their schemas by torch's public `torch.library` is enough.
   Buys: timm, transformers' image models, and users' modules that import torchvision work with
   torch's CPU index and one lock (a CUDA build takes 2.8 GB more).
   Goes when PyPI's torchvision imports without its compiled operators.
2. `onstart` in the Snakefile: no limit of job starts in a local run.
   Fact: Snakemake 9.27 limits job starts, and runs the scheduler again for every job that ends and
   every timer of the limit (https://github.com/snakemake/snakemake/pull/3744): 11,286 rounds in
   the default run. `workflow.scheduler.job_rate_limiter` is no documented interface.
   Buys: 18 of the 35 seconds that Snakemake's own process computes in the default run (its 146
   jobs with scripts that sleep for 7 s, 22 November 2026).
   Goes when a local run has no such limit unless it asks for one.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_libraries: list[Any] = []  # a library's schemas vanish with the object


def lacks_torchvision_operators(folder: Path | None) -> bool:
    """Whether torchvision, in `folder`, cannot load its compiled operators here."""
    import torch

    if folder is None or torch.version.cuda is not None or torch.version.hip is not None:
        return False
    for library in sorted(folder.glob("_C*.so")):
        try:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        except (OSError, ImportError):
            continue
        return False
    return True


class TorchvisionFinder:
    """Let `import torchvision` begin with `declare_torchvision_operators`.

    It is put on `sys.meta_path` by `import bindscope`, so that timm, transformers and a user's own
    module can be imported after it.
    """

    called = False

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> None:
        """Find nothing; of torchvision, declare what it lacks first."""
        if name == "torchvision" and not cls.called:
            declare_torchvision_operators()


def declare_torchvision_operators() -> bool:
    """Declare torchvision's operators if they are missing; return whether this call did.

    Where torchvision works by itself, is imported already or is not installed, nothing happens.
    """
    if _libraries or "torchvision" in sys.modules:
        return False
    TorchvisionFinder.called = True  # the next line looks for torchvision, too
    module_spec = importlib.util.find_spec("torchvision")
    if not lacks_torchvision_operators(
        Path(module_spec.origin).parent if module_spec and module_spec.origin else None
    ):
        return False
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(name + _SCHEMA)  # type: ignore[no-untyped-call]
    _libraries.append(library)
    return True
