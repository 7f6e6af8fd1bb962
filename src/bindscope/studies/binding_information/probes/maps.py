"""Where the heads of a fitted attention probe look."""

from __future__ import annotations

import numpy as np
import torch

from bindscope.core.errors import StoreError
from bindscope.fitting.rows import Array
from bindscope.studies.binding_information.probes.attention import AttentionQuadratic
from bindscope.studies.binding_information.probes.base import Floats, Target, TargetName
from bindscope.studies.binding_information.probes.module import Tokens
from bindscope.studies.binding_information.probes.weights import LoadedProbe


@torch.inference_mode()
def attention_maps(
    probe: LoadedProbe,
    tokens: Array,
    cls: Array | None,
    bits: Array,
    target: TargetName = "object",
) -> Floats:
    """Return where the heads of a probe `attention_quadratic` look, float32 (B, heads, T).

    It reads raw patch tokens (B, T, d), [CLS] (B, d) or None, and true bits of the target (B,
    heads); the weights of a head sum to 1.
    """
    inputs = probe.inputs(tokens, cls)
    centered_bits = torch.from_numpy(np.asarray(bits, np.float32)) - 0.5
    maps = []
    for part in Target(target, probe.sizes, probe.n_counts).parts:
        family = probe.families[part.name]
        if not isinstance(family, AttentionQuadratic) or not isinstance(inputs, Tokens):
            raise StoreError(
                probe.config.name,
                f"family {probe.config.family} has no attention maps",
                "choose a probe of family attention_quadratic",
            )
        maps.append(family.attention(inputs, centered_bits[:, : part.length]))
    return torch.cat(maps, dim=1).numpy()
