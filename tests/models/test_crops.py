"""Sheets of crops: each patch token is that of its crop, at its place in the sheet."""

import numpy as np
import torch
from small_models import configured

from bindscope.models.base import TokenMap
from bindscope.models.crops import read_crops
from bindscope.models.vit import build


class _Pixels:
    """Patch tokens are the mean pixel of their patch, behind a [CLS] of the crop's mean."""

    n_layers, dim, revision, weights_sha256 = 1, 3, "pixels", ""

    def __init__(self) -> None:
        self.token_map = TokenMap(1, 0, (2, 3), 4, True)

    def preprocess(self, images: np.ndarray) -> torch.Tensor:
        assert images.shape[1:] == (8, 12, 3)
        return torch.from_numpy(images).permute(0, 3, 1, 2).float()

    def residual_stream(self, pixels: torch.Tensor, layers: list[int]):  # type: ignore[no-untyped-def]
        patches = torch.nn.functional.avg_pool2d(pixels, 4).flatten(2).mT
        for layer in layers:
            yield layer, torch.cat([patches.mean(1, keepdim=True), patches], 1)


def test_patches_of_crops_stand_where_they_are_in_the_sheet() -> None:
    sheet = np.random.default_rng(0).integers(0, 255, (5, 16, 36, 3), np.uint8)
    model = read_crops(_Pixels(), (2, 3))  # type: ignore[arg-type]
    assert model.token_map.grid == (4, 9)
    ((_, tokens),) = model.residual_stream(model.preprocess(sheet), [1])
    whole = torch.from_numpy(sheet).permute(0, 3, 1, 2).float()
    expected = torch.nn.functional.avg_pool2d(whole, 4).flatten(2).mT
    torch.testing.assert_close(tokens, expected)
    whole_reader = _Pixels()
    assert read_crops(whole_reader, (1, 1)) is whole_reader  # type: ignore[arg-type,comparison-overlap]


def test_equal_tokens_stay_equal_without_positions() -> None:
    """Appendix A.4.1 of the IsSameObject paper: identical patches, no position, one token."""
    architecture = configured("objects").architecture
    vit = build(architecture, 2 * architecture.patch_px, torch.Generator().manual_seed(0)).eval()
    patch = torch.rand(1, 3, architecture.patch_px, architecture.patch_px)
    second = torch.rand(1, 3, architecture.patch_px, architecture.patch_px)
    image = torch.cat([torch.cat([patch, second], 3), torch.cat([second, patch], 3)], 2)

    def last_tokens() -> torch.Tensor:
        with torch.no_grad():
            return vit(image)[0, 1:]

    first, _, _, copy = last_tokens()
    assert (first - copy).abs().max() > 1e-3
    torch.nn.init.zeros_(vit.positions)
    first, different, _, copy = last_tokens()
    torch.testing.assert_close(first, copy, atol=1e-6, rtol=1e-5)
    assert (first - different).abs().max() > 1e-3
