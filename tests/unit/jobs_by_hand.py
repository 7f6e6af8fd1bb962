"""Scripts of the workflow as modules, and jobs for them that no Snakemake made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from bindscope.config.root import Config
from bindscope.core.graph import Graph, Product
from bindscope.core.job import Job
from bindscope.studies.build import build

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "workflow/scripts"
HEAVY = (
    "PIL", "huggingface_hub", "jinja2", "matplotlib", "numpy", "pandas", "pyarrow",
    "pydantic", "safetensors", "scipy", "sklearn", "sympy", "timm", "torch", "torch._dynamo",
    "torch._inductor", "torch.onnx", "torchvision", "transformers", "zarr",
)  # fmt: skip


class Names(dict[str, Any]):
    """Values by name, as items and as attributes, like Snakemake's lists."""

    __getattr__ = dict.__getitem__


def script(name: str) -> ModuleType:
    """Import a script as a module."""
    spec = spec_from_file_location(f"script_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ci_graph(study: dict[str, Any] | None = None, **sections: Any) -> Graph:
    """List the products of the CI preset, some of its sections and of its study's replaced."""
    config = yaml.safe_load((ROOT / "config/presets/ci.yaml").read_text()) | sections
    config["studies"]["binding_information"] |= study or {}
    return build(Config.model_validate(config))


def job_by_hand(product: Product, folder: Path) -> Job:
    """Make a job; its paths lie in `folder`."""
    input_files = {
        role: [str(folder / path) for path in paths] for role, paths in product.files().items()
    }
    output_files = {name: str(folder / product.path(name)) for name in product.step.outputs}
    return Job(
        product.rule, json.loads(product.spec), product.spec, product.code, Names(input_files),
        Names(output_files), Names(product.wildcards),
    )  # fmt: skip


def loaded(code: str) -> set[str]:
    """Which heavy packages a fresh interpreter has loaded after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return set(HEAVY) & set(done.stdout.split())


_NURSERY = """
import json, os, runpy, sys
scripts, given, heavy = (json.loads(argument) for argument in sys.argv[1:])
for name in given:
    __import__(name)
before = set(sys.modules)
for script in scripts:
    read, write = os.pipe()
    if not os.fork():
        runpy.run_path(f"workflow/scripts/{script}.py")
        os.write(write, json.dumps(sorted(set(heavy) & set(sys.modules) - before)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        print(json.dumps([script, json.load(pipe)]))
    os.wait()
"""


def loaded_by_scripts(names: list[str], preloaded: Iterable[str]) -> dict[str, set[str]]:
    """Which heavy packages each script's imports load besides those that are given.

    Each script has an interpreter of its own, forked from one in which the given packages are
    loaded already: importing torch once for all takes less time.
    """
    beside = set(HEAVY) - {"pydantic"}  # the configuration, which nearly every script reads
    arguments = [json.dumps(list(value)) for value in (names, preloaded, sorted(beside))]
    done = subprocess.run(
        [sys.executable, "-c", _NURSERY, *arguments], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True,
    )  # fmt: skip
    loaded = dict(json.loads(line) for line in done.stdout.splitlines())
    return {name: set(packages) for name, packages in loaded.items()}
