"""What benchmarks are run on: coloured shapes, data for probes, models with random weights."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from measure import ROOT  # noqa: F401  (puts src on the path)
from numpy.typing import NDArray
from pydantic import TypeAdapter

from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import feature_code
from bindscope.config.codes import Dataset
from bindscope.config.models import Extraction, Pretrained
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.priors.anchors import anchors
from bindscope.studies.binding_information.probes.data import ArrayPatches, ProbeData, SplitData

FAMILIES = (
    "linear", "quadratic", "quadratic_reuse", "multilinear_reuse", "dnn", "attention_quadratic",
)  # fmt: skip
VAL_SHARE, TEST_SHARE = 8, 4  # val and test have an eighth and a quarter of train's scenes


def dataset(side: int, n_objects: int, n_train: int, px: int = 64, object_px: int = 8) -> Dataset:
    """Return scenes of `n_objects` out of side x side coloured shapes, on a random split."""
    counts = {"train": n_train, "val": n_train // VAL_SHARE, "test": n_train // TEST_SHARE}
    groups = [{"name": name, "size": side} for name in ("color", "shape")]
    space = {"kind": "uniform", "min_objects": n_objects, "max_objects": n_objects}
    return Dataset.model_validate(
        {
            "name": "scenes", "space": {**space, "groups": groups}, "split": {"rule": "random"},
            "n_scenes": counts, "shard_size": counts,
            "render": {"kind": "shapes", "size_px": px, "object_px": object_px, "margin_px": 1,
                       "placement": "grid"},
        }
    )  # fmt: skip


def probe(family: str, **fields: Any) -> AnyProbe:
    """Return the configuration of a probe."""
    found: AnyProbe = TypeAdapter[AnyProbe](AnyProbe).validate_python(
        {"name": "p", "family": family, **fields}
    )
    return found


def probe_data(scenes: Dataset, dim: int, tokens: int = 0, noise: float = 0.5) -> ProbeData:
    """Return codes, exact priors, and objects seen through a random matrix and noise.

    Parameters
    ----------
    scenes
        The dataset.
    dim
        Dimension of z.
    tokens
        With tokens, z is float16 (N, tokens, dim) and a [CLS]; object k is in token k % tokens.
    noise
        Deviation of the noise.
    """
    sizes = tuple(group.size for group in scenes.space.groups)
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(prod(sizes), dim)).astype(np.float32) / np.sqrt(dim)
    splits = {}
    for split, n in scenes.n_scenes.model_dump().items():
        objects = sample_codes(scenes, split, 0, n)
        cls = objects @ mix + noise * rng.standard_normal((n, dim), dtype=np.float32)
        z: NDArray[Any] | ArrayPatches = cls
        if tokens:
            patches = noise * rng.standard_normal((n, tokens, dim), dtype=np.float32)
            for k in range(len(mix)):
                patches[:, k % tokens] += objects[:, k, None] * mix[k]
            z = ArrayPatches(patches.astype(np.float16), cls.astype(np.float16))
        features = feature_code(objects, sizes)
        splits[split] = SplitData(z, objects, features, anchors(scenes, objects))
    return ProbeData(**splits, sizes=sizes)


def vit(layers: int, width: int, px: int, patch_px: int, extraction: Extraction) -> Pretrained:
    """Return the configuration of one of timm's vision transformers with random weights."""
    overrides = {
        "depth": layers, "embed_dim": width, "num_heads": max(1, width // 64), "img_size": px,
        "patch_size": patch_px,
    }  # fmt: skip
    return Pretrained(
        name="vit", source="timm:vit_tiny_patch16_224", n_layers=layers, pretrained=False,
        overrides=overrides, extraction=extraction,
    )  # fmt: skip
