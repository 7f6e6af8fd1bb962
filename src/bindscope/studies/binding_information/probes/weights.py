"""Weights of fitted probes: to safetensors and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.numpy import save

from bindscope.core.array_types import Array, Singles
from bindscope.core.errors import StoreError
from bindscope.core.files import canonical_json
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probes.base import (
    FitResult,
    Target,
    TargetName,
    chosen_targets,
)
from bindscope.studies.binding_information.probes.module import (
    Family,
    InputShape,
    PatchInputs,
    ProbeInputs,
    build,
)


def to_safetensors(results: Sequence[FitResult]) -> bytes:
    """Return the weights of all seeds of a block as one safetensors file.

    Tensors are named `<seed>.<part>.<parameter>`; the header holds one entry, `probes` (safetensors
    writes several in a random order), JSON of seed -> `FitResult.metadata`.
    """
    tensors = {f"{r.seed}.{name}": value for r in results for name, value in r.weights.items()}
    header = canonical_json({str(r.seed): r.metadata for r in results})
    return save(tensors, {"probes": header})


@dataclass(frozen=True)
class LoadedProbe:
    """A fitted probe: modules by part, and the scaling of `z`, or of `patches` and `cls`."""

    config: AnyProbe
    sizes: tuple[int, ...]
    families: dict[str, Family]
    standardisers: dict[str, Standardiser]
    n_counts: int = 0

    def inputs(self, z: Array, cls: Array | None = None) -> ProbeInputs:
        """Return raw vectors (B, d), or tokens (B, T, d) and [CLS] (B, d), standardised."""
        cpu = torch.device("cpu")
        if "patches" not in self.standardisers:
            return self.standardisers["z"].apply(z, cpu)
        if ("cls" in self.standardisers) != (cls is not None):
            raise StoreError(
                "cls",
                "the probe was fitted with [CLS]" if cls is None else "the probe reads no [CLS]",
                "pass cls exactly where the model has it",
            )
        vectors = None if cls is None else self.standardisers["cls"].apply(cls, cpu)
        return PatchInputs(self.standardisers["patches"].apply(z, cpu), vectors)

    @torch.inference_mode()
    def logits(
        self,
        target: TargetName,
        z: Array,
        bits: Array,
        anchors: Array | None = None,
        cls: Array | None = None,
    ) -> Singles:
        """Return teacher-forced logits of a target, float32 (B, heads), in nats.

        `z` is a raw representation (B, d), or patch tokens (B, T, d) with [CLS] (B, d) where the
        model has them; true bits are (B, heads), anchors of anchored targets prior log-odds in
        nats.
        """
        requested = Target(target, self.sizes, self.n_counts)
        parts = requested.heads(jointly=requested.name in self.families)
        if (anchors is not None) != parts[0].anchored:
            raise StoreError(
                "anchors",
                f"target {target} {'is not' if anchors is not None else 'is'} anchored",
                "pass anchors exactly for object_anchored and chained",
            )
        inputs, received = self.inputs(z, cls), torch.from_numpy(np.asarray(bits, np.float32))
        logits = []
        for part in parts:
            prior = None
            if anchors is not None:
                part_anchors = np.asarray(anchors, np.float32)[:, part.first : part.length]
                prior = torch.from_numpy(part_anchors)
            logits.append(self.families[part.name](inputs, received[:, : part.length], prior))
        return torch.cat(logits, dim=1).numpy()


def load_probe(path: Path | str, seed: int | None = None) -> LoadedProbe:
    """Load a probe that `to_safetensors` wrote, of a seed of the block or the first."""
    with safe_open(str(path), framework="numpy") as file:
        header = json.loads((file.metadata() or {}).get("probes", "{}"))
        seed = min(map(int, header), default=0) if seed is None else seed
        if str(seed) not in header:
            raise StoreError(
                str(path), f"it holds no probe of seed {seed}", f"choose one of {sorted(header)}"
            )
        prefix = f"{seed}."
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        return rebuild(
            header[str(seed)],
            {name.removeprefix(prefix): file.get_tensor(name) for name in names},
        )


def rebuild(metadata: dict[str, Any], weights: dict[str, Singles]) -> LoadedProbe:
    """Return the probe of a `FitResult`'s metadata and weights."""
    config = TypeAdapter[AnyProbe](AnyProbe).validate_python(metadata["probe"])
    sizes = tuple(metadata["sizes"])
    shape = InputShape(metadata["dim"], metadata["cls"], metadata["tokens"])
    families = {}
    n_counts = metadata["n_counts"]
    targets = chosen_targets(config, sizes, n_counts)
    for heads in (heads for target in targets for heads in target.heads(config.jointly)):
        family = build(config, heads, shape)
        prefix = f"{heads.name}."
        state = {
            name.removeprefix(prefix): torch.from_numpy(np.array(value))
            for name, value in weights.items()
            if name.startswith(prefix)
        }
        family.load_state_dict(state)
        families[heads.name] = family
    scalings = {name.split(".")[1] for name in weights if name.startswith("standardise.")}
    standardisers = {
        name: Standardiser(
            weights[f"standardise.{name}.mean"], weights[f"standardise.{name}.scale"]
        )
        for name in scalings
    }
    return LoadedProbe(config, sizes, families, standardisers, metadata["n_counts"])
