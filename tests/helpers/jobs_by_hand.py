"""Scripts of the workflow as modules, and jobs for them that no Snakemake made."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from forked import Names

from bindscope.config.root import Config
from bindscope.core.digests import write_digests
from bindscope.core.graph import Graph, Product
from bindscope.core.job import Job
from bindscope.studies.build import build

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "workflow/scripts"
HEAVY = (
    "PIL",
    "huggingface_hub",
    "jinja2",
    "matplotlib",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "safetensors",
    "scipy",
    "sklearn",
    "sympy",
    "timm",
    "torch",
    "torch._dynamo",
    "torch._inductor",
    "torch.onnx",
    "torchvision",
    "transformers",
    "zarr",
)


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


def linear_fit_graph(*datasets: Mapping[str, Any]) -> Graph:
    """List the products of a linear fit of the first dataset by a model of timm."""
    fit = {"name": "f", "datasets": [datasets[0]["name"]], "models": ["m"], "probes": ["p"]}
    content = {
        "datasets": datasets,
        "models": [{"name": "m", "source": "timm:x", "n_layers": 1, "pretrained": False}],
        "studies": {
            "binding_information": {"probes": [{"name": "p", "family": "linear"}], "fits": [fit]}
        },
    }
    return build(Config.model_validate(content))


def job_by_hand(product: Product, folder: Path) -> Job:
    """Make a job; its paths lie in `folder`."""
    input_files = {
        role: [str(folder / path) for path in paths] for role, paths in product.files().items()
    }
    output_files = {name: str(folder / product.path(name)) for name in product.step.outputs}
    return Job(
        product.rule,
        json.loads(product.spec),
        product.spec,
        product.code,
        Names(input_files),
        Names(output_files),
        Names(product.wildcards),
    )


def make_by_hand(product: Product, folder: Path, done: set[str]) -> None:
    """Run a product's script after those of all that it is made of, but those that are done."""
    for source in product.sources:
        make_by_hand(source, folder, done)
    if product.path() not in done:
        done.add(product.path())
        name = product.content["runs"][0].removesuffix(".py")
        script(name).main(job_by_hand(product, folder))
        write_digests(
            [str(folder / product.path(name)) for name in product.step.outputs], product.keys
        )


def loaded(code: str) -> set[str]:
    """Which heavy packages a fresh interpreter has loaded after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(HEAVY) & set(done.stdout.split())


# Prints for each script what it loaded besides the packages that its group may load. Groups are
# [packages, scripts, groups that may load more]; each is forked from the one that it continues.
_NURSERY = """
import json, os, runpy, sys

def in_child():
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
    return not child

def grow(packages, scripts, groups):
    for name in packages:
        __import__(name)
    before = set(sys.modules)
    for script in scripts:
        if in_child():
            runpy.run_path(f"workflow/scripts/{script}.py")
            print(json.dumps([script, sorted(heavy & set(sys.modules) - before)]), flush=True)
            os._exit(0)
    for group in groups:
        if in_child():
            grow(*group)
            os._exit(0)

heavy = set(json.loads(sys.argv[2]))
grow(["pydantic"], [], json.loads(sys.argv[1]))
"""


def loaded_by_scripts(allowed: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Which heavy packages each script's imports load besides those that it may load.

    Each script has an interpreter of its own, forked from one in which these packages are loaded
    already: importing torch once for all takes less time.
    """
    groups: list[tuple[set[str], list[Any]]] = []
    roots: list[Any] = []
    for packages in sorted({frozenset(names) for names in allowed.values()}, key=len):
        node = [
            sorted(packages),
            [name for name, names in allowed.items() if names == packages],
            [],
        ]
        fewer = [above for names, above in groups if names < packages]
        (fewer[-1][2] if fewer else roots).append(node)
        groups.append((set(packages), node))
    beside = set(HEAVY) - {"pydantic"}  # the configuration, which nearly every script reads
    done = subprocess.run(
        [sys.executable, "-c", _NURSERY, json.dumps(roots), json.dumps(sorted(beside))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {name: set(packages) for name, packages in map(json.loads, done.stdout.splitlines())}
