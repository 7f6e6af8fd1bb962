"""The released code's protocol against plain loops of torch, and where published numbers stand."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn.functional import cross_entropy

from bindscope.config.loading import load_file
from bindscope.core.errors import ConfigError, InputError
from bindscope.figures.facets import crossed
from bindscope.figures.style import PAPER_MARK
from bindscope.studies.concepts import figures
from bindscope.studies.concepts import planted_encoders as planted
from bindscope.studies.concepts.approximators import approximator_rows
from bindscope.studies.concepts.config import Approximator
from bindscope.studies.concepts.editing import editing_rows, removal_rows, value_edits
from bindscope.studies.concepts.learners import PaperMap
from bindscope.studies.concepts.measure import concepts
from bindscope.studies.concepts.protocols import (
    fit_paper_probes,
    paper_order,
    predict_at_best,
    split_by_protocol,
)
from bindscope.studies.concepts.published import COLUMNS
from bindscope.studies.concepts.recognition import Embedded
from bindscope.studies.concepts.scenes import Scenes
from bindscope.studies.concepts.tables import CONCEPTS_SCHEMA
from bindscope.studies.concepts.vectors import value_columns
from bindscope.tables.published import read_published
from bindscope.tables.schema import table_of

SCENES = Scenes.all_of((5, 3))
LOOKUP = planted.lookup(SCENES, planted.PlantedVectors(24, slot_effect=0.3)).astype(np.float32)
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def released() -> Embedded:
    return Embedded(LOOKUP, SCENES, split_by="scenes", protocol="paper", probe_steps=400)


def test_probes_are_those_of_a_plain_loop() -> None:
    shares = [torch.eye(4)[torch.arange(12) % 4], torch.eye(3)[torch.arange(12) % 3]]
    z = torch.randn(12, 5, generator=torch.Generator().manual_seed(1)) + 3
    fitted = fit_paper_probes(z.numpy(), shares, 30)
    torch.manual_seed(0)
    heads = [nn.Linear(5, 4, bias=False), nn.Linear(5, 3, bias=False)]
    optimizer = torch.optim.Adam([head.weight for head in heads], 1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
    for _ in range(30):
        optimizer.zero_grad()
        losses = [cross_entropy(head(z), part) for head, part in zip(heads, shares, strict=True)]
        sum(losses).backward()  # type: ignore[union-attr]
        optimizer.step()
        schedule.step()
    for weights, head in zip(fitted, heads, strict=True):
        np.testing.assert_allclose(weights, head.weight.detach().numpy(), atol=1e-5)


def test_scores_of_probes_have_neither_offset_nor_constant(released: Embedded) -> None:
    readout = released.readout
    scores = readout.scaled(LOOKUP) @ readout.objects.T
    np.testing.assert_allclose(scores, LOOKUP @ readout.objects[:, :-1].T, atol=1e-5)
    assert (readout.objects[:, -1] == 0).all()


def test_splits_and_edits_are_those_of_the_released_loops() -> None:
    order = torch.randperm(len(SCENES), generator=torch.Generator().manual_seed(0)).tolist()
    parts = split_by_protocol(SCENES, "scenes", "paper")
    assert parts.probed.tolist() == sorted(order[:90])
    assert parts.read.tolist() == sorted(order[90:])
    mixed = SCENES.take(np.array(order))
    ordered = list(dict.fromkeys(mixed.slots.ravel().tolist()))
    torch.manual_seed(3)
    assert paper_order(mixed, 3).tolist() == [ordered[i] for i in torch.randperm(15)]
    draw, expected = Random(42), []
    for i, ((a, s), (b, t)) in enumerate(mixed.values.tolist()):
        if s != t:
            (new,) = draw.sample([v for v in range(5) if v not in (a, b)], 1)
            expected += [(i, 0, 3 * new + s), (i, 1, 3 * new + t)]
    edits = value_edits(mixed, 0, as_released=True)
    assert sorted(zip(edits.base, edits.slots, edits.new, strict=True)) == expected


@pytest.mark.parametrize("kind", ["mlp", "additive", "per_object", "global"])
def test_maps_are_what_they_say(kind: Any) -> None:
    model = PaperMap(Approximator(kind=kind, widths=(7,)), (5, 3), 2, 6, seed=3)
    columns = torch.from_numpy(value_columns(SCENES))[:9]
    vectors = [table.weight[columns] for table in model.tables]  # type: ignore[index]
    if kind == "mlp":
        joined = vectors[0].reshape(9, -1)
        expected = model.layers[1](model.layers[0](joined).relu())
    else:
        parts = [vectors[-1].sum(1)]
        if kind == "per_object":
            parts.insert(
                0, vectors[0][:, 0] * vectors[0][:, 1] + vectors[0][:, 2] * vectors[0][:, 3]
            )
        elif kind == "global":
            parts.insert(0, vectors[0].prod(1))
        expected = model.layers[0](torch.cat(parts, 1))
    torch.testing.assert_close(model(columns), expected)


def test_the_state_that_scores_best_predicts_and_the_rate_is_constant() -> None:
    columns, z = torch.from_numpy(value_columns(SCENES)), torch.from_numpy(LOOKUP)
    train = np.arange(0, len(SCENES), 3)
    scores, states = iter([0.1, 0.5, 0.5, float("nan"), 0.2]), []

    def score(predicted: Any) -> float:
        states.append(predicted)
        return next(scores)

    model = PaperMap(Approximator(kind="mlp", widths=(8,)), SCENES.sizes, 2, 24, seed=0)
    twin = PaperMap(Approximator(kind="mlp", widths=(8,)), SCENES.sizes, 2, 24, seed=0)
    predicted = predict_at_best(model, columns, z, train, score, steps=500)
    np.testing.assert_array_equal(predicted, states[1])
    optimizer = torch.optim.Adam(twin.parameters(), 1e-2)
    for _ in range(101):
        optimizer.zero_grad()
        nn.functional.mse_loss(twin(columns[train]), z[train]).backward()
        optimizer.step()
    np.testing.assert_allclose(predicted, twin(columns).detach().numpy(), atol=1e-3)


def test_approximators_say_that_they_were_chosen_on_the_test(released: Embedded) -> None:
    options = {"kind": "mlp", "widths": (16,), "steps": 250}
    rows = list(approximator_rows(released, options, [0.2, 0.5], [0]))
    tested = [row for row in rows if row["split"] == "test" and row["measure"] == "object"]
    assert all("chosen_on_test" in row["flags"].split(";") for row in tested)
    assert {row["fitted_share"] for row in tested} == {3 / 15, 7 / 15}  # none validates
    assert {row["protocol"] for row in rows} == {"paper"}
    # Of 15 objects 3 train: the first draw counts, whatever it lacks.
    assert max(row["n_absent_values"] for row in rows if row["coverage"] == 0.2) >= 2


def test_removal_keeps_the_mean_and_is_scored_on_scenes_without_probes(released: Embedded) -> None:
    rows = [row for row in removal_rows(released) if row["stratum"] == "all"]
    value = {(row["variant"], row["measure"]): row["value"] for row in rows}
    assert {row["n_scenes"] for row in rows} == {len(SCENES) - int(0.4 * len(SCENES))}
    assert value["nothing", "concept"] > 0.9
    assert value["concept", "concept"] < value["nothing", "concept"] - 0.3
    assert value["object", "object"] < 0.2


def test_edits_that_are_not_drawn_are_said_and_groups_are_chosen() -> None:
    embedded = Embedded(LOOKUP, SCENES)
    every = list(editing_rows(embedded, ["ols"], [1.0]))
    assert {row["concept_type"] for row in every} == {0, 1}
    assert not any("edits_drawn" in row["flags"] for row in every)
    few = list(editing_rows(embedded, ["ols"], [1.0], types=[0], max_edits=5))
    assert {row["concept_type"] for row in few} == {0}
    assert all("edits_drawn" in row["flags"].split(";") for row in few)
    assert max(row["n_scenes"] + row["n_skipped"] for row in few) == 5


def test_the_papers_protocol_needs_its_split(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="splits by scenes"):
        concepts(LOOKUP, SCENES.values, analyses=["recognition"], protocol="paper")
    with pytest.raises(InputError, match="no protocol 'papers'"):
        concepts(LOOKUP, SCENES.values, analyses=["recognition"], protocol="papers")  # type: ignore[arg-type]
    text = (ROOT / "config/presets/concepts_small.yaml").read_text()
    file = tmp_path / "c.yaml"
    for old, new, words in (
        ("        split_by: scenes\n", "", "give `split_by: scenes`"),
        ("edited_groups: [color]", "edited_groups: [hue]", "has no group 'hue'"),
    ):
        assert old in text
        file.write_text(text.replace(old, new))
        with pytest.raises(ConfigError, match=words):
            load_file(file)


# --- Published numbers --------------------------------------------------------------------------


@pytest.fixture
def published() -> pd.DataFrame:
    path = ROOT / "resources/published/concepts.csv"
    return read_published(path, COLUMNS, ("value", "coverage"))


def rows_of(dataset: str, embedding: str, vectors: str, **about: Any) -> pd.DataFrame:
    """Return a table of an embedding, measured by the paper's protocol."""
    names = {"analysis": "a", "dataset": dataset, "embedding": embedding, "vectors": vectors}
    keys = {"spec_key": "0" * 8, "code_key": "0" * 8}
    result = concepts(
        LOOKUP,
        SCENES.values,
        analyses=[
            {"analysis": "decomposition", "estimators": ["avg", "avg_pos"]},
            "removal",
            {"analysis": "editing", "estimators": ["avg_pos"], "strengths": [0, 0.5, 1]},
        ],
        split="scenes",
        protocol="paper",
        probe_steps=20,
    )
    rows = [*result.rows["concepts"]]
    embedded = Embedded(LOOKUP, SCENES, split_by="scenes", protocol="paper", probe_steps=20)
    learned = {"analysis_kind": "approximators", "variant": "mlp-4096"}
    fitted = approximator_rows(embedded, {"kind": "mlp", "steps": 1}, [0.3, 0.6, 0.8], [0])
    rows += [{**learned, **row} for row in fitted]
    return table_of([{**names, **row, **keys, **about} for row in rows], CONCEPTS_SCHEMA)


def stars(figure: Figure, markers: str = "*") -> list[list[float]]:
    """Return the values of published numbers in ascending order, a list per panel."""
    return [
        sorted(
            float(value)
            for line in axes.lines
            if line.get_marker() in [*markers] and line.get_color() == PAPER_MARK["color"]
            for value in np.ravel(line.get_xdata())
        )
        for axes in figure.axes
    ]


def test_published_numbers_stand_beside_ours_where_the_protocol_agrees(
    published: pd.DataFrame,
) -> None:
    table = rows_of("texts", "clip-b32", "text")
    geometry = figures.concept_geometry.draw(table=table, published=published)
    assert stars(geometry) == [[0.9, 0.92], [97], [99]]
    removal = figures.concept_removal.draw(table=table, published=published)
    assert stars(removal) == [[5, 6, 92, 96, 100], [4, 99, 99, 100, 100]]
    for change in ({"protocol": "converged"}, {"dataset": "others"}, {"embedding": "clip-l14"}):
        ours = figures.concept_geometry.draw(table=table.assign(**change), published=published)
        assert not any(stars(ours))
    edited = table.assign(dataset="clevr", vectors="joint")
    edits = figures.concept_edits.draw(table=edited, published=published)
    assert stars(edits) == [[100], [98], []]
    bounds = figures.binding_complexity.draw(table=edited, published=published)
    # Concepts of coverage .3 are at least, objects of coverage .9 at most what the paper says.
    at = [[*chain.from_iterable(stars(bounds, marker))] for marker in "^v*"]
    assert at == [[0.3], [0.9], []]
    words = {text.get_text() for text in bounds.legends[0].get_texts()}
    assert {f"published {end} bound, from a digest" for end in ("lower", "upper")} <= words
    others = table.assign(embedding="clip-l14")
    others_drawn = figures.binding_complexity.draw(table=others, published=published)
    assert not any(stars(others_drawn, "^v*"))


def test_every_published_number_says_where_ours_is(published: pd.DataFrame) -> None:
    preset = load_file(ROOT / "config/presets/concepts_published.yaml")
    section = preset.studies.concepts  # type: ignore[attr-defined]
    names = {model.name for model in preset.models}
    names |= {encoder.name for encoder in section.dual_encoders}
    numbers = published[published["preset_embedding"] != ""]
    assert len(numbers) >= 50
    assert set(numbers["preset_embedding"]) <= names
    spaces = {"x".join(map(str, s)) for entry in section.dual_encoders for s in entry.spaces}
    datasets = {dataset.name for dataset in preset.datasets} | spaces | {""}
    assert set(numbers["preset_dataset"]) <= datasets


@pytest.mark.parametrize(("kind", "n"), [("transformer", 1), ("product", 0)])
def test_the_published_rise_is_shaded_beside_transformers_of_its_space(
    published: pd.DataFrame, kind: str, n: int
) -> None:
    grid = crossed(["all"], ("object", "concept"), (1, 2))
    runs = pd.DataFrame({"kind": [kind], "space": ["50x50x50"]})
    assert len(figures._published_rise(grid, runs, published)) == n
    spans = {measure: axes.patches for (_, measure), axes in grid.panels.items()}
    assert not spans["concept"]
    ends = [(span.get_x(), span.get_x() + span.get_width()) for span in spans["object"]]
    assert ends == [pytest.approx((0.3, 0.4))] * n
