"""Rendering: colored shapes against a loop in Pillow, and solids in images per hour.

Shapes: whole calls of `render_scenes` (places, images, masks, boxes) against a naive loop with
Pillow that draws the same objects at the same places, given, without masks or boxes. The floor is
one copy of the bytes that are written. One core each.

Solids: scenes of six objects from codes to images and labels, by backend, seconds per image; what
is not installed is left out. `--size ci` leaves the path tracer out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from measure import Entry, Options, Other, copy_rate, side_by_side
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from bindscope.config.codes import Dataset
from bindscope.config.solids import SolidsRenderer
from bindscope.core.errors import ConfigError
from bindscope.scenes.palette import COLORS, SHAPES
from bindscope.scenes.render import render_scenes
from bindscope.scenes.shapes import _POLYGONS, CROSS_BAR
from bindscope.scenes.solids.description import unpack
from bindscope.scenes.solids.render import draw

TITLE = "Rendering"
HOUR = 3600.0
# size_px, objects, object_px, placement
SHAPE_CASES = ((64, 4, 12, "uniform"), (96, 9, 16, "grid"), (256, 18, 32, "uniform"))
N_SHAPES = {"ci": 256, "full": 1000}
BACKENDS: tuple[tuple[dict[str, Any], tuple[int, ...]], ...] = (
    ({"kind": "raycast", "antialias": 1}, (64, 224, 336)),
    ({"kind": "raycast"}, (64, 224, 336)),
    ({"kind": "mitsuba", "samples": 16}, (64, 224)),
    ({"kind": "mitsuba"}, (224,)),
)
N_SOLIDS = 3
COLORS_AND_SHAPES = [{"name": "color", "size": 8}, {"name": "shape", "size": 8}]
CLEVR = [
    {"name": "color", "size": 8},
    {"name": "shape", "size": 3},
    {"name": "material", "size": 2},
    {"name": "size", "size": 2},
]


def entries(options: Options) -> list[Entry]:
    """Time shapes and every backend of solids that is installed."""
    torch.set_num_threads(1)  # the copy's, as rendering has one
    bytes_per_s = copy_rate(options)
    shapes = [_shapes(case, options, bytes_per_s) for case in SHAPE_CASES]
    return [*shapes, *_solids(replace(options, repetitions=1))]


def _shapes(case: tuple[int, int, int, str], options: Options, bytes_per_s: float) -> Entry:
    size, count, box, placement = case
    render = {
        "kind": "shapes",
        "size_px": size,
        "object_px": box,
        "placement": placement,
        "margin_px": 2,
        "area": "released",
    }
    dataset = _dataset(COLORS_AND_SHAPES, count, render)
    objects = _codes(N_SHAPES[options.size], 64, count)
    n = len(objects)
    shard = render_scenes(dataset, "train", 0, objects)
    boxes, cells = shard["boxes"], shard["cells"]
    equal = float((pillow_loop(size, boxes, cells) == shard["images"]).all(axis=-1).mean())
    if equal < 0.95:
        raise AssertionError(f"only {equal:.1%} of the pixels agree with the loop in Pillow")
    times = side_by_side(
        {
            "ours": lambda: render_scenes(dataset, "train", 0, objects),
            "pillow": lambda: pillow_loop(size, boxes, cells),
        },
        options,
    )
    floor = 2.0 * sum(values.nbytes for values in shard.values()) / bytes_per_s
    # The promise is 1.5 times the loop, or half the copy floor if that is lower.
    lower = 2 * floor > times["pillow"] / 1.5
    return Entry(
        f"shapes, {size} px, {count} objects, {n} scenes: {n / times['ours']:,.0f} per second",
        times["ours"],
        [
            Other("copy of the bytes written", floor, 0.5 if lower else None),
            Other("Pillow, no masks", times["pillow"], None if lower else 1.5),
        ],
        notes={"scenes_per_s": n / times["ours"], "pixels_as_pillow_share": equal},
    )


def pillow_loop(size: int, boxes: NDArray[np.int16], cells: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Draw scenes the plain way: object after object, uint8 (n, size, size, 3)."""
    images = []
    for corners, codes in zip(boxes.tolist(), cells.tolist(), strict=True):
        image = Image.new("RGB", (size, size), "white")
        pen = ImageDraw.Draw(image)
        for (x0, y0, x1, y1), cell in zip(corners, codes, strict=True):
            color, shape = PALETTE[cell // len(SHAPES)], SHAPES[cell % len(SHAPES)]
            side = x1 - x0
            if shape == "circle":
                pen.ellipse((x0, y0, x1 - 1, y1 - 1), fill=color)
            elif shape == "cross":
                arm, bar = round(side * (1 - CROSS_BAR) / 2), round(side * CROSS_BAR)
                pen.rectangle((x0 + arm, y0, x0 + arm + bar - 1, y1 - 1), fill=color)
                pen.rectangle((x0, y0 + arm, x1 - 1, y0 + arm + bar - 1), fill=color)
            else:
                points = [(x0 + a * (side - 1), y0 + b * (side - 1)) for a, b in CORNERS[shape]]
                pen.polygon(points, fill=color)
        images.append(np.asarray(image))
    return np.stack(images)


PALETTE = list(COLORS.values())
CORNERS = {name: points.tolist() for name, points in _POLYGONS.items()}


def _solids(options: Options) -> Iterator[Entry]:
    for backend, sizes in BACKENDS:
        if options.size == "ci" and backend["kind"] != "raycast":
            continue
        for size in sizes:
            dataset = _dataset(CLEVR, 6, {"kind": "solids", "size_px": size, "backend": backend})
            config = dataset.render
            assert isinstance(config, SolidsRenderer)
            objects = _codes(N_SOLIDS, 96, 6)
            try:
                shard = render_scenes(dataset, "train", 0, objects)
            except ConfigError as error:
                print(f"left out: {backend['kind']} ({error.problem})", flush=True)
                break
            scenes = [unpack(row) for row in shard["descriptions"]]
            runs: dict[str, Callable[[], object]] = {
                "all": lambda d=dataset, o=objects: render_scenes(d, "train", 0, o),
                "draw": lambda c=config, s=scenes: draw(c.backend, s),
            }
            times = side_by_side(runs, options)
            rate = HOUR * N_SOLIDS / times["all"]
            words = ", ".join(f"{k} {v}" for k, v in backend.items() if k != "kind") or "default"
            yield Entry(
                f"{backend['kind']}, {words}, {size} px, one image: {rate:,.0f} per hour",
                times["all"] / N_SOLIDS,
                [Other("drawing alone", times["draw"] / N_SOLIDS)],
                notes={"images_per_hour": rate},
            )


def _codes(n: int, cells: int, count: int) -> NDArray[np.uint8]:
    """Return n codes of `count` different objects each, uint8 (n, cells)."""
    objects = np.zeros((n, cells), np.uint8)
    order = np.random.default_rng(0).random((n, cells)).argsort(axis=1)
    np.put_along_axis(objects, order[:, :count], 1, axis=1)
    return objects


def _dataset(groups: list[dict[str, Any]], count: int, render: dict[str, Any]) -> Dataset:
    sizes = {"train": 1000, "val": 1000, "test": 1000}
    return Dataset.model_validate(
        {
            "name": "scenes",
            "split": {"rule": "random"},
            "n_scenes": sizes,
            "shard_size": sizes,
            "space": {
                "kind": "uniform",
                "groups": groups,
                "min_objects": count,
                "max_objects": count,
            },
            "render": render,
        }
    )
