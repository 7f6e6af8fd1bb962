"""Edits of what a probe reads: closed forms, and a model whose subspace is known exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from small_models import EASY, configured, trained
from torch import Tensor

from bindscope.config.models import Architecture
from bindscope.core.errors import ModelError
from bindscope.core.files import canonical_json
from bindscope.core.interfaces import Edit
from bindscope.models.attention import BlockAttention
from bindscope.models.base import TokenMap
from bindscope.models.edits import unwritten
from bindscope.models.objectives.evaluation import Evaluation, random_stream
from bindscope.models.pretraining_loss import load
from bindscope.models.training import VAL_SCENES, write_training
from bindscope.models.training_scenes import FreshScenes
from bindscope.models.vit import build
from bindscope.studies.same_object.attention_measures import (
    correlations,
    divergence_bits,
    fisher,
    share_of_object,
)
from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.effects import Measuring, Scenes
from bindscope.studies.same_object.effects_job import editor_of, fit_name, interventions
from bindscope.studies.same_object.effects_loss import pretraining_losses
from bindscope.studies.same_object.effects_retrained import (
    Edited,
    retrained_rows,
    strongest,
    with_old_reader,
)
from bindscope.studies.same_object.effects_rows import (
    ablation_rows,
    add_differences,
    attention_rows,
    loss_columns,
)
from bindscope.studies.same_object.effects_schemas import (
    ABLATION_SCHEMA,
    ATTENTION_SCHEMA,
    RETRAINED_SCHEMA,
)
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.probes_config import DiagonalScorer
from bindscope.studies.same_object.subspace import (
    Editor,
    Intervention,
    as_long_as,
    directions,
    edited_layers,
    held_variance,
    injected,
    matched_basis,
    order_of_patches,
    orthonormal,
    overlap,
    random_basis,
    shuffled,
    variance_basis,
)
from bindscope.tables.schema import table_of

N, SIDE, OBJECTS, DIM = 24, 4, 3, 64
PATCHES = SIDE * SIDE
# Deviations of what is not read: as little as a copy's, much, as much as what is read, little.
ELSEWHERE = torch.tensor([0.05] * OBJECTS + [1.0] * 6 + [0.47] * 15 + [0.2] * 37)
EFFECTS: dict[str, Any] = {
    "directions": OBJECTS, "shuffle": [0.5, 1.0], "inject": [0.5, 0.0], "seed": 0,
    "weights": True, "controls": ["random", "matched", "variance", "mean"],
}  # fmt: skip


# --- The subspace -------------------------------------------------------------------------------


def test_directions_are_those_that_the_form_reads() -> None:
    """A low-rank form written as rows and signs has the span of its rows; scale comes on top."""
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((2, 6)).astype(np.float32)
    scale = generator.uniform(0.5, 2, 6).astype(np.float32)
    weights = {"1/0/2.rows": rows, "1/0/2.signs": np.array([1, -1], np.float32),
               "1/0/2.scale": scale}  # fmt: skip
    found = directions(weights, "1/0/2", 5)
    assert found.shape == (2, 6)  # no more than the form has
    ours, theirs = orthonormal(found), orthonormal(torch.from_numpy(rows * scale).double())
    torch.testing.assert_close(ours @ ours.t(), theirs @ theirs.t(), atol=1e-5, rtol=0)


def test_a_shuffle_permutes_within_an_image_and_leaves_no_patch_its_own() -> None:
    generator = torch.Generator().manual_seed(0)
    b = torch.randn(5, 9, 2, generator=generator)
    there = torch.arange(9).expand(5, 9) > 0  # token 0 is no patch
    order = order_of_patches(5, 9, seed=3)
    for share, moved in ((0.0, 0), (0.5, 4), (1.0, 8)):
        found = shuffled(b, there, order, share)
        assert int((found != b).any(-1).sum()) == 5 * moved
        assert torch.equal(found[:, 0], b[:, 0])
        for before, after in zip(b, found, strict=True):
            assert sorted(before.tolist()) == sorted(after.tolist())
    assert torch.equal(shuffled(b, there, order, 0.0), b)


def test_the_order_of_an_image_depends_on_the_seed_and_its_number_alone() -> None:
    assert torch.equal(order_of_patches(3, 7, 1), order_of_patches(9, 7, 1)[:3])
    assert not torch.equal(order_of_patches(3, 7, 1), order_of_patches(3, 7, 2))


def test_an_injection_ends_at_the_mean_of_the_object() -> None:
    b = torch.tensor([[[1.0], [3.0], [10.0], [7.0]]])
    instances = torch.tensor([[2, 2, 0, -1]])
    assert injected(b, instances, 1.0)[0, :, 0].tolist() == [2.0, 2.0, 10.0, 7.0]
    assert injected(b, instances, 0.5)[0, :, 0].tolist() == [1.5, 2.5, 10.0, 7.0]
    assert torch.equal(injected(b, instances, 0.0), b)


def an_editor(dim: int = 8, k: int = 2) -> Editor:
    generator = torch.Generator().manual_seed(1)
    bases = {name: random_basis(dim, k, i) for i, name in enumerate(("probe", "random"))}
    bases |= {"variance": random_basis(dim, k, 5), "matched": random_basis(dim, k, 6)}
    mean = torch.randn(dim, generator=generator)
    return Editor(bases, mean, order_of_patches(4, 6, 0), torch.arange(6).expand(4, 6) // 2)


@pytest.mark.parametrize("subspace", ["probe", "random", "variance"])
@pytest.mark.parametrize("edit", ["shuffle", "inject", "remove", "weights"])
def test_an_edit_of_strength_0_changes_no_bit(edit: Any, subspace: Any) -> None:
    tokens = torch.randn(4, 7, 8, generator=torch.Generator().manual_seed(2))
    patches = torch.arange(-1, 6).expand(4, 7)
    what = Intervention(edit, 0.0, subspace)
    assert torch.equal(an_editor().edited(tokens, what, torch.arange(4), patches), tokens)


def test_edits_touch_patches_alone_and_removal_leaves_nothing_to_read() -> None:
    editor = an_editor()
    tokens = torch.randn(4, 7, 8, generator=torch.Generator().manual_seed(3))
    patches = torch.arange(-1, 6).expand(4, 7)
    for what in interventions(EFFECTS):
        edited = editor.edited(tokens, what, torch.arange(4), patches)
        assert torch.equal(edited[:, 0], tokens[:, 0]) == (what.edit != "weights")
        assert not torch.allclose(edited[:, 1:], tokens[:, 1:])
    removed = editor.edited(tokens, Intervention("remove", 1.0, "probe"), torch.arange(4), patches)
    left = (removed[:, 1:] - editor.mean) @ editor.bases["probe"].float()
    assert float(left.abs().max()) < 1e-5


def test_controls_of_matched_length_move_every_token_as_far() -> None:
    editor = an_editor()
    tokens = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(4))
    patches, scenes = torch.arange(6).expand(4, 6), torch.arange(4)
    far = {
        name: (
            editor.edited(tokens, Intervention("remove", 1.0, name), scenes, patches) - tokens
        ).norm(dim=-1)
        for name in ("probe", "variance", "mean")
    }
    for name in ("variance", "mean"):
        torch.testing.assert_close(far[name], far["probe"], atol=1e-5, rtol=1e-4)
    assert torch.equal(as_long_as(torch.ones(1, 3), torch.zeros(1, 3)), torch.zeros(1, 3))


def test_the_variance_basis_is_that_of_the_largest_eigenvalues() -> None:
    found = variance_basis(torch.diag(torch.tensor([1.0, 5.0, 3.0])).double(), 2).abs()
    torch.testing.assert_close(found, torch.tensor([[0, 0], [1, 0], [0, 1]]).double())


def test_matched_directions_hold_the_variance_of_the_probes_and_lie_elsewhere() -> None:
    variances = torch.tensor([9.0] * 4 + [1.0] * 12 + [0.01] * 16).double()
    covariance, probe = torch.diag(variances), torch.eye(32).double()[:, [4, 20]]
    found = matched_basis(covariance, probe, 0)
    torch.testing.assert_close(found.t() @ found, torch.eye(2).double())
    assert held_variance(covariance, probe) == pytest.approx(1.01)
    assert held_variance(covariance, found) == pytest.approx(1.01, rel=0.2)
    assert held_variance(covariance, random_basis(32, 2, 0)) > 0
    assert overlap(probe, found) < 0.5
    # Where the probe reads what varies most, no other directions hold as much.
    most = variance_basis(covariance, 4)
    assert overlap(most, matched_basis(covariance, most, 0)) == pytest.approx(1)
    assert not torch.equal(found, matched_basis(covariance, probe, 1))


def test_out_of_all_weights_is_out_of_every_layer() -> None:
    """Projecting layers and what norms read is projecting every writer's weights."""
    vit = build(Architecture(n_layers=2, width=8, n_heads=2, patch_px=4), 8, random_stream(0))
    pixels = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    basis = random_basis(8, 2, 0).float()
    editor, what = an_editor(), Intervention("weights", 1.0, "probe")
    editor = replace(editor, bases={"probe": basis})
    none = torch.full((3, 5), -1)
    tokens = editor.edited(vit.tokens(pixels), what, none[:, 0], none)
    with unwritten(list(vit.blocks), basis, "vit"):
        for block in vit.blocks:
            tokens = editor.edited(block(tokens), what, none[:, 0], none)
    away = torch.eye(8) - basis @ basis.t()
    with torch.no_grad():
        vit.cls.copy_(vit.cls @ away)
        vit.positions.copy_(vit.positions @ away)
        writers = [vit.embed, *(part for b in vit.blocks for part in (b.attention.out, b.out))]
        for linear in writers:
            linear.weight.copy_(away @ linear.weight)
            linear.bias.copy_(away @ linear.bias)
    torch.testing.assert_close(vit.norm(tokens), vit(pixels), atol=1e-5, rtol=1e-4)
    with pytest.raises(ModelError, match="weights: false"), unwritten(None, basis, "vit"):
        pass
    assert edited_layers(what, 1, [0, 1, 2, "final"]) == [0, 1, 2]
    assert edited_layers(Intervention("remove", 1.0, "probe"), 1, [0, 1, 2]) == [1]


# --- Measures of attention ----------------------------------------------------------------------


def test_correlations_are_those_of_scipy_and_of_regression_residuals() -> None:
    generator = np.random.default_rng(0)
    m = 9
    attention = generator.dirichlet(np.ones(m), (2, m))
    scores = generator.standard_normal((m, m))
    scores += scores.T
    places, tokens = generator.uniform(0, 5, (m, 2)), generator.standard_normal((m, 4))
    found = correlations(attention, scores, places, tokens)
    i, j = (~np.eye(m, dtype=bool)).nonzero()
    p = 1 / (1 + np.exp(-scores[i, j]))
    cosine = [tokens[a] @ tokens[b] / np.linalg.norm(tokens[a]) / np.linalg.norm(tokens[b])
              for a, b in zip(i, j, strict=True)]  # fmt: skip
    given = np.stack([np.ones(len(i)), np.linalg.norm(places[i] - places[j], axis=1), cosine], 1)
    for head in range(2):
        a = attention[head, i, j]
        rest = [v - given @ np.linalg.lstsq(given, v, rcond=None)[0] for v in (a, p)]
        alone = a / (1 - attention[head, i, i])
        expected = {
            "pearson": pearsonr(a, p)[0], "pearson_logit": pearsonr(a, scores[i, j])[0],
            "spearman": spearmanr(a, p)[0], "partial": pearsonr(*rest)[0],
            "pearson_renormalised": pearsonr(alone, p)[0],
        }  # fmt: skip
        assert {name: values[head] for name, values in found.items()} == pytest.approx(expected)


def test_nothing_correlates_with_what_does_not_vary() -> None:
    m = 5
    flat = correlations(np.full((1, m, m), 0.2), np.eye(m), np.eye(m)[:, :2], np.eye(m))
    assert np.isnan(flat["pearson"][0])
    # Scores that follow from the distance leave nothing to correlate beside it.
    places = np.arange(10.0).reshape(5, 2) ** 1.5
    far = np.linalg.norm(places[:, None] - places[None], axis=-1)
    scores = np.log(0.01 + far / 100) - np.log1p(-(0.01 + far / 100))
    same = correlations(np.random.default_rng(0).random((1, m, m)), scores, places, np.eye(m))
    assert np.isnan(same["partial"][0])
    assert np.isnan(fisher(np.array([np.nan]))[0])


def test_divergence_is_0_of_the_same_and_1_bit_of_what_shares_nothing() -> None:
    one, other = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    assert divergence_bits(one, other).tolist() == [1.0, 0.0]


def test_the_share_of_an_object_leaves_out_the_query_itself() -> None:
    among = torch.tensor([[[0.6, 0.1, 0.3]]])
    own, same = torch.tensor([[[True, False, False]]]), torch.tensor([[[False, True, False]]])
    assert float(share_of_object(among, same, own)) == pytest.approx(0.25)


# --- A model whose subspace is known ------------------------------------------------------------


TOKENS = TokenMap(1, 0, (SIDE, SIDE), 1, True)


@dataclass(frozen=True)
class Toy:
    """Tokens hold their object in the first directions, one-hot and noisy, and noise elsewhere.

    With a copy the directions after those hold it, too.

    Block 2 attends by those directions and writes nothing: layer 2 is layer 1. The red channel of a
    patch, which is a pixel, is its object, the green one the number of the image.
    """

    noise: float
    copies: int = 1
    n_layers: int = 2
    dim: int = DIM
    token_map: TokenMap = TOKENS
    blocks: tuple[Any, ...] = ()

    def preprocess(self, images: Any) -> Tensor:
        """Return the images as they are."""
        return torch.from_numpy(images)

    def _tokens(self, pixels: Tensor, edits: Mapping[int, Edit]) -> Tensor:
        objects = pixels[..., 0].flatten(1).long()
        rows = []
        for image, ids in zip(pixels[:, 0, 0, 1], objects, strict=True):
            generator = torch.Generator().manual_seed(int(image))
            noise = torch.randn(PATCHES + 1, DIM, generator=generator)
            noise *= torch.cat([torch.full((OBJECTS,), self.noise), ELSEWHERE])
            for i in range(self.copies):
                own = slice(i * OBJECTS, (i + 1) * OBJECTS)
                noise[1:, own] += torch.nn.functional.one_hot(ids - 1, OBJECTS)
            rows.append(noise)
        tokens = torch.stack(rows)
        for layer in (0, 1):
            tokens = edits[layer](tokens) if layer in edits else tokens
        return tokens

    def edited_stream(
        self, pixels: Tensor, layers: Sequence[int], edits: Mapping[int, Edit], *,
        gradients: bool = False,
    ) -> Iterator[tuple[int, Tensor]]:  # fmt: skip
        """Give the same tokens for all layers."""
        tokens = self._tokens(pixels, edits)
        yield from ((layer, tokens) for layer in layers)

    def attention(
        self, pixels: Tensor, blocks: Sequence[int], edits: Mapping[int, Edit] | None = None
    ) -> Iterator[tuple[int, BlockAttention]]:
        """Let both heads compare the objects."""
        read = self._tokens(pixels, edits or {})[:, None, :, :OBJECTS]
        yield blocks[0], BlockAttention(torch.cat([read, read], 1), torch.cat([read, read], 1), 4.0)


@dataclass(frozen=True)
class Drawn(Scenes):
    """Scenes that are in memory."""

    pixels: Any = None

    def batches(self, size: int) -> Iterator[tuple[int, Any]]:
        """Give them in batches."""
        yield from ((i, self.pixels[i : i + size]) for i in range(0, N, size))


def drawn(seed: int) -> Drawn:
    """Draw scenes whose patches are of objects at random."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(1, OBJECTS + 1, (N, PATCHES))
    images = np.zeros((N, SIDE, SIDE, 3), np.uint8)
    images[..., 0] = ids.reshape(N, SIDE, SIDE)
    images[..., 1] = np.arange(N)[:, None, None] + N * seed
    chosen = np.sort(generator.permuted(np.tile(np.arange(PATCHES), (N, 1)), axis=1)[:, :12], 1)
    sample = {
        "patches": chosen.astype(np.int16),
        "instances": np.take_along_axis(ids, chosen, 1).astype(np.int16),
        "classes": np.ones((N, 12), np.int16),
    }
    labels = PairData.of(sample, None, (SIDE, SIDE))
    return Drawn((), labels, torch.from_numpy(chosen), torch.from_numpy(ids), images)


def exact_weights() -> dict[str, Any]:
    """Return a probe that compares the objects exactly, in both layers."""
    mean = np.zeros(DIM, np.float32)
    mean[:OBJECTS] = 1 / OBJECTS
    form = np.diag([4.0] * OBJECTS + [0.0] * (DIM - OBJECTS)).astype(np.float32)
    # Two tokens of one object have the product 2/3, of two objects -1/3; removed, 0.
    arrays = {
        "matrix": form, "linear": np.zeros(DIM), "bias": np.full(1, -4 / 6), "mean": mean,
        "scale": np.ones(DIM), "eigenrows": np.eye(DIM),
    }  # fmt: skip
    return {
        f"{layer}/0/0.{name}": np.asarray(value, np.float32)
        for layer in (1, 2) for name, value in arrays.items()
    }  # fmt: skip


def on_toy(noise: float, copies: int = 1, seed: int = 0) -> tuple[Measuring, Editor]:
    """Return a toy that is measured, and the editor of what the exact probe reads of it."""
    weights = exact_weights()
    scorers = {layer: FittedScorer.read(weights, fit_name(weights, layer)) for layer in (1, 2)}
    scenes = drawn(seed)
    measuring = Measuring(Toy(noise, copies), 1, scorers, scenes, torch.float32, "toy")
    return measuring, editor_of(weights, 1, measuring.unedited(), scenes, EFFECTS)


def measured(noise: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run all edits on the toy, read by a probe that compares its objects exactly."""
    measuring, editor = on_toy(noise)
    plain = measuring.unedited()
    seen = measuring.under(editor, interventions(EFFECTS))
    rows = ablation_rows(
        measuring.scenes.labels, measuring.recorded(plain.logits),
        {what: measuring.recorded(kept.logits) for what, kept in seen.items()}, seen,
        plain.shares[-1], 200, 0,
    )  # fmt: skip
    return rows, attention_rows(plain, 200, 0)


@pytest.fixture(scope="module")
def exact() -> dict[tuple[str, float, str], dict[str, Any]]:
    return {(r["edit"], r["strength"], r["subspace"]): r for r in measured(0.0)[0]}


def test_removing_what_the_probe_reads_leaves_the_majority_and_no_control_does(
    exact: dict[tuple[str, float, str], dict[str, Any]],
) -> None:
    plain, removed = exact["none", 0.0, "none"], exact["remove", 1.0, "probe"]
    assert plain["accuracy"] == plain["later_accuracy"] == 1.0
    assert removed["accuracy"] == removed["later_accuracy"]
    assert removed["accuracy"] == pytest.approx(removed["majority_accuracy"])
    assert removed["majority_accuracy"] < 0.75
    for control in ("random", "matched", "variance", "mean"):
        assert exact["remove", 1.0, control]["accuracy"] > 0.98
        assert "accuracy_beyond_controls" not in exact["remove", 1.0, control]
    changes = [exact["remove", 1.0, name]["change"] for name in ("probe", "matched", "mean")]
    assert changes[1:] == pytest.approx([changes[0]] * 2, rel=0.1)
    assert exact["remove", 1.0, "random"]["change"] < changes[0]
    assert removed["accuracy_change_high"] < 0
    assert removed["accuracy_beyond_controls_high"] < 0
    assert removed["auc"] == pytest.approx(0.5, abs=1e-3)


def test_attention_by_the_subspace_becomes_uniform_without_it(
    exact: dict[tuple[str, float, str], dict[str, Any]],
) -> None:
    plain, removed = exact["none", 0.0, "none"], exact["remove", 1.0, "probe"]
    uniform = measured(0.0)[1][-1]["uniform_share"]
    assert plain["object_share"] > 0.9
    assert plain["divergence_bits"] == 0
    assert removed["object_share"] == pytest.approx(uniform, abs=1e-5)
    assert removed["divergence_bits"] > 10 * exact["remove", 1.0, "random"]["divergence_bits"] > 0
    assert exact["shuffle", 1.0, "probe"]["accuracy"] < exact["shuffle", 0.5, "probe"]["accuracy"]


def test_injecting_the_mean_of_the_object_mends_a_noisy_code() -> None:
    rows = {(r["edit"], r["strength"], r["subspace"]): r for r in measured(0.5)[0]}
    plain, half, whole = (
        rows[key]["accuracy"]
        for key in (("none", 0.0, "none"), ("inject", 0.5, "probe"), ("inject", 1.0, "probe"))
    )
    assert plain < half < whole
    assert rows["inject", 1.0, "probe"]["accuracy_change_low"] > 0
    assert rows["inject", 1.0, "random"]["accuracy"] == pytest.approx(plain, abs=0.03)


def test_rows_are_valid_under_the_schemas() -> None:
    names = {"dataset": "toy", "model": "toy", "layer": "1", "probe": "quadratic", "grid": "4x4",
             "val_loss_bits": 0.5, "spec_key": "0" * 8, "code_key": "0" * 8}  # fmt: skip
    rows, heads = measured(0.3)
    about = {"later_layer": "2", "directions": OBJECTS, **loss_columns("it has no heads", None)}
    table = table_of([{**row, **about, **names} for row in rows], ABLATION_SCHEMA)
    assert len(table) == 1 + 4 * 6 + 1
    assert list(table["edit"].drop_duplicates()) == [
        "none", "shuffle", "inject", "remove", "weights",
    ]  # fmt: skip
    of_heads = table_of([{**row, **names} for row in heads], ATTENTION_SCHEMA)
    assert list(of_heads["head"]) == ["mean", "1", "2"]
    assert (of_heads["pearson"] > 0.5).all()
    assert of_heads["pearson_low"].le(of_heads["pearson"]).all()


def test_the_strictest_control_is_the_one_with_the_greatest_effect_in_every_resample() -> None:
    names = ("probe", "random", "variance")
    whats = [None, *(Intervention("remove", 1.0, name) for name in names)]
    generator = np.random.default_rng(0)
    right = [np.full(50, 9.0), np.full(50, 2.0), generator.uniform(5, 8, 50),
             generator.uniform(4, 8, 50)]  # fmt: skip
    columns = [{"accuracy": each, "pairs": np.full(50, 10.0)} for each in right]
    rows: list[dict[str, Any]] = [{} for _ in whats]
    add_differences(rows, whats, columns, 300, 0)
    means = [each.mean() / 10 for each in right]
    found = rows[1]
    assert found["accuracy_strictest"] == names[int(np.argmin(means[2:])) + 1]
    assert found["accuracy_beyond_controls"] == pytest.approx(means[1] - min(means[2:]))
    assert found["accuracy_change"] == pytest.approx(means[1] - means[0])
    # Never further from the nearest control than from any one.
    alone: list[dict[str, Any]] = [{} for _ in whats[:3]]
    add_differences(alone, whats[:3], columns[:3], 300, 0)
    assert found["accuracy_beyond_controls_high"] >= alone[1]["accuracy_beyond_controls_high"]


# --- Probes that are fitted again ---------------------------------------------------------------


@pytest.mark.parametrize(("copies", "comes_back"), [(1, False), (2, True)])
def test_a_probe_that_is_fitted_again_finds_a_copy_and_nothing_where_there_is_none(
    copies: int, comes_back: bool
) -> None:
    splits = {}
    for seed, split in enumerate(("train", "val", "test")):
        measuring, editor = on_toy(0.05, copies, seed)
        splits[split] = Edited(measuring, editor)
    probe = DiagonalScorer(name="diagonal", family="diagonal", l2=(0.1, 0.01))
    edits = strongest(interventions({**EFFECTS, "controls": ["matched"]}), ["remove"])
    rows = retrained_rows(splits, edits, [probe], 100, 0)
    test = splits["test"].measuring
    seen = test.under(splits["test"].editor, edits)
    old = ablation_rows(
        test.scenes.labels, test.recorded(test.unedited().logits),
        {what: test.recorded(kept.logits) for what, kept in seen.items()}, seen,
        test.unedited().shares[-1], 100, 0,
    )  # fmt: skip
    rows = with_old_reader(rows, old, 1, "diagonal")
    found = {(row["subspace"], row["read_layer"]): row for row in rows}
    assert set(found) == {(name, at) for name in ("none", "probe", "matched") for at in ("1", "2")}
    for layer in ("1", "2"):
        removed = found["probe", layer]
        assert found["none", layer]["accuracy"] > 0.95
        assert found["matched", layer]["accuracy"] > 0.95
        assert removed["old_accuracy"] == pytest.approx(removed["majority_accuracy"])
        if comes_back:
            assert removed["accuracy"] > 0.95
            assert removed["accuracy_beyond_controls_low"] > -0.05
        else:
            assert removed["accuracy"] < removed["majority_accuracy"] + 0.05
            assert removed["accuracy_beyond_controls_high"] < -0.1
    about = {"dataset": "toy", "model": "toy", "layer": "1", "probe": "diagonal", "grid": "4x4",
             "val_loss_bits": 0.5, "spec_key": "0" * 8, "code_key": "0" * 8}  # fmt: skip
    assert len(table_of([row | about for row in rows], RETRAINED_SCHEMA)) == 6


def test_the_strongest_of_each_edit_is_fitted_again() -> None:
    found = strongest(interventions(EFFECTS), ["shuffle", "remove"])
    assert {what[:2] for what in found} == {("shuffle", 1.0), ("remove", 1.0)}
    assert [what.subspace for what in found].count("mean") == 1


def test_a_loss_is_compared_batch_by_batch() -> None:
    what = Intervention("remove", 1.0, "probe")
    found = loss_columns({None: np.array([1.0, 5.0]), what: np.array([2.0, 6.0])}, what)
    assert found["pretraining_loss_bits"] == 4
    assert found["pretraining_loss_change"] == 1
    assert found["pretraining_loss_change_low"] == found["pretraining_loss_change_high"] == 1
    assert found["n_batches"] == 2
    assert found["pretraining_reason"] == ""
    rival = Intervention("remove", 1.0, "random")
    losses = {None: np.zeros(3), what: np.array([2.0, 3.0, 4.0]), rival: np.array([1.0, 1.5, 2.6])}
    beyond = loss_columns(losses, what)
    assert beyond["pretraining_loss_beyond_controls"] == pytest.approx(1.3)
    assert beyond["pretraining_loss_strictest"] == "random"
    assert "pretraining_loss_strictest" not in loss_columns(losses, rival)


# --- The model's own loss -----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["objects", "masked", "self_distillation"])
def evaluation(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Evaluation:
    """A small model with the heads of its objective."""
    folder, config = tmp_path_factory.mktemp("trained"), configured(request.param)
    exclude = {"name", "extraction", "input_px"}
    spec = {
        "model": config.model_dump(mode="json", exclude=exclude),
        "dataset": EASY.model_dump(mode="json", exclude={"name"}), "threads": 1, "device": "cpu",
    }  # fmt: skip
    paths = [folder / f"vit{end}" for end in (".safetensors", ".history.json", ".json")]
    write_training(trained(config), *paths, spec=canonical_json(spec), code="own:chained")
    return load(config, paths[-1], "cpu")


def test_the_loss_is_that_of_the_same_edits(evaluation: Evaluation) -> None:
    """Hidden patches and cut views included: an edit finds its scene and patch in all of them."""
    images, codes = FreshScenes(EASY, 32, 0).validation(VAL_SCENES)
    vit = evaluation.objective.vit
    n_patches, dim = vit.rows**2, vit.width
    basis = random_basis(dim, dim // 2, 0)
    editor = Editor(
        dict.fromkeys(("probe", "random", "matched", "variance"), basis), torch.zeros(dim),
        order_of_patches(len(images), n_patches, 0),
        torch.arange(n_patches).expand(len(images), -1) % 3,
    )  # fmt: skip
    nothing, removed = Intervention("shuffle", 0.0, "probe"), Intervention("remove", 1.0, "probe")
    everywhere = Intervention("weights", 1.0, "probe")
    asked = (images, codes, 1, editor, [nothing, removed, everywhere])
    found = pretraining_losses(evaluation, *asked, (vit.rows, vit.rows))
    assert not isinstance(found, str)
    assert np.array_equal(found[nothing], found[None])
    assert not np.allclose(found[removed], found[None], atol=1e-3)
    assert not np.allclose(found[everywhere], found[removed], atol=1e-3)
    assert "patches" in pretraining_losses(evaluation, *asked, (1, 2))
