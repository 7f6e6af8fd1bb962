"""`bindscope.concepts`: the same rows as the jobs', tables of objects, captions, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from planted_analyses import alone, graph_of, pairs, run

from bindscope import concepts, example
from bindscope.arrays.result import MOST_LINES
from bindscope.core.errors import InputError
from bindscope.studies.concepts.inputs import (
    object_table,
    planted_vectors,
    read_slots,
)
from bindscope.studies.concepts.measure import USUAL
from bindscope.studies.concepts.planted_encoders import PlantedVectors, lookup
from bindscope.studies.concepts.scenes import Scenes

SIZES = (4, 3)
ALL = Scenes.all_of(SIZES)
Z = lookup(ALL, PlantedVectors(24, slot_effect=0.3))
FRAME = object_table(ALL.slots, SIZES).rename(columns={"type0": "color", "type1": "shape"})
RECOGNITION = ["recognition"]


def test_a_runs_rows_are_those_of_the_function(tmp_path: Path) -> None:
    section = {
        "planted": [{"name": "lookup", "kind": "lookup", "dim": 48}],
        "analyses": [
            {
                "name": "known",
                "datasets": ["pairs"],
                "planted": ["lookup"],
                "singles": "alone",
                "strengths": [1.0],
                "estimators": ["ols", "single"],
                "complexity": {
                    "approximators": [{"name": "sums", "kind": "additive"}],
                    "coverages": [0.8],
                },
            },
        ],
    }
    graph = graph_of(section, datasets=[pairs(), alone()])
    jobs = {
        "concept_geometry": ("recognition", "decomposition", "removal", "editing"),
        "binding_complexity": ("approximators",),
    }
    run(graph, tmp_path, "codes", *jobs)

    slots = [
        np.concatenate(
            read_slots([str(tmp_path / p.path()) for p in graph.select("codes", dataset=d)])
        )
        for d in ("pairs", "alone")
    ]
    encoder = {"kind": "lookup", "dim": 48, "slot_effect": 1.0}
    z = [planted_vectors(part, (5, 4), encoder).astype(np.float32) for part in slots]
    estimators = {"estimators": ["ols", "single"]}
    result = concepts(
        np.concatenate(z),
        object_table(np.concatenate(slots), (5, 4)),
        analyses=[
            "recognition",
            {"analysis": "decomposition", **estimators},
            "removal",
            {"analysis": "editing", "strengths": [1.0], **estimators},
            {
                "analysis": "approximators",
                "approximators": [{"name": "sums", "kind": "additive"}],
                "coverages": [0.8],
            },
        ],
    )
    of_a_run = {"analysis", "dataset", "embedding", "vectors", "spec_key", "code_key"}
    for name, kinds in jobs.items():
        (product,) = graph.select(name)
        lines = (tmp_path / product.path()).read_text().splitlines()
        written = [json.loads(line) for line in lines]
        expected = [{key: row[key] for key in row if key not in of_a_run} for row in written]
        rows = [row for row in result.rows["concepts"] if row["analysis_kind"] in kinds]
        assert json.loads(json.dumps(rows)) == expected
        assert len(expected) > 5
    assert len(result.table) == len(result.rows["concepts"])


def test_arrays_and_tables_of_any_form_are_the_same() -> None:
    expected = concepts(Z, FRAME, analyses=RECOGNITION).table
    assert "layer" not in expected
    values = ALL.values
    in_rows = FRAME.drop(columns="slot")
    words = in_rows.assign(scene="img" + in_rows["scene"].astype(str))
    for embeddings, objects in (
        (torch.tensor(Z, requires_grad=True), values),
        (Z.tolist(), in_rows),
        (Z, FRAME.sample(frac=1, random_state=0)),
    ):
        table = concepts(embeddings, objects, analyses=RECOGNITION).table
        pd.testing.assert_frame_equal(table, expected)
    names = [f"img{i}" for i in range(len(Z))]
    named = concepts(Z, words, analyses=RECOGNITION, scenes=names).table
    pd.testing.assert_frame_equal(named, expected)
    layers = concepts({0: Z, 6: Z}, values, analyses=RECOGNITION).table
    assert [*layers["layer"].unique()] == ["0", "6"]
    single_layer = layers[layers["layer"] == "6"].drop(columns="layer").reset_index(drop=True)
    pd.testing.assert_frame_equal(single_layer, expected)


def test_scenes_of_one_object_serve_their_estimator_and_others_are_left_out() -> None:
    objects = np.repeat(np.arange(12), 2)
    places = np.tile([0, 1], 12)
    single = np.where(np.arange(2) == places[:, None], objects[:, None], -1)
    slots = np.concatenate([ALL.slots, single])
    z = planted_vectors(slots, SIZES, {"kind": "lookup", "dim": 24, "slot_effect": 0.3})
    result = concepts(z, object_table(slots, SIZES), analyses=["decomposition"])
    rows = result.table[(result.table["measure"] == "r2") & (result.table["level"] == 1)]
    by_estimator = rows.set_index("variant")["value"]
    assert {*by_estimator.index} == {"avg", "avg_pos", "ols", "single"}
    assert by_estimator["single"] > 0.95  # its mean is not that of the pairs
    assert not result.notes

    more = np.full((len(slots), 3), -1)
    more[:, :2] = slots
    more[:140, 2] = np.arange(140) % 12
    result = concepts(z, object_table(more, SIZES), analyses=RECOGNITION)
    assert result.notes == ("4 scenes were left out: they have neither 3 objects nor one.",)


def test_captions_are_queries_and_are_aligned() -> None:
    tables = PlantedVectors(24, slot_effect=0.0)
    single = Scenes(np.tile(np.arange(12)[:, None], (1, 2)), SIZES)
    z, queries = lookup(ALL, tables), lookup(single, tables)
    shift = z.mean(0)
    values = [
        np.stack([queries[single.values[:, 0, k] == v].mean(0) for v in range(size)]) - shift
        for k, size in enumerate(SIZES)
    ]
    texts = {"scenes": z[:, ::-1], "objects": queries - shift, "values": values}
    result = concepts(z - shift, FRAME, texts=texts, analyses=["recognition", "alignment"])
    rows = result.table
    assert {*rows.loc[rows["analysis_kind"] == "recognition", "variant"]} == {"probes", "captions"}
    cosine = rows[(rows["measure"] == "cosine") & (rows["level"] == 1)].set_index("variant")[
        "value"
    ]
    assert cosine["orthogonal"] > cosine["identity"]
    note = concepts(z, FRAME, texts={"scenes": z}, analyses=RECOGNITION).notes
    assert note == ('Captions of scenes were not used: add "alignment" to `analyses`.',)


def test_splits() -> None:
    """A part holds whole sets of objects, or the rows are no evidence."""
    of_set = np.random.default_rng(0).integers(3, size=ALL.unordered.max() + 1)[ALL.unordered]
    words = np.array(["vectors", "probes", "scores"])[of_set]
    result = concepts(Z, FRAME, analyses=RECOGNITION, split=words)
    assert {*result.table["split_by"]} == {"objects"}
    assert result.table["n_scenes"].max() == (words != "probes").sum()
    assert len(result.claims) == 1
    words = np.resize(["vectors", "probes", "scores"], len(ALL))
    for split in (words, "scenes"):
        result = concepts(Z, FRAME, analyses=RECOGNITION, split=split)
        assert {*result.table["split_by"]} == {"scenes"}
        assert not len(result.claims)
        assert "no claim is tested" in result.notes[0]
    reseeded = concepts(Z, FRAME, analyses=RECOGNITION, random_state=1).table
    assert not reseeded.equals(concepts(Z, FRAME, analyses=RECOGNITION).table)


@pytest.mark.slow
def test_the_example_has_the_truth_that_is_planted(tmp_path: Path) -> None:
    data = example("pairs", n=400)
    rules = {"analysis": "approximators", "approximators": ["additive"]}  # others take seconds
    result = concepts(data.arrays, data.objects, analyses=[*USUAL[:-1], rules])
    read = result.claims[result.claims["claim"].str.startswith("Linear probes of the embedding")]
    verdicts = dict(zip(read["where"].str.removeprefix("layer "), read["verdict"], strict=True))
    assert {name: verdict == "holds" for name, verdict in verdicts.items()} == {
        name: truth["binds"] == 1 for name, truth in data.truth.items()
    }
    assert {*result.table["analysis_kind"]} == {
        "recognition",
        "decomposition",
        "editing",
        "approximators",
    }
    assert result.best["layer"] == "products"
    assert result.best["measure"] == "object"
    text = repr(result)
    assert len(text.splitlines()) <= MOST_LINES
    assert "new objects, additive" in text
    assert result._repr_html_().count("<table") == 1
    assert len(result.plot().axes) == 2
    result.to_parquet(tmp_path / "table.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "table.parquet"), result.table)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embeddings": Z[:, 0]}, r"`embeddings` is \(144,\)"),
        ({"embeddings": np.where(np.arange(144)[:, None] == 3, np.nan, Z)}, "them scene 3"),
        ({"embeddings": Z[:100]}, "`values` has in row 200 the scene 100"),
        ({"values": ALL.values[:9]}, r"`values` is \(9, 2, 2\) of int64, and there are 144"),
        ({"values": ALL.values[:, :1]}, "no scene has two objects"),
        ({"embeddings": Z[:1], "values": ALL.values[5:6] + 1}, "hold 1 different sets of objects"),
        ({"values": FRAME.assign(slot=0)}, "two objects of a scene have the same slot"),
        ({"values": FRAME.assign(color="red")}, "all objects of `values` have the same color"),
        ({"analyses": ["recogniton"]}, r"no analysis 'recogniton'; did you mean 'recognition'\?"),
        (
            {"analyses": [{"analysis": "approximators", "approximators": ["tree"]}]},
            "approximator 'tree'.kind` is 'tree': input should be 'additive'",
        ),
        ({"analyses": ["alignment"]}, "`alignment` compares two modalities"),
        ({"split": "objetcs"}, "there is no split 'objetcs'"),
        ({"split": ["probes"] * 144}, "vectors: 0, probes: 144, scores: 0"),
        ({"texts": {"captions": Z}}, "`texts` has 'captions'"),
        ({"texts": {"scenes": Z[:5]}}, r"texts\['scenes'\] is \(5, 24\)"),
        ({"texts": {"objects": Z[:5], "values": [Z[:4], Z[:3]]}}, r"5 objects and \[4, 3\] values"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "embeddings": Z,
        "values": FRAME,
        "analyses": RECOGNITION,
        **changes,
    }
    with pytest.raises(InputError, match=message) as caught:
        concepts(arguments.pop("embeddings"), arguments.pop("values"), **arguments)
    assert len(str(caught.value).splitlines()) == 2  # what, and the remedy
