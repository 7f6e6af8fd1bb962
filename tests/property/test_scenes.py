"""Scenes of any size: what is drawn is what the arrays say, wherever the shards are cut."""

from math import isqrt

import numpy as np
from datasets_by_hand import dataset, uniform
from hypothesis import given, settings
from hypothesis import strategies as st

from bindscope.config.codes import Dataset
from bindscope.scenes.render import render_scenes
from bindscope.scenes.shapes import stamps


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Dataset, np.ndarray, int, int]:
    groups = [draw(st.integers(1, 8)), draw(st.integers(1, 8))]
    most = draw(st.integers(1, min(12, groups[0] * groups[1])))
    area = draw(st.sampled_from(["equal", "released"]))
    box = draw(st.integers(9 if area == "released" else 17, 20))
    margin = draw(st.integers(0, 5))
    placement = draw(st.sampled_from(["uniform", "grid"]))
    side = isqrt(most - 1) + 1
    least = margin + side * (box + margin)
    size = least + draw(st.integers(0, 20)) + (2 * least if placement == "uniform" else 0)
    render = {
        "kind": "shapes",
        "size_px": size,
        "object_px": box,
        "margin_px": margin,
        "placement": placement,
        "area": area,
    }
    space = uniform(most, a=groups[0], b=groups[1])
    drawn = dataset(space, seed=draw(st.integers(0, 2**32)), render=render)
    n = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rank = rng.random((n, groups[0] * groups[1])).argsort(1).argsort(1)
    objects = (rank < rng.integers(0, most + 1, n)[:, None]).astype(np.uint8)
    return drawn, objects, draw(st.integers(0, 10**9)), draw(st.integers(0, n))


@settings(max_examples=30, deadline=None)
@given(_cases())
def test_scenes_hold_what_they_say(case: tuple[Dataset, np.ndarray, int, int]) -> None:
    dataset, objects, start, cut = case
    scenes = render_scenes(dataset, "test", start, objects)
    parts = (
        render_scenes(dataset, "test", start, objects[:cut]),
        render_scenes(dataset, "test", start + cut, objects[cut:]),
    )
    for name, array in scenes.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), array)

    render, sizes = dataset.render, [group.size for group in dataset.space.groups]
    assert render is not None
    looks, outlines = stamps(render.object_px, render.area, *sizes)
    assert {name: array.dtype.name for name, array in scenes.items()} == {
        "images": "uint8",
        "masks": "uint8",
        "boxes": "int16",
        "cells": "int16",
    }
    for i, code in enumerate(objects):
        n, cells, boxes = int(code.sum()), scenes["cells"][i], scenes["boxes"][i]
        assert cells.tolist() == [*np.flatnonzero(code), *[-1] * (len(cells) - n)]
        assert (boxes[n:] == -1).all()
        image = np.full_like(scenes["images"][i], 255)
        mask, n_boxes = np.zeros_like(scenes["masks"][i]), np.zeros(image.shape[:2], int)
        for j, (x0, y0, x1, y1) in enumerate(boxes[:n].tolist()):
            low, high = render.margin_px, render.size_px - render.margin_px
            assert low <= min(x0, y0)
            assert max(x1, y1) <= high
            assert x1 - x0 == y1 - y0 == render.object_px
            before = render.margin_px  # a box with its left and upper margin overlaps no other
            n_boxes[y0 - before : y1, x0 - before : x1] += 1
            image[y0:y1, x0:x1] = looks[cells[j]]
            mask[y0:y1, x0:x1] = outlines[cells[j] % sizes[1]] * (j + 1)
        assert n_boxes.max(initial=0) <= 1
        np.testing.assert_array_equal(scenes["images"][i], image)
        np.testing.assert_array_equal(scenes["masks"][i], mask)
