"""Toys: LLaVA-OneVision's classes of transformers, tiny and from nothing.

What is planted: in the first two layers, heads 0 and 1 attend to the token one and two places back
(`_look_back`). That is attention to positions, not binding; without it the text is not learnt in
the time that a toy has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from safetensors.torch import save
from torch import Tensor, nn

from bindscope.config.zoo import TOY
from bindscope.core.errors import ModelError, snakemake_command
from bindscope.core.files import sha256, write_atomic, write_json
from bindscope.models.controlled import checked
from bindscope.models.stream import freeze
from bindscope.scenes.sprite_palette import SIZE_PX
from bindscope.studies.binding_id.config import Toy
from bindscope.studies.binding_id.toys import LAYERS, PATCH_PX, TOWER_WIDTH, WIDTH
from bindscope.studies.binding_id.toys.tasks import IMAGE, Vocabulary

if TYPE_CHECKING:
    from bindscope.studies.binding_id.toys.training import TrainedToy


LANGUAGE_HEADS, KEY_HEADS = 4, 2
TOWER_LAYERS = 1
LONGEST = 128  # tokens of a prompt, at most
SHARPNESS = 6.0  # of the heads that look back
LOOK_BACK = (1, 2)  # tokens, of heads 0 and 1, which share key head 0
LOOKING_LAYERS = 2
MEAN, DEVIATION = 0.8, 0.3  # of pixel values from 0 to 1


@dataclass(frozen=True)
class ToyModel:
    """A `LlavaOnevisionForConditionalGeneration`, its tokens, and its patches' side in pixels."""

    network: Any
    vocabulary: Vocabulary
    patch_px: int = PATCH_PX

    def pixels(self, images: NDArray[np.uint8]) -> Tensor:
        """Return the input of the vision tower, float32 (n, 3, px, px), of uint8 images."""
        values = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).float()
        device = self.network.lm_head.weight.device
        return ((values / 255 - MEAN) / DEVIATION).to(device)

    def see(self, images: NDArray[np.uint8]) -> Tensor:
        """Return the image tokens that enter the language model, (n, image_tokens, width)."""
        return self.look(self.pixels(images))

    def look(self, pixels: Tensor) -> Tensor:
        """Return the image tokens of the tower's input."""
        model = self.network.model
        patches = model.vision_tower(pixels).last_hidden_state
        tokens: Tensor = model.multi_modal_projector(patches)
        return tokens

    def trained_parameters(self) -> dict[str, Tensor]:
        """Return the weights by name."""
        return dict(self.network.state_dict())


def build(seed: int, vocabulary: Vocabulary) -> ToyModel:
    """Make a toy with initial weights that depend on its seed alone.

    Linear layers and patch embedding N(0, 1 / fan-in), embeddings N(0, 1), biases 0, norms 1.
    """
    from transformers import LlavaOnevisionForConditionalGeneration

    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):  # the library initialises from the global state
        network = LlavaOnevisionForConditionalGeneration(_config(vocabulary))
    del network.model.image_newline  # one view of an image: there are no ends of rows
    with torch.no_grad():
        _initialise(network, generator)
        _look_back(network.model.language_model)
    return ToyModel(network, vocabulary)


def _config(vocabulary: Vocabulary) -> Any:
    from transformers import LlavaOnevisionConfig, Qwen2Config, SiglipVisionConfig

    side = SIZE_PX
    config_class: Any = LlavaOnevisionConfig  # takes more than its annotations say
    return config_class(
        vision_config=SiglipVisionConfig(
            hidden_size=TOWER_WIDTH,
            num_hidden_layers=TOWER_LAYERS,
            num_attention_heads=LANGUAGE_HEADS,
            intermediate_size=4 * TOWER_WIDTH,
            image_size=side,
            patch_size=PATCH_PX,
            vision_use_head=False,
        ),
        text_config=Qwen2Config(
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=LANGUAGE_HEADS,
            num_key_value_heads=KEY_HEADS,
            intermediate_size=2 * WIDTH,
            vocab_size=len(vocabulary.tokens),
            max_position_embeddings=LONGEST,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        ),
        image_token_id=vocabulary.tokens.index(IMAGE),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        image_grid_pinpoints=[[side, side]],
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )


def _initialise(network: nn.Module, generator: torch.Generator) -> None:
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            fan_in = module.weight[0].numel()
            module.weight.normal_(std=fan_in**-0.5, generator=generator)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.Embedding):
            module.weight.normal_(generator=generator)


def _look_back(language: Any) -> None:
    """Let heads 0 and 1 of the first layers attend to the token one and two places back.

    It is enough to set biases of queries and keys: a constant key at place s and a constant query
    at place t meet in the sum over frequencies f of cos((t - s - off) f).
    """
    size = WIDTH // LANGUAGE_HEADS
    frequencies = 1e4 ** (-torch.arange(0, size, 2) / size)
    for layer in language.layers[:LOOKING_LAYERS]:
        queries, keys = layer.self_attn.q_proj, layer.self_attn.k_proj
        keys.weight[:size] *= 0.1
        keys.bias[: size // 2] = SHARPNESS
        for head, offset in enumerate(LOOK_BACK):
            rows = slice(head * size, (head + 1) * size)
            queries.weight[rows] *= 0.1
            turned = offset * frequencies
            queries.bias[rows] = SHARPNESS * torch.cat([turned.cos(), -turned.sin()])


def write(
    trained: TrainedToy,
    config: Toy,
    weights: Path | str,
    manifest: Path | str,
    *,
    code: str,
    spec: str = "",
) -> None:
    """Write the weights as float16 (safetensors), and last a manifest (JSON) beside them.

    The manifest holds `kind`, `objective`, `seed`, `input_px`, `recipe` (the configuration),
    `accuracies` after the last step, `val_loss_bits` and `history`; `tokens`, the vocabulary.
    """
    tensors = {
        name: value.detach().half().cpu().contiguous()
        for name, value in trained.toy.trained_parameters().items()
    }
    content = save(tensors)
    write_atomic(weights, content)
    losses = [entry["loss_bits"] for entry in trained.history if entry["split"] == "val"]
    write_json(
        manifest,
        {
            "weights": Path(weights).name,
            "sha256": sha256(content),
            "kind": TOY,
            "objective": config.objective,
            "seed": config.seed,
            "input_px": SIZE_PX,
            "recipe": {"model": config.model_dump(mode="json", exclude={"source"})},
            "tokens": list(trained.toy.vocabulary.tokens),
            "code": code,
            "spec": spec,
            "val_loss_bits": losses[-1] if losses else None,
            "accuracies": trained.accuracies,
            "history": trained.history,
        },
    )


def described(training: Path) -> dict[str, Any]:
    """Return what the zoo's manifest holds of a toy: what `write` knows of it, see there."""
    manifest = read_manifest(training, f"delete {training} and run `make zoo`")
    return {key: value for key, value in manifest.items() if key != "spec"}


def load(
    manifest: Path | str, device: torch.device | str = "cpu", remedy: str | None = None
) -> ToyModel:
    """Load a toy that `write` stored, frozen, in float32.

    `remedy` brings missing or damaged files back; default: training the toy again.

    ModelError if the files are missing or damaged, or were written for other words.
    """
    path = Path(manifest)
    remedy = remedy or f"train it again: `{snakemake_command(f'--forcerun {path}')}`"
    stored = read_manifest(path, remedy)
    content = checked(path.parent / stored["weights"], stored["sha256"], remedy)
    toy = build(stored["seed"], Vocabulary(tuple(stored["tokens"])))
    tensors = {name: value.float() for name, value in load_tensors(content).items()}
    own_shapes, shapes = (
        {name: value.shape for name, value in each.items()}
        for each in (toy.trained_parameters(), tensors)
    )
    if shapes != own_shapes:
        raise ModelError(str(path), "its weights are of another architecture", remedy)
    toy.network.load_state_dict(tensors, strict=False)
    freeze(toy.network, torch.device(device))
    return toy


def read_manifest(path: Path, remedy: str) -> dict[str, Any]:
    """Read a toy's manifest, or raise ModelError if it is not there, or not one of a toy."""
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(str(path), f"is missing or damaged ({error})", remedy) from error
    if manifest.get("kind") != TOY:
        raise ModelError(str(path), "is no manifest of a toy", remedy)
    return manifest
