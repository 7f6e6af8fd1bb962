"""Extraction against the model's bare forward pass.

What is timed: pooled arrays of all layers and the patch tokens of the last one, from a scenes store
on the disk (decoding, preprocessing, the forward pass, pooling, two stores written, hashed and
forced to the disk) in one pass, and each of the two alone, as the rules make them. The floor is the
library's own forward pass over pixels that are in memory, with the same batches and arithmetic.

Random weights, nothing is downloaded.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from measure import Entry, Options, Other, side_by_side

from bindscope.activations.extraction import extract
from bindscope.activations.images import StoreImages
from bindscope.config.codes import Dataset
from bindscope.config.models import Extraction, Pretrained
from bindscope.config.training import Architecture
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.models import vit
from bindscope.models.base import TokenMap
from bindscope.models.loading import load_model
from bindscope.models.stream import FrozenViT, freeze
from bindscope.scenes.render import write_scenes

TITLE = "Extraction: pooled arrays of all layers and one patch layer"
Precision = Literal["float32", "bfloat16"]
Load = Callable[[str, Precision], FrozenViT]
PROMISED = {"cpu": 0.88, "cuda": 0.95}
CUDA_SCALE = 64  # a GPU is that much faster, so its shards are that much larger


@dataclass(frozen=True)
class Case:
    """A model by name, what builds it on a device, scenes of a shard by size, and CPU threads."""

    name: str
    load: Load
    n_scenes: dict[str, int]
    threads: int | None = None


def controlled(px: int, patch_px: int) -> Load:
    """Return what builds the pipeline's own transformer of the default run, not trained."""

    def load(device: str, precision: Precision) -> FrozenViT:
        architecture = Architecture(patch_px=patch_px)
        module = vit.build(architecture, px, torch.Generator().manual_seed(0))
        freeze(module, torch.device(device))
        return FrozenViT(
            where="controlled",
            forward=module,
            network=module,
            blocks=list(module.blocks),
            norm=module.norm,
            transform=vit.transform(px),
            dim=architecture.width,
            revision="random",
            token_map=TokenMap(1, 0, (module.rows, module.rows), patch_px, True),
            weights_sha256="0" * 64,
            device=torch.device(device),
            precision=precision,
        )

    return load


def timm(name: str) -> Load:
    """Return what builds a model of timm with 12 blocks and random weights."""

    def load(device: str, precision: Precision) -> FrozenViT:
        config = Pretrained(
            name="model",
            source=f"timm:{name}",
            n_layers=12,
            pretrained=False,
            extraction=Extraction(precision=precision),
        )
        return load_model(config, None, device)

    return load


SMALL = {"ci": 512, "full": 4000}
CASES = (
    # One thread, which is the default: two on two cores leave none for reading and writing.
    Case("controlled ViT, 48 px, 1 thread", controlled(48, 12), SMALL, threads=1),
    Case("controlled ViT, 96 px, 1 thread", controlled(96, 16), SMALL, threads=1),
    Case("controlled ViT, 96 px", controlled(96, 16), SMALL),
    Case("ViT-S/16, 224 px", timm("vit_small_patch16_224"), {"ci": 32, "full": 128}),
    Case("ViT-B/16, 224 px", timm("vit_base_patch16_224"), {"ci": 16, "full": 32}),
)


def entries(options: Options) -> list[Entry]:
    """Time every case on the CPU in float32, on a GPU also in bfloat16."""
    precisions: tuple[Precision, ...] = ("float32",)
    if options.device == "cuda":
        precisions = ("float32", "bfloat16")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        return [
            entry
            for number, (case, precision) in enumerate(product(CASES, precisions))
            for entry in time_case(case, precision, Path(folder) / str(number), options)
        ]


def time_case(case: Case, precision: Precision, folder: Path, options: Options) -> list[Entry]:
    """Time the ways of making both stores of a shard beside the bare forward pass."""
    n = case.n_scenes[options.size] * (CUDA_SCALE if options.device == "cuda" else 1)
    torch.set_num_threads(threads := case.threads or options.threads)
    model = case.load(options.device, precision)
    images = write_shard(folder, n, model.transform.px)
    extraction = Extraction(
        batch_size=64, device=options.device, precision=precision, threads=threads
    )

    def store(name: str) -> StoreWriter:
        return StoreWriter(folder / f"{name}.zarr", folder / f"{name}.json", spec="{}", code="c")

    def together() -> None:
        with store("pooled") as pooled, store("patches") as patches:
            extract(model, images, extraction, pooled=pooled, patches={model.n_layers: patches})

    def pooled_alone() -> None:
        with store("pooled") as pooled:
            extract(model, images, extraction, pooled=pooled)

    def patches_alone() -> None:
        with store("patches") as patches:
            extract(model, images, extraction, patches={model.n_layers: patches})

    def clear() -> None:  # a run writes new stores; replacing old ones would time their removal
        for path in folder.glob("p*.zarr"):
            shutil.rmtree(path)

    runs = {
        "bare": bare_forward(model, images, extraction),
        "both in one pass": together,
        "pooled alone": pooled_alone,
        "patches alone": patches_alone,
    }
    times = side_by_side(runs, options, clear)
    bare = times.pop("bare")
    return [
        Entry(
            f"{case.name}, {precision}, {n} scenes: {name}",
            seconds,
            [
                Other(
                    "bare forward",
                    bare,
                    PROMISED[options.device] if name.startswith("both") else None,
                )
            ],
            notes={"images_per_s": n / seconds},
        )
        for name, seconds in times.items()
    ]


def bare_forward(
    model: FrozenViT, images: StoreImages, extraction: Extraction
) -> Callable[[], None]:
    """Return the library's own forward pass over pixels that are in memory (at most 16 batches)."""
    size, n = extraction.batch_size, len(images)
    starts = range(0, n, size)
    pixels = [model.preprocess(images[slice(s, min(s + size, n))]) for s in [*starts][:16]]
    autocast = torch.autocast(
        extraction.device, torch.bfloat16, enabled=extraction.precision == "bfloat16"
    )

    def run() -> None:
        with torch.inference_mode(), autocast:
            for number, start in enumerate(starts):
                model.forward(pixels[number % len(pixels)][: n - start])

    return run


def write_shard(folder: Path, n: int, px: int) -> StoreImages:
    """Draw a shard of colored shapes into a store, as the rule `scenes` does."""
    sizes = {"train": n, "val": n, "test": n}
    dataset = Dataset.model_validate(
        {
            "name": "scenes",
            "space": {
                "kind": "uniform",
                "min_objects": 9,
                "max_objects": 9,
                "groups": [{"name": "color", "size": 6}, {"name": "shape", "size": 6}],
            },
            "split": {"rule": "random"},
            "n_scenes": sizes,
            "shard_size": sizes,
            "render": {
                "kind": "shapes",
                "size_px": px,
                "object_px": px // 6,
                "placement": "grid",
                "margin_px": 1,
                "area": "released",
            },
        }
    )
    rng = np.random.default_rng(0)
    objects = np.zeros((n, 36), np.uint8)
    np.put_along_axis(objects, rng.random((n, 36)).argsort(1)[:, :9], 1, axis=1)
    folder.mkdir()
    manifest = folder / "scenes.json"
    with StoreWriter(folder / "scenes.zarr", manifest, spec="{}", code="c") as writer:
        write_scenes(dataset, "train", 0, objects, writer)
    return StoreImages(open_store(manifest))
