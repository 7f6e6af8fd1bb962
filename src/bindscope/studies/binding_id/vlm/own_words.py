"""Whether the words of a user's own things fit a model's tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.tasks.cutouts import Cutouts
from bindscope.studies.binding_id.vlm.adapters import Adapter


def check_own_words(adapter: Adapter, reading: Reading) -> None:
    """Refuse nouns or colours of which one takes more tokens than another.

    Prompts of a batch must be equally long. Nouns are compared within a split; colours in both, as
    what is estimated on one is added to tokens of the other.

    Parameters
    ----------
    adapter
        The model.
    reading
        How it is given scenes; of drawn things nothing is checked here.

    Raises
    ------
    InputError
        Names the model and the words by their numbers of tokens.
    """
    rule = reading.rule
    if rule.cutouts is None:
        return
    named = {rule.mention, rule.ask} if not reading.text_only else {"shape", "colour"}
    for kind, words in _compared(rule.cutouts):
        if ("colour" if kind == "colours" else "shape") not in named:
            continue
        by_length: dict[int, list[str]] = {}
        for word, (tokens, _) in zip(
            words, adapter.tokenize([f" {word}" for word in words]), strict=True
        ):
            by_length.setdefault(len(tokens), []).append(word)
        if len(by_length) > 1:
            said = "; ".join(f"{n}: {', '.join(by_length[n])}" for n in sorted(by_length))
            raise InputError(
                f"{kind} of the task's cut-outs, {adapter.where}",
                f"they take different numbers of tokens ({said})",
                "use other words in the table, of one number of tokens, or keep cut-outs of those "
                "alone; prompts must be equally long",
            )


def _compared(own: Cutouts) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield words that must be equally long, and what they are."""
    for split, words in own.nouns.items():
        yield f"nouns of split `{split}`", words
    yield "colours", [word for words in own.colours.values() for word in words]
