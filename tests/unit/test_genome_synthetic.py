"""A synthetic release is read like the official one; its scenes have the stated distribution."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from jobs_by_hand import job_by_hand, linear_fit_graph, script
from PIL import Image
from pydantic import ValidationError

from bindscope.config.genome import GenomeRules, GenomeSource, SyntheticRelease
from bindscope.core.errors import InputError
from bindscope.core.graph import Graph
from bindscope.sources.base import SourceFiles
from bindscope.sources.genome.files import read_annotations, read_images
from bindscope.sources.genome.mining import MinedScene, Miner
from bindscope.sources.genome.pictures import COLOR_NAMES, KINDS, Thing, paint, sides
from bindscope.sources.genome.reader import find_images, find_release
from bindscope.sources.genome.synthetic import (
    CodeDistribution,
    code_distribution,
    picture,
    write_release,
)

N_IMAGES = 700
DRAWN = {
    "n_images": N_IMAGES, "size_px": 40, "n_categories": 2, "n_colors": 2, "max_objects": 3,
    "unannotated": 0.1,
}  # fmt: skip
RULES: dict[str, Any] = {
    "feature": "color", "n_categories": 2, "n_values": 2, "min_category_images": 50,
    "min_value_images": 50,
}  # fmt: skip
COUNTS = {"train": 400, "val": 60, "test": 100}


def graph_of(**changes: Any) -> Graph:
    """Products of a configuration that reads a synthetic release."""
    source = {"kind": "visual_genome", **RULES, "synthetic": DRAWN, **changes}
    groups = [{"name": "category", "size": 2}, {"name": source["feature"], "size": 3}]
    dataset = {
        "name": "stand-in", "source": source, "n_scenes": COUNTS, "shard_size": COUNTS,
        "space": {"kind": "counted", "groups": groups, "max_objects": 3},
        "split": {"rule": "index", "sizes": COUNTS}, "render": {"kind": "photos", "size_px": 40},
    }  # fmt: skip
    return linear_fit_graph(dataset, {**dataset, "name": "again"})


@pytest.fixture(scope="module")
def planned_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Graph]:
    """Run the rules up to the table of priors; return their folder and the graph."""
    folder, graph = tmp_path_factory.mktemp("made"), graph_of()
    rules = ("synthetic_release", "records", "record_codes", "counted_priors", "assignment_priors")
    for rule in rules:
        for product in graph.select(rule):
            script(rule).main(job_by_hand(product, folder))
    return folder, graph


@pytest.fixture(scope="module")
def release(planned_run: tuple[Path, Graph]) -> Path:
    folder, graph = planned_run
    (release,) = graph.select("synthetic_release")  # both datasets read the same
    path: str = json.loads((folder / release.path()).read_text())["path"]
    return Path(path)


@pytest.fixture(scope="module")
def mined(release: Path) -> tuple[Miner, list[MinedScene]]:
    miner = Miner(find_release(release), GenomeRules(**RULES, coco_only=False))
    return miner, list(miner.scenes())


def cell_shares(known: CodeDistribution, miner: Miner) -> np.ndarray:
    """The law's shares in the order of the mined vocabulary, float64 (C, V)."""
    rows = [known.categories.index(name) for name in miner.vocabulary.categories]
    columns = [known.values.index(name) for name in miner.vocabulary.values]
    return known.shares[np.ix_(rows, columns)]


def code_probability(cells: frozenset[int], shares: np.ndarray, numbers: tuple[int, ...]) -> float:
    """P(exactly these cells occur): inclusion and exclusion over their subsets."""
    subsets = [s for n in range(len(cells) + 1) for s in combinations(sorted(cells), n)]
    terms = [
        (-1.0) ** (len(cells) - len(s)) * float(shares.ravel()[list(s)].sum()) ** n / len(numbers)
        for s in subsets
        for n in numbers
    ]
    return float(np.sum(terms))


def law_of_codes(miner: Miner) -> dict[frozenset[int], float]:
    known = code_distribution(SyntheticRelease.model_validate(DRAWN))
    shares = cell_shares(known, miner)
    codes = [frozenset(c) for n in (1, 2, 3) for c in combinations(range(shares.size), n)]
    return {code: code_probability(code, shares, known.numbers) for code in codes}


def test_every_picture_becomes_a_scene_and_words_are_undone(
    mined: tuple[Miner, list[MinedScene]], release: Path
) -> None:
    miner, scenes = mined
    assert len(scenes) == N_IMAGES  # nothing is lost to synonyms, duplicates or rare words
    assert miner.vocabulary.categories == tuple(KINDS)[:2]
    assert set(miner.vocabulary.values) == {*COLOR_NAMES[:2], "no_color"}
    assert miner.left_out["objects that were annotated twice"] > 10
    assert miner.left_out["objects outside the vocabulary"] > 50
    files = find_release(release)
    annotated = [t for _, things in read_annotations(files.objects, files.attributes)
                 for t in things]  # fmt: skip
    words = {name for thing in annotated for name in thing.names}
    assert words > {"ball", "sphere", "box", "crate"}
    assert any(not thing.attributes for thing in annotated)
    in_coco = [image.coco_id is not None for image in read_images(files.image_data).values()]
    assert 0.8 < np.mean(in_coco) < 0.9


def test_scenes_follow_the_stated_law(mined: tuple[Miner, list[MinedScene]]) -> None:
    miner, scenes = mined
    known = law_of_codes(miner)
    assert sum(known.values()) == pytest.approx(1.0, abs=1e-12)
    codes = [frozenset((s.objects @ [3, 1]).tolist()) for s in scenes]
    surprise = -np.log2([known[code] for code in codes])
    probability = np.array(list(known.values()))
    entropy = float(-(probability * np.log2(probability)).sum())
    assert abs(surprise.mean() - entropy) < 4 * surprise.std() / np.sqrt(len(scenes))
    shares = cell_shares(code_distribution(SyntheticRelease.model_validate(DRAWN)), miner)
    cells = np.concatenate([s.objects @ [3, 1] for s in scenes])
    frequencies = np.bincount(cells, minlength=6) / len(cells)
    assert np.abs(frequencies - shares.ravel()).max() < 5 * np.sqrt(0.25 / len(cells))


def test_the_estimated_prior_is_near_the_law(
    planned_run: tuple[Path, Graph], mined: tuple[Miner, list[MinedScene]]
) -> None:
    folder, graph = planned_run
    known = np.array(list(law_of_codes(mined[0]).values()))
    entropy = float(-(known * np.log2(known)).sum())
    rows = json.loads((folder / graph.select("counted_priors")[0].path()).read_text())
    for row in rows:
        # 100 test scenes: four standard errors of their surprise are about 0.4 bits
        assert row["h_object_bits"] == pytest.approx(entropy, abs=0.4)
        assert row["method"] == "train_cross_entropy"


def test_entropies_of_assignments_are_columns_of_the_table_of_priors(
    planned_run: tuple[Path, Graph],
) -> None:
    folder, graph = planned_run
    (table,) = graph.select("table", table="priors")
    script("table").main(job_by_hand(table, folder))
    frame = pd.read_parquet(folder / table.path())
    assert len(frame) == 6  # two datasets, three splits
    leaf = json.loads((folder / graph.select("assignment_priors")[0].path()).read_text())
    row = frame[(frame["dataset"] == leaf[2]["dataset"]) & (frame["split"] == "test")].iloc[0]
    for name in ("assignment_bits", "multiset_bits", "code_bits"):
        assert row[name] == leaf[2][name] > 0
    assert row["code_bits"] <= row["assignment_bits"]
    assert {p.path() for p in graph.select("assignment_priors")} <= set(graph.leaves())


def test_a_picture_does_not_depend_on_how_many_there_are(tmp_path: Path) -> None:
    few = SyntheticRelease(n_images=2)
    name, pixels, entries = picture(few, 2)
    of_nine = picture(SyntheticRelease(n_images=9), 2)
    assert (name, entries) == (of_nine[0], of_nine[2])
    assert (pixels == of_nine[1]).all()
    assert (pixels != picture(SyntheticRelease(n_images=2, seed=1), 2)[1]).any()
    names = ("objects", "attributes", "image_data", "object_alias", "attribute_alias", "images")
    files = [{n: tmp_path / f"{n}-{i}" for n in names} for i in range(2)]
    for paths in files:
        write_release(few, paths)
    assert all(files[0][n].read_bytes() == files[1][n].read_bytes() for n in names)
    with ZipFile(files[0]["images"]) as archive:
        assert archive.namelist() == ["VG_100K_2/1.jpg", "VG_100K/2.jpg"]
        with Image.open(archive.open("VG_100K/2.jpg")) as jpeg:
            drawn = np.asarray(jpeg, float)
    assert np.abs(drawn - pixels).mean() < 4


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_a_thing_shows_its_color_or_its_rim(kind: int) -> None:
    side = sides(72)[True]
    box = {"x": 25, "y": 25, "side": side, "large": True, "striped": False, "shade": 1}
    middle = 25 + side // 2
    color = paint(72, (Thing(kind, 1, **box),), np.random.default_rng(0))
    glass = paint(72, (Thing(kind, -1, **box),), np.random.default_rng(0))
    ground = paint(72, (), np.random.default_rng(0))
    assert np.abs(color[middle, middle].astype(int) - (30, 144, 255)).max() <= 1
    assert (glass[middle, middle] >= ground[middle, middle]).all()
    changed = (glass != ground).any(axis=-1)
    assert not changed[:25].any()
    assert not changed[:, 25 + side :].any()
    assert glass[changed].min() < 80  # the rim
    striped = paint(72, (Thing(kind, 1, **(box | {"striped": True})),), np.random.default_rng(0))
    assert (striped != color).any()


def test_files_may_lie_in_several_archives(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no images\*\.zip"):
        find_images(tmp_path)
    for i, member in enumerate(("VG_100K/1.jpg", "VG_100K_2/2.jpg")):
        with ZipFile(tmp_path / f"images{i or ''}.zip", "w") as archive:
            archive.writestr(member, member)
    archives = find_images(tmp_path)
    assert [Path(path).name for path in archives] == ["images.zip", "images1.zip"]
    files = SourceFiles(archives)
    assert files.read("VG_100K/1.jpg") == b"VG_100K/1.jpg"
    assert files.read("VG_100K_2/2.jpg") == b"VG_100K_2/2.jpg"
    assert files.path("VG_100K_2/2.jpg").endswith("images1.zip/VG_100K_2/2.jpg")
    assert not files.exists("VG_100K/3.jpg")
    with pytest.raises(InputError, match=r"images\.zip/VG_100K/3\.jpg: cannot be read"):
        files.read("VG_100K/3.jpg")
    with pytest.raises(InputError, match="no such folder or archive"):
        SourceFiles([*archives, str(tmp_path / "images3.zip")])


def test_without_a_path_the_release_is_downloaded() -> None:
    graph = graph_of(synthetic=None)
    files = [
        json.loads(p.spec) for p in graph.select("download") if p.wildcards["dataset"] == "again"
    ]
    assert {Path(file["url"]).name for file in files} == {
        "objects.json.zip", "attributes.json.zip", "image_data.json.zip", "images.zip",
        "images2.zip",
    }  # fmt: skip
    assert not graph.select("synthetic_release")
    records = graph.select("records")[0]
    assert len(records.inputs["download"]) == 5
    # what was downloaded decides, not from where to where the files were brought
    source = json.loads(records.spec)["dataset"]["source"]
    assert not {"downloads", "folder", "synthetic"} & set(source)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"path": "a"}, "give `path` and `images`, or neither"),
        ({"path": "a", "images": "b"}, "from `path` or `synthetic`, not both"),
        ({"n_categories": 3}, r"n_categories is 3, and synthetic\.n_categories 2"),
        ({"n_values": 3}, r"n_values is 3, and synthetic\.n_colors 2"),
    ],
)
def test_mistakes_that_the_configuration_tells(changes: dict[str, Any], message: str) -> None:
    source = {"kind": "visual_genome", **RULES, "synthetic": DRAWN, **changes}
    with pytest.raises(ValidationError, match=message):
        GenomeSource.model_validate(source)
