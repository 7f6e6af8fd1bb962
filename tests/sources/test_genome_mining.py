"""From annotations to objects of one category and one value: words, and a release made by hand."""

from collections import Counter
from pathlib import Path

import pytest

from bindscope.config.genome import GenomeRules
from bindscope.core.errors import InputError
from bindscope.sources.genome.mining import Miner, Release, iou
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

DATA = Path(__file__).parents[1] / "fixtures" / "visual_genome"
RELEASE = Release(
    DATA / "objects.json",
    DATA / "attributes.json",
    DATA / "image_data.json",
    DATA / "object_alias.txt",
    DATA / "attribute_alias.txt",
)
COLORS = {
    "feature": "color",
    "n_categories": 4,
    "n_values": 5,
    "min_category_images": 1,
    "min_value_images": 1,
}


def miner(release=RELEASE, **changes):
    return Miner(release, GenomeRules.model_validate(COLORS | changes))


def objects_by_image(mined):
    categories, values = mined.vocabulary.categories, mined.vocabulary.values
    return {
        scene.image_id: " ".join(f"{categories[c]}/{values[v]}" for c, v in scene.objects)
        for scene in mined.scenes()
    }


def test_colors_of_the_fixture():
    mined = miner()
    # In so many images of COCO: tree 5, car, man 4, shirt 2; green 4, white 3, black, red 2.
    assert mined.vocabulary.categories == ("tree", "car", "man", "shirt")
    assert mined.vocabulary.values == ("green", "white", "black", "red", "blue", "no_color")
    assert objects_by_image(mined) == {
        2: "man/no_color shirt/blue shirt/white tree/green car/red",
        3: "tree/green tree/no_color car/black",  # two boxes of one tree; brown is too rare
        6: "car/no_color man/no_color shirt/white",  # its color was merged into it
        7: "car/red tree/green",
        8: "man/no_color tree/no_color",
    }
    assert mined.left_out == {
        "images that are not in COCO": 1,
        "images that image_data lacks": 1,
        "images with too few objects": 2,
        "objects that were annotated twice": 1,
        "objects outside the vocabulary": 1,
        "objects whose box is empty or outside the image": 2,
    }
    again = dict(mined.left_out)
    assert objects_by_image(mined)[7] == "car/red tree/green"  # reading twice changes nothing
    assert mined.left_out == again


def test_top_attributes_of_the_fixture():
    mined = miner(feature="attribute", min_value_images=2)
    assert mined.vocabulary.values == ("green", "white", "black", "red", "tall", "no_attribute")
    assert objects_by_image(mined) == {
        2: "man/no_attribute shirt/no_attribute shirt/white tree/green car/red",
        3: "tree/green tree/no_attribute car/black",  # green and tall: the first
        6: "car/no_attribute man/no_attribute shirt/white",
        7: "car/red tree/no_attribute",  # "bluish green" is a color, but no attribute of its own
        8: "man/no_attribute tree/no_attribute",
    }


def test_objects_of_several_values():
    assert "car/white" in objects_by_image(miner(several="commonest"))[3]  # black and white
    mined = miner(several="drop_image")
    assert list(objects_by_image(mined)) == [6, 7, 8]
    assert mined.left_out["images with an object of several values"] == 2


@pytest.mark.parametrize(
    ("changes", "images"),
    [
        ({"coco_only": False}, [1, 2, 3, 6, 7, 8]),
        ({"min_objects": 1}, [2, 3, 6, 7, 8, 9]),
        ({"min_objects": 3}, [2, 3, 6]),
        ({"max_objects": 3}, [3, 6, 7, 8]),
    ],
)
def test_which_images_become_scenes(changes, images):
    mined = miner(**changes)
    assert list(objects_by_image(mined)) == images


def test_boxes_that_overlap_less_are_objects_of_their_own():
    assert iou((0, 0, 10, 10), (0, 0, 10, 10)) == 1
    assert iou((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(1 / 3)
    assert iou((0, 0, 10, 10), (10, 0, 20, 10)) == 0
    assert iou((0, 0, 10, 10), (20, 20, 30, 30)) == 0
    trees = objects_by_image(miner(duplicate_iou=1))[3]
    assert trees == "tree/green tree/no_color tree/no_color car/black"


def test_words_that_are_too_rare_are_refused():
    with pytest.raises(InputError, match=r"objects.json: only 4 categories occur in 2 images"):
        miner(n_categories=5, min_category_images=2)
    with pytest.raises(InputError, match=r"attributes.json: only 4 colors occur in 2 images"):
        miner(min_value_images=2)


def test_without_lists_of_aliases_our_own_words_remain():
    mined = miner(Release(RELEASE.objects, RELEASE.attributes, RELEASE.image_data))
    assert objects_by_image(mined)[6] == "car/no_color man/no_color shirt/white"  # men
    assert "car" not in objects_by_image(mined).get(3, "")  # automobile


# --- words of annotators: one form, one synonym, one color --------------------------------------


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
