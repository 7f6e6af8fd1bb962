"""Decode counts and pairing from the colors of rendered scenes, and tabulate them.

    python tools/color_cues.py                    # all data sets: a quarter of an hour of one core
    python tools/color_cues.py clutter matching   # these only; other rows of the table stay
    python tools/color_cues.py --print            # the table of docs/color_cues.md

Writes resources/reference/color_cues.csv. An image is described by the baselines of
`bindscope.models.baselines`: a color histogram, which discards place, so that a number of pixels
is all that can name a shape; and 12 x 12 pixels. What the pixels of each color hold is counted.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, log2
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import bindscope as bs
from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import build_space
from bindscope.config.codes import Dataset
from bindscope.config.loading import load_file
from bindscope.models.baselines import BASELINES
from bindscope.priors.entropies import entropies
from bindscope.scenes.render import render_scenes
from bindscope.scenes.shapes import outlines

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "resources/reference/color_cues.csv"
BLOCK = 250  # scenes that are drawn at a time
N_COUNTED = 50_000  # scenes over which exact numbers are averaged
SMALL = {"backend": "raycast", "size_px": 64, "min_visible_px": 4}
RELEASED = {"area": "released", "object_px": 24, "margin_px": 2}
EQUAL = {"area": "equal", "object_px": 28, "placement": "grid"}
DESCRIBED = ("color-histogram", "pixels")
GIVEN = ("h_object_given_feature_bits", "h_counts_given_feature_bits", "h_object_given_counts_bits")
BOUNDS = tuple(
    f"{part}_lower_bound_bits{end}"
    for part in ("conditional_binding", "count", "pairing")
    for end in ("", "_low", "_high")
)

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A data set of a preset, and what is drawn differently here.

    `n` is the number of scenes that are drawn for probes; 0: none, only exact numbers. `published`
    and `axis_value` name the data set and condition of the binding problem paper that the preset
    reproduces (resources/published).
    """

    name: str
    preset: str
    dataset: str
    render: Mapping[str, Any] = field(default_factory=dict)
    n: int = 4000
    probes: tuple[str, ...] = ("linear",)  # of the histogram
    published: str = ""
    axis_value: str = ""


CASES = (
    Case(
        "main-table",
        "main_table",
        "balanced-colorshape",
        n=6000,
        probes=("linear", "quadratic"),
        published="balanced_colorshape",
    ),
    Case("main-table-equal", "main_table", "balanced-colorshape", EQUAL),
    Case("colorshape-7", "complexity", "colorshape-7", published="colorshape"),
    *(Case(f"colorshape-{n}", "complexity", f"colorshape-{n}", n=0) for n in (6, 5, 4, 3, 2)),
    Case(
        "occlusion-060",
        "occlusion",
        "occlusion-060",
        SMALL,
        3000,
        published="occlusion_clevr",
        axis_value="0.6",
    ),
    Case(
        "occlusion-320",
        "occlusion",
        "occlusion-320",
        SMALL,
        3000,
        published="occlusion_clevr",
        axis_value="3.2",
    ),
    Case("clevr-rendered", "clevr_rendered", "clevr-natural", SMALL, 2000, published="clevr"),
    Case("matching", "config", "matching"),
    Case("matching-released", "config", "matching", RELEASED),
    Case("counting", "config", "counting"),
    Case("counting-released", "config", "counting", RELEASED),
    Case("resolution-small", "resolution_small", "colorshape-96"),
    Case("clutter", "config", "clutter"),
    Case("pairs", "config", "pairs"),
    Case("three", "concepts", "three"),
    Case("hidden", "concepts", "hidden", SMALL, 1000),
    Case("two-sprites", "binding_id_small", "two-sprites"),
    Case("occlusion-low", "occlusion_small", "occlusion-low", n=1500),
    Case("occlusion-high", "occlusion_small", "occlusion-high", n=1500),
)


def main() -> None:
    """Measure the cases that are named, or all, and replace their rows of the table."""
    torch.set_num_threads(1)
    if "--print" in sys.argv:
        print(write_table(pd.read_csv(TABLE)))
        return
    names = sys.argv[1:] or [case.name for case in CASES]
    order = {case.name: i for i, case in enumerate(CASES)}
    for case in CASES:
        if case.name in names:
            tables = [pd.DataFrame(measure(case)).round(4)]
            if TABLE.exists():
                known = pd.read_csv(TABLE)
                tables += [rows for name, rows in known.groupby("name") if name != case.name]
            tables.sort(key=lambda rows: order[rows["name"].iloc[0]])
            pd.concat(tables).to_csv(TABLE, index=False)
            print(case.name, flush=True)


def measure(case: Case) -> Iterator[dict[str, Any]]:
    """Decode a data set's codes from baselines of its images: rows of the table."""
    dataset = read_dataset(case)
    about = {
        "name": case.name,
        "preset": case.preset,
        "preset_dataset": case.dataset,
        "changes": ", ".join(f"{key} {value}" for key, value in case.render.items()),
        "dataset": case.published,
        "axis_value": case.axis_value,
    }
    if getattr(dataset.render, "area", "") == "released":
        numbers = count_areas(dataset)
        yield {
            **about,
            "baseline": "color-areas",
            "probe": "exact",
            "n_scenes": N_COUNTED,
            **numbers,
        }
    if not case.n:
        return
    codes = sample_codes(dataset, "train", 0, case.n)
    for name, array in encode(dataset, codes, DESCRIBED).items():
        probes = case.probes if name == "color-histogram" else ("linear",)
        result = bs.binding_information({name: array}, codes, space=dataset.space, probes=probes)
        for row in result.table[result.table["probe"] != "best"].to_dict("records"):
            numbers = {bits: row[bits] for bits in (*GIVEN, *BOUNDS)}
            yield {**about, "baseline": name, "probe": row["probe"], "n_scenes": case.n, **numbers}


def read_dataset(case: Case) -> Dataset:
    """Return a preset's data set, drawn at random and as the case says."""
    folder = "" if case.preset == "config" else "presets/"
    datasets = load_file(ROOT / f"config/{folder}{case.preset}.yaml").datasets
    preset = next(dataset for dataset in datasets if dataset.name == case.dataset)
    content = preset.model_dump(exclude_unset=True)
    content["render"].update(case.render)
    if content["render"].get("backend") == "raycast":
        content["render"]["backend"] = {"kind": "raycast", "antialias": 1}
    return Dataset.model_validate(content | {"split": {"rule": "random"}})


def encode(dataset: Dataset, codes: Array, names: Sequence[str]) -> dict[str, Array]:
    """Draw scenes and describe each by its colors: float32 (n, d) by name of the baseline."""
    parts: dict[str, list[Array]] = defaultdict(list)
    for start in range(0, len(codes), BLOCK):
        images = render_scenes(dataset, "train", start, codes[start : start + BLOCK])["images"]
        for name in names:
            parts[name].append(BASELINES[name].describe(images))
    return {name: np.concatenate(blocks) for name, blocks in parts.items()}


def count_areas(dataset: Dataset) -> dict[str, float]:
    """Return the information of the pixels per color about counts and pairing, exactly.

    Stamps never overlap, so these numbers are sums of the areas of shapes, and all codes of the
    space with the same sums are equally likely. The mean over scenes is the only estimate.
    """
    n_colors, n_shapes = (group.size for group in dataset.space.groups)
    areas = outlines(dataset.render.object_px, "released")[:n_shapes].sum(axis=(1, 2)).tolist()
    sets = defaultdict(list)  # of shapes of one color, 0 or 1 each, by their pixels
    for shapes in np.ndindex(*[2] * n_shapes):
        sets[sum(np.multiply(shapes, areas).tolist())].append(shapes)
    space = build_space(dataset.space)
    given_features, given_counts = [], []
    for code in sample_codes(dataset, "test", 0, N_COUNTED).reshape(-1, n_colors, n_shapes):
        choices = [sets[pixels] for pixels in (code @ areas).tolist()]
        given_features.append(
            log2(
                sum(
                    n
                    for counts, n in count_codes(choices).items()
                    if space.min_objects <= sum(counts) <= space.max_objects
                    and (np.array(counts, bool) == code.any(axis=0)).all()
                )
            )
        )
        choices = [
            [shapes for shapes in choice if sum(shapes) == n]
            for choice, n in zip(choices, code.sum(axis=1).tolist(), strict=True)
        ]
        given_counts.append(log2(count_codes(choices)[tuple(code.sum(axis=0).tolist())]))
    entropy = next(row for row in entropies(dataset) if row["split"] == "test")
    whole = entropy["h_object_given_feature_bits"] - np.mean(given_features)
    pairing = entropy["h_object_given_counts_bits"] - np.mean(given_counts)
    parts = {"conditional_binding": whole, "count": whole - pairing, "pairing": pairing}
    return {
        **{bits: entropy[bits] for bits in GIVEN},
        **{f"{part}_lower_bound_bits": value for part, value in parts.items()},
    }


def count_codes(choices: Sequence[Sequence[tuple[int, ...]]]) -> Counter[tuple[int, ...]]:
    """Count codes by objects per shape, where each color has one of several sets of shapes."""
    sums = Counter({(0,) * len(choices[0][0]): 1})
    for sets in choices:
        longer: Counter[tuple[int, ...]] = Counter()
        for counts, n in sums.items():
            for shapes in sets:
                longer[tuple(map(sum, zip(counts, shapes, strict=True)))] += n
        sums = longer
    return sums


def write_table(table: pd.DataFrame) -> str:
    """Write the page's table, in bits."""
    lines = [
        "| preset: scenes | H(O\\|F) | H(O\\|M) | B\\*, pixels per color, exact "
        "| B\\*, histogram | pairing, histogram | pairing, 12 x 12 pixels |",
        "|---|---|---|---|---|---|---|",
    ]
    whole, pairing = BOUNDS[0], BOUNDS[6]
    for _, rows in table.groupby("name", sort=False):
        first = rows.iloc[0]
        scenes = f"`{first['preset']}`: `{first['preset_dataset']}`"
        if isinstance(first["changes"], str):
            scenes += f", {first['changes']}"
        cells = [_cell(first[GIVEN[0]]), _cell(first[GIVEN[2]])]
        for baseline, probe, bound in (
            ("color-areas", "exact", whole),
            ("color-histogram", "linear", whole),
            ("color-histogram", "linear", pairing),
            ("pixels", "linear", pairing),
        ):
            same = rows[(rows["baseline"] == baseline) & (rows["probe"] == probe)]
            value = same[bound].iloc[0] if len(same) else np.nan
            cells.append(_cell(value, "" if probe == "exact" else "\u2265 "))
        lines.append(f"| {' | '.join([scenes, *cells])} |")
    return "\n".join(lines)


def _cell(bits: float, sign: str = "") -> str:
    """Write bits with two decimals, bounds rounded down; nothing where there is no number."""
    if np.isnan(bits):
        return ""
    return f"{sign}{floor(100 * bits + 1e-6) / 100 if sign else bits:.2f}"


if __name__ == "__main__":
    main()
