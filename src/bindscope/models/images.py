"""From uint8 scenes to a model's input: resize the whole image, then normalise."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.errors import ModelError

log = logging.getLogger(__name__)

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

_PIL_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # PIL.Image.Resampling
_MODES = ("nearest", "bilinear", "bicubic")


def interpolation(value: Any, where: str) -> str:
    """Return torch's name of an interpolation by name or PIL's number; others become bicubic."""
    mode = str(value).lower() if isinstance(value, str) else _PIL_FILTERS.get(int(value), "other")
    if mode not in _MODES:
        log.warning("%s: resizes with bicubic instead of %s", where, value)
        return "bicubic"
    return mode


@dataclass(frozen=True)
class Transform:
    """A model's own transform, without any crop.

    A checkpoint's own pipeline may crop the centre (DINOv2: 256 px to 224 px), which would cut
    objects away that the labels count. So the whole image is resized to the input's side `px`, and
    images that have it already are left as they are. `mode` is "nearest", "bilinear" or "bicubic",
    antialiased, on uint8 and on the CPU whatever the model's device, so that every device sees the
    same pixels. Mean and deviation are per channel, of values in [0, 1]. `cut_px` rows and columns
    of the resized image, the last ones, are cut.
    """

    px: int
    mode: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    antialias: bool = True
    cut_px: int = 0

    def __call__(self, images: NDArray[np.uint8], device: torch.device, where: str) -> Tensor:
        """Transform a batch, uint8 (B, H, W, 3) to float32 (B, 3, s, s), s = px - cut_px."""
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
            raise ModelError(
                where,
                f"images are {images.dtype} {images.shape}, not uint8 (B, H, W, 3)",
                "give whole images with three channels of 0 to 255, colors last",
            )
        pixels = torch.from_numpy(np.require(images, requirements=["C", "W"])).permute(0, 3, 1, 2)
        pixels = resized(pixels, self.px, self.mode, self.antialias)
        side = self.px - self.cut_px
        pixels = pixels[..., :side, :side]
        if device.type == "cuda":
            pixels = pixels.pin_memory()
        # Widened and brought into torch's order of axes in one pass over memory.
        values = torch.empty(pixels.shape, dtype=torch.float32, device=device).copy_(
            pixels.to(device)
        )
        mean = 255.0 * torch.tensor(self.mean, device=device).view(-1, 1, 1)
        std = 255.0 * torch.tensor(self.std, device=device).view(-1, 1, 1)
        return values.sub_(mean).div_(std)


def resized(pixels: Tensor, px: int, mode: str = "bicubic", antialias: bool = True) -> Tensor:
    """Resize images (B, 3, H, W) to a side of `px`; those that have it stay as they are.

    Without antialiasing the result is not rounded: float32.
    """
    if pixels.shape[2:] == (px, px):
        return pixels
    antialias = antialias and mode != "nearest"
    return torch.nn.functional.interpolate(
        pixels if antialias or mode == "nearest" else pixels.float(),
        size=(px, px),
        mode=mode,
        antialias=antialias,
    )


def as_in_binding_problem(transform: Transform, patch_px: int) -> Transform:
    """Return the transform of the binding problem paper's code.

    The whole image is resized bilinearly without antialiasing. A convolution without padding does
    not see the pixels beyond the last whole patch.
    """
    return replace(transform, mode="bilinear", antialias=False, cut_px=transform.px % patch_px)


def as_in_same_object(transform: Transform) -> Transform:
    """Return the transform of the IsSameObject paper's code: every model has DINOv2's pixels."""
    mean, std = IMAGENET
    return replace(transform, mean=mean, std=std)


def check_input_px(px: int, patch_px: int, where: str) -> None:
    """Refuse an input that is not a whole number of patches, with ModelError."""
    if px % patch_px:
        below = max(px // patch_px, 1) * patch_px
        raise ModelError(
            where,
            f"an input of {px} px is not a whole number of patches of {patch_px} px",
            f"set `input_px: {below}` or `input_px: {below + patch_px}` "
            "(scenes are resized to the input)",
        )
