"""Put finished trainings of a configuration into the zoo."""

from __future__ import annotations

import json
from pathlib import Path

from bindscope.config.zoo import ZOO
from bindscope.core.digests import check_file
from bindscope.core.files import hash_file
from bindscope.core.graph import Graph, Product
from bindscope.core.job import LOGS, benchmark_of
from bindscope.core.keys import CLONE
from bindscope.core.registries import resolve
from bindscope.studies.build import stem


def write_zoo(graph: Graph, folder: Path = ZOO) -> int:
    """Write every finished training as float16 with its manifest; print a line for each.

    Returns
    -------
    int
        0 if all trainings of the configuration are finished, else 1.

    Raises
    ------
    StoreError
        If a file of a training is not as its job wrote it.
    """
    from bindscope.models.zoo import write  # imports torch

    folder.mkdir(parents=True, exist_ok=True)
    missing = 0
    for product in (each for each in graph.products.values() if each.step.zoo):
        name = next(value for key, value in product.wildcards.items() if key != "key")
        training = Path(product.path("manifest"))
        if not training.is_file():
            print(f"{name:32} not trained yet")
            missing += 1
            continue
        for output in product.step.outputs:
            check_file(product.path(output))
        manifest = write(
            folder,
            name,
            training,
            resolve(product.step.zoo)(training),
            lock=hash_file(CLONE / "requirements.lock"),
            cpu_seconds=_cpu_seconds(product),
        )
        content = json.loads(manifest.read_text())
        loss, used = content["val_loss_bits"], content["cpu_seconds"]
        text = "untrained" if loss is None else f"{loss:.4f} bits on validation, {used} CPU-s"
        print(f"{name:32} {text}")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {size / 1e6:.1f} MB; not trained yet: {missing}")
    return int(missing > 0)


def _cpu_seconds(product: Product) -> float | None:
    """Return what the training job took; of its last run, if resumed."""
    path = benchmark_of(f"{LOGS}/{stem(product.rule).format(**product.wildcards)}.log")
    if not path.is_file():
        return None
    return round(float(json.loads(path.read_text())["cpu_time"]), 1)
