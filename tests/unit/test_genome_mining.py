"""From annotations to objects of one category and one value, on a release made by hand."""

from pathlib import Path

import pytest

from bindscope.config.genome import GenomeRules
from bindscope.core.errors import InputError
from bindscope.sources.genome.mining import Miner, Release, iou

DATA = Path(__file__).parents[1] / "fixtures" / "visual_genome"
RELEASE = Release(
    DATA / "objects.json", DATA / "attributes.json", DATA / "image_data.json",
    DATA / "object_alias.txt", DATA / "attribute_alias.txt",
)  # fmt: skip
COLORS = {
    "feature": "color", "n_categories": 4, "n_values": 5, "min_category_images": 1,
    "min_value_images": 1,
}  # fmt: skip


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
