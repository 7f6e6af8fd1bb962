"""From texts to tokens: where words of the context are, what a question adds, what is answered.

What is compared must have equally many tokens, and words of one kind do not ("red", "az|ure"). So
all words that a task can draw are counted before any weight is read, and shorter ones get spaces
before them, as in the released code (`evened`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from bindscope.core.errors import InputError, ModelError
from bindscope.studies.binding_id.tasks.prompts import IMAGE, Form, Frame, Turn, with_image
from bindscope.studies.binding_id.tasks.scenes import (
    Group,
    Prompt,
    Question,
    Rule,
    Scenes,
)
from bindscope.studies.binding_id.vlm.adapters import OWN_PROCESSOR, Cut, Decoder, cut

Answer = Literal["space", "bare"]
Tokenize = Callable[[Sequence[str]], list[Cut]]
_SPACES = (2, 1, 3, 4, 5, 6)  # more spaces that are tried; two are those of the released code
_WORDS = "<the user's words>"
Span = tuple[int, int]


Template = Callable[[Scenes, Sequence[Question]], Sequence[Prompt]]
"""Puts scenes and questions into words: a prompt per scene, `<image>` where its image is."""


@dataclass(frozen=True, eq=False)
class Contexts:
    """The contexts of a batch as the model reads them, and characters of each group and role.

    `ends` are places in each text behind the mark of the image; `lead` begins every question and
    ends contexts.
    """

    texts: list[str]
    spans: list[Mapping[tuple[Group, int], Span]]
    ends: list[int]
    lead: str


def contexts(prompts: Sequence[Prompt], image_text: str, lead: str) -> Contexts:
    """Put the model's mark of the image into contexts, and what begins all questions behind them.

    InputError if a context does not say once where its image is, or has words before it.
    """
    texts, spans, ends = [], [], []
    for prompt in prompts:
        if (times := prompt.context.count(IMAGE)) != 1:
            raise InputError(
                "the prompt's template",
                f"{IMAGE} is there {times} times, and there is an image",
                "name the image once",
            )
        ends.append(prompt.context.index(IMAGE) + len(image_text))
        prompt = with_image(prompt, image_text)
        if early := [name for name, (start, _) in prompt.spans.items() if start < ends[-1]]:
            raise InputError(
                "the prompt's template",
                f"{early[0]} stands before the image",
                "put the image first: words before it cannot know what it shows",
            )
        texts.append(prompt.context + lead)
        spans.append(prompt.spans)
    return Contexts(texts, spans, ends, lead)


def token_spans(adapter: Decoder, read: Contexts, ids: Tensor) -> dict[tuple[Group, int], Tensor]:
    """Return where the tokens of each group and role stand in the prompts, int64 (n, t) each.

    `ids` (n, T) are the contexts' tokens as the processor made them, the image's among them.

    ModelError if processor and tokenizer cut the text differently. InputError if a word takes more
    tokens in one context than in another.
    """
    places: dict[tuple[Group, int], list[list[int]]] = {}
    for row, (numbers, characters) in enumerate(adapter.tokenize(read.texts)):
        end = read.ends[row]
        first = sum(start < end for start, _ in characters)
        tail, moved = numbers[first:], ids.shape[1] - len(numbers)
        if ids[row, ids.shape[1] - len(tail) :].tolist() != tail:
            raise ModelError(
                adapter.where,
                "its processor and its tokenizer cut the text behind the image "
                f"differently ({read.texts[row][end:]!r})",
                OWN_PROCESSOR,
            )
        for name, (a, b) in read.spans[row].items():
            spans = [
                token + moved
                for token, (start, stop) in enumerate(characters)
                if start < b and stop > a
            ]
            places.setdefault(name, []).append(spans)
    return {
        name: _rectangle(
            f"the {name[0]} of role {name[1]}",
            rows,
            [text[slice(*spans[name])] for text, spans in zip(read.texts, read.spans, strict=True)],
            ids.device,
        )
        for name, rows in places.items()
    }


def _rectangle(
    where: str, rows: Sequence[Sequence[int]], words: Sequence[str], device: torch.device
) -> Tensor:
    """Return rows of equally many tokens, int64 (n, t); InputError names two words that differ."""
    lengths = [len(row) for row in rows]
    if len(set(lengths)) > 1:
        differing = next(row for row, length in enumerate(lengths) if length != lengths[0])
        raise InputError(
            where,
            f"{words[0]!r} takes {lengths[0]} tokens and {words[differing]!r} {lengths[differing]}",
            "use words of equally many tokens: one for each shape, color and item",
        )
    return torch.tensor(rows, dtype=torch.int64, device=device)


def question_tokens(
    adapter: Decoder, contexts: Contexts, prompts: Sequence[Prompt], device: torch.device
) -> list[Tensor]:
    """Return the tokens that each question adds to the contexts, int64 (n, S) per question.

    InputError if a question changes how its context is cut into tokens, or takes more tokens for
    one scene than for another.
    """
    alone = [numbers for numbers, _ in adapter.tokenize(contexts.texts)]
    tokens_by_question = []
    for number in range(len(prompts[0].questions)):
        questions = [prompt.questions[number] for prompt in prompts]
        if wrong := [question for question in questions if not question.startswith(contexts.lead)]:
            raise InputError(
                f"the question {wrong[0]!r}",
                f"it does not begin with {contexts.lead!r}",
                "set `lead` to what all questions of the template begin with, or to nothing",
            )
        texts = [
            text + question.removeprefix(contexts.lead)
            for text, question in zip(contexts.texts, questions, strict=True)
        ]
        rows = []
        for text, before, (whole, _) in zip(texts, alone, adapter.tokenize(texts), strict=True):
            if whole[: len(before)] != before or len(whole) == len(before):
                raise InputError(
                    f"the question in {text!r}",
                    "it changes the tokens of its context",
                    "set `lead` to what all questions begin with (line breaks, say), which then is "
                    "part of the context",
                )
            rows.append(whole[len(before) :])
        tokens_by_question.append(_rectangle(f"question {number}", rows, questions, device))
    return tokens_by_question


def answer_tokens(
    tokenize: Tokenize, where: str, words: Sequence[str], answer: Answer
) -> list[int]:
    """Return the token of each word as an answer.

    `space`: as the word continues a text that ends without a space; `bare`: without the space, as
    the paper's code scores it.

    InputError if a word is not one token, or two words are the same token.
    """
    texts = [f" {word}" if answer == "space" else word for word in words]
    if answer == "space":
        # Llama's tokenizer puts a space before each text, so words are cut behind a full stop.
        ((stop, _),) = tokenize(["."])
        cuts = [numbers for numbers, _ in tokenize([f".{text}" for text in texts])]
        ids = [numbers[len(stop) :] * (numbers[: len(stop)] == stop) for numbers in cuts]
    else:
        ids = [numbers for numbers, _ in tokenize(texts)]
    for word, numbers in zip(texts, ids, strict=True):
        if len(numbers) != 1:
            raise InputError(
                f"the answer {word!r}",
                f"it is {len(numbers)} tokens for {where}",
                "use answers of one token: an answer is the probability of one token",
            )
    tokens = [numbers[0] for numbers in ids]
    repeated: Mapping[int, list[str]] = {
        token: [w for w, t in zip(texts, tokens, strict=True) if t == token] for token in tokens
    }
    if same := next((group for group in repeated.values() if len(group) > 1), None):
        raise InputError(
            f"the answers {', '.join(same)}",
            f"they are the same token for {where}",
            "use words that its tokenizer knows and tells apart",
        )
    return tokens


def chat_turn(processor: Any, where: str, image_text: str) -> Turn:
    """Return what the chat template of a processor puts around a user's words (and image).

    ModelError if it has no chat template, or one that does not keep words and image.
    """
    parts = [{"type": "image"}, {"type": "text", "text": _WORDS}]
    remedy = "put chat_template.jinja beside its config.json, or set `compat: paper` for it"
    if not getattr(processor, "chat_template", None):
        raise ModelError(where, "its processor has no chat template", remedy)
    rendered = processor.apply_chat_template(
        [{"role": "user", "content": parts}], add_generation_prompt=True, tokenize=False
    )
    before, words, after = rendered.partition(_WORDS)
    if not words or before.count(image_text) != 1:
        raise ModelError(
            where, f"its chat template makes {rendered!r} of an image and a text", remedy
        )
    tokenizer = processor.tokenizer
    if (first := tokenizer.bos_token) and tokenizer("")["input_ids"] == [tokenizer.bos_token_id]:
        before = before.removeprefix(first)  # the processor puts it there, too
    return Turn(before.replace(image_text, IMAGE), after + " " * (not after[-1:].isspace()))


def refuse_turns(processor: Any, where: str) -> None:
    """Refuse the released prompt for a tokenizer that does not know its marks of turns."""
    if len(cut(processor, ["<|im_start|>"])[0][0]) != 1:
        raise ModelError(
            where,
            "its tokenizer does not know <|im_start|>, with which the released prompt begins",
            "leave `compat: paper` out, so that the model's own chat template is used",
        )


def evened(tokenize: Tokenize, where: str, form: Form, rule: Rule) -> Form:
    """Return a form in which all words that a rule draws take equally many tokens.

    Words that contexts name things by are as long in both splits, as vectors of one are added in
    the other; words of questions are in each split.

    InputError: names the words, if no spaces before the shorter ones make them as long.
    """
    spaces = {
        (frame, word): more
        for frame, words in _kinds(rule)
        for word, more in _spaces(tokenize, where, words, form, frame).items()
    }
    return replace(form, spaces={**form.spaces, **spaces})


def _kinds(rule: Rule) -> Iterator[tuple[Frame, tuple[str, ...]]]:
    """Yield the words that have to be of one length, by the part of the prompt."""
    splits = [rule.words("test"), rule.words("estimation")]
    yield "context", tuple(word for words in splits for word in words.colors)
    for words in splits:
        yield "question", words.shapes


def _spaces(
    tokenize: Tokenize, where: str, words: Sequence[str], form: Form, frame: Frame
) -> dict[str, int]:
    """Return how many spaces make each word as long as the longest one, where a form's do not."""

    def counts(more: int) -> dict[str, int]:
        texts = [f"The {' ' * more}{form.spaced(frame, word)} object" for word in words]
        cuts = (numbers for numbers, _ in tokenize(texts))
        return {word: len(numbers) for word, numbers in zip(words, cuts, strict=True)}

    plain = counts(0)
    longest = max(plain, key=lambda word: plain[word])
    spaces: dict[str, int] = {}
    short = [word for word in plain if plain[word] < plain[longest]]
    for more in _SPACES if short else ():
        spaced = counts(more)
        for word in short:
            if spaced[word] == plain[longest]:
                spaces.setdefault(word, more + form.spaces.get((frame, word), 0))
    if rest := [word for word in short if word not in spaces]:
        extra = plain[longest] - plain[rest[0]]
        raise InputError(
            where,
            f"{longest!r} takes {extra} more token{'s' * (extra > 1)} than {rest[0]!r}, and "
            "no spaces before the shorter word make up for it",
            "use a model with another tokenizer; in a configuration leave the model out of this "
            "task's suites",
        )
    return spaces
