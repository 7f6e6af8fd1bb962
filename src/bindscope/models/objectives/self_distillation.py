"""Self-distillation without labels (DINO, Caron et al. 2021): two views of a scene agree.

The student says what a teacher, its own moving average, says of another view of the same scene.
Teachers' answers of a batch are spread evenly over all answers (Sinkhorn-Knopp: Caron et al. 2020,
Oquab et al. 2023), so that saying the same of every scene is not a solution.
"""

from __future__ import annotations

from copy import deepcopy
from math import log

import torch
from torch import Tensor, nn
from torch.nn import functional

from bindscope.models.objectives.base import Objective, Setting, TokenSources
from bindscope.models.vit import ViT, initialise, on_cpu

HIDDEN_WIDTH, BOTTLENECK, ANSWERS = 256, 64, 128
STUDENT_TEMPERATURE, TEACHER_TEMPERATURE = 0.1, 0.05
MOMENTUM = 0.99
ROUNDS = 3  # of Sinkhorn-Knopp
ZOOM, SHIFT = (0.8, 1.2), 0.15  # side that a view covers, and how far it is moved, of the image's
BRIGHTNESS, NOISE = 0.1, 0.1  # of pixels from -1 to 1, the same for red, green and blue: hues stay


class SelfDistillation(Objective):
    """Student and teacher, each a transformer whose [CLS] is read by a head."""

    def __init__(self, vit: ViT, setting: Setting) -> None:
        super().__init__(vit)
        with on_cpu():
            head = _Head(vit.width)
        self.head = initialise(head, setting.generator)
        self.teacher = nn.ModuleList([deepcopy(vit), deepcopy(self.head)]).requires_grad_(False)

    def before_step(self) -> None:
        """Let the teacher follow the student."""
        students = [*self.vit.parameters(), *self.head.parameters()]
        for student, teacher in zip(students, self.teacher.parameters(), strict=True):
            teacher.lerp_(student.detach(), 1 - MOMENTUM)

    def loss_bits(self, pixels: Tensor, objects: Tensor, generator: torch.Generator) -> Tensor:
        """Return the cross-entropy of the student's answers to the teacher's, in bits."""
        views = torch.cat([view(pixels, generator), view(pixels, generator)])
        vit, head = self.teacher
        with torch.no_grad():
            teacher = spread(head(vit.final_cls(views)) / TEACHER_TEMPERATURE)  # type: ignore[operator]
        student = (self.head(self.vit.final_cls(views)) / STUDENT_TEMPERATURE).log_softmax(-1)
        swapped_teacher = teacher.roll(len(pixels), 0)  # the teacher's answer to the other view
        loss: Tensor = -(swapped_teacher * student).sum(-1).mean() / log(2)
        return loss

    def visible_tokens(self, pixels: Tensor, generator: torch.Generator) -> TokenSources:
        """Return the patches of the scenes under the centres of the two views' patches."""
        rows, views = self.vit.rows, []
        for _ in range(2):
            place, _, _ = _drawn(pixels, generator)
            centres = functional.affine_grid(place, [len(pixels), 1, rows, rows], False)
            x, y = ((centres + 1) * rows / 2).floor().long().flatten(1, 2).unbind(-1)
            outside = (torch.minimum(x, y) < 0) | (torch.maximum(x, y) >= rows)
            views.append(functional.pad((y * rows + x).masked_fill(outside, -1), (1, 0), value=-1))
        scenes = torch.arange(len(pixels)).repeat(2)
        return TokenSources(scenes.to(pixels.device), torch.cat(views).to(pixels.device))


class _Head(nn.Module):
    """From [CLS] to scores of the answers: cosines, from -1 to 1.

    An untrained [CLS] is nearly the same for every scene. Standardised over the batch, what little
    differs counts from the first step on: without it nothing is learnt in 300 steps.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Sequential(
            nn.Linear(width, HIDDEN_WIDTH),
            _standardised(HIDDEN_WIDTH),
            nn.GELU(),
            nn.Linear(HIDDEN_WIDTH, BOTTLENECK),
            _standardised(BOTTLENECK),
        )
        self.answers = nn.Linear(BOTTLENECK, ANSWERS, bias=False)

    def forward(self, cls: Tensor) -> Tensor:
        """(B, width) to (B, ANSWERS)."""
        answers = functional.normalize(self.answers.weight, dim=-1)
        return functional.normalize(self.project(cls), dim=-1) @ answers.T


def _standardised(width: int) -> nn.BatchNorm1d:
    return nn.BatchNorm1d(width, affine=False, track_running_stats=False)


def spread(scores: Tensor) -> Tensor:
    """Return a distribution over answers for every row of logits; all are used equally."""
    shares = (scores - scores.max()).exp()
    for _ in range(ROUNDS):
        shares = shares / shares.sum(0, keepdim=True)
        shares = shares / shares.sum(1, keepdim=True)
    return shares


def view(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Zoom, shift, mirror and disturb images (B, 3, px, px), each in its own way.

    Beyond the edge an image goes on as its edge, which is background.
    """
    place, light, noise = _drawn(pixels, generator)
    change = BRIGHTNESS * (2 * light - 1)[:, None, None, None] + NOISE * noise
    grid = functional.affine_grid(place, list(pixels.shape), align_corners=False)
    resampled = functional.grid_sample(
        pixels, grid.to(pixels.device), padding_mode="border", align_corners=False
    )
    disturbed: Tensor = resampled + change.to(pixels.device)
    return disturbed


def _drawn(pixels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draw a view of each image: where it lies (n, 2, 3), its light (n,), its noise."""
    n = len(pixels)
    zoom, x, y, side, light = torch.rand(5, n, generator=generator)
    zoom = ZOOM[0] + (ZOOM[1] - ZOOM[0]) * zoom
    mirror = torch.where(side < 0.5, -1.0, 1.0)
    place = torch.zeros(n, 2, 3)
    place[:, 0, 0], place[:, 1, 1] = zoom * mirror, zoom
    place[:, 0, 2], place[:, 1, 2] = 2 * SHIFT * (2 * x - 1), 2 * SHIFT * (2 * y - 1)
    return place, light, torch.randn(n, 1, *pixels.shape[2:], generator=generator)
