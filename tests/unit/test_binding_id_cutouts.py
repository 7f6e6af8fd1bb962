"""A user's own cut-outs: what is read and refused, which words texts have, what images show."""

from __future__ import annotations

import json
import random
import re
import runpy
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bindscope.config.loading import load_config
from bindscope.config.root import Config
from bindscope.core.errors import ConfigError, InputError
from bindscope.core.graph import Graph
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.scenes.solids.world import from_srgb, to_srgb
from bindscope.studies.binding_id.config import ShapesTask, Suite
from bindscope.studies.binding_id.cutouts_products import task_slice
from bindscope.studies.binding_id.files_config import TaskFiles
from bindscope.studies.binding_id.oracles.oracle import Oracle
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.suite import run
from bindscope.studies.binding_id.tasks.composites import (
    Composites,
    read_background,
    read_cutout,
)
from bindscope.studies.binding_id.tasks.cutouts_manifest import read_manifest
from bindscope.studies.binding_id.tasks.layouts import LAYOUTS
from bindscope.studies.binding_id.tasks.pictures import pictures_of
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs, exchanged_contents
from bindscope.studies.binding_id.tasks.shapes_task import Task, write_task
from bindscope.studies.binding_id.tasks.task import Scenes
from bindscope.studies.binding_id.vlm.own_words import check_own_words
from bindscope.studies.build import build

ROOT = Path(__file__).parents[2]
WORDS = {"test": (("ball", "mug"), ("red", "teal")),
         "estimation": (("box", "vase"), ("grey", "tan"))}  # fmt: skip
ROWS = [
    (f"{noun}-{colour}.png", noun, colour, split)
    for split, (nouns, colours) in WORDS.items() for noun in nouns for colour in colours
]  # fmt: skip


def image(seed: int, width: int = 20, height: int = 15) -> Image.Image:
    """Return noise of any alpha, with an empty edge."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 4), np.uint8)
    pixels[0, :, 3] = 0
    pixels[1:, [0, -1], 3] = pixels[-1, :, 3] = 200
    return Image.fromarray(pixels)


def table(
    folder: Path, rows: list[tuple[str, ...]], header: str = "file,noun,colour,split"
) -> Path:
    path = folder / "cutouts.csv"
    path.write_text("".join(f"{line}\n" for line in [header, *map(",".join, rows)]))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two nouns in two colours of each split, of noise."""
    for seed, (file, *_) in enumerate(ROWS):
        image(seed).save(tmp_path / file)
    return table(tmp_path, ROWS).parent


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What docs/examples/own_cutouts.py writes, smaller."""
    made = tmp_path_factory.mktemp("example")
    runpy.run_path(str(ROOT / "docs/examples/own_cutouts.py"))["main"](made, 2, 24)
    return made


def content(
    folder: Path, shown: bool = True, own: dict[str, Any] | None = None, **task: Any
) -> Any:
    section = ShapesTask(name="t", cutouts={"folder": str(folder), **(own or {})}, **task)
    return json.loads(json.dumps(task_slice(Graph({}), section, shown)))


def reading_of(folder: Path, own: dict[str, Any] | None = None, **task: Any) -> Reading:
    return Reading(Rule.of(content(folder, own=own, **task)))


def scenes_of(reading: Reading, n: int, seed: int = 0) -> Scenes:
    return draw_pairs(reading.rule, "test", n, seed).base


def test_the_order_of_rows_and_other_columns_do_not_matter(folder: Path) -> None:
    before = read_manifest(folder / "cutouts.csv")
    rows = [(*row, "mine") for row in ROWS]
    random.Random(0).shuffle(rows)
    after = read_manifest(table(folder, rows, "file,noun,colour,split,owner"))
    assert after == before
    assert after.sha256() == before.sha256()
    assert after.words("noun") == {split: words[0] for split, words in WORDS.items()}
    assert after.words("colour") == {split: words[1] for split, words in WORDS.items()}
    old = after.sha256()
    image(99).save(folder / ROWS[3][0])
    assert after.sha256() != old


@pytest.mark.parametrize(
    ("row", "where", "problem"),
    [
        (("mug-red.png", "mug", "teal", "test"), "row 10", "mug-red.png is in row 4, too"),
        (("none.png", "mug", "red", "test"), "row 10, column 'file'", "there is no file"),
        (("new.png", "mug 2", "red", "test"), "row 10, column 'noun'", "'mug 2' is no word"),
        (("new.png", "mug", "", "test"), "row 10, column 'colour'", "'' is no word"),
        (("new.png", "mug", "red", "train"), "row 10, column 'split'", "is 'train'"),
        (("new.png", "mug", "red"), "row 10", "has not the 4 cells"),
        (("new.png", "mug", "grey", "test"), "cutouts.csv",
         "'grey' is a colour of split `estimation`, and 'grey' a colour of split `test`"),
        (("new.png", "Mug", "red", "test"), "cutouts.csv", "'mug' is a noun of split `test`, "
         "and 'Mug' a noun of split `test`"),
        (("new.png", "teal", "red", "test"), "cutouts.csv", "'teal' is a colour .* a noun"),
        (("new.png", "pot", "red", "test"), "cutouts.csv", "no cut-out of a teal pot$"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_row(
    folder: Path, row: tuple[str, ...], where: str, problem: str
) -> None:
    image(9).save(folder / "new.png")
    table(folder, [*ROWS, row])
    with pytest.raises(InputError) as caught:
        content(folder)
    assert caught.value.where.startswith(f"task t, `cutouts`, {folder}")
    assert caught.value.where.endswith(where)
    assert caught.value.remedy
    assert re.search(problem, caught.value.problem)


def test_a_table_that_is_none(folder: Path) -> None:
    for text, problem in (("a,b\n", "no column 'file'"), ("", "no column 'file'")):
        (folder / "cutouts.csv").write_text(text)
        with pytest.raises(InputError, match=problem):
            content(folder)
    with pytest.raises(InputError, match="cannot be read"):
        content(folder, own={"file": "other.csv"})
    table(folder, ROWS[:4])
    with pytest.raises(InputError, match="no cut-out of split `estimation`"):
        content(folder)
    table(folder, ROWS)
    for at in (folder / "none", folder.parent / "cutouts.csv"):
        with pytest.raises(InputError, match="backgrounds"):
            content(folder, own={"backgrounds": str(at)})


def test_a_scene_needs_nouns_and_colours_for_all_its_things(folder: Path) -> None:
    with pytest.raises(InputError, match=r"are 2 nouns \(ball, mug\), and `things: 3`.* need 3"):
        content(folder, things=3, layout="grid")
    with pytest.raises(InputError, match=r"are 2 colours \(red, teal\), .* need 3"):
        content(folder, things=3, layout="grid", shared="shape")
    equal = content(folder, things=3, layout="grid", shared="both")
    assert Rule.of(equal).mention == "slot"
    table(folder, [row for row in ROWS if row[2] != "tan"])
    with pytest.raises(InputError, match=r"of split `estimation` there is one colour \(grey\)"):
        content(folder)


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ({"layout": "sprites"}, r"tasks\.0\.cutouts: sprites are drawn"),
        ({"look": "varied"}, r"tasks\.0\.cutouts: `look` and `clutter`"),
        ({"clutter": 1}, r"tasks\.0\.cutouts: `look` and `clutter`"),
        ({"shared": "shape", "told_by": "material"}, r"tasks\.0\.told_by: cut-outs have no second"),
        ({}, r"suites\.0\.tasks: toys read `layout: sprites` only, and 't' has another"),
    ],
)
def test_what_does_not_go_with_cutouts(folder: Path, task: dict[str, Any], problem: str) -> None:
    own = {"name": "t", "cutouts": {"folder": str(folder)}, **task}
    suite = {"name": "s", "tasks": ["t"], "toys": ["toy"], "template": "short"}
    section = {"tasks": [own], "toys": [{"name": "toy"}], "suites": [suite]}
    with pytest.raises(ConfigError, match=problem):
        load_config({"datasets": [], "studies": {"binding_id": section}}, "c.yaml")


def test_jobs_depend_on_what_they_read(folder: Path) -> None:
    """Oracles and text-only suites on words, models on images, drawn tasks on neither."""

    def specs() -> dict[str, str]:
        tasks = [{"name": "own", "cutouts": {"folder": str(folder)}}, {"name": "drawn"}]
        both = {"tasks": ["own", "drawn"], "models": ["m"], "experiments": ["factorizability"]}
        suites = [{"name": "s", "oracles": ["o"], **both}, {"name": "t", "text_only": True, **both}]
        section = {
            "tasks": tasks, "oracles": [{"name": "o", "mechanism": "slot"}], "suites": suites,
            "models": [{"name": "m", "source": f"hf:a/b@{'0' * 40}"}],
            "files": [{"name": "f", "task": "own"}],
        }  # fmt: skip
        graph = build(Config.model_validate({"datasets": [], "studies": {"binding_id": section}}))
        found = {p.path(): p.spec for p in graph.products.values() if "own" in p.path()
                 or p.rule == "shapes_task" or "drawn" in p.path()}  # fmt: skip
        assert all("cutouts" not in spec for path, spec in found.items() if "drawn" in path)
        return {path.rpartition("-")[0]: spec for path, spec in found.items()}

    before = specs()
    image(99).save(folder / ROWS[3][0])
    after = specs()
    changed = {path for path, spec in before.items() if spec != after[path]}
    jobs = "results/binding_id/s/own/m", "results/binding_id/files/f"
    assert changed == set(jobs)
    assert "results/binding_id/t/own/m" in before
    assert "results/binding_id/s/own/oracles" in before


def test_words_are_those_of_the_split(folder: Path) -> None:
    reading = reading_of(folder)
    for split, (nouns, colours) in WORDS.items():
        words = draw_pairs(reading.rule, split, 4, 0).source.words  # type: ignore[arg-type]
        assert (words.shapes, words.colours) == (nouns, colours)
        assert words.items == draw_pairs(Rule(), split, 1, 0).base.words.items  # type: ignore[arg-type]
    assert (reading.rule.mention, reading.rule.ask) == ("colour", "shape")
    assert reading.rule.needs_image


def test_an_oracle_answers_in_a_users_own_words(folder: Path) -> None:
    suite = Suite(name="s", resamples=10, experiments=("factorizability",))
    spec = suite.model_dump(mode="json") | {"task": content(folder, shown=False, rows=20)}
    rows = run(Oracle("slot"), None, spec).rows
    shares = {row["condition"]: row["share"] for row in rows if row["query"] == "all"}
    assert shares["none"] == shares["I all"] == 1.0


def solid(folder: Path, width: int, height: int, alpha: int = 255) -> None:
    """Make every cut-out a plain rectangle, with one empty pixel beside it."""
    for seed, (file, *_) in enumerate(ROWS):
        pixels = np.zeros((height, width + 1, 4), np.uint8)
        pixels[:, 1:] = (*np.random.default_rng(seed).integers(0, 256, 3), alpha)
        Image.fromarray(pixels).save(folder / file)


def flat(folder: Path, colour: int) -> str:
    (folder / "behind").mkdir(exist_ok=True)
    Image.new("RGB", (500, 400), (colour,) * 3).save(folder / "behind" / f"{colour}.png")
    return str(folder / "behind")


def test_a_composite_is_pixel_by_pixel_what_it_says(folder: Path) -> None:
    """A cut-out as large as its room is not scaled: each pixel against the closed form."""
    width, height = LAYOUTS["pair"].room
    for seed, (file, *_) in enumerate(ROWS):
        image(seed, width, height + 1).save(folder / file)
    reading = reading_of(folder, {"backgrounds": flat(folder, 90), "shadow": 0.0})
    scenes = scenes_of(reading, 3)
    drawn = pictures_of(reading).drawn(scenes)
    for row in range(3):
        seen = np.zeros((384, 384), np.uint8)
        wanted = np.full((384, 384, 3), from_srgb(np.array(90)))
        for role in range(2):
            words = (scenes.words.of(n)[getattr(scenes, n)[row, role]] for n in ("shape", "colour"))
            pixels = np.asarray(Image.open(folder / f"{'-'.join(words)}.png"))[1:]
            left, top, right, bottom = LAYOUTS["pair"].regions[scenes.slot[row, role]]
            x, y = (left + right - width) // 2, (top + bottom - height) // 2
            for i in range(height):
                for j in range(width):
                    if (a := pixels[i, j, 3]) >= 13:
                        share = a / 255
                        old = wanted[y + i, x + j]
                        wanted[y + i, x + j] = (
                            share * from_srgb(pixels[i, j, :3]) + (1 - share) * old
                        )
                        seen[y + i, x + j] = role + 1
            assert drawn.boxes[row, role].tolist() == [x, y, x + width, y + height]
        np.testing.assert_array_equal(drawn.masks[row], seen)
        np.testing.assert_array_equal(drawn.images[row], to_srgb(wanted))


@pytest.mark.parametrize(("size", "shown"), [((40, 10), (64, 16)), ((5, 50), (6, 65)),
                                             ((600, 600), (64, 64))])  # fmt: skip
def test_an_aspect_is_kept(folder: Path, size: tuple[int, int], shown: tuple[int, int]) -> None:
    solid(folder, *size)
    for told_by, factor in (("slot", 1.0), ("size", 0.62)):
        reading = reading_of(folder, shared="both", told_by=told_by)
        scenes = scenes_of(reading, 2)
        drawn = pictures_of(reading).drawn(scenes)
        boxes = drawn.boxes.astype(int)
        small = scenes.size == 1 if told_by == "size" else np.ones((2, 2), bool)
        found = (boxes[..., 2:] - boxes[..., :2])[small]
        np.testing.assert_allclose(found, np.broadcast_to(np.array(shown) * factor, found.shape),
                                   atol=1)  # fmt: skip
        assert scenes.boxes is not None
        assert (boxes[..., :2] >= scenes.boxes[..., :2]).all()
        assert (boxes[..., 2:] <= scenes.boxes[..., 2:]).all()


def test_faint_pixels_are_no_part_of_a_thing(folder: Path) -> None:
    pixels = np.zeros((30, 30, 4), np.uint8)
    pixels[..., 3] = 12
    pixels[10:20, 5:25] = 255
    Image.fromarray(pixels).save(folder / ROWS[0][0])
    found = read_cutout(folder / ROWS[0][0], (20, 20))
    assert found.shape == (10, 20, 4)
    assert (found == 255).all()


def test_a_shadow_lies_about_the_foot_and_nowhere_else(folder: Path) -> None:
    solid(folder, 30, 30)
    behind = flat(folder, 200)
    with_, without = (
        pictures_of(reading := reading_of(folder, {"backgrounds": behind, "shadow": shadow}))
        .drawn(scenes_of(reading, 1)) for shadow in (0.5, 0.0)
    )  # fmt: skip
    np.testing.assert_array_equal(with_.masks, without.masks)
    for role in range(2):
        inside = with_.masks[0] == role + 1
        np.testing.assert_array_equal(with_.images[0][inside], without.images[0][inside])
    darker = with_.images[0, ..., 0] < 200
    ground = without.masks[0] == 0
    left, _, right, bottom = with_.boxes[0, 0].tolist()
    below = to_srgb(0.5 * from_srgb(np.array(200)))
    assert abs(int(with_.images[0, bottom, (left + right) // 2, 0]) - int(below)) < 4
    near = np.zeros_like(darker)
    for x0, y0, x1, y1 in with_.boxes[0].tolist():
        near[(y0 + y1) // 2 : y1 + 16, x0 - 17 : x1 + 17] = True
    assert not (darker & ground & ~near).any()


def test_a_photo_and_a_background_stay_where_things_are_exchanged(example: Path) -> None:
    behind = {"backgrounds": str(example / "backgrounds"), "shadow": 0.0}
    reading = reading_of(example, behind, layout="level", order="independent")
    scenes, pictures = scenes_of(reading, 4), pictures_of(reading)
    one, other = pictures.drawn(scenes), pictures.drawn(exchanged_contents(scenes))
    outside = (one.masks == 0) & (other.masks == 0)
    np.testing.assert_array_equal(one.images[outside], other.images[outside])
    for row in range(4):
        for role in range(2):
            kept = [
                drawn.images[row][slice(y0 + 20, y1 - 20), slice(x0 + 20, x1 - 20)]
                for drawn, place in ((one, role), (other, 1 - role))
                for x0, y0, x1, y1 in [drawn.boxes[row, place].tolist()]
            ]
            np.testing.assert_array_equal(*kept)  # the middles are opaque


def test_several_photos_and_backgrounds_are_drawn_among(example: Path) -> None:
    reading = reading_of(example, {"backgrounds": str(example / "backgrounds"), "shadow": 0.0})
    scenes, pictures = scenes_of(reading, 64), pictures_of(reading)
    assert isinstance(pictures, Composites)
    same = scenes.with_(shape=0 * scenes.shape, colour=0 * scenes.colour)
    images = pictures(same)
    corners = {row[0, :4].tobytes() for row in images}
    assert len(corners) == 4
    things = [row[80:90, 113:121].tobytes() for row in images]
    shares = [things.count(one) / 64 for one in set(things)]
    assert len(shares) == 2
    assert min(shares) > 0.25


def test_images_follow_from_the_scene_alone(example: Path, tmp_path: Path) -> None:
    own = {"backgrounds": str(example / "backgrounds")}
    reading = reading_of(example, own)
    scenes = scenes_of(reading, 3)
    images = pictures_of(reading)(scenes)
    np.testing.assert_array_equal(pictures_of(reading)(scenes[1:2])[0], images[1])
    elsewhere = tmp_path / "copy"
    shutil.copytree(example, elsewhere)
    header, *rows = (elsewhere / "cutouts.csv").read_text().splitlines()
    (elsewhere / "cutouts.csv").write_text("\n".join([header, *rows[::-1]]))
    again = reading_of(elsewhere, {"backgrounds": str(elsewhere / "backgrounds")})
    np.testing.assert_array_equal(pictures_of(again)(scenes_of(again, 3)), images)
    other = scenes_of(reading, 3, seed=1)
    assert scenes.setting is not None
    assert other.setting is not None
    assert set(scenes.setting.tolist()).isdisjoint(other.setting.tolist())
    with pytest.raises(InputError, match="setting"):
        pictures_of(reading)(replace(scenes, setting=None))


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (Image.new("RGB", (5, 5)), "has no alpha channel"),
        (Image.new("RGBA", (5, 5), (9, 9, 9, 12)), "its alpha is empty"),
        (Image.new("RGBA", (5, 5), (9, 9, 9, 255)), "no pixel of it is transparent"),
        (None, "no image that can be read"),
    ],
)
def test_a_bad_cutout_is_refused_before_a_model_reads_anything(
    folder: Path, bad: Image.Image | None, problem: str
) -> None:
    file = folder / ROWS[5][0]
    file.write_bytes(file.read_bytes()[:60])
    if bad is not None:
        bad.save(file)
    with pytest.raises(InputError, match=problem) as caught:
        pictures_of(reading_of(folder))
    assert caught.value.where == str(file)
    assert "PNG" in caught.value.remedy


def test_bad_backgrounds_and_files_that_changed(folder: Path) -> None:
    behind = Path(flat(folder, 90))
    reading = reading_of(folder, {"backgrounds": str(behind)})
    (behind / "90.png").write_bytes(b"none")
    with pytest.raises(InputError, match="changed since this run was planned"):
        pictures_of(reading)
    with pytest.raises(InputError, match=r"backgrounds, .*90\.png: is no image"):
        read_background(behind / "90.png", 384)
    reading = reading_of(folder)
    image(99).save(folder / ROWS[0][0])
    with pytest.raises(InputError, match="changed since this run was planned"):
        pictures_of(reading)


def test_words_of_unequal_length_are_named(folder: Path) -> None:
    """A tokenizer of single letters: `ball` and `mug` are not equally long."""
    letters: Any = SimpleNamespace(
        where="model m", tokenize=lambda texts: [(list(map(ord, text)), []) for text in texts]
    )
    with pytest.raises(InputError, match=r"nouns of split `test` .*\(4: mug; 5: ball\)"):
        check_own_words(letters, reading_of(folder))
    one: Any = SimpleNamespace(where="m", tokenize=lambda texts: [([1], []) for _ in texts])
    check_own_words(one, reading_of(folder))
    check_own_words(letters, Reading(Rule()))
    # Where neither noun nor colour is said, their length does not matter.
    check_own_words(letters, reading_of(folder, shared="both"))


def test_a_task_is_written_to_files(example: Path, tmp_path: Path) -> None:
    section = TaskFiles(name="f", task="t").model_dump(mode="json", exclude={"name", "task"})
    drawn = content(example, rows=3, estimation_rows=2)
    with StoreWriter(tmp_path / "t.zarr", tmp_path / "t.json", spec="{}", code="c") as writer:
        text = write_task(Task.of({**section, "task": drawn}), writer, {})
    rows = [json.loads(line) for line in text.splitlines()]
    assert {row["shape"] for row in rows if row["split"] == "test"} == {"cone", "cube"}
    store = open_store(tmp_path / "t.json")
    masks, images = store.read("masks"), store.read("images")
    assert len(images) == 2 * (3 + 2)  # each has a setting of its own
    for row in rows:
        mask = masks[row["image"]] == row["mask"]
        left, top, right, bottom = row["box"]
        assert mask[top:bottom, left:right].sum() == mask.sum() > 500
        assert f"The {row['colour']} object contains item {row['answer']}." in row["context"]
