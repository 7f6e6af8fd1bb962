"""From texts to tokens: where words of the context are, what a question adds, what is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from bindscope.core.errors import InputError, ModelError
from bindscope.studies.binding_id.tasks.prompts import IMAGE, with_image
from bindscope.studies.binding_id.tasks.task import Group, Prompt, Question, Scenes
from bindscope.studies.binding_id.vlm.adapters import OWN_PROCESSOR, Adapter

Answer = Literal["space", "bare"]
Span = tuple[int, int]


class Template(Protocol):
    """Puts scenes and questions into words (`prompts.prompts` of a form)."""

    def __call__(self, scenes: Scenes, questions: Sequence[Question]) -> Sequence[Prompt]:
        """Return a prompt per scene, with all questions; `<image>` says where the image is."""
        ...


@dataclass(frozen=True, eq=False)
class Contexts:
    """The contexts of a batch in words.

    Attributes
    ----------
    texts
        As the model reads them, with its own mark of the image.
    spans
        Characters of each group and role, per text.
    ends
        Place in each text behind the mark of the image; 0 without an image.
    lead
        What every question begins with and contexts end with.
    """

    texts: list[str]
    spans: list[Mapping[tuple[Group, int], Span]]
    ends: list[int]
    lead: str


def contexts(prompts: Sequence[Prompt], image_text: str, images: bool, lead: str) -> Contexts:
    """Put the model's mark of the image into contexts, and what begins all questions behind them.

    Raises
    ------
    InputError
        If a context with an image does not say where it is, or one without an image does.
    """
    texts, spans, ends = [], [], []
    for prompt in prompts:
        if prompt.context.count(IMAGE) != images:
            raise InputError(
                "the prompt's template",
                f"{IMAGE} is there {prompt.context.count(IMAGE)} times, and there "
                + ("is an image" if images else "are no images"),
                "name the image once where there is one (`Form.image`)",
            )
        ends.append(prompt.context.index(IMAGE) + len(image_text) if images else 0)
        prompt = with_image(prompt, image_text) if images else prompt
        if early := [name for name, (start, _) in prompt.spans.items() if start < ends[-1]]:
            raise InputError(
                "the prompt's template", f"{early[0]} stands before the image",
                "put the image first: words before it cannot know what it shows",
            )  # fmt: skip
        texts.append(prompt.context + lead)
        spans.append(prompt.spans)
    return Contexts(texts, spans, ends, lead)


def token_spans(
    adapter: Adapter, read: Contexts, ids: Tensor
) -> dict[tuple[Group, int], Tensor]:  # fmt: skip
    """Return where the tokens of each group and role stand in the prompts, int64 (n, t) each.

    Parameters
    ----------
    adapter
        The model.
    read
        The contexts.
    ids
        Their tokens as the processor made them, the image's among them, (n, T).

    Raises
    ------
    ModelError
        If processor and tokenizer cut the text differently.
    InputError
        If a word takes more tokens in one context than in another.
    """
    places: dict[tuple[Group, int], list[list[int]]] = {}
    for row, (numbers, characters) in enumerate(adapter.tokenize(read.texts)):
        end = read.ends[row]
        first = sum(start < end for start, _ in characters)
        tail, moved = numbers[first:], ids.shape[1] - len(numbers)
        if ids[row, ids.shape[1] - len(tail) :].tolist() != tail:
            raise ModelError(
                adapter.where, "its processor and its tokenizer cut the text behind the image "
                f"differently ({read.texts[row][end:]!r})", OWN_PROCESSOR,
            )  # fmt: skip
        for name, (a, b) in read.spans[row].items():
            found = [
                token + moved
                for token, (start, stop) in enumerate(characters)
                if start < b and stop > a
            ]
            places.setdefault(name, []).append(found)
    return {name: _rectangle(name, rows, read, ids.device) for name, rows in places.items()}


def _rectangle(
    name: tuple[Group, int], rows: list[list[int]], read: Contexts, device: torch.device
) -> Tensor:
    lengths = [len(row) for row in rows]
    if len(set(lengths)) > 1:
        other = next(row for row, length in enumerate(lengths) if length != lengths[0])
        words = [read.texts[row][slice(*read.spans[row][name])] for row in (0, other)]
        raise InputError(
            f"the {name[0]} of role {name[1]}",
            f"{words[0]!r} takes {lengths[0]} tokens and {words[1]!r} {lengths[other]}",
            "use words of equally many tokens: one for each shape, colour and item",
        )
    return torch.tensor(rows, dtype=torch.int64, device=device)


def question_tokens(
    adapter: Adapter, contexts: Contexts, prompts: Sequence[Prompt], device: torch.device
) -> list[Tensor]:
    """Return the tokens that each question adds to the contexts, int64 (n, S) per question.

    Raises
    ------
    InputError
        If a question changes how its context is cut into tokens, or takes more tokens for one
        scene than for another.
    """
    alone = [numbers for numbers, _ in adapter.tokenize(contexts.texts)]
    found = []
    for number in range(len(prompts[0].questions)):
        asked = [prompt.questions[number] for prompt in prompts]
        if wrong := [question for question in asked if not question.startswith(contexts.lead)]:
            raise InputError(
                f"the question {wrong[0]!r}", f"it does not begin with {contexts.lead!r}",
                "set `lead` to what all questions of the template begin with, or to nothing",
            )  # fmt: skip
        texts = [
            text + question.removeprefix(contexts.lead)
            for text, question in zip(contexts.texts, asked, strict=True)
        ]
        rows = []
        for text, before, (whole, _) in zip(texts, alone, adapter.tokenize(texts), strict=True):
            if whole[: len(before)] != before or len(whole) == len(before):
                raise InputError(
                    f"the question in {text!r}", "it changes the tokens of its context",
                    "set `lead` to what all questions begin with (line breaks, say), which then is "
                    "part of the context",
                )  # fmt: skip
            rows.append(whole[len(before) :])
        lengths = [len(row) for row in rows]
        if len(set(lengths)) > 1:
            other = next(row for row, length in enumerate(lengths) if length != lengths[0])
            raise InputError(
                f"question {number}",
                f"{prompts[0].questions[number]!r} takes {lengths[0]} tokens and "
                f"{prompts[other].questions[number]!r} {lengths[other]}",
                "use words of equally many tokens: one for each shape, colour and item",
            )
        found.append(torch.tensor(rows, dtype=torch.int64, device=device))
    return found


def answer_tokens(adapter: Adapter, words: Sequence[str], answer: Answer) -> list[int]:
    """Return the token of each word as an answer.

    Parameters
    ----------
    adapter
        The model.
    words
        What may be the answer: items.
    answer
        `space`: as the word continues a text that ends without a space; `bare`: without the
        space, as the paper's code scores it.

    Raises
    ------
    InputError
        If a word is not one token, or two words are the same token.
    """
    texts = [f" {word}" if answer == "space" else word for word in words]
    found = [numbers for numbers, _ in adapter.tokenize(texts)]
    for word, numbers in zip(texts, found, strict=True):
        if len(numbers) != 1:
            raise InputError(
                f"the answer {word!r}", f"it is {len(numbers)} tokens for {adapter.where}",
                "use answers of one token: an answer is the probability of one token",
            )  # fmt: skip
    tokens = [numbers[0] for numbers in found]
    repeated: Mapping[int, list[str]] = {
        token: [w for w, t in zip(texts, tokens, strict=True) if t == token] for token in tokens
    }
    if same := next((group for group in repeated.values() if len(group) > 1), None):
        raise InputError(
            f"the answers {', '.join(same)}", f"they are the same token for {adapter.where}",
            "use words that its tokenizer knows and tells apart",
        )  # fmt: skip
    return tokens
