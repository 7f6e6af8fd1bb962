"""`preprocessing` of a model: pixels as the code of a paper prepares them."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from test_adapters_hf import configuration, scenes
from tiny_towers import library_forward, library_model

from bindscope.config.models import Pretrained
from bindscope.models.images import IMAGENET
from bindscope.models.loading import load_model


@pytest.mark.parametrize("side", [45, 64])
def test_the_binding_problem_papers_input_is_read_as_by_its_code(side: int) -> None:
    """Pixels in [0, 1] are resized bilinearly; the convolution sees 5 x 5 patches of 45 px."""
    config = configuration("dinov2", input_px=45, preprocessing="binding_problem")
    model = load_model(config, None, "cpu")
    pixels = torch.from_numpy(scenes(side)).permute(0, 3, 1, 2) / 255
    pixels = torch.nn.functional.interpolate(pixels, size=(45, 45), mode="bilinear")
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in IMAGENET)
    theirs = library_forward("dinov2", library_model("dinov2"), (pixels - mean) / std)
    ours = dict(model.residual_stream(model.preprocess(scenes(side)), ["final"]))["final"]
    torch.testing.assert_close(ours, theirs.last_hidden_state, rtol=0, atol=1e-5)
    assert (model.token_map.grid, model.token_map.patch_px) == ((5, 5), 8)
    antialiased = load_model(configuration("dinov2", input_px=40), None, "cpu")
    resized = dict(antialiased.residual_stream(antialiased.preprocess(scenes(side)), ["final"]))
    assert not torch.allclose(ours, resized["final"], rtol=0, atol=1e-3)


def test_the_issameobject_papers_input_is_normalized_as_for_dinov2() -> None:
    config = configuration("clip_vision_model", preprocessing="same_object")
    model = load_model(config, None, "cpu")
    unlike = load_model(configuration("clip_vision_model"), None, "cpu")
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in IMAGENET)
    pixels = scenes(int(unlike.preprocess(scenes()).shape[-1]))  # of the side that it reads
    expected = (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - mean) / std
    torch.testing.assert_close(model.preprocess(pixels), expected, rtol=0, atol=1e-5)
    assert not torch.allclose(unlike.preprocess(pixels), expected, atol=1e-2)


@pytest.mark.parametrize("rule", ["binding_problem", "same_object"])
def test_input_of_a_papers_code_is_for_models_of_the_hub(rule: Any) -> None:
    with pytest.raises(ValidationError, match="is for sources `hf:`"):
        Pretrained(name="tiny", source="timm:vit_base_patch16_224", n_layers=12, preprocessing=rule)
