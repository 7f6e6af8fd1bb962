"""Interventions on a frozen context: edits of its cache against a whole forward pass each.

Both engines run the same experiments on the same scenes and must give the same log-probabilities:
contexts of a base and a source, replacements (Fig. 3 of arXiv 2505.22200: 10 conditions, 4
questions), moved keys (Fig. 5: 21 conditions, 2 questions), mean differences (Table 1: four
contexts to estimate from, then 8 conditions with the random ones, 2 questions). The naive engine
(`ReferenceEngine`) runs the whole model, vision tower and all, for every condition and question,
and reads each context once; the published code reads contexts anew for every condition.

FLOPs are counted by torch as products of matrices, attention written out as two of them. All
passes of the naive engine are alike, so one of them is counted, times their number.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from measure import Entry, Options, Other, side_by_side
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bindscope.studies.binding_id.engine import (
    CONTROL,
    Add,
    Condition,
    Intervention,
    Replace,
    Rotate,
)
from bindscope.studies.binding_id.tasks.prompts import Form, prompts
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Group, Question, Scenes, question
from bindscope.studies.binding_id.toys.adapter import ToyAdapter
from bindscope.studies.binding_id.vlm.engine import Options as EngineOptions
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine
from bindscope.studies.binding_id.vlm.loading import adapt

TITLE = "Interventions on a frozen context"
FEWER_FLOPS = {"toy": 8, "larger": 20}  # a toy's question is 3 tokens of 47: 15 times at most
FASTER = 8
SCENES = {"toy": 64, "larger": 1}
Batch = tuple[Scenes, NDArray[np.uint8]]


def entries(options: Options) -> list[Entry]:
    """Time the experiments on a model of a toy's size and on one with the paper's image tokens."""
    import tiny_vlms  # the library's processors take seconds to import
    from reference_engine import ReferenceEngine

    torch.set_num_threads(options.threads)
    timed = []
    for name, adapter, side in (("toy", toy(), 36), ("larger", larger(options), 384)):
        settings = EngineOptions(batch_size=SCENES["toy"])
        template = partial(prompts, form=Form("short")) if name == "toy" else tiny_vlms.template
        engines = [
            kind(adapter, template, settings) for kind in (VisionLanguageEngine, ReferenceEngine)
        ]
        timed.append(entry(name, engines, batches(name, side), options))
    return timed


def toy() -> ToyAdapter:
    """Return a model of the toys' size: 36 image tokens of one view, width 96, 3 layers."""
    import tiny_vlms

    network, _ = tiny_vlms.llava(
        ((36, 36),),
        36,
        6,
        {"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 128},
        hidden_size=96,
        intermediate_size=192,
    )

    def see(images: NDArray[np.uint8]) -> torch.Tensor:
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
        model = network.model
        features: torch.Tensor = model.multi_modal_projector(
            model.vision_tower(pixels).last_hidden_state
        )
        return features

    words = SimpleNamespace(tokens=tiny_vlms.WORDS)
    toy_model = SimpleNamespace(network=network, vocabulary=words, patch_px=6, see=see)
    return ToyAdapter("a toy", toy_model)


def larger(options: Options) -> Any:
    """Return a random LLaVA-OneVision with the paper's 1,485 image tokens, and fewer layers."""
    import tiny_vlms

    width, layers = (128, 4) if options.size == "ci" else (256, 8)
    model, processor = tiny_vlms.llava(
        ((384, 384),),
        384,
        14,
        {"hidden_size": width // 2, "num_hidden_layers": 2, "intermediate_size": width},
        hidden_size=width,
        num_hidden_layers=layers,
        intermediate_size=3 * width,
        max_position_embeddings=2048,
    )
    return adapt("a larger model", model, processor, options.device)


def batches(name: str, side: int) -> list[Batch]:
    """Return base, source and scenes to estimate from, and those with contents exchanged."""
    import tiny_vlms

    n = SCENES[name]
    base, source, second, moved = (tiny_vlms.scenes(n, seed, side) for seed in (0, 1, 2, 3))
    alike = (moved[0].with_(slot=second[0].slot, boxes=second[0].boxes), moved[1])
    return [
        base,
        (source[0].with_(slot=base[0].slot, boxes=base[0].boxes), source[1]),
        second,
        alike,
    ]


class Core:
    """The experiments, for one engine.

    Parameters
    ----------
    engine
        The engine.
    data
        `batches`.
    """

    def __init__(self, engine: VisionLanguageEngine, data: Sequence[Batch]) -> None:
        self.engine, self.data = engine, data

    def run(self) -> list[NDArray[np.float64]]:
        """Return the log-probabilities of all experiments."""
        base, source = (self.engine.contexts(*batch) for batch in self.data[:2])
        return [
            self.engine.answers(base, source, conditions, questions, self.data[0][0].item)
            for conditions, questions in self.experiments()
        ]

    def experiments(self) -> list[tuple[list[Condition], list[Question]]]:
        """Return conditions and questions; mean differences are estimated first."""
        (base, _), (source, _) = self.data[:2]
        of_base = [question(base, role) for role in (0, 1)]
        of_both = [*of_base, *(question(source, role) for role in (0, 1))]
        return [(replacements(), of_both), (moves(), of_base), (means(self.estimated()), of_base)]

    def estimated(self) -> dict[Group, NDArray[np.float32]]:
        """Return mean differences from four contexts of each scene."""
        (scenes, images), (moved, others) = self.data[2:]
        order, items = scenes.mentioned(np.array([1, 0])), scenes.with_(item=scenes.item[:, ::-1])
        first = self.engine.contexts(scenes, images)
        second = {"object": (moved, others), "item": (items, images), "color": (order, images)}
        differences = {}
        for group in GROUPS:
            state = self.engine.contexts(*second[group])
            differences[group] = np.mean(
                self.engine.residual(state, group, 1) - self.engine.residual(first, group, 0), 0
            )
        return differences


def replacements() -> list[Condition]:
    """Return the ten conditions of Fig. 3."""
    edits = [[Replace(g, r) for r in roles] for g in GROUPS for roles in ((0,), (1,), (0, 1))]
    return [CONTROL, *(Condition(str(i), tuple(some)) for i, some in enumerate(edits))]


def moves() -> list[Condition]:
    """Return the 21 conditions of Fig. 5."""
    deltas = {"object": (-30, 0, 30, 60, 90, 95, 98, 100, 120), "item": (-3, 0, 3, 6, 7, 9)}
    return [
        Condition(f"{g} {d}", (Rotate(g, 0, d), Rotate(g, 1, -d)))
        for g in GROUPS
        for d in deltas.get(g, deltas["item"])
    ]


def means(vectors: dict[Group, NDArray[np.float32]]) -> list[Condition]:
    """Return the conditions of Table 1, with random vectors of the same lengths."""

    def added(group: Group, value: NDArray[np.float32]) -> list[Intervention]:
        return [Add(group, 0, value), Add(group, 1, value, -1.0)]

    rng, conditions = np.random.default_rng(0), [CONTROL]
    noise = {}
    for group, value in vectors.items():
        drawn = rng.normal(size=value.shape)
        noise[group] = np.float32(
            drawn
            * np.linalg.norm(value, axis=-1, keepdims=True)
            / np.linalg.norm(drawn, axis=-1, keepdims=True)
        )
    edited: list[tuple[Group, ...]] = [("object",), ("item",), ("color",), ("object", "item")]
    for chosen in (vectors, noise):
        for groups in edited if chosen is vectors else edited[:2] + edited[3:]:
            edits = [edit for group in groups for edit in added(group, chosen[group])]
            conditions.append(Condition("+".join(groups), tuple(edits)))
    return conditions


def flops(run: Any) -> int:
    """Return the FLOPs of products of matrices of a call."""
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        run()
    return int(counter.get_total_flops())


def entry(
    name: str, engines: Sequence[VisionLanguageEngine], data: Sequence[Batch], options: Options
) -> Entry:
    """Compare both engines on one model."""
    fast, naive = (Core(engine, data) for engine in engines)
    counted = flops(fast.run)
    passes, contexts, tokens = _naive_flops(naive)
    n_questions = sum(len(c) * len(q) for c, q in fast.experiments())
    conditions = [len(c) for c, _ in fast.experiments()]
    plain = n_questions * passes + 6 * contexts
    # Base and source for a replacement, the base alone for other interventions.
    published = n_questions * passes + (2 * conditions[0] + sum(conditions[1:]) + 6) * contexts
    seconds = _times(fast, naive, name, options)
    return Entry(
        f"{name}: {SCENES[name]} scenes of {tokens} tokens, {sum(conditions)} conditions, "
        f"{n_questions} questions, {plain / counted:.3g} times fewer FLOPs "
        f"({published / counted:.3g} with contexts read again)",
        seconds["fast"],
        [Other("a pass each", seconds["naive"], FASTER)],
        {"share of the naive FLOPs": (counted / plain, 1 / FEWER_FLOPS[name])},
        {
            "GFLOP, fast": counted / 1e9,
            "GFLOP, naive": plain / 1e9,
            "times fewer FLOPs": plain / counted,
            "times fewer than with contexts read anew": published / counted,
        },
    )


def _naive_flops(core: Core) -> tuple[int, int, int]:
    """Return the FLOPs of a pass and of reading contexts, and the tokens of a context."""
    (base, images), engine = core.data[0], core.engine
    states: list[Any] = []
    contexts = flops(lambda: states.append(engine.contexts(base, images)))
    # Contexts are embedded once more for their positions, which a naive engine need not do.
    contexts -= flops(lambda: engine.adapter.embed(states[0].inputs))
    about = [question(base, 0)]
    passes = flops(lambda: engine.answers(states[0], None, [CONTROL], about, base.item))
    return passes, contexts, states[0].length


def _times(fast: Core, naive: Core, name: str, options: Options) -> dict[str, float]:
    """Return seconds of both; the larger model's naive run is long and is made once."""
    results: dict[str, list[NDArray[np.float64]]] = {}

    def keep(which: str, core: Core) -> None:
        results[which] = core.run()

    runs = {"fast": lambda: keep("fast", fast), "naive": lambda: keep("naive", naive)}
    if name == "toy":
        seconds = side_by_side(runs, options)
    else:
        seconds = side_by_side({"fast": runs["fast"]}, options)
        start = time.perf_counter()
        runs["naive"]()
        seconds["naive"] = time.perf_counter() - start
    for result, naive_result in zip(results["fast"], results["naive"], strict=True):
        np.testing.assert_allclose(result, naive_result, atol=2e-4)
    return seconds
