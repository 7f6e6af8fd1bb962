"""Edits of what a probe reads: closed forms, and a model whose subspace is known exactly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from edited_toy import OBJECTS, RowsByEdit, index_rows, measured, on_toy
from small_models import EASY, configured, trained

from bindscope.core.files import canonical_json
from bindscope.fitting.standardise import Standardiser
from bindscope.models.objectives.evaluation import Evaluation
from bindscope.models.pretraining_loss import load
from bindscope.models.training import VAL_SCENES, write_training
from bindscope.models.training_scenes import FreshScenes
from bindscope.scenes.patch_labels import count_pixels
from bindscope.studies.same_object.effects.job import (
    ablation_rows,
    beyond,
    interventions,
    loss_rows,
    pretraining_losses,
)
from bindscope.studies.same_object.effects.passes import objects_of_patches
from bindscope.studies.same_object.effects.subspace import (
    Editor,
    LabelMeans,
    SubspaceEdit,
    as_long_as,
    held_variance,
    injected,
    matched_basis,
    order_of_patches,
    orthonormal,
    outside,
    overlap,
    random_basis,
    shuffled,
    variance_basis,
)
from bindscope.studies.same_object.estimates import Bootstrap
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.tables import EDITS_SCHEMA
from bindscope.tables.schema import table_of

# --- The subspace -------------------------------------------------------------------------------


def test_directions_are_the_largest_that_the_form_reads() -> None:
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((6, 6)).astype(np.float32)
    scale = generator.uniform(0.5, 2, 6).astype(np.float32)
    scorer = FittedScorer(
        torch.eye(6),
        torch.zeros(6),
        torch.zeros(1),
        Standardiser(np.zeros_like(scale), scale),
        torch.from_numpy(rows),
    )
    ours = orthonormal(scorer.directions(2))
    theirs = orthonormal(torch.from_numpy(rows[:2] * scale).double())
    torch.testing.assert_close(ours @ ours.t(), theirs @ theirs.t(), atol=1e-5, rtol=0)


def labelled(n: int, object_size: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens of classes 0 to 3 in the first three dimensions, and of objects in the next five."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (n,), generator=generator)
    means = torch.randn(4, 3, generator=generator) * 2
    objects = object_size * torch.randn(n // 8, 5, generator=generator).repeat_interleave(8, 0)
    noise = torch.randn(n, 12, generator=generator)
    tokens = torch.cat([means[labels], objects, torch.zeros(n, 4)], 1) + 0.2 * noise
    half = torch.arange(n // 8).repeat_interleave(8) % 2
    return tokens.double(), labels, half


def test_the_subspace_of_labels_holds_them_and_nothing_of_objects() -> None:
    tokens, labels, half = labelled(12800, 1.0)
    means = LabelMeans(4, 12)
    means.add(tokens, labels, half)
    basis = means.subspace()
    truth = torch.eye(12).double()[:, :3]
    assert basis.shape[1] == 3
    assert overlap(truth, basis) > 0.95
    # Labels that say nothing of the tokens differ in no direction, or in a noise direction.
    nothing = LabelMeans(4, 12)
    nothing.add(
        tokens, labels[torch.randperm(12800, generator=torch.Generator().manual_seed(1))], half
    )
    assert nothing.subspace().shape[1] <= 2
    assert LabelMeans(1, 12).subspace().shape == (12, 0)


def test_what_is_outside_keeps_directions_that_are_mostly_so() -> None:
    axes = torch.eye(6).double()
    tilted = torch.stack([axes[:, 0] * 0.9 + axes[:, 3] * 0.19**0.5, axes[:, 4]], 1)
    basis = outside(tilted, (axes[:, 3:4], torch.zeros(6, 0).double()))
    assert overlap(basis, axes[:, 3:4]) < 1e-12
    assert overlap(axes[:, [0, 4]], basis) == pytest.approx(1)
    inside = axes[:, :1] * 0.3 + axes[:, 3:4] * 0.91**0.5  # with more than half of its length
    assert outside(inside, (axes[:, 3:4],)).shape == (6, 0)


def test_a_shuffle_permutes_within_an_image_and_leaves_no_patch_its_own() -> None:
    generator = torch.Generator().manual_seed(0)
    b = torch.randn(5, 9, 2, generator=generator)
    there = torch.arange(9).expand(5, 9) > 0  # token 0 is no patch
    order = order_of_patches(5, 9, seed=3)
    for share, moved in ((0.0, 0), (0.5, 4), (1.0, 8)):
        edited = shuffled(b, there, order, share)
        assert int((edited != b).any(-1).sum()) == 5 * moved
        assert torch.equal(edited[:, 0], b[:, 0])
        for before, after in zip(b, edited, strict=True):
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
    bases["beyond"] = random_basis(dim, k, 7)
    mean = torch.randn(dim, generator=generator)
    return Editor(bases, mean, torch.arange(6).expand(4, 6) // 2)


@pytest.mark.parametrize("subspace", ["beyond", "variance"])
@pytest.mark.parametrize("edit", ["shuffle", "inject", "remove"])
def test_an_edit_of_strength_0_changes_no_bit(edit: Any, subspace: Any) -> None:
    tokens = torch.randn(4, 7, 8, generator=torch.Generator().manual_seed(2))
    patches = torch.arange(-1, 6).expand(4, 7)
    what = SubspaceEdit(edit, 0.0, subspace)
    assert torch.equal(an_editor().edited(tokens, what, torch.arange(4), patches), tokens)


def test_edits_touch_patches_alone_and_removal_leaves_nothing_to_read() -> None:
    editor = an_editor()
    tokens = torch.randn(4, 7, 8, generator=torch.Generator().manual_seed(3))
    patches = torch.arange(-1, 6).expand(4, 7)
    for what in interventions():
        edited = editor.edited(tokens, what, torch.arange(4), patches)
        assert torch.equal(edited[:, 0], tokens[:, 0])
        assert not torch.allclose(edited[:, 1:], tokens[:, 1:])
    removed = editor.edited(tokens, SubspaceEdit("remove", 1.0, "probe"), torch.arange(4), patches)
    remaining = (removed[:, 1:] - editor.mean) @ editor.bases["probe"].float()
    assert float(remaining.abs().max()) < 1e-5


def test_controls_of_matched_length_move_every_token_as_far() -> None:
    editor = an_editor()
    tokens = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(4))
    patches, scenes = torch.arange(6).expand(4, 6), torch.arange(4)
    far = {
        name: (
            editor.edited(tokens, SubspaceEdit("remove", 1.0, name), scenes, patches) - tokens
        ).norm(dim=-1)
        for name in ("beyond", "variance", "mean")
    }
    for name in ("variance", "mean"):
        torch.testing.assert_close(far[name], far["beyond"], atol=1e-5, rtol=1e-4)
    assert torch.equal(as_long_as(torch.ones(1, 3), torch.zeros(1, 3)), torch.zeros(1, 3))


def test_matched_directions_hold_the_variance_of_the_probes_and_lie_elsewhere() -> None:
    variances = torch.tensor([9.0] * 4 + [1.0] * 12 + [0.01] * 16).double()
    covariance, probe = torch.diag(variances), torch.eye(32).double()[:, [4, 20]]
    basis = matched_basis(covariance, probe, 0)
    torch.testing.assert_close(basis.t() @ basis, torch.eye(2).double())
    assert held_variance(covariance, probe) == pytest.approx(1.01)
    assert held_variance(covariance, basis) == pytest.approx(1.01, rel=0.2)
    assert held_variance(covariance, random_basis(32, 2, 0)) > 0
    assert overlap(probe, basis) < 0.5
    # Where the probe reads what varies most, no other directions hold as much.
    most = variance_basis(covariance, 4)
    assert overlap(most, matched_basis(covariance, most, 0)) == pytest.approx(1)
    assert not torch.equal(basis, matched_basis(covariance, probe, 1))


# --- A model whose subspace is known ---


@pytest.fixture(scope="module")
def exact() -> RowsByEdit:
    return index_rows(measured(0.0))


def test_removing_what_the_probe_reads_leaves_chance_and_no_control_does(
    exact: RowsByEdit,
) -> None:
    def look_up(edit: str, subspace: str, quantity: str) -> float:
        value: float = exact[edit, float(edit != "none"), subspace, quantity]["value"]
        return value

    before = [look_up("none", "none", f"{at}auc_within") for at in ("", "later_")]
    assert before == [1.0, 1.0]
    for name in ("probe", "beyond"):
        assert look_up("remove", name, "auc_within") == look_up("remove", name, "later_auc_within")
        assert exact["remove", 1.0, name, "auc_within_change"]["high"] < 0
        assert look_up("remove", name, "auc_within") == pytest.approx(0.5, abs=1e-3)
    for control in ("random", "matched", "variance", "mean"):
        assert look_up("remove", control, "auc_within") > 0.98
        assert ("remove", 1.0, control, "auc_within_beyond_controls") not in exact
    assert ("remove", 1.0, "probe", "auc_within_beyond_controls") not in exact
    changes = [look_up("remove", name, "change") for name in ("beyond", "matched", "mean")]
    assert changes[1:] == pytest.approx([changes[0]] * 2, rel=0.1)
    assert look_up("remove", "random", "change") < changes[0]
    assert exact["remove", 1.0, "beyond", "auc_within_beyond_controls"]["high"] < -0.4


def test_attention_by_the_subspace_becomes_uniform_without_it(exact: RowsByEdit) -> None:
    plain, removed = ("none", 0.0, "none"), ("remove", 1.0, "beyond")
    assert exact[*plain, "object_share"]["value"] > 0.75
    uniform = exact[*plain, "uniform_share"]["value"]
    assert exact[*removed, "object_share"]["value"] == pytest.approx(uniform, abs=1e-5)
    areas = [exact["shuffle", share, "beyond", "auc_within"]["value"] for share in (1.0, 0.5)]
    assert areas[0] < areas[1]


def test_an_edit_of_strength_0_changes_no_share_where_heads_differ() -> None:
    """One head goes by objects, one by nothing: the mean of shares is not the share of the mean."""
    measuring, plain = on_toy(0.0)
    nothing = [SubspaceEdit(edit, 0.0, "beyond") for edit in ("shuffle", "inject", "remove")]
    readings = {None: plain.reading, **measuring.under(nothing)}
    rows = index_rows(
        ablation_rows(
            measuring.scenes.labels, sorted(measuring.scorers), readings, Bootstrap(50, 0)
        )
    )
    shares = readings[None]["share"]
    assert np.abs(shares[0] - shares[1]).max() > 0.1
    for what in nothing:
        assert rows[*what, "change"]["value"] == 0
        for name in ("auc_within", "later_auc_within", "object_share"):
            ends = [rows[*what, f"{name}_change"][end] for end in ("value", "low", "high")]
            assert ends == [0.0, 0.0, 0.0]


def test_injecting_the_mean_of_the_object_mends_a_noisy_code() -> None:
    rows = index_rows(measured(0.5))
    plain, half, whole = (
        rows[*key, "auc_within"]["value"]
        for key in (("none", 0.0, "none"), ("inject", 0.5, "probe"), ("inject", 1.0, "probe"))
    )
    assert plain < half < whole
    assert rows["inject", 1.0, "probe", "auc_within_change"]["low"] > 0
    control = rows["inject", 1.0, "random", "auc_within"]["value"]
    assert control == pytest.approx(plain, abs=0.03)


class _Masks:
    """Stands for a shard of scenes, and notes how much of it is read at a time."""

    def __init__(self, masks: npt.NDArray[np.uint8]) -> None:
        self.masks, self.most = masks, 0

    def layout(self, name: str) -> Any:
        return SimpleNamespace(n_rows=len(self.masks))

    def read(self, name: str, rows: slice) -> npt.NDArray[np.uint8]:
        masks = self.masks[rows]
        self.most = max(self.most, len(masks))
        return masks


def test_masks_of_many_scenes_are_read_a_few_at_a_time() -> None:
    masks = np.random.default_rng(0).integers(0, 4, (90, 8, 8), dtype=np.uint8)
    stores: Any = [_Masks(masks[:50]), _Masks(masks[50:])]
    instances = objects_of_patches(stores, (2, 2), 80)
    assert max(store.most for store in stores) <= 16
    whole = count_pixels(masks[:80], (2, 2)).argmax(-1)
    np.testing.assert_array_equal(instances.numpy(), np.where(whole == 0, -1, whole))


def test_rows_are_valid_under_the_schema() -> None:
    names = {
        "dataset": "toy",
        "model": "toy",
        "layer": "1",
        "probe": "quadratic",
        "spec_key": "0" * 8,
        "code_key": "0" * 8,
    }
    table = table_of([{**row, **names} for row in measured(0.3)], EDITS_SCHEMA)
    edits = table[["edit", "strength", "subspace"]].drop_duplicates()
    assert len(edits) == 1 + 5 * 5 + 1
    assert list(edits["edit"].drop_duplicates()) == ["none", "shuffle", "inject", "remove"]
    judged = table[table["subspace"] == "beyond"].groupby("quantity")["value"]
    assert judged.min()["directions"] == judged.max()["directions"] == OBJECTS
    assert judged.max()[["class_overlap", "position_overlap"]].max() < 0.5
    heads = table[table["quantity"] == "pearson"]
    assert set(heads["at"]) == {"mean", "1", "2"}
    assert (heads["value"] > 0.5).all()
    assert heads["low"].le(heads["value"]).all()


def test_an_effect_is_beyond_every_control_and_its_interval_holds_it() -> None:
    rivals = {
        "random": {"value": -0.4, "low": -0.5, "high": -0.3},
        "variance": {"value": -0.1, "low": -0.3, "high": 0.02},
        "matched": {"value": -0.2, "low": -0.22, "high": -0.18},
    }
    assert beyond(rivals, falls=True) == [
        {"value": -0.1, "low": -0.22, "high": 0.02, "reason": "strictest control: variance"}
    ]
    (rises,) = beyond(rivals, falls=False)
    assert rises["reason"] == "strictest control: random"
    assert rises["high"] == -0.3


def test_a_loss_is_compared_batch_by_batch() -> None:
    what, rival = SubspaceEdit("remove", 1.0, "beyond"), SubspaceEdit("remove", 1.0, "random")
    rows = index_rows(loss_rows({None: np.array([1.0, 5.0]), what: np.array([2.0, 6.0])}))
    assert rows[*what, "pretraining_loss"]["value"] == 4
    change = rows[*what, "pretraining_loss_change"]
    assert (change["value"], change["low"], change["high"], change["n"]) == (1, 1, 1, 2)
    losses = {None: np.zeros(3), what: np.array([2.0, 3.0, 4.0]), rival: np.array([1.0, 1.5, 2.6])}
    rows = index_rows(loss_rows(losses))
    compared = rows[*what, "pretraining_loss_beyond_controls"]
    assert compared["value"] == pytest.approx(1.3)
    assert compared["reason"] == "strictest control: random"
    assert (*rival, "pretraining_loss_beyond_controls") not in rows


# --- The model's own loss -----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["masked", "self_distillation"])
def evaluation(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Evaluation:
    """A small model with the heads of its objective."""
    folder, config = tmp_path_factory.mktemp("trained"), configured(request.param)
    exclude = {"name", "extraction", "input_px"}
    spec = {
        "model": config.model_dump(mode="json", exclude=exclude),
        "dataset": EASY.model_dump(mode="json", exclude={"name"}),
        "threads": 1,
        "device": "cpu",
    }
    paths = [folder / f"vit{end}" for end in (".safetensors", ".history.json", ".json")]
    write_training(trained(config), *paths, spec=canonical_json(spec), code="own:chained")
    return load(config, paths[-1], "cpu")


def scenes_of(evaluation: Evaluation) -> tuple[Any, Any, Editor]:
    """The validation scenes of the training, and an editor of half of the dimensions."""
    images, codes = FreshScenes(EASY, 32, 0).validation(VAL_SCENES)
    vit = evaluation.objective.vit
    n_patches, dim = vit.rows**2, vit.width
    basis = random_basis(dim, dim // 2, 0)
    editor = Editor(
        dict.fromkeys(("probe", "beyond", "random", "matched", "variance"), basis),
        torch.zeros(dim),
        torch.arange(n_patches).expand(len(images), -1) % 3,
    )
    return images, codes, editor


def test_the_loss_is_that_of_the_same_edits(evaluation: Evaluation) -> None:
    """Hidden patches and cut views included: an edit finds its scene and patch in all of them."""
    (images, codes, editor), vit = scenes_of(evaluation), evaluation.objective.vit
    nothing, removed = SubspaceEdit("shuffle", 0.0, "probe"), SubspaceEdit("remove", 1.0, "probe")
    labels = SimpleNamespace(grid=(vit.rows, vit.rows))
    test: Any = SimpleNamespace(layer=1, editor=editor, scenes=SimpleNamespace(labels=labels))
    arguments = (evaluation, images, codes, test, [nothing, removed])
    losses = pretraining_losses(*arguments)
    assert not isinstance(losses, str)
    assert np.array_equal(losses[nothing], losses[None])
    assert not np.allclose(losses[removed], losses[None], atol=1e-3)
    labels.grid = (1, 2)
    assert "patches" in pretraining_losses(*arguments)
