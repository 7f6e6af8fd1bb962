"""Invariants of planted encoders, by the scripts and the graph that the workflow uses.

What must come out where the structure is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import reason
from planted_analyses import alone, graph_of, pairs, run, table

from bindscope.core.errors import ConfigError, InputError
from bindscope.core.graph import Graph
from bindscope.core.interfaces import Inputs
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import write_arrays
from bindscope.studies.concepts.claims import READ
from bindscope.studies.concepts.figures import (
    binding_complexity,
    concept_editing,
    concept_geometry,
    dual_complexity,
)
from bindscope.studies.concepts.findings import chapter
from bindscope.studies.concepts.inputs import read_embedded, read_slots
from bindscope.studies.concepts.scenes import Scenes, completeness
from bindscope.studies.concepts.study import MEASURED
from bindscope.studies.concepts.tables import CONCEPTS_SCHEMA
from bindscope.tables.rows import rows_with
from bindscope.tables.write import write_table

PLANTED = [
    {"name": "additive", "kind": "additive", "dim": 40},
    {"name": "lookup", "kind": "lookup", "dim": 96},
]
NAMES = [entry["name"] for entry in PLANTED]
SECTION: dict[str, Any] = {
    "planted": PLANTED,
    "analyses": [
        {
            "name": "known",
            "datasets": ["pairs"],
            "planted": NAMES,
            "singles": "alone",
            "estimators": ["avg", "avg_pos", "ols", "single"],
            "complexity": {
                "approximators": [{"name": "sums", "kind": "additive"}],
                "coverages": [0.8],
                "seeds": [0, 1],
            },
        },
        {
            "name": "dual",
            "dual_encoders": ["product"],
            "dual_objects": 16,
            "complexity": {
                "approximators": [{"name": "sums", "kind": "additive"}],
                "coverages": [0.75],
                "seeds": [0, 1],
            },
        },
    ],
    "dual_encoders": [
        {
            "name": "product",
            "encoder": {"kind": "product", "dim": 8},
            "spaces": [[5, 4]],
            "coverages": [0.5, 0.7],
            "training": {"steps": 40, "batch_size": 16},
        },
    ],
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Path, pd.DataFrame]:
    """The graph, the folder, and the table of what its jobs left."""
    graph = graph_of(SECTION, datasets=[pairs(), alone()])
    folder = tmp_path_factory.mktemp("analyses")
    run(graph, folder, "codes", *MEASURED)
    return graph, folder, table(graph, folder)


def test_scenes_are_the_codes_of_all_splits(ran: Any) -> None:
    graph, folder, _ = ran
    paths = [str(folder / product.path()) for product in graph.select("codes", dataset="pairs")]
    slots = read_slots(paths)
    assert [len(part) for part in slots] == [200, 100, 100]
    scenes = Scenes(np.concatenate(slots), (5, 4))
    assert completeness(scenes).complete
    features = np.concatenate([open_store(path).read("features") for path in paths])
    present = np.zeros((len(scenes), 9), np.bool_)
    for k, first in enumerate((0, 5)):
        np.put_along_axis(present, first + scenes.values[:, :, k], True, axis=1)
    assert (present == (features > 0)).all()


def test_runs_of_dual_encoders_stand_in_the_table_with_what_they_were_trained_on(ran: Any) -> None:
    rows = rows_with(ran[2], analysis_kind="approximators", vectors="dual")
    assert set(rows["embedding"]) == {"product-train_only"}
    assert set(rows["dataset"]) == {"5x4"}
    assert set(rows["trained_coverage"]) == {0.5, 0.7}
    assert set(rows["n_objects"]) == {16}
    counts = rows_with(rows, measure="r2", split="train")["n_scenes"]
    assert set(counts) == {2 * 11**2}  # two splits; validation takes one of the 12 objects
    assert set(rows["fitted_share"]) == {11 / 16}


def test_captions_stand_in_figures_and_verdicts_in_the_chapter(ran: Any, tmp_path: Path) -> None:
    write_table(ran[2], tmp_path / "concepts", CONCEPTS_SCHEMA)
    for figure in (concept_geometry, concept_editing, binding_complexity, dual_complexity):
        assert reason(figure, table=ran[2].iloc[:0])
    for figure in (concept_geometry, concept_editing, dual_complexity):
        assert figure.draw(table=ran[2]).axes
    assert "at three coverages or more" in str(reason(binding_complexity, table=ran[2]))
    shares = [ran[2].assign(fitted_share=ran[2]["fitted_share"] * part) for part in (1, 0.8, 0.6)]
    assert binding_complexity.draw(table=pd.concat(shares)).axes
    embeddings = ran[2][ran[2]["analysis_kind"] != "generalization"]
    concepts_chapter = chapter({"concepts": embeddings}, Inputs())
    matrix = concepts_chapter.sections[0].tables[0]
    (row,) = (row for row in matrix.rows if row[0].text == READ.sentence)
    marks = dict(zip([column.heading for column in matrix.columns], row, strict=True))
    assert marks["lookup"].explanation.startswith("holds: lookup on pairs")
    assert concepts_chapter.lead == ()  # planted encoders validate the measures
    of_a_model = embeddings.assign(vectors=embeddings["vectors"].replace("planted", "cls"))
    (lead,) = chapter({"concepts": of_a_model}, Inputs()).lead
    assert "embeddings of models; the largest effect is 50.0 points" in lead
    assert "; lookup cls on pairs)" in lead
    assert any("does not hold: " in cell.explanation for cell in row)
    assert {section.name for section in concepts_chapter.sections} == {
        "claims",
        "geometry",
        "edits",
        "approximators",
    }


def test_scenes_that_differ_in_number_or_are_too_many_are_refused_before_a_run() -> None:
    few = {"train": 20, "val": 10, "test": 10}
    groups = [
        {"name": "color", "size": 8},
        {"name": "shape", "size": 3},
        {"name": "material", "size": 2},
        {"name": "size", "size": 2},
    ]
    many = {"n_scenes": few, "shard_size": few}
    clevr = {
        "name": "pairs",
        "space": {"kind": "counted", "groups": groups, "max_objects": 10},
        "split": {"rule": "index", "sizes": few},
        "slots": 10,
        **many,
    }

    def message(**changes: Any) -> str:
        with pytest.raises((ConfigError, ValueError)) as caught:
            graph_of(SECTION, datasets=[{**clevr, **changes}, alone()])
        return str(caught.value)

    assert "those of clevr differ in number; make a `table`" in message(source={"kind": "clevr"})
    table = {"kind": "table", "path": "x.csv", "values": {}}
    table["values"] = {g["name"]: [f"{g['name']}{i}" for i in range(g["size"])] for g in groups}
    assert "10 slots of 96 objects make more scenes than can be numbered" in message(source=table)
    assert "give space.max_objects: 12" in message(source=table, slots=12)
    drawn = {"kind": "draws", "groups": groups, "n_objects": 6}
    assert "373,248,000 ways" in message(space=drawn, split={"rule": "random"}, slots=6)


def test_a_scene_of_the_user_that_leaves_a_slot_empty_is_refused(tmp_path: Path) -> None:
    arrays = {"slots": np.array([[0, 1], [2, -1], [1, 0]], np.int16)}
    paths = [tmp_path / f"{split}.json" for split in ("train", "val", "test")]
    for path in paths:
        write_arrays(path.with_suffix(".zarr"), path, arrays, spec="{}", code="c")
    with pytest.raises(InputError, match="3 of 9 scenes leave a slot empty"):
        read_embedded({"codes": [*map(str, paths)]}, "planted", {"sizes": (3, 2)})


def test_slots_must_be_full() -> None:
    counts = {"train": 20, "val": 10, "test": 10}
    groups = [{"name": "a", "size": 5}, {"name": "b", "size": 4}]
    half = pairs(
        space={"kind": "uniform", "groups": groups, "max_objects": 1},
        split={"rule": "enumerated", "sizes": counts},
        n_scenes=counts,
        shard_size=counts,
    )
    with pytest.raises((ConfigError, ValueError), match="as many objects as slots"):
        graph_of(SECTION, datasets=[half, alone()])
