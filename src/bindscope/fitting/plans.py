"""The plan by which models are trained: Adam, a warm-up and a cosine, clipped gradients."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from bindscope.fitting.adam import Adam
from bindscope.fitting.descent import DescentPlan
from bindscope.fitting.schedules import warm_up_and_cosine

BETAS = (0.9, 0.98)
CLIP_NORM = 1.0


def training_plan(
    steps: int,
    learning_rate: float,
    weight_decay: float,
    decays: Callable[[Tensor], bool],
    evaluations: int,
) -> DescentPlan:
    """Plan a training: warm-up to `learning_rate`, decay of the parameters that `decays` chooses.

    Evaluations are in equal distances; the last one is after the last step.
    """

    def optimiser(module: nn.Module) -> Adam:
        parameters = [p for p in module.parameters() if p.requires_grad]
        decay = [weight_decay if decays(p) else 0.0 for p in parameters]
        return Adam(parameters, decay, betas=BETAS)

    due = {round(steps * (i + 1) / evaluations) for i in range(evaluations)}
    return DescentPlan(
        steps=steps,
        rate=lambda step: warm_up_and_cosine(learning_rate, step, steps),
        optimiser=optimiser,
        evaluate=lambda step: step in due,
        clip_norm=CLIP_NORM,
    )
