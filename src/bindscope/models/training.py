"""Training of controlled models: a vision transformer whose [CLS] is asked for one code.

Runs on as many threads as torch is set to; results depend on that number (sums are split
differently), and on nothing else besides the arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import cos, isfinite, log, pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional

from bindscope.codes.space import feature_code
from bindscope.config.codes import SceneDistribution
from bindscope.config.models import Controlled
from bindscope.core.errors import ModelError
from bindscope.core.files import sha256, write_atomic, write_json
from bindscope.fitting.adam import Adam
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.descent import Descent, Plan, Run
from bindscope.models.vit import ViT, build, transform

logger = logging.getLogger(__name__)

EVALUATIONS = 10  # entries of the history per split
VAL_SCENES = 512  # the first ones, read at each evaluation
CLIP_NORM = 1.0
BETAS = (0.9, 0.98)
WARM_UP, FIRST, LAST = 0.1, 25.0, 1e4  # share of the steps; peak / first rate, first / last
INITIALISATION, BATCHES = range(2)  # independent streams of one seed

UInt8 = NDArray[np.uint8]


@dataclass(frozen=True)
class Trained:
    """A model after training.

    Parameters
    ----------
    weights
        The transformer's parameters, and ``head.weight`` (codes, width) and ``head.bias`` of the
        readout; no head for the objective ``none``. On the CPU, contiguous.
    history
        One entry per evaluation and split: `step`, `split` (train, val), `loss_bits` (bits per
        scene; train: mean over the steps since the entry before).
    input_px
        Side of the input: ``training.input_px``, or the images'.
    """

    weights: dict[str, Tensor]
    history: list[dict[str, Any]]
    input_px: int


def train(
    config: Controlled,
    dataset: SceneDistribution,
    images: Mapping[str, UInt8],
    objects: Mapping[str, UInt8],
    device: torch.device | str | None = None,
    checkpoint: Checkpoint | None = None,
) -> Trained:
    """Train a controlled model, or only initialise it (objective ``none``).

    The readout of [CLS] after the final norm is linear and starts at the training scenes' log-odds.
    Models with the same seed and architecture start from the same weights, whatever the objective.

    Parameters
    ----------
    config
        Architecture, objective, schedule, seed.
    dataset
        The space of the codes.
    images
        `train` and `val`: uint8 (N, px, px, 3).
    objects
        `train` and `val`: object codes, uint8 (N, K).
    device
        Where to train; default: any of the kind that the configuration names.
    checkpoint
        Where the state is written ten times, and read from at the start: a training that was killed
        goes on and ends in the same weights. Remove it when the weights are written.

    Returns
    -------
    Trained
        Weights after the last step, and the history.

    Raises
    ------
    ModelError
        If the patches do not divide the images, or training diverges.
    """
    input_px = config.training.input_px or int(images["train"].shape[1])
    vit = build(config.architecture, input_px, _generator(config.seed))
    objective = config.source.partition(":")[2]
    if objective == "none":
        return Trained(_weights(vit, None), [], input_px)
    targets = dict(objects)
    if objective == "features":
        sizes = [group.size for group in dataset.space.groups]
        targets = {split: feature_code(codes, sizes) for split, codes in objects.items()}
    model = _Model(vit, _head(targets["train"], config.architecture.width), input_px)
    device = torch.device(device or config.training.device)
    run = Run(f"model {config.name}", model.to(device), keeps_best=False)
    task = _Task(model, config, images, targets, device)
    Descent([run], task, _plan(config), checkpoint).fit()
    history = [entry._asdict() for entry in run.history]
    logger.info("val loss after %d steps: %.2f bits", run.steps, history[-1]["loss_bits"])
    return Trained(_weights(model.vit, model.head), history, input_px)


def write_training(
    trained: Trained,
    weights: Path | str,
    history: Path | str,
    manifest: Path | str,
    *,
    spec: str,
    code: str,
) -> None:
    """Write the weights (safetensors), the history (JSON), and last a manifest that names both.

    Parameters
    ----------
    trained
        What `train` returned.
    weights, history, manifest
        Paths; `weights` lies in the manifest's folder.
    spec, code
        The keys' contents.
    """
    content = save(trained.weights)
    write_atomic(weights, content)
    write_json(history, trained.history)
    write_json(
        manifest,
        {
            "weights": Path(weights).name, "sha256": sha256(content),
            "input_px": trained.input_px, "spec": spec, "code": code,
        },
    )  # fmt: skip


class _Model(nn.Module):
    """The transformer and its readout."""

    def __init__(self, vit: ViT, head: nn.Linear, input_px: int) -> None:
        super().__init__()
        self.vit, self.head, self.transform = vit, head, transform(input_px)

    def loss_bits(self, images: UInt8, codes: UInt8, device: torch.device) -> Tensor:
        """Return the cross-entropy of all bits, summed over a scene's bits, mean over scenes."""
        pixels = self.transform(images, device, "controlled model")
        logits = self.head(self.vit.final_cls(pixels))
        wanted = torch.from_numpy(codes).to(device, torch.float32)
        nats = functional.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
        return nats / (len(codes) * log(2))


def one_cycle(peak: float, step: int, steps: int) -> float:
    """Return the rate of a step, from 0: cosine from peak / 25 up over 10 %, then down to near 0.

    The order of operations is that of torch's `OneCycleLR`, whose rates these are bit by bit.
    """
    top, first = WARM_UP * steps - 1, peak / FIRST
    if step > top:
        start, end, done = peak, first / LAST, (step - top) / (steps - 1 - top)
    else:
        start, end, done = first, peak, step / top if top else 1.0
    return end + (start - end) / 2.0 * (cos(pi * done) + 1)


def _plan(config: Controlled) -> Plan:
    training = config.training
    steps = training.steps

    def optimiser(model: nn.Module) -> Adam:
        parameters = list(model.parameters())
        decays = [training.weight_decay if p.ndim == 2 else 0.0 for p in parameters]
        return Adam(parameters, decays, betas=BETAS)

    due = {round(steps * (i + 1) / EVALUATIONS) for i in range(EVALUATIONS)}
    return Plan(
        steps=steps,
        rate=lambda step: one_cycle(training.learning_rate, step, steps),
        optimiser=optimiser,
        evaluate=lambda step: step in due,
        clip_norm=CLIP_NORM,
    )


@dataclass(frozen=True)
class _Task:
    """A model and its scenes: what the descent needs to know of them."""

    model: _Model
    config: Controlled
    images: Mapping[str, UInt8]
    targets: Mapping[str, UInt8]
    device: torch.device

    def batches(self, first: int) -> Iterator[NDArray[np.intp]]:
        """Yield the scenes of one step after the other, from step `first` on."""
        size, seed = self.config.training.batch_size, self.config.seed
        return islice(_batches(len(self.images["train"]), size, seed), first, None)

    def backward(self, run: Run, batch: NDArray[np.intp], share: float) -> float:
        """Add the gradients of `share` of the loss; return the loss in bits per scene."""
        images, targets = self.images["train"][batch], self.targets["train"][batch]
        loss = self.model.loss_bits(images, targets, self.device)
        (loss * share).backward()  # type: ignore[no-untyped-call]
        found = float(loss.detach())
        if not isfinite(found):
            raise ModelError(
                run.name, f"training diverged at step {run.steps + 1}",
                f"lower training.learning_rate ({self.config.training.learning_rate:g})",
            )  # fmt: skip
        return found

    @torch.no_grad()
    def validate(self, runs: Sequence[Run]) -> list[float]:
        """Return the loss on the first `VAL_SCENES` scenes, in bits per scene."""
        images, targets = self.images["val"], self.targets["val"]
        n, block = min(len(images), VAL_SCENES), 128
        parts = [slice(i, min(i + block, n)) for i in range(0, n, block)]
        total = sum(
            float(self.model.loss_bits(images[part], targets[part], self.device))
            * (part.stop - part.start)
            for part in parts
        )
        return [total / n for _ in runs]


def _batches(n: int, size: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Give the scenes of one step after the other: shuffled passes over all of them, unending."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, BATCHES]))
    waiting = np.zeros(0, np.intp)
    while True:
        while len(waiting) < size:
            waiting = np.concatenate([waiting, rng.permutation(n)])
        yield waiting[:size]
        waiting = waiting[size:]


def _generator(seed: int) -> torch.Generator:
    """Return the source of initial weights."""
    state = np.random.SeedSequence([seed, INITIALISATION]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


def _head(codes: UInt8, width: int) -> nn.Linear:
    """Return a readout that starts as the codes' (smoothed) log-odds, whatever it reads."""
    odds = (codes.sum(axis=0, dtype=np.float64) + 0.5) / (len(codes) - codes.sum(axis=0) + 0.5)
    head = nn.Linear(width, codes.shape[1], device="meta").to_empty(device="cpu")
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.from_numpy(np.log(odds)))
    return head


def _weights(vit: ViT, head: nn.Linear | None) -> dict[str, Tensor]:
    named = dict(vit.state_dict())
    if head is not None:
        named |= {f"head.{name}": value for name, value in head.state_dict().items()}
    return {name: value.detach().cpu().contiguous() for name, value in named.items()}
