"""Edits of what a probe reads: closed forms, and a model whose subspace is known exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from edited_toy import EFFECTS, OBJECTS, measured
from small_models import EASY, configured, trained

from bindscope.config.models import Architecture
from bindscope.core.errors import ModelError
from bindscope.core.files import canonical_json
from bindscope.models.edits import unwritten
from bindscope.models.objectives.evaluation import Evaluation, random_stream
from bindscope.models.pretraining_loss import load
from bindscope.models.training import VAL_SCENES, write_training
from bindscope.models.training_scenes import FreshScenes
from bindscope.models.vit import build
from bindscope.studies.same_object.effects_job import interventions
from bindscope.studies.same_object.effects_loss import (
    Part,
    pretraining_losses,
    refitted_losses,
)
from bindscope.studies.same_object.effects_rows import (
    add_differences,
    loss_columns,
)
from bindscope.studies.same_object.effects_schemas import (
    ABLATION_SCHEMA,
    ATTENTION_SCHEMA,
)
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


# --- A model whose subspace is known ---


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


def scenes_of(evaluation: Evaluation) -> Part:
    """The validation scenes of the training, and an editor of half of the dimensions."""
    images, codes = FreshScenes(EASY, 32, 0).validation(VAL_SCENES)
    vit = evaluation.objective.vit
    n_patches, dim = vit.rows**2, vit.width
    basis = random_basis(dim, dim // 2, 0)
    editor = Editor(
        dict.fromkeys(("probe", "random", "matched", "variance"), basis), torch.zeros(dim),
        order_of_patches(len(images), n_patches, 0),
        torch.arange(n_patches).expand(len(images), -1) % 3,
    )  # fmt: skip
    return Part(images, codes, editor)


def test_the_loss_is_that_of_the_same_edits(evaluation: Evaluation) -> None:
    """Hidden patches and cut views included: an edit finds its scene and patch in all of them."""
    (images, codes, editor), vit = scenes_of(evaluation), evaluation.objective.vit
    nothing, removed = Intervention("shuffle", 0.0, "probe"), Intervention("remove", 1.0, "probe")
    everywhere = Intervention("weights", 1.0, "probe")
    asked = (images, codes, 1, editor, [nothing, removed, everywhere])
    found = pretraining_losses(evaluation, *asked, (vit.rows, vit.rows))
    assert not isinstance(found, str)
    assert np.array_equal(found[nothing], found[None])
    assert not np.allclose(found[removed], found[None], atol=1e-3)
    assert not np.allclose(found[everywhere], found[removed], atol=1e-3)
    assert "patches" in pretraining_losses(evaluation, *asked, (1, 2))


def test_heads_that_are_fitted_on_under_an_edit_lose_less_and_nothing_else_moves(
    evaluation: Evaluation,
) -> None:
    scenes, vit = scenes_of(evaluation), evaluation.objective.vit
    before = {name: value.clone() for name, value in evaluation.objective.state_dict().items()}
    everywhere = Intervention("weights", 1.0, "probe")
    edits = [Intervention("remove", 1.0, "probe"), everywhere]
    old = pretraining_losses(evaluation, *scenes[:2], 1, scenes.editor, edits, (vit.rows, vit.rows))
    assert not isinstance(old, str)
    same = refitted_losses(evaluation, scenes, scenes, 1, edits, 0)
    assert all(np.array_equal(same[what], old[what]) for what in (None, *edits))
    found = refitted_losses(evaluation, scenes, scenes, 1, edits, 20)
    assert found[everywhere].mean() < old[everywhere].mean()
    for name, value in evaluation.objective.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not any(parameter.requires_grad for parameter in evaluation.objective.parameters())
