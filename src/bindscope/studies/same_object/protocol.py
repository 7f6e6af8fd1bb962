"""Which fits of a configuration the IsSameObject paper has too, and how their protocols differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from bindscope.core.work import Content

PROBES: Final = "resources/published/same_object.csv"
ABLATION: Final = "resources/published/same_object_ablation.csv"
# Sources of weights (without scheme and commit) -> name in the IsSameObject paper, blocks.
MODELS: Final[Mapping[str, tuple[str, int]]] = {
    "facebook/dinov2-small": ("DINOv2-S/14", 12),
    "facebook/dinov2-base": ("DINOv2-B/14", 12),
    "facebook/dinov2-large": ("DINOv2-L/14", 24),
    "facebook/dinov2-giant": ("DINOv2-g/14", 40),
    "google/vit-large-patch16-224": ("supervised ViT-L/16", 24),
    "openai/clip-vit-large-patch14": ("CLIP ViT-L/14", 24),
    "vit_large_patch16_224.mae": ("MAE ViT-L/16", 24),
    "facebook/vit-mae-large": ("MAE ViT-L/16", 24),
}
TRAIN_IMAGES: Final = 20_455  # 20,459 less the files that the released code leaves out
N_PATCHES: Final = 512  # that it stores of an image


def paper_name(source: str) -> str:
    """Return what the IsSameObject paper calls a model, by its source; empty: it has none."""
    return MODELS.get(source.partition(":")[2].partition("@")[0], ("", 0))[0]


def differences(dataset: Content, model: Content, section: Content) -> list[str]:
    """Say how a configured protocol differs from that of Table 1; nothing where it does not.

    `dataset`, `model`, `section`: parts of a configuration.
    """
    sampling, render, reasons = section["sampling"], dataset["render"], []
    name = paper_name(model["source"])
    if render.get("fit") != "crops":
        reasons.append("whole images, not crops")
    elif name.startswith("DINOv2") and (render["size_px"], [*render["crops"]]) != (518, [1, 2]):
        reasons.append("other crops")
    if model["extraction"]["precision"] != "float32":
        reasons.append("tokens are computed with fewer digits")
    if sampling["n_patches"] < N_PATCHES:
        reasons.append(f"{sampling['n_patches']} of {N_PATCHES} patches of a training image")
    if dataset["n_scenes"]["train"] < TRAIN_IMAGES:
        reasons.append(f"{dataset['n_scenes']['train']:,} of {TRAIN_IMAGES:,} training images")
    if sampling["unlabelled"] != "object":
        reasons.append("unlabelled patches take no part")
    if sampling["min_purity"] > 0:
        reasons.append("border patches take no part")
    if sampling["stuff"] != "keep":
        reasons.append("stuff takes no part")
    quadratic = [probe for probe in section["probes"] if probe["family"] == "quadratic"]
    if not any(probe["fit"] == "released" for probe in quadratic):
        reasons.append("probes at their optimum")
    if name.startswith(("supervised", "CLIP")) and model.get("preprocessing") != "same_object":
        reasons.append("the released code normalizes pixels of such models as for DINOv2")
    if name.startswith("MAE"):
        reasons.append("the released code gives tokens of MAE the labels of other patches")
    return reasons


def comparable(
    datasets: Iterable[Content], models: Iterable[Content], section: Content
) -> list[dict[str, Any]]:
    """Return the fits of quadratic probes that the IsSameObject paper has too.

    Each has `dataset`, `model`, its published `name`, and `differs`: how protocols differ, a list.
    """
    quadratic = {probe["name"] for probe in section["probes"] if probe["family"] == "quadratic"}
    fitted = {
        (dataset, model)
        for block in section["fits"]
        if quadratic & {*block["probes"]}
        for dataset in block["datasets"]
        for model in block["models"]
    }
    photos = [data for data in datasets if (data.get("source") or {}).get("kind") == "ade20k"]
    return [
        {
            "dataset": dataset["name"],
            "model": model["name"],
            "name": name,
            "differs": differences(dataset, model, section),
        }
        for dataset in photos
        for model in models
        if (name := paper_name(model.get("source", "")))
        and (dataset["name"], model["name"]) in fitted
    ]
