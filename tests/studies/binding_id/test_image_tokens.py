"""Which tokens show which pixels: closed forms, the library's packing, and its processors."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_vlms
import torch
from transformers import Qwen2VLImageProcessor
from transformers.models.llava_onevision.modeling_llava_onevision import LlavaOnevisionModel

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.engine import Tokens
from bindscope.studies.binding_id.tasks.scenes import LAYOUTS
from bindscope.studies.binding_id.vlm.image_tokens import (
    best_resolution,
    llava_views,
    plain_view,
)
from bindscope.studies.binding_id.vlm.loading import adapt

PINPOINTS = [[384 * a, 384 * b] for a in range(1, 7) for b in range(1, 7)]
SIZES = [(384, 384), (400, 300), (2500, 900)]
PAPER = llava_views((384, 384), 384, 14, PINPOINTS, 9)
BOXES = np.array(LAYOUTS["pair"].regions)  # of the released images


def cells(view, role, pad=0):
    """Return rows and columns of a thing of the paper's images."""
    tokens = PAPER.views[view].cells(BOXES[role], pad, "inside") - PAPER.views[view].start
    rows, columns = np.divmod(tokens, PAPER.views[view].stride)
    return sorted(set(rows.tolist())), sorted(set(columns.tolist()))


@pytest.mark.parametrize("view", [0, 1])
def test_the_papers_objects_stand_where_its_code_says(view):
    assert PAPER.length == PAPER.features == 1485
    assert cells(view, 0) == (list(range(3, 8)), list(range(6, 11)))
    assert cells(view, 1) == (list(range(6, 11)), list(range(20, 25)))
    place = PAPER.views[view].cells(BOXES[1], 0, "inside") - PAPER.views[view].cells(
        BOXES[0], 0, "inside"
    )
    assert set(place.tolist()) == {95 if view == 0 else 98}


def test_padding_by_three_is_242_tokens_on_the_border_too():
    official = PAPER.select(BOXES, 0, Tokens(pad=3), "official")
    assert len(official) == 242
    wraps = PAPER.select(BOXES, 1, Tokens(pad=3), "official")
    assert len(wraps) == 242
    # Its last column leaves the grid: the next row's first cell, and the ends of 11 rows.
    ends = set(PAPER.views[1].ends().tolist())
    assert len(ends & set(wraps.tolist())) == 11
    assert {729 + 28 * row + 27 for row in range(3, 14)} <= set(wraps.tolist())
    assert {27 * row + 27 for row in range(3, 14)} <= set(wraps.tolist())
    assert cells(0, 1, 3) == cells(1, 1, 3) == (list(range(3, 14)), list(range(16, 27)))


def test_things_background_and_ends_of_rows_are_all_tokens():
    parts = [PAPER.select(BOXES, role, Tokens(), "inside") for role in (0, 1)]
    parts.append(PAPER.select(BOXES, 0, Tokens(support="background"), "inside"))
    assert sorted(np.concatenate(parts).tolist()) == list(range(1485))
    assert len(PAPER.select(BOXES, 0, Tokens(support="newline"), "inside")) == 27


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "sprites"])
def test_all_slots_of_a_layout_have_equally_many_tokens(layout):
    """Wherever they lie on the grid: or contexts of different slots could not be compared."""
    qwen = plain_view("one view", 0, 14, 14, 14, 384, 384)
    for view in (*PAPER.views, qwen):
        for pad in range(4):
            counts = {len(view.cells(box, pad, "inside")) for box in LAYOUTS[layout].regions}
            assert counts == {((3 if view is qwen else 5) + 2 * pad) ** 2}
            for box in LAYOUTS[layout].regions:  # what a thing has without padding is always there
                assert set(view.cells(box, 0, "inside")) <= set(view.cells(box, pad, "inside"))


def test_a_block_of_cells_covers_most_of_a_stretch():
    view = plain_view("a row", 0, 8, 1, 8, 10, 80)
    cases = [
        (10, 30, [1, 2]),
        (14, 34, [1, 2]),
        (17, 37, [2, 3]),
        (1, 9, [0]),
        (75, 80, [7]),
        (8, 19, [0, 1]),
        (0, 80, [*range(8)]),
    ]
    for left, right, cells in cases:
        assert view.cells((left, 0, right, 10), 0, "inside").tolist() == cells


def test_cells_that_touch_a_box_leave_none_of_it_visible():
    """Blocks as wide and high as the box leave half of a small one visible, and more."""
    draw, visible = np.random.default_rng(0), {False: [], True: []}
    views = [*PAPER.views, plain_view("a view", 0, 23, 17, 23, 480, 640)]
    for view, _ in product(views, range(60)):
        size = draw.integers(6, 120, 2)
        left, top = (int(draw.integers(0, 384 - side)) for side in size)
        box = (left, top, left + int(size[0]), top + int(size[1]))
        for touching, shares in visible.items():
            rows, columns = np.divmod(
                view.cells(box, 0, "inside", touching) - view.start, view.stride
            )
            sides = [
                min(edges[at.max() + 1], box[i + 2]) - max(edges[at.min()], box[i])
                for i, (edges, at) in enumerate(((view.x, columns), (view.y, rows)))
            ]
            shares.append(1 - sides[0] * sides[1] / size.prod())
            if touching:  # and no cell but those
                assert (view.x[columns] < box[2]).all()
                assert (view.x[columns + 1] > box[0]).all()
                assert (view.y[rows] < box[3]).all()
                assert (view.y[rows + 1] > box[1]).all()
    assert max(visible[True]) < 1e-6
    assert max(visible[False]) > 0.5


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_library_packs_in_the_order_of_the_map(size):
    """Its own packing of features that hold where they are is the map's squares, in order."""
    image = llava_views(size, 384, 14, PINPOINTS, 9)
    target = best_resolution(size, PINPOINTS)
    crops = (target[0] // 384, target[1] // 384)
    row, column = np.mgrid[:27, :27]
    features = []
    for crop in range(-1, crops[0] * crops[1]):
        down, across = divmod(max(crop, 0), crops[1])
        place = [np.full((27, 27), crop >= 0), 27 * down + row, 27 * across + column]
        features.append(np.stack(place, -1).reshape(-1, 3))
    config = SimpleNamespace(
        vision_config=SimpleNamespace(image_size=384, patch_size=14),
        image_grid_pinpoints=PINPOINTS,
    )
    packed, lengths = LlavaOnevisionModel.pack_image_features(
        SimpleNamespace(config=config),
        [torch.tensor(np.stack(features), dtype=torch.float64)],
        torch.tensor([size]),
        image_newline=torch.full((3,), -1.0, dtype=torch.float64),
    )
    packed = packed[0].numpy()
    assert len(packed) == int(lengths[0]) == image.length
    views = image.views
    np.testing.assert_array_equal(np.flatnonzero(packed[:, 0] < 0), views[1].ends())
    for number, view in enumerate(views):
        index = (np.arange(view.rows)[:, None] * view.stride + np.arange(view.columns)).ravel()
        packed_features = packed[view.start + index]
        np.testing.assert_allclose(packed_features[:, 0], number)
        edges = _cell_edges(number, crops)
        for axis, mine in ((0, view.y), (1, view.x)):
            centres = (mine[1:] + mine[:-1]) / 2
            scaled = _to_image(number, axis, size, target, edges[axis])
            there = np.interp(packed_features[:, 1 + axis] + 0.5, np.arange(len(scaled)), scaled)
            want = (
                centres[:, None] + 0 * views[number].x[1:]
                if axis == 0
                else centres[None] + 0 * views[number].y[1:, None]
            ).ravel()
            # Exact but where the library shrinks by interpolating at centres of cells.
            width = np.diff(mine).max()
            assert np.abs(there - want).max() < (1e-6 if size != (2500, 900) else 0.51) * width


def _cell_edges(view, crops):
    """Where cells begin, in pixels of the target: 14 px each, the last of a crop to its end."""
    many = (1, 1) if view == 0 else crops
    starts = [np.add.outer(np.arange(n) * 384, np.arange(27) * 14).ravel() for n in many]
    return [np.append(s, n * 384).astype(float) for s, n in zip(starts, many, strict=True)]


def _to_image(view, axis, size, target, edges):
    """Pixels of the image: the base view is stretched, the other one scaled and padded."""
    if view == 0:
        return edges * size[axis] / 384
    scale = min(target[0] / size[0], target[1] / size[1])
    long = np.ceil(size[axis] * scale - 1e-9)
    return (edges - (target[axis] - long) // 2) * size[axis] / long


@pytest.mark.parametrize("family", ["llava_onevision", "qwen2_vl"])
@pytest.mark.parametrize("size", [(32, 64), (48, 80)], ids=str)
def test_processors_put_pixels_where_the_map_says(family, size):
    """An image that says where each pixel is comes out of the processor at its cell's middle."""
    changes = {"pinpoints": ((16, 16), (16, 32), (32, 32), (32, 64))}
    model, processor = tiny_vlms.FAMILIES[family](**changes if family[0] == "l" else {})
    adapter = adapt("tiny", model, processor, "cpu")
    height, width = size
    y, x = np.mgrid[:height, :width]
    image = np.stack([x * 255 / width, y * 255 / height, 0 * x], -1).round().astype(np.uint8)
    inputs = adapter.read([f"{adapter.image_text} The"], image[None])
    means = _read_means(family, inputs, processor)  # (features, 2), each from 0 to 1
    marks = (inputs.ids[0] == model.config.image_token_id).nonzero()[:, 0].numpy()
    ends = np.concatenate([view.ends() for view in inputs.image.views])
    if family == "llava_onevision":
        marks = np.setdiff1d(marks, ends + inputs.start)
    place = {int(mark): number for number, mark in enumerate(marks)}
    for view in inputs.image.views:
        for row in range(view.rows):
            for column in range(view.columns):
                token = inputs.start + view.start + row * view.stride + column
                middle = [
                    view.x[column : column + 2].mean() / width,
                    view.y[row : row + 2].mean() / height,
                ]
                side = [np.diff(view.x).max() / width, np.diff(view.y).max() / height]
                off = np.abs(means[place[token]] - np.clip(middle, 0, 1)) / side
                assert (off < 0.35).all(), (view.name, row, column, means[place[token]], middle)


def _read_means(family, inputs, processor):
    """Return the mean red and green of what each feature is made from, in the packed order."""
    pixels = inputs.tensors["pixel_values"].double()
    image_processor = processor.image_processor
    mean, std = (
        torch.tensor(values[:2])
        for values in (image_processor.image_mean, image_processor.image_std)
    )
    if family == "llava_onevision":
        patches = torch.nn.functional.avg_pool2d(pixels[0], 8)[:, :2].permute(0, 2, 3, 1)
        values = patches * std + mean
        newline = torch.full((2,), -1.0, dtype=values.dtype)
        config = SimpleNamespace(
            vision_config=SimpleNamespace(image_size=16, patch_size=8),
            image_grid_pinpoints=image_processor.image_grid_pinpoints,
        )
        packed, _ = LlavaOnevisionModel.pack_image_features(
            SimpleNamespace(config=config),
            [values.flatten(1, 2)],
            inputs.tensors["image_sizes"],
            image_newline=newline,
        )
        return packed[0][packed[0][:, 0] != -1].numpy()
    patches = pixels.view(-1, 4, 3, 2, 64)[:, :, :2].mean((1, 3, 4))
    return (patches * std + mean).numpy()


OF_ATTENTION = ("out_proj", "attn.proj", "projection_layer")  # last linear maps of a tower's


@pytest.mark.parametrize("family", tiny_vlms.FAMILIES)
@pytest.mark.parametrize("size", [(32, 32), (32, 64), (48, 80)], ids=str)
def test_what_changes_in_a_cell_changes_its_token_most(family, size):
    """In the library's own embeddings, by a tower without attention, where patches do not mix."""
    model, processor = tiny_vlms.FAMILIES[family]()
    for name, weight in model.named_parameters():
        if "language_model" not in name and any(part in name for part in OF_ATTENTION):
            weight.zero_()
    adapter = adapt("tiny", model, processor, "cpu")
    image = np.random.default_rng(0).integers(0, 256, (*size, 3)).astype(np.uint8)
    text = f"{adapter.image_text} The"
    views = adapter.read([text], image[None]).image.views
    assert len(views) == adapter.n_views
    for view in views:
        changed = [image]
        for row, column in np.ndindex(view.rows, view.columns):
            left, right = np.clip(view.x[column : column + 2], 0, size[1]).round().astype(int)
            top, bottom = np.clip(view.y[row : row + 2], 0, size[0]).round().astype(int)
            changed.append(image.copy())
            changed[-1][top:bottom, left:right] = 255 - image[top:bottom, left:right]
        inputs = adapter.read([text] * len(changed), np.stack(changed))
        hidden = adapter.embed(inputs).hidden
        difference = (hidden[1:] - hidden[:1]).norm(dim=-1).numpy()
        rows = np.arange(view.rows)[:, None] * view.stride
        cells = inputs.start + view.start + (rows + np.arange(view.columns)).ravel()
        np.testing.assert_array_equal(cells[difference[:, cells].argmax(1)], cells)
        block = np.arange(inputs.start, inputs.start + inputs.image.length)
        assert not np.delete(difference, block, 1).any()  # of text, and of marks around the image
        assert not difference[:, inputs.start + inputs.image.views[-1].ends()].any()
        assert inputs.ids[0, block].tolist() == [model.config.image_token_id] * len(block)


def test_boxes_views_and_cells_that_are_not_there_are_refused():
    for box in ((10, 390, 20, 400), (-5, 10, 20, 20)):
        with pytest.raises(InputError, match="outside the base view"):
            PAPER.select(np.array([box]), 0, Tokens(), "inside")
    with pytest.raises(InputError, match=r"view 2: .* 2 views"):
        PAPER.select(BOXES, 0, Tokens(views=(2,)), "inside")
    with pytest.raises(InputError, match=r"cell 25: .* 25 cells"):
        PAPER.select(BOXES, 0, Tokens(cells=(25,)), "inside")
    with pytest.raises(InputError, match="begins or ends outside"):
        PAPER.select(np.array([[0, 0, 14, 14]]), 0, Tokens(pad=1), "official")


def test_qwens_image_of_384_px_is_14_cells_of_27_px():
    processor = Qwen2VLImageProcessor()
    assert processor.get_number_of_image_patches(384, 384) // 4 == 14 * 14
    qwen = SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2))
    model = SimpleNamespace(config=qwen)
    grid = {"image_grid_thw": torch.tensor([[1, 28, 28]])}
    family = type(adapt("tiny", *tiny_vlms.qwen(), "cpu"))
    image = family.image_tokens(SimpleNamespace(model=model), grid, (384, 384))
    assert len(image.select(BOXES, 0, Tokens(), "inside")) == 9
    assert np.allclose(np.diff(image.views[0].x), 384 / 14)
