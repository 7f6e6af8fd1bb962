"""Subspaces found by discriminants and by gradients: what they find and may claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny_vlms
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from sklearn.covariance import oas

from bindscope.core.errors import InputError
from bindscope.core.interfaces import Inputs
from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.answers.mechanisms import dimensions
from bindscope.studies.binding_id.config import BindingIdSection, ShapesTask, Suite, problems
from bindscope.studies.binding_id.experiments.discriminant import (
    Scatter,
    discriminants,
    find,
    shrunk,
)
from bindscope.studies.binding_id.experiments.estimates import Effects, estimate
from bindscope.studies.binding_id.experiments.interventions import Condition
from bindscope.studies.binding_id.experiments.subspaces import (
    from_each_other,
    from_elsewhere,
    of_means,
    subspaces,
)
from bindscope.studies.binding_id.experiments.trials import Batch, trial
from bindscope.studies.binding_id.figures import binding_id_subspaces
from bindscope.studies.binding_id.findings import chapter
from bindscope.studies.binding_id.oracles.oracle import PART, Oracle
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.suite import run
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs
from bindscope.studies.binding_id.tasks.task import Pairs, Scenes
from bindscope.studies.binding_id.toys.loading import load
from bindscope.studies.binding_id.vlm import gradients
from bindscope.studies.binding_id.vlm.fast import FastEngine
from bindscope.studies.binding_id.vlm.gradients import Fit, ended, orthonormal, prepared

RULE = Rule("pair", 2, "independent")
SPEC: dict[str, Any] = {
    "levels": ["slot"], "dimensions": [1], "batch_size": 64, "seed": 0, "fit_steps": 3,
    "fit_to": "elsewhere",
}  # fmt: skip
NAMES = {"suite": "s", "task": "t", "origin": "oracle", "asked": "item", "fit_ended": None}


class Noisy(Oracle):
    """Binds by slot; its image tokens also say the slot in a way that varies much and binds none.

    Of the two slots, means lie 3 apart along this decoy and 1.4 along the ID; tokens of one slot
    vary by 8 along the decoy and by 0.05 along the ID.
    """

    def _content(self, scenes: Scenes) -> NDArray[np.float32]:
        content = super()._content(scenes)
        draw = np.random.default_rng(int(scenes.item.sum()))
        slots = content.shape[1] // 2 - scenes.things
        side = np.where(np.arange(slots) == 0, -1.5, 1.5)
        decoy = side + 8 * draw.standard_normal((len(scenes), slots))
        content[:, : 2 * slots, PART["look"].start] += np.repeat(decoy, 2, axis=1)
        return np.asarray(content, np.float32)


def answered(
    batch: Batch, trials: Sequence[Any], source: Any = None
) -> dict[tuple[str, str], float]:
    """Share of rows as slots expect, by what found the subspace and condition."""
    queries, names = batch.own_queries(), list(batch.own_answers())
    candidates = np.stack([*batch.own_answers().values()], axis=1)
    logs = batch.engine.answers(
        batch.base, source, [one.condition for one in trials], [*queries.values()], candidates
    )
    best = logs.argmax(axis=-1)
    return {
        (one.found_by, one.condition.name): float(np.mean([
            best[:, i, j] == names.index(one.expected[query]) for j, query in enumerate(queries)
        ]))
        for i, one in enumerate(trials)
    }  # fmt: skip


def test_an_id_in_a_direction_of_little_variance_is_found_by_the_discriminant_alone() -> None:
    oracle: Any = Noisy("slot")
    other = draw_pairs(RULE, "estimation", 400, 0).base
    estimates = estimate(oracle, other, None, 200)
    reading = Reading(RULE)
    pairs = draw_pairs(RULE, "test", 100, 0)
    spans = {"discriminant": find(oracle, other, None, estimates, reading, SPEC)}
    batch = Batch(oracle, None, pairs, reading, estimates, spans=spans)
    plan = subspaces(batch, "slot", (1,), (), ("means", "discriminant"))
    share = answered(batch, plan.trials[0][1])
    assert share["means", "O within"] < 0.7
    assert share["discriminant", "O within"] >= 0.95
    assert share["discriminant", "O random"] >= 0.95
    truth = oracle.true_difference("object", other.words, (0, 1))[2]
    truth /= np.linalg.norm(truth)
    for which, low, high in ((spans["discriminant"], 0.95, 1.01), (
            of_means(batch, "slot", (1,)), 0.0, 0.7)):  # fmt: skip
        cosines = np.abs(which.bases["object", 1].vectors[2, :, 0] @ truth)
        assert low < cosines.min()
        assert cosines.max() < high


def test_scatter_is_that_of_all_tokens_about_their_levels() -> None:
    draw = np.random.default_rng(0)
    levels, tokens = draw.integers(3, size=50), draw.normal(size=(50, 2, 2, 4)).astype(np.float32)
    values = np.zeros((4, 2, 2, 4), np.float32)
    values[:3] = draw.normal(size=(3, 2, 2, 4))
    seen = np.array([True] * 3 + [False])
    one = Scatter(Effects("slot", values, values[None], seen, 1, np.zeros(2)))
    for rows in (slice(0, 20), slice(20, 50)):
        one.add(levels[rows], tokens[rows])
    own = tokens.astype(np.float64)
    for level in range(3):
        own[levels == level] -= own[levels == level].mean(axis=0)
    wanted = np.einsum("nltd,nlte->lde", own, own) / 50
    np.testing.assert_allclose(one.within(), wanted, atol=1e-9)
    found = one.directions()
    assert found.shape == (2, 2, 2, 4)
    np.testing.assert_array_equal(found[:, 0], found[:, 1])  # of all tokens alike
    np.testing.assert_allclose(found @ found.swapaxes(-1, -2), np.tile(np.eye(2), (2, 2, 1, 1)),
                               atol=1e-6)  # fmt: skip


def test_no_direction_parts_levels_better_than_the_first_discriminant() -> None:
    draw = np.random.default_rng(1)
    apart, mixed = draw.normal(size=(4, 6)), draw.normal(size=(6, 6))
    apart -= apart.mean(axis=0)
    within = mixed @ mixed.T + 0.1 * np.eye(6)
    found = discriminants(apart, within, 3)
    np.testing.assert_allclose(found @ found.T, np.eye(3), atol=1e-6)

    def ratio(w: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.square(apart @ w).sum(axis=0) / ((within @ w) * w).sum(axis=0))

    best = ratio(found[0].astype(np.float64))
    assert best >= ratio(draw.normal(size=(6, 5000))).max()
    # Of tokens that vary alike in all directions they are the principal components.
    components = np.linalg.svd(apart)[2][:3]
    same = discriminants(apart, 0.3 * np.eye(6), 3)
    np.testing.assert_allclose(np.abs(same @ components.T), np.eye(3), atol=1e-6)
    assert not discriminants(0 * apart, within, 3).any()
    line = np.outer([1.0, 0.0, -1.0], np.ones(6))
    assert np.abs(discriminants(line, within, 3)).any(axis=1).tolist() == [True, False, False]


def test_covariances_are_shrunk_as_elsewhere() -> None:
    rows = np.random.default_rng(2).normal(size=(12, 5)) * [3, 1, 1, 0.1, 0.1]
    rows -= rows.mean(axis=0)
    np.testing.assert_allclose(
        shrunk((rows.T @ rows / 12)[None], 12)[0], oas(rows, assume_centered=True)[0]
    )
    np.testing.assert_array_equal(shrunk(np.zeros((1, 3, 3)), 12), np.zeros((1, 3, 3)))


@pytest.fixture(scope="module")
def tiny() -> tuple[FastEngine, Scenes, Any]:
    """A random LLaVA-OneVision, six scenes, and their images."""
    engine, _ = tiny_vlms.engines("llava_onevision")
    scenes, images = tiny_vlms.scenes(6, 0, 16)
    return engine, scenes, lambda own: images[: len(own)]


def test_gradients_of_an_exchange_are_those_of_finite_differences(tiny: Any) -> None:
    engine, scenes, pictures = tiny
    fits = [Fit("object", 2), Fit("item", 1), Fit("item", 3, drawn=True)]
    batch = Batch(engine, pictures, Pairs(scenes, scenes, "estimation"), Reading(RULE))
    part = prepared(engine, batch, fits, "within", np.random.default_rng(0))
    draw = torch.Generator().manual_seed(0)
    free = [torch.randn(engine.layers, engine.width, f.size, generator=draw) for f in fits]
    for one in free:
        one.requires_grad_()
    part.losses(engine, [orthonormal(one) for one in free]).sum().backward()
    slopes = []
    for i, one in enumerate(free):
        for layer in range(engine.layers):
            way = torch.zeros_like(one)
            way[layer] = torch.randn(one.shape[1:], generator=draw)
            ends = []
            for step in (-0.02, 0.02):
                moved = [orthonormal(f.detach() + (step * way if f is one else 0)) for f in free]
                with torch.inference_mode():
                    ends.append(part.losses(engine, moved)[i].item())
            slope = (ends[1] - ends[0]) / 0.04
            slopes.append((slope, (one.grad * way).sum().item()))
    numbers, found = np.array(slopes).T
    np.testing.assert_allclose(found, numbers, atol=3e-4, rtol=3e-2)
    assert np.abs(numbers).max() > 1e-2
    assert not any(weight.requires_grad for weight in engine.adapter.model.parameters())
    assert all(weight.grad is None for weight in engine.adapter.model.parameters())


def test_a_loss_is_that_of_the_answers_of_the_condition(tiny: Any) -> None:
    """What a fit lowers is what the experiment then asks: the same parts, the same items."""
    engine, scenes, pictures = tiny
    pairs = Pairs(scenes, scenes, "estimation")
    batch = Batch(engine, pictures, pairs, Reading(RULE))
    found = gradients.find(engine, scenes, pictures, None, batch.reading, SPEC)  # type: ignore[arg-type]
    part = prepared(engine, batch, [Fit("object", 1)], "elsewhere", np.random.default_rng(0))
    basis = found.bases["object", 1].vectors
    losses = part.losses(engine, [torch.from_numpy(basis[:, 0])])
    edits = from_elsewhere("object", 2, basis, "inside")
    logs = engine.answers(
        batch.base, batch.moved, [Condition("", tuple(edits))], [*batch.own_queries().values()],
        scenes.item,
    )  # fmt: skip
    wanted = -(logs[:, 0, 0, 1] + logs[:, 0, 1, 0]).mean() / 2  # exchanged
    np.testing.assert_allclose(losses.item(), wanted, atol=1e-5)


def test_fits_are_orthonormal_descend_and_are_the_same_again(tiny: Any) -> None:
    engine, scenes, pictures = tiny
    spec = SPEC | {"dimensions": [1, 4], "fit_steps": 6}
    one, other = (
        gradients.find(engine, scenes, pictures, None, Reading(RULE), spec)  # type: ignore[arg-type]
        for _ in range(2)
    )
    assert set(one.bases) == set(one.random) == {(g, r) for g in ("object", "item") for r in (1, 4)}
    assert set(one.nulls) == {("object", 4), ("item", 4), ("colour", 4)}
    for group in (one.bases, one.random, one.nulls):
        for (_, size), basis in group.items():
            products = basis.vectors @ basis.vectors.swapaxes(-1, -2)
            np.testing.assert_allclose(products, np.broadcast_to(np.eye(size), products.shape),
                                       atol=1e-5)  # fmt: skip
    for key, basis in one.bases.items():
        np.testing.assert_array_equal(basis.vectors, other.bases[key].vectors)
        np.testing.assert_array_equal(basis.vectors, basis.vectors[:, :1] + 0 * basis.vectors)
    for name, losses in one.losses.items():
        np.testing.assert_array_equal(losses, other.losses[name])
    assert one.losses["object.4"][-1] < one.losses["object.4"][0]
    assert len(one.losses) == 7


def _toy(reading: Reading) -> tuple[FastEngine, Any]:
    """The free toy of seed 0, which binds by colour; see docs/studies/binding_id_toys.md."""
    return load({"name": "free-0", "source": "zoo:toy-free-0"}, reading, None)


def _fitted(engine: FastEngine, pictures: Any, reading: Reading, to: str) -> dict[str, float]:
    """Fit 8 dimensions of objects; say what they do with objects of test scenes."""
    other = draw_pairs(reading.rule, "estimation", 48, 0).base
    same = Batch(engine, pictures, Pairs(other, other, "estimation"), reading)
    fit = Fit("object", 8)
    part = prepared(engine, same, [fit], to, rng(0))
    found, _ = gradients.descend(engine, [part], [fit], 45, 0)
    basis = found[fit][:, None]  # an object has one token
    batch = Batch(engine, pictures, draw_pairs(reading.rule, "test", 48, 0), reading)
    moved = batch.looking_on(("object",))
    asked = {
        "within": (None, from_each_other("object", 2, basis), moved),
        "outside": (batch.moved, from_elsewhere("object", 2, basis, "outside"), batch.identity()),
        "inside": (batch.moved, from_elsewhere("object", 2, basis, "inside"), moved),
    }
    share: dict[tuple[str, str], float] = {}
    for name, (source, edits, expected) in asked.items():
        share |= answered(batch, [trial(name, edits, expected)], source)
    return {name: value for (_, name), value in share.items()}


def test_content_that_is_exchanged_exchanges_answers_where_slots_bind_nothing() -> None:
    """Fitted to the exchange alone, gradients find the colours of a toy that binds by colour.

    They would pass for IDs by all that is asked of means. The same thing as read elsewhere has the
    same colour, so that part of it exchanges no answer.
    """
    reading = Reading(Rule("sprites", 2, "independent"), "short")
    engine, pictures = _toy(reading)
    share = _fitted(engine, pictures, reading, "within")
    assert share["within"] >= 0.9
    assert share["outside"] >= 0.9
    assert share["inside"] <= 0.1
    assert _fitted(engine, pictures, reading, "elsewhere")["inside"] <= 0.5  # there is no such part


def test_a_fit_has_ended_when_its_loss_has() -> None:
    falling, still = np.linspace(3, 1, 100), np.r_[np.linspace(3, 1, 60), np.ones(40)]
    assert not ended(falling)
    assert ended(still)
    assert not ended(np.ones(4))  # too few to say


def test_gradients_of_an_oracle_are_refused_where_it_is_asked_and_where_it_is_read() -> None:
    with pytest.raises(InputError, match="this model has none"):
        gradients.find(Oracle("slot"), *[None] * 4, SPEC)  # type: ignore[arg-type]
    section = TypeAdapter(BindingIdSection).validate_python({
        "tasks": [{"name": "t"}], "oracles": [{"name": "o", "mechanism": "slot"}],
        "suites": [{"name": "s", "tasks": ["t"], "oracles": ["o"], "experiments": ["subspaces"],
                    "subspaces_by": ["means", "gradients"]}],
    })  # fmt: skip
    (said,) = problems(None, section)  # type: ignore[arg-type]
    assert "suites.0.subspaces_by" in said
    assert "closed forms" in said


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Nine slots in the oracle that binds by them: subspaces of means, and of discriminants."""
    return pd.DataFrame(
        [{**NAMES, "model": "slot", **row} for row in _rows("means", "discriminant")]
    )


def _rows(*ways: str) -> list[dict[str, Any]]:
    task = ShapesTask(name="t", layout="sprites", order="independent", rows=40, estimation_rows=100)
    suite = Suite(
        name="s", tasks=("t",), oracles=("o",), experiments=("subspaces",), dimensions=(8,),
        resamples=10, subspaces_by=ways,
    )  # fmt: skip
    spec = {**suite.model_dump(mode="json"), "task": task.model_dump(mode="json")}
    return run(Oracle("slot"), None, spec).rows


def test_rows_of_means_do_not_hang_on_what_else_is_asked(table: pd.DataFrame) -> None:
    alone = pd.DataFrame([{**NAMES, "model": "slot", **row} for row in _rows("means")])
    both = table[table["found_by"] != "discriminant"].reset_index(drop=True)
    adjusted = "p_adjusted"  # over all conditions of the experiment
    pd.testing.assert_frame_equal(alone.drop(columns=adjusted), both.drop(columns=adjusted))


def test_a_subspace_that_was_chosen_by_its_effect_has_more_to_show(table: pd.DataFrame) -> None:
    """It has its effect of other scenes; fits of what has none do not find it."""
    rows = table[table["found_by"].eq("means")].assign(found_by="gradients", fit_ended=1)
    like = rows[rows["condition"] == "O within"].iloc[0]

    def judged(**shares: float) -> tuple[str, bool]:
        more = [
            {**like, "condition": name.replace("_", " "), "share": share,
             "share_low": share - 0.1, "share_high": share + 0.1}
            for name, share in {"O_inside": 1.0, "I_inside": 1.0, "O_null": 0.5, "I_null": 0.4,
                                "C_inside": 1.0, **shares}.items()
        ]  # fmt: skip
        (found,) = dimensions(pd.concat([rows, pd.DataFrame(more)]))
        return found.verdict, found.found_by == "gradients"

    assert judged() == ("holds", True)
    assert judged(O_inside=0.0) == ("does not", True)  # of other scenes it has no effect
    assert judged(I_null=0.9) == ("does not", True)  # a fit finds as much where nothing is
    assert judged(C_inside=0.1) == ("does not", True)  # tokens that nothing reads can do it
    late = rows.assign(fit_ended=0)
    assert [one.ended for one in dimensions(pd.concat([late, table.iloc[:0]]))] == [False]


def test_what_found_subspaces_stands_in_rows_of_its_own(table: pd.DataFrame) -> None:
    figure = binding_id_subspaces.draw(table=table)
    labels = [axes.get_ylabel().partition("\n")[0] for axes in figure.axes]
    assert labels == ["by means", "", "", "by discriminants", "", ""]
    said = dict(chapter({"binding_id": table}, Inputs()).findings[-1].points)
    assert said["slot (oracle)"] == (
        "Of means: 8 dimensions are enough. Of discriminants: 8 dimensions are enough."
    )
    alone = table[table["found_by"] != "discriminant"]
    assert len(binding_id_subspaces.draw(table=alone).axes) == 3
