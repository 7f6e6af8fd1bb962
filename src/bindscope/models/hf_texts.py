"""Text towers of CLIP-like models of transformers, and the projection of their image tower."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.config.models import Pretrained
from bindscope.core.errors import ModelError
from bindscope.models.stream import freeze, state_sha256
from bindscope.models.weights import (
    LOCAL,
    UNREADABLE,
    Weights,
    parse_source,
    read_settings,
    resolve,
    unread,
)

if TYPE_CHECKING:
    from bindscope.scenes.captions import GroupWords

# Tokens where a model has no tokenizer: padding is 0, byte b is FIRST_BYTE + b. The end is the
# largest: older configurations of CLIP let the library read a text at its largest token.
BEGIN, FIRST_BYTE, END = 1, 2, 258

TokenizeTexts = Callable[[Sequence[str]], tuple[Tensor, Tensor]]


class HFTexts:
    """The text tower of a CLIP; see `models.loading.TextTower`.

    Texts are padded to the longest of a batch, not to the model's context: attention is causal and
    the vector is read at the end of the text, so what stands behind it has no effect.
    """

    def __init__(
        self,
        where: str,
        model: Any,
        tokenize: TokenizeTexts,
        config: Pretrained,
        resolved: Weights | None,
    ) -> None:
        self.where, self.model, self.tokenize = where, model, tokenize
        self.batch_size = config.extraction.batch_size
        self.dim = int(model.text_projection.out_features)
        self.revision = resolved.revision if resolved else f"random weights, seed {config.seed}"
        self.weights_sha256 = resolved.sha256 if resolved else state_sha256(model.state_dict())

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], words: Sequence[GroupWords]) -> NDArray[np.float32]:
        """Return the joint space's vector of each text, raw; `words` are not read."""
        device = self.model.text_projection.weight.device
        longest = int(self.model.text_model.config.max_position_embeddings)
        parts = []
        for start in range(0, len(texts), self.batch_size):
            ids, mask = self.tokenize(texts[start : start + self.batch_size])
            if ids.shape[1] > longest:
                raise ModelError(
                    self.where,
                    f"a caption takes {ids.shape[1]} tokens, and its text tower reads {longest}",
                    "use shorter captions (`captions.templates`)",
                )
            read = self.model.text_model(
                input_ids=ids.to(device), attention_mask=mask.to(device)
            ).pooler_output
            parts.append(self.model.text_projection(read).float().cpu())
        return np.asarray(torch.cat(parts).numpy(), np.float32)

    @torch.inference_mode()
    def project(self, cls: NDArray[np.floating]) -> NDArray[np.float32]:
        """Bring [CLS] after the final norm (n, width) into the joint space."""
        weight = self.model.visual_projection.weight
        projected = self.model.visual_projection(
            torch.from_numpy(np.float32(cls)).to(weight.device)
        )
        return np.asarray(projected.cpu().numpy(), np.float32)


def load(config: Pretrained, weights: Path | None, device: torch.device) -> HFTexts:
    """Load the text tower of a model of transformers (`load_model`).

    With ``pretrained: false`` every weight comes from its seed. ModelError if the model is no CLIP,
    or its weights or tokenizer are missing.
    """
    import transformers

    clip: Any = transformers.CLIPModel
    where = f"the text tower of {config.name} ({config.source})"
    resolved = resolve(config, weights) if config.pretrained else None
    folder = resolved.folder if resolved else parse_source(config.source).path
    settings = _settings(config, folder, where)
    tokenize = _of_bytes(settings, where) if folder is None else _tokenizer(folder, where)
    if resolved:
        model, report = clip.from_pretrained(
            resolved.folder,
            config=settings,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            **LOCAL,
        )
        if missing := sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]])):
            raise ModelError(
                where,
                f"{len(missing)} weights are missing, the first is {missing[0]}",
                "use a checkpoint with both towers and both projections",
            )
    else:
        model = random_clip(settings, config.seed)
    freeze(model, device)
    return HFTexts(where, model, tokenize, config, resolved)


def random_clip(settings: Any, seed: int) -> Any:
    """Return a CLIP with all parameters of towers and projections drawn or set again."""
    from transformers import CLIPModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CLIPModel(settings)


def _settings(config: Pretrained, folder: Path | None, where: str) -> Any:
    """Return the configuration of both towers, without any network."""
    remedy = (
        "use a CLIP: `hf:<repo>@<commit>`, `hf:path:/folder`, or for random weights `overrides: "
        "{model_type: clip, text_config: {...}, vision_config: {...}}`"
    )
    try:
        settings, _ = read_settings(config.overrides, folder)
    except UNREADABLE as error:
        problem = f"its configuration cannot be read ({unread(error)})"
        raise ModelError(where, problem, remedy) from error
    if settings.model_type != "clip":
        raise ModelError(where, f"models of type {settings.model_type!r} have none here", remedy)
    return settings


def _tokenizer(folder: Path, where: str) -> TokenizeTexts:
    from transformers import AutoTokenizer

    remedy = "put tokenizer.json (or vocab.json and merges.txt) beside its config.json"
    # Without any file the library makes up a tokenizer without a vocabulary.
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        raise ModelError(where, f"{folder} has no tokenizer", remedy)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL)
    except UNREADABLE as error:
        problem = f"its tokenizer cannot be read ({unread(error)})"
        raise ModelError(where, problem, remedy) from error

    def tokenize(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        encoded = tokenizer(list(texts), padding=True, return_tensors="pt")
        return encoded["input_ids"], encoded["attention_mask"]

    return tokenize


def _of_bytes(settings: Any, where: str) -> TokenizeTexts:
    """Return a tokenizer for random weights without any files: a text's bytes are its tokens."""
    text = settings.text_config
    if text.vocab_size <= END:
        raise ModelError(
            where,
            f"a vocabulary of {text.vocab_size} does not hold all bytes",
            f"set `overrides: {{text_config: {{vocab_size: {END + 1}}}}}` or more",
        )
    text.bos_token_id, text.eos_token_id, text.pad_token_id = BEGIN, END, 0

    def tokenize(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        rows = [[BEGIN, *(FIRST_BYTE + b for b in t.encode()), END] for t in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
        return ids, (torch.arange(longest) < torch.tensor([[len(row)] for row in rows])).long()

    return tokenize
