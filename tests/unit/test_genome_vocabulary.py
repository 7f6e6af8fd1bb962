"""Words of annotators: one form, one synonym, one color."""

from collections import Counter

import pytest

from bindscope.core.errors import InputError
from bindscope.sources.genome.vocabulary import (
    ATTRIBUTE_WORDS,
    CATEGORY_WORDS,
    COLOR_WORDS,
    attributes_of,
    canonical,
    colors_of,
    commonest,
    invert,
    normalise,
    parts,
    read_aliases,
)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("  tennis   Racket\t", "tennis racket"),
        ("T-shirt", "t shirt"),
        ("stop_sign.", "stop sign"),
        ("ﬁre hydrant", "fire hydrant"),
        (" . ", ""),
    ],
)
def test_one_form(text, word):
    assert normalise(text) == word


@pytest.mark.parametrize(
    ("text", "colors"),
    [
        ("grey", ["gray"]),
        ("light-green", ["green"]),
        ("blue colored", ["blue"]),
        ("navy blue", ["blue"]),
        ("white, Black/red & tan", ["white", "black", "red", "brown"]),
        ("bluish green", ["green"]),
        ("red haired", []),
        ("light", []),
        ("", []),
    ],
)
def test_colors(text, colors):
    assert list(colors_of(text)) == colors


def test_words_that_list_several():
    assert parts("tall and green") == ("tall", "green")
    assert parts("sandy, wet ; ") == ("sandy", "wet")
    assert attributes_of("Big and wood", invert(ATTRIBUTE_WORDS)) == ("large", "wooden")


@pytest.mark.parametrize("table", [COLOR_WORDS, CATEGORY_WORDS, ATTRIBUTE_WORDS])
def test_our_tables_are_in_one_form_and_without_contradiction(table):
    synonym_list = [synonym for synonyms in table.values() for synonym in synonyms]
    assert len(set(synonym_list)) == len(synonym_list)
    assert not set(synonym_list) & set(table)
    assert all(normalise(word) == word for word in [*table, *synonym_list])


def test_a_list_of_aliases(tmp_path):
    path = tmp_path / "object_alias.txt"
    path.write_text("\ufeffTree,trees, Pine-Tree\nman,trees,fellow\nplane,jet,\n\na,b\nb,a\n,x\n")
    aliases = read_aliases(path, invert(CATEGORY_WORDS))
    assert canonical("PINE TREE", aliases) == "tree"
    assert canonical("trees", aliases) == "tree"  # the first line decides
    assert canonical("fellow", aliases) == "man"
    assert canonical("jet", aliases) == "airplane"  # through our own table
    assert canonical("men", aliases) == "man"
    assert canonical("x", aliases) == "x"
    assert canonical("unicorn", aliases) == "unicorn"
    assert {canonical("a", aliases), canonical("b", aliases)} <= {"a", "b"}  # a circle ends
    with pytest.raises(InputError, match=r"nothing.txt: cannot be read"):
        read_aliases(tmp_path / "nothing.txt", {})
    path.write_bytes(b"a,\xff")
    with pytest.raises(InputError, match="cannot be read"):
        read_aliases(path, {})


def test_the_commonest_words():
    counts = Counter({"b": 3, "a": 3, "c": 5, "d": 1})
    assert commonest(counts, 3, 2, "words", "f") == ("c", "a", "b")
    assert commonest(counts, 1, 5, "words", "f") == ("c",)
    with pytest.raises(InputError, match="f: only 3 words occur in 2 images or more, not 4"):
        commonest(counts, 4, 2, "words", "f")
