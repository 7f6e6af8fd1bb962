"""A trained model's own loss, as it is and under edits of its residual stream."""

import json
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small_models import EASY, configured, trained, write
from torch import Tensor
from torch.nn import functional

from bindscope.config import zoo as files
from bindscope.config.models import AnyModel, Zoo
from bindscope.core.errors import ModelError
from bindscope.core.files import sha256
from bindscope.core.interfaces import Edit
from bindscope.core.registries import OBJECTIVES
from bindscope.models.controlled import load as load_frozen
from bindscope.models.objectives import self_distillation
from bindscope.models.objectives.base import TokenSources
from bindscope.models.objectives.evaluation import Evaluation
from bindscope.models.pretraining_loss import load
from bindscope.models.training import VAL_SCENES, Trained, untrained
from bindscope.models.training_scenes import FreshScenes
from bindscope.models.zoo import described
from bindscope.models.zoo import write as write_to_zoo

torch.set_num_threads(1)

CPU = torch.device("cpu")
IMAGES, CODES = FreshScenes(EASY, 32, 0).validation(VAL_SCENES)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Trained, Path]]:
    """Return a short training for every objective, and its manifest."""
    folder = tmp_path_factory.mktemp("trainings")
    pairs = {}
    for name in OBJECTIVES:
        training = trained(configured(name))
        pairs[name] = training, write(training, folder / name, configured(name))
    return pairs


@pytest.fixture(params=OBJECTIVES)
def objective(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def evaluation(trainings: Any, objective: str) -> Evaluation:
    return load(configured(objective), trainings[objective][1], "cpu")


def remove(direction: Tensor) -> Edit:
    unit = direction / direction.norm()
    return lambda tokens: tokens - (tokens @ unit)[..., None] * unit


def test_it_is_the_last_loss_of_the_history(trainings: Any, objective: str) -> None:
    training, _ = trainings[objective]
    losses = evaluation(trainings, objective).bits(IMAGES, CODES)
    assert losses.shape == (VAL_SCENES // 32,)
    assert losses.mean() == pytest.approx(training.history[-1]["loss_bits"], rel=1e-6)


@pytest.mark.parametrize("objective", ["objects", "masked", "self_distillation"])
def test_an_identity_changes_nothing_and_an_edit_does(trainings: Any, objective: str) -> None:
    measure = evaluation(trainings, objective)
    plain = measure.bits(IMAGES[:64], CODES[:64])
    away = remove(torch.linspace(-1, 1, 32))
    rows = []

    def identity(tokens: Tensor) -> Tensor:
        rows.append(tuple(tokens.shape))
        return tokens

    for layer in range(3):
        rows.clear()
        same = measure.bits(IMAGES[:64], CODES[:64], lambda seen_patches, at=layer: {at: identity})
        np.testing.assert_allclose(same, plain, rtol=1e-5)
        # Once a batch: of self-distillation the student's two views, not the teacher's.
        batch = 64 if objective == "self_distillation" else 32
        assert rows == [(batch, 9 if objective == "masked" else 17, 32)] * 2
        edited = measure.bits(IMAGES[:64], CODES[:64], lambda seen_patches, at=layer: {at: away})
        assert not np.allclose(edited, plain, rtol=1e-4)
    np.testing.assert_array_equal(measure.bits(IMAGES[:64], CODES[:64]), plain)


def test_an_edit_is_that_of_the_residual_stream(trainings: Any) -> None:
    """The same edit through the frozen model, and the loss written out."""
    training, manifest = trainings["objects"]
    frozen = load_frozen(configured(), manifest, CPU)
    measure = evaluation(trainings, "objects")
    images, codes = IMAGES[:32], CODES[:32]
    for layer in (0, 1, 2):
        edit = remove(torch.linspace(-1, 2, 32))
        ((_, tokens),) = frozen.edited_stream(frozen.preprocess(images), ["final"], {layer: edit})
        head = {name: training.weights[f"objective.head.{name}"] for name in ("weight", "bias")}
        nats = functional.binary_cross_entropy_with_logits(
            functional.linear(tokens[:, 0], **head),
            torch.from_numpy(codes).float(),
            reduction="sum",
        )
        (loss,) = measure.bits(images, codes, lambda _tokens, at=layer, e=edit: {at: e})
        assert loss == pytest.approx(float(nats) / 32 / log(2), rel=1e-5)


def test_patches_after_the_last_block_do_not_enter_a_loss_of_cls(trainings: Any) -> None:
    measure = evaluation(trainings, "features")

    def scramble(tokens: Tensor) -> Tensor:
        return torch.cat([tokens[:, :1], 1e3 * tokens[:, 1:].flip(-1)], 1)

    plain = measure.bits(IMAGES[:32], CODES[:32])
    at_the_end = measure.bits(IMAGES[:32], CODES[:32], lambda _tokens: {2: scramble})
    np.testing.assert_allclose(at_the_end, plain, rtol=1e-6)
    before = measure.bits(IMAGES[:32], CODES[:32], lambda _tokens: {1: scramble})
    assert not np.allclose(before, plain, rtol=1e-4)


# --- What tokens show ---------------------------------------------------------------------------


def visible_tokens_of(measure: Evaluation, n: int) -> tuple[list[TokenSources], list[Tensor]]:
    """Return what the tokens of each batch show, and the tokens that enter block 1."""
    visible: list[TokenSources] = []
    entered: list[Tensor] = []

    def edits(what: TokenSources) -> dict[int, Edit]:
        visible.append(what)

        def keep(tokens: Tensor) -> Tensor:
            entered.append(tokens.clone())
            return tokens

        return {0: keep}

    measure.bits(IMAGES[:n], CODES[:n], edits)
    return visible, entered


@pytest.mark.parametrize("name", ["objects", "captions", "masked"])
def test_tokens_are_those_of_the_patches_they_are_said_to_show(trainings: Any, name: str) -> None:
    measure = evaluation(trainings, name)
    pixels, _ = measure.batch(IMAGES[:96], CODES[:96])
    every = measure.objective.vit.tokens(pixels)
    visible, entered = visible_tokens_of(measure, 96)
    assert [part.scenes.tolist() for part in visible] == [
        list(range(start, start + 32)) for start in (0, 32, 64)
    ]
    for part, tokens in zip(visible, entered, strict=True):
        assert part.patches.shape == tokens.shape[:2]
        assert (part.patches[:, 0] == -1).all()
        assert (part.patches[:, 1:] >= 0).all()
        torch.testing.assert_close(tokens, every[part.scenes[:, None], part.patches + 1])


def test_views_show_the_patch_under_their_centres(
    trainings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenes whose patches are of one grey each: the view's grey says which patch it is."""
    monkeypatch.setattr(self_distillation, "NOISE", 0.0)
    monkeypatch.setattr(self_distillation, "BRIGHTNESS", 0.0)
    vit = evaluation(trainings, "self_distillation").objective.vit
    task = evaluation(trainings, "self_distillation").objective
    greys = torch.linspace(-1, 1, 16).view(1, 1, 4, 4)
    pixels = functional.interpolate(greys, scale_factor=8).expand(64, 3, 32, 32)
    visible = task.visible_tokens(pixels, torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    views = torch.cat([self_distillation.view(pixels, generator) for _ in range(2)])
    assert visible.scenes.tolist() == [*range(64), *range(64)]
    centres = vit.squares(views).view(128, 16, 3, 8, 8)[:, :, 0, 3:5, 3:5]
    steady = (centres.amax((2, 3)) - centres.amin((2, 3))) < 1e-3  # not on a patch's edge
    patches = visible.patches[:, 1:]
    assert 0.02 < (patches == -1).float().mean() < 0.4
    clear = steady & (patches >= 0)
    assert clear.float().mean() > 0.4
    levels = greys.flatten()[patches.clamp(min=0)]
    torch.testing.assert_close(levels[clear], centres.mean((2, 3))[clear], rtol=0, atol=1e-3)


def test_draws_are_masks_and_views_and_nothing_else(trainings: Any, objective: str) -> None:
    measure = evaluation(trainings, objective)
    first, again, redrawn = (
        measure.bits(IMAGES[:32], CODES[:32], draws=draws) for draws in (0, 0, 1)
    )
    assert (first == again).all()
    assert (first != redrawn).all() == (objective in ("masked", "self_distillation"))


# --- Files and mistakes -------------------------------------------------------------------------


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "ZOO", tmp_path)
    files._read.cache_clear()
    return tmp_path


def of_zoo(name: str) -> Zoo:
    zoo_model: Zoo = TypeAdapter(AnyModel).validate_python(
        {"name": "mine", "source": f"zoo:{name}"}
    )
    return zoo_model


@pytest.mark.parametrize("objective", ["masked"])
def test_a_model_of_the_zoo_has_its_loss(trainings: Any, objective: str, zoo: Path) -> None:
    """As float16, so nearly that of its history."""
    training, manifest = trainings[objective]
    write_to_zoo(zoo, "small", manifest, described(manifest), lock="1" * 64, cpu_seconds=None)
    losses = load(of_zoo("small"), None, "cpu").bits(IMAGES, CODES)
    assert losses.mean() == pytest.approx(training.history[-1]["loss_bits"], rel=2e-3)


def test_a_file_without_heads_names_the_remedy(trainings: Any, zoo: Path) -> None:
    training, _ = trainings["masked"]
    alone = {n: v for n, v in training.weights.items() if not n.startswith("objective.")}
    manifest = write(Trained(alone, training.history, 32), zoo, configured("masked"))
    with pytest.raises(ModelError, match=r"the transformer alone(.|\n)*make zoo"):
        load(configured("masked"), manifest, "cpu")


def test_weights_of_another_objective_are_refused(trainings: Any, zoo: Path) -> None:
    manifest = write(trainings["captions"][0], zoo, configured("masked"))
    with pytest.raises(ModelError, match=r"not those of its recipe(.|\n)*decoder(.|\n)*again"):
        load(configured("masked"), manifest, "cpu")


def test_what_has_no_loss(zoo: Path) -> None:
    manifest = write(untrained(configured("none"), EASY), zoo, configured("none"))
    with pytest.raises(ModelError, match=r"trained for 'none', which has no loss"):
        load(configured("none"), manifest, "cpu")
    with pytest.raises(ModelError, match=r"its weights are not there(.|\n)*run snakemake"):
        load(configured(), zoo / "absent.json", "cpu")


def test_scenes_and_edits_that_make_no_sense(trainings: Any) -> None:
    measure = evaluation(trainings, "objects")
    for images, codes in ((IMAGES[:3], CODES[:2]), (IMAGES[:0], CODES[:0])):
        with pytest.raises(ModelError, match="have no loss"):
            measure.bits(images, codes)
    with pytest.raises(ModelError, match=r"no layer 3 to edit(.|\n)*edit layers 0 to 2"):
        measure.bits(IMAGES[:32], CODES[:32], lambda seen_patches: {3: lambda t: t})
    plain = measure.bits(IMAGES[:32], CODES[:32])
    for layer in range(3):
        with pytest.raises(ModelError, match=rf"the edit at layer {layer} turns tokens"):
            measure.bits(
                IMAGES[:32], CODES[:32], lambda seen_patches, at=layer: {at: lambda t: t[:, :3]}
            )
    np.testing.assert_array_equal(measure.bits(IMAGES[:32], CODES[:32]), plain)  # no hook is left
    few = measure.bits(IMAGES[:5], CODES[:5])  # fewer than a batch are one
    assert few.shape == (1,)


COMMITTED = [  # toys are of another kind, and have no loss of their own here
    path for path in sorted(files.ZOO.glob("*.json")) if "kind" not in json.loads(path.read_text())
]


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_what_is_committed_has_its_loss_or_says_what_it_lacks(path: Path) -> None:
    manifest = json.loads(path.read_text())
    with safe_open(path.with_suffix(".safetensors"), "pt") as weights:
        whole = any(name.startswith("objective.") for name in weights.keys())  # noqa: SIM118
    if whole:
        assert load(of_zoo(path.stem), None, "cpu").n_layers == 4
        return
    lacks = "has no loss" if manifest["objective"] == "none" else "the transformer alone"
    with pytest.raises(ModelError, match=lacks):
        load(of_zoo(path.stem), None, "cpu")


def test_damaged_weights_are_named(trainings: Any, zoo: Path) -> None:
    manifest = write(trainings["objects"][0], zoo, configured("objects"))
    weights = manifest.with_suffix(".safetensors")
    tensors = load_file(weights)
    tensors["objective.head.bias"] += 1
    save_file(tensors, weights)
    with pytest.raises(ModelError, match=r"vit.safetensors: is missing or not what"):
        load(configured(), manifest, "cpu")
    content = json.loads(manifest.read_text()) | {"sha256": sha256(weights.read_bytes())}
    manifest.write_text(json.dumps(content))
    assert load(configured(), manifest, "cpu").bits(IMAGES, CODES).mean() > 0
