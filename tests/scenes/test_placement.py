"""Places: no overlap, margins, determinism across shards, independence of the objects."""

from pathlib import Path

import numpy as np
import pytest
from datasets_by_hand import dataset, uniform

from bindscope.config.codes import Dataset
from bindscope.core.errors import ConfigError
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.scenes.placement import ATTEMPTS, BLOCKS, Canvas, RandomWords, place
from bindscope.scenes.render import BLOCK, render_scenes, write_scenes

DENSE = Canvas(size=48, box=8, margin=1, capacity=12)  # jams now and then
TOUCHING = Canvas(size=50, box=8, margin=4, capacity=12, gap=0)


def _dataset(seed: int = 0, side: int = 6, **render: object) -> Dataset:
    shapes = {"kind": "shapes", "size_px": 96, "object_px": 12, "margin_px": 2, "area": "released"}
    return dataset(uniform(9, color=side, shape=side), seed=seed, render=shapes | render)


def _codes(n: int, counts: int | np.ndarray, side: int = 6, seed: int = 0) -> np.ndarray:
    """Random object codes with the given numbers of objects."""
    rank = np.random.default_rng(seed).random((n, side * side)).argsort(1).argsort(1)
    return (rank < np.broadcast_to(counts, n)[:, None]).astype(np.uint8)


def test_every_position_of_the_range_is_used() -> None:
    boxes = render_scenes(_dataset(), "train", 0, _codes(3000, 1))["boxes"][:, 0]
    for axis in (0, 1):
        positions, times = np.unique(boxes[:, axis], return_counts=True)
        np.testing.assert_array_equal(positions, np.arange(2, 96 - 2 - 12 + 1))
        expected = 3000 / len(positions)
        assert ((times - expected) ** 2 / expected).sum() < 130  # chi2, 80 degrees, p = 3e-4


def test_seed_split_and_index_change_places() -> None:
    objects = _codes(20, 9)
    base = render_scenes(_dataset(), "train", 0, objects)["boxes"]
    for changed in (
        render_scenes(_dataset(seed=1), "train", 0, objects),
        render_scenes(_dataset(), "val", 0, objects),
        render_scenes(_dataset(), "train", 20, objects),
    ):
        assert (changed["boxes"] != base).any(axis=(1, 2)).all()


@pytest.mark.parametrize("placement", ["uniform", "grid"])
def test_places_do_not_depend_on_which_objects_there_are(placement: str) -> None:
    drawn = _dataset(placement=placement)
    first = render_scenes(drawn, "train", 0, _codes(50, 7, seed=1))
    second = render_scenes(drawn, "train", 0, _codes(50, 7, seed=2))
    assert (first["cells"] != second["cells"]).any(axis=1).all()
    np.testing.assert_array_equal(first["boxes"], second["boxes"])


def test_grid_cells_are_dealt_out_evenly() -> None:
    canvas = Canvas(size=96, box=16, margin=4, capacity=9)
    places = place("grid", canvas, RandomWords(0, "train", 0), np.full(4000, 5), "here")
    assert (places[:, 5:] < 0).all()
    assert places[:, :5].min() >= 4
    assert places[:, :5].max() <= 96 - 4 - 16
    centres = places[:, :5] + 8
    column, row = ((centres - 4) // (92 / 3)).astype(int).transpose(2, 0, 1)
    cells = 3 * row + column
    assert all(len(set(scene)) == 5 for scene in cells)
    for j in range(5):
        times = np.bincount(cells[:, j], minlength=9)
        assert ((times - 4000 / 9) ** 2 / (4000 / 9)).sum() < 30  # chi2, 8 degrees, p = 2e-4


def test_order_of_placement_is_shuffled() -> None:
    """Without the permutation, objects late in a jam-packed scene crowd at the edges."""
    places = place("uniform", DENSE, RandomWords(0, "train", 0), np.full(3000, 12), "here")
    distance = np.abs(places - 20).max(axis=-1)
    middle = distance.mean(axis=0)
    assert np.ptp(middle) < 6 * distance.std() / np.sqrt(3000)


def _slow_place(canvas: Canvas, words: RandomWords, scene: int, n: int) -> list[tuple[int, int]]:
    """Place one scene, candidate by candidate: the twin of `placement._uniform`."""
    free = canvas.size - 2 * canvas.margin - canvas.box + 1
    for attempt in range(ATTEMPTS):
        places: list[tuple[int, int]] = []
        for block in range(BLOCKS):
            block_words = words.draw((2, attempt, block), scene, 1, 4 * canvas.capacity)[0]
            for word in block_words.tolist():
                x = canvas.margin + ((word >> 32) * free >> 32)
                y = canvas.margin + ((word & 0xFFFFFFFF) * free >> 32)
                reach = canvas.box + (canvas.margin if canvas.gap is None else canvas.gap)
                if all(max(abs(x - a), abs(y - b)) >= reach for a, b in places):
                    places.append((x, y))
                if len(places) == n:
                    return places
    raise AssertionError("no room")


@pytest.mark.parametrize("canvas", [DENSE, TOUCHING])
def test_placement_equals_its_slow_twin_where_scenes_jam(canvas: Canvas) -> None:
    words = RandomWords(7, "test", 50)
    counts = np.tile([12, 0, 3, 12], 25)
    places = place("uniform", canvas, words, counts, "here")
    for scene, n in enumerate(counts):
        expected = _slow_place(canvas, words, scene, n) if n else []
        assert sorted(map(tuple, places[scene, :n].tolist())) == sorted(expected)
        assert (places[scene, n:] < 0).all()


@pytest.mark.parametrize("rule", ["uniform", "grid"])
def test_boxes_with_a_gap_of_their_own_may_touch_and_keep_off_the_edge(rule: str) -> None:
    canvas = Canvas(size=44, box=9, margin=4, capacity=9, gap=0) if rule == "grid" else TOUCHING
    places = place(rule, canvas, RandomWords(0, "train", 0), np.full(500, 9), "here")[:, :9]
    assert places.min() == 4
    assert places.max() == canvas.size - 4 - canvas.box
    apart = np.abs(places[:, :, None] - places[:, None]).max(axis=-1)[:, *np.triu_indices(9, 1)]
    assert apart.min() == canvas.box


def test_a_scene_without_room_is_named() -> None:
    drawn = _dataset(size_px=64, object_px=18, margin_px=2)  # 9 fit as a grid, never at random
    with pytest.raises(ConfigError, match=r"'toy', val, scene 41: found no room(.|\n)*grid"):
        render_scenes(drawn, "val", 40, _codes(2, np.array([1, 9])))
    render_scenes(
        drawn.model_copy(update={"render": drawn.render.model_copy(update={"placement": "grid"})}),
        "val",
        40,
        _codes(2, 9),
    )


@pytest.mark.parametrize("placement", ["uniform", "grid"])
def test_a_canvas_too_small_for_any_arrangement_is_refused(placement: str) -> None:
    for size, gap, least in ((61, None, 62), (57, 0, 58)):
        sizes = {"size_px": size, "object_px": 18, "margin_px": 2, "gap_px": gap}
        with pytest.raises(ValueError, match=f"set render.size_px to at least {least}"):
            _dataset(**sizes, placement=placement)
        with pytest.raises(ConfigError, match=f"set size_px to at least {least}"):
            Canvas(size, 18, 2, 9, gap).check("a dataset")
        _dataset(**{**sizes, "size_px": least}, placement=placement)


@pytest.mark.parametrize(
    ("drawn", "codes", "message"),
    [
        (_dataset().model_copy(update={"render": None}), _codes(1, 1), "no render section"),
        (_dataset(), _codes(1, 1, side=5), "36 cells"),
        (_dataset(), _codes(2, np.array([9, 10])), r"scene 6: has 10 objects.*allows 9"),
    ],
)
def test_codes_and_datasets_that_cannot_be_drawn_are_refused(
    drawn: Dataset, codes: np.ndarray, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        render_scenes(drawn, "train", 5, codes)


def test_a_shard_is_written_block_by_block(tmp_path: Path) -> None:
    dataset, objects = _dataset(), _codes(BLOCK + 44, 9)
    manifest = tmp_path / "shard.json"
    with StoreWriter(tmp_path / "shard.zarr", manifest, spec="{}", code="c") as writer:
        write_scenes(dataset, "val", 7, objects, writer)
    store = open_store(manifest)
    for name, values in render_scenes(dataset, "val", 7, objects).items():
        np.testing.assert_array_equal(store.read(name), values)
        assert store.layout(name).dtype == str(values.dtype)
