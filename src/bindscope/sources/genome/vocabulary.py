"""Annotators' words, and the categories, colors and attributes that they mean."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from bindscope.core.errors import InputError

Aliases = Mapping[str, str]
Synonyms = Mapping[str, tuple[str, ...]]

# The eleven basic color terms of English (Berlin and Kay 1969), and common words for them.
COLOR_WORDS: Synonyms = {
    "black": ("ebony",),
    "white": ("ivory", "off white"),
    "red": ("maroon", "crimson", "scarlet", "burgundy"),
    "green": ("olive", "lime", "lime green", "olive green"),
    "yellow": ("gold", "golden", "mustard"),
    "blue": ("navy", "navy blue", "turquoise", "teal", "aqua", "cyan", "sky blue"),
    "brown": ("tan", "beige", "bronze", "khaki", "brunette"),
    "orange": ("peach",),
    "pink": ("magenta", "fuchsia"),
    "purple": ("violet", "lavender", "lilac"),
    "gray": ("grey", "silver"),
}
# Words that leave a color what it is.
SHADES = frozenset(
    {
        "light",
        "dark",
        "bright",
        "pale",
        "deep",
        "medium",
        "dull",
        "faded",
        "vivid",
        "shiny",
        "solid",
        "mostly",
        "partly",
        "colored",
        "blackish",
        "whitish",
        "reddish",
        "greenish",
        "yellowish",
        "bluish",
        "brownish",
        "orangish",
        "pinkish",
        "purplish",
        "grayish",
        "greyish",
    }
)
# Irregular plurals and spellings of common objects, beside the release's own list of aliases.
CATEGORY_WORDS: Synonyms = {
    "airplane": ("aeroplane", "plane"),
    "bicycle": ("bike",),
    "child": ("children", "kid", "kids"),
    "leaf": ("leaves",),
    "man": ("men", "guy"),
    "motorcycle": ("motorbike",),
    "person": ("people",),
    "shelf": ("shelves",),
    "sofa": ("couch",),
    "television": ("tv",),
    "woman": ("women", "lady"),
}
ATTRIBUTE_WORDS: Synonyms = {
    "gray": ("grey",),
    "large": ("big",),
    "metal": ("metallic",),
    "small": ("little",),
    "wooden": ("wood",),
}

_SEPARATORS = re.compile(r"\s*(?:[,/&+;]|\band\b|\bwith\b)\s*")


@lru_cache(maxsize=1 << 16)
def normalise(text: str) -> str:
    """Bring a word to one form: lower case, single spaces, no hyphens or outer punctuation."""
    text = unicodedata.normalize("NFKC", text).lower()
    return " ".join(re.sub(r"[-_]", " ", text).split()).strip(" .,;:!?'\"")


def invert(words: Synonyms) -> dict[str, str]:
    """Turn word -> its synonyms into synonym -> word."""
    return {normalise(synonym): word for word, others in words.items() for synonym in others}


def read_aliases(path: Path, defaults: Aliases) -> dict[str, str]:
    """Read a list of aliases in the release's format and add our own, alias -> word.

    A line is ``name,alias,alias``: the aliases stand for the name. Where a word occurs in several
    lines the first decides. Our own table comes last in the chain: what a line leads to is looked
    up there, too. A file that cannot be read is an InputError.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            str(path),
            f"cannot be read ({error})",
            "correct the path, or leave the list of aliases out",
        ) from error
    name_of_alias = dict(defaults)
    for line in lines:
        name, *others = (normalise(word) for word in line.split(","))
        for alias_text in others:
            if alias_text and name and alias_text != name and alias_text not in name_of_alias:
                name_of_alias[alias_text] = name
    return {alias: _end(alias, name_of_alias) for alias in name_of_alias}


def _end(word: str, aliases: Aliases) -> str:
    """Follow aliases to their end; a circle ends where it closes."""
    visited = {word}
    while word in aliases and aliases[word] not in visited:
        word = aliases[word]
        visited.add(word)
    return word


def canonical(text: str, aliases: Aliases) -> str:
    """Return the canonical form of a text; "" if it has no letters."""
    word = normalise(text)
    return aliases.get(word, word)


@lru_cache(maxsize=1 << 16)
def parts(text: str) -> tuple[str, ...]:
    """Split "black and white" or "tall, green" into what it lists, normalised."""
    pieces = (normalise(piece) for piece in _SEPARATORS.split(text.lower()))
    return tuple(piece for piece in pieces if piece)


@lru_cache(maxsize=1 << 16)
def colors_of(text: str) -> tuple[str, ...]:
    """Return the basic color terms that an attribute names, in its order.

    Shades are left out ("dark blue" is blue); anything else before or after a color makes the
    attribute another one ("red haired" is none).
    """
    return tuple(color for piece in parts(text) if (color := _color(piece)))


def _color(piece: str) -> str | None:
    while piece not in _COLORS:
        first, _, rest = piece.partition(" ")
        last = piece.rpartition(" ")
        if rest and first in SHADES:
            piece = rest
        elif last[0] and last[2] in SHADES:
            piece = last[0]
        else:
            return None
    return _COLORS[piece]


_COLORS = {color: color for color in COLOR_WORDS} | invert(COLOR_WORDS)


def attributes_of(text: str, aliases: Aliases) -> tuple[str, ...]:
    """Return what an attribute lists, each as the word that it stands for."""
    return tuple(aliases.get(piece, piece) for piece in parts(text))


def commonest(
    counts: Counter[str], n: int, at_least: int, what: str, where: str
) -> tuple[str, ...]:
    """Choose the n words that occur in most images, ties in alphabetical order.

    InputError if fewer than n words occur in `at_least` of them; it says what they are and where.
    """
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    chosen = tuple(word for word, count in ranked[:n] if count >= at_least)
    if len(chosen) < n:
        raise InputError(
            where,
            f"only {len(chosen)} {what} occur in {at_least} images or more, not {n}",
            "ask for fewer, or lower the smallest number of images",
        )
    return chosen
