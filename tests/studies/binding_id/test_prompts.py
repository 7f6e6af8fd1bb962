"""The texts of the shapes task, against the released prompt and against what they are made from."""

from __future__ import annotations

import numpy as np
import pytest

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.tasks.prompts import (
    RELEASED_SPACES,
    Form,
    prompts,
    with_image,
)
from bindscope.studies.binding_id.tasks.scenes import (
    LAYOUTS,
    Prompt,
    Rule,
    Scenes,
    draw_scenes,
    question,
    words_of,
)

WORDS = words_of("test", "pair")


def scene(**changes: list[int]) -> Scenes:
    """A green sphere with J on the left, a red cube with Q on the right."""
    values = {"shape": [3, 1], "color": [2, 4], "item": [9, 16], "slot": [0, 1]} | changes
    arrays = {name: np.array([value]) for name, value in values.items()}
    return Scenes(WORDS, **arrays, boxes=LAYOUTS["pair"].boxes(arrays["slot"]))


def build_prompt(scenes: Scenes, form: Form) -> Prompt:
    return prompts(scenes, [question(scenes, role) for role in (0, 1)], form)[0]


def parts(prompt: Prompt) -> dict[tuple[str, int], str]:
    return {key: prompt.context[start:end] for key, (start, end) in prompt.spans.items()}


def test_the_papers_prompt() -> None:
    """Word by word as in the released code."""
    prompt = build_prompt(scene(), Form())
    assert prompt.context + prompt.questions[1] == (
        "<|im_start|>user <image>\n\nAnswer the question based on the provided image and the "
        "context below. Keep the answer short.\n\nContext:The green object contains item J. The "
        "red object contains item Q.\n\nQuestion: Which item does the cube contain?<|im_end|>"
        "<|im_start|>assistant\nAnswer: The cube contains item"
    )
    assert parts(prompt) == {
        ("color", 0): "green object",
        ("item", 0): "item J",
        ("color", 1): "red object",
        ("item", 1): "item Q",
    }


def test_the_short_form() -> None:
    prompt = build_prompt(scene(), Form("short"))
    assert prompt.context == "<image> green has J . red has Q ."
    assert prompt.questions == (" ? sphere has", " ? cube has")
    assert parts(prompt)["item", 1] == "Q ."
    assert parts(prompt)["color", 1] == "red has"


def test_spans_move_with_a_models_own_image_token() -> None:
    prompt = build_prompt(scene(), Form("short"))
    assert parts(with_image(prompt, "<|vision|>xy")) == parts(prompt)


def test_things_that_a_text_mentions_alike_are_refused() -> None:
    with pytest.raises(InputError, match="two things of a scene have the same color"):
        build_prompt(scene(color=[2, 2]), Form())


def test_released_spacing() -> None:
    scenes = draw_scenes(Rule(), words_of("estimation", "pair"), 40, np.random.default_rng(0))
    about = question(scenes, 0)
    texts = [
        prompt.questions[0] for prompt in prompts(scenes, [about], Form(spaces=RELEASED_SPACES))
    ]
    assert {"pyramid", "prism"} <= {*about.texts()}
    for word, text in zip(about.texts(), texts, strict=True):
        assert f"the{'   ' if word in ('pyramid', 'prism') else ' '}{word} contain" in text
