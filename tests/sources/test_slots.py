"""Readers of scenes in slots: tables with columns for each slot, and PUG:SPARE's layout."""

from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets_by_hand import counted, dataset
from PIL import Image
from pydantic import ValidationError
from releases import write_pug_spare

from bindscope.config.captions import CaptionTemplate
from bindscope.config.codes import Dataset
from bindscope.core.errors import InputError
from bindscope.scenes.captions import scene_captions
from bindscope.scenes.pug_spare_values import VALUES
from bindscope.scenes.value_names import value_names
from bindscope.sources.reading import read_source
from bindscope.sources.records import objects_of, read_records, slots_in, write_records

HALF = {"train": 2, "val": 1, "test": 1}
COLUMNS = [{"color": "c1", "shape": "s1"}, {"color": "c2", "shape": "s2"}]
ROWS = [
    "a.png,red,cube,blue,cone",
    "b.png,,,red,cone",
    "c.png,blue,cube,blue,cube",
    "d.png,blue,cone,,",
]


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path)


def table(folder: Path, rows: list[str], **source: Any) -> Dataset:
    """A dataset of a table with a row per image."""
    (folder / "scenes.csv").write_text("\n".join(["image,c1,s1,c2,s2", *rows]))
    for row in rows:
        picture(folder / row.partition(",")[0])
    content = {
        "kind": "table",
        "path": str(folder / "scenes.csv"),
        "slots": COLUMNS,
        "repeats": True,
        "values": {"color": ["red", "blue"], "shape": ["cube", "cone"]},
        **source,
    }
    split = {"rule": "index", "sizes": HALF}
    return dataset(counted(2, color=2, shape=2), split, HALF, slots=2, source=content)


def test_columns_of_slots_say_what_stands_where(tmp_path: Path) -> None:
    config = table(tmp_path, ROWS)
    images, splits, values, _ = read_source(config)
    path = tmp_path / "records.parquet"
    write_records(path, images, splits, values, {})
    slots = [slots_in(read_records(path, s).scenes, 2).tolist() for s in ("train", "val", "test")]
    assert slots == [[[0, 3], [-1, 1]], [[2, 2]], [[3, -1]]]
    objects = objects_of(read_records(path, "train").scenes, 4)
    assert objects.tolist() == [[1, 0, 0, 1], [0, 1, 0, 0]]


def test_rows_of_objects_stand_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "objects.csv").write_text(
        "image,color,shape\na.png,blue,cone\nb.png,red,cone\na.png,red,cube\nc.png,red,cube\n"
        "d.png,red,cube\n"
    )
    for name in "abcd":
        picture(tmp_path / f"{name}.png")
    config = table(tmp_path, ROWS, slots=None, path=str(tmp_path / "objects.csv"))
    _, splits, _, _ = read_source(config)
    assert slots_in(splits["train"], 2).tolist() == [[3, 0], [1, -1]]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([*ROWS[:3], "d.png,blue,,red,cube"], "column 's1'.*is empty"),
        ([*ROWS[:3], "a.png,blue,cone,red,cube"], "is also in row 2"),
    ],
)
def test_rows_that_are_wrong_are_named(rows: list[str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem):
        read_source(table(tmp_path, rows))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"slots": [{"color": "c1"}, COLUMNS[1]]}, "each slot needs one of color, shape"),
        ({"slots": COLUMNS[:1]}, "source.slots has columns of 1 slots, and slots is 2"),
        ({"masks": {}}, "for a table with a row per object"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    source: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match=problem):
        table(tmp_path, ROWS, **source)


def spare(folder: Path, sizes: dict[str, int], **source: Any) -> Dataset:
    groups = [{"name": name, "size": len(values)} for name, values in VALUES.items()]
    space = {"kind": "balanced", "groups": groups, "chosen": [2, 2], "n_objects": 2}
    content = {"kind": "pug_spare", "path": str(folder), "terms_accepted": True, **source}
    return dataset(space, {"rule": "index", "sizes": sizes}, sizes, slots=2, source=content)


def test_pug_spare_is_read_from_files_that_we_write(tmp_path: Path) -> None:
    """Two of each group: 2 x 2 ordered scenes; other worlds, places and lone characters are not."""
    names, textures = VALUES["character"][:2], VALUES["texture"][:2]
    pairs = list(product(permutations(names), permutations(textures)))
    scenes = [("Desert", *pair, *texture, "", "") for pair, texture in pairs]
    arena = [
        ("Arena", *names, *textures, "", ""),
        ("Desert", *names, *textures, "top", "bottom"),
        ("Desert", names[0], "blank", textures[0], "", "", ""),
    ]
    write_pug_spare(tmp_path, [*arena, *scenes], picture)
    config = spare(tmp_path, HALF)
    images, splits, values, skipped = read_source(config)
    assert [(s.image, s.reason) for s in skipped] == [
        ("Desert/0000001.png", "a character's place is varied"),
        ("Desert/0000002.png", "a slot is empty"),
    ]
    records = [record for split in ("train", "val", "test") for record in splits[split]]
    assert [record.image for record in records] == [f"Desert/{i:07d}.png" for i in range(3, 7)]
    slots = slots_in(records, 2)
    expected = [
        [
            8 * VALUES["character"].index(n) + VALUES["texture"].index(t)
            for n, t in zip(pair, texture, strict=True)
        ]
        for pair, texture in pairs
    ]
    np.testing.assert_array_equal(slots, expected)
    assert values == VALUES
    groups = [(g["name"], g["values"]) for g in value_names(config)]
    assert [name for name, _ in groups] == ["character", "texture"]
    template = CaptionTemplate(object="a {texture} {character}")
    (first,) = scene_captions("train", slots[:1], groups, [template])
    assert first.text == "a Red Crow and a Blue Fox"
    assert Path(images).is_dir()


def test_pug_spare_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        read_source(spare(tmp_path, HALF))
    (tmp_path / "PUG_SPARE.csv").write_text("filename,world_name\n")
    with pytest.raises(InputError, match="has no column 'character_name'"):
        read_source(spare(tmp_path, HALF))
    write_pug_spare(tmp_path, [("Arena", "Crow", "Fox", "Red", "Blue", "", "")], picture)
    with pytest.raises(InputError, match="to one of Arena"):
        read_source(spare(tmp_path, HALF))
    write_pug_spare(tmp_path, [("Desert", "Crow", "Cat", "Red", "Blue", "", "")], picture)
    with pytest.raises(InputError, match="'Cat' is not in the vocabulary"):
        read_source(spare(tmp_path, HALF))
    with pytest.raises(ValidationError, match="terms_accepted"):
        spare(tmp_path, HALF, terms_accepted=False)
    with pytest.raises(ValidationError, match=r"character \(12\) and texture \(8\)"):
        Dataset.model_validate(
            {
                **spare(tmp_path, HALF).model_dump(mode="json"),
                "space": {
                    "kind": "counted",
                    "groups": [{"name": "a", "size": 2}],
                    "max_objects": 2,
                },
            }
        )
