"""Any PyTorch module through hooks: what they capture equals what the module computes."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from activations_by_hand import SHARD, build_dataset
from jobs_by_hand import ci_graph, job_by_hand, script
from mutations import example
from torch import Tensor, nn

from bindscope.activations.reader import Activations
from bindscope.config.loading import load_config
from bindscope.config.models import PythonModel
from bindscope.core import keys
from bindscope.core.errors import BindscopeError, ConfigError, ModelError
from bindscope.core.interfaces import Model
from bindscope.models.base import TokenMap
from bindscope.models.hooked import HookedModule
from bindscope.models.loading import load_model
from bindscope.testing import check_model

SIDE = 16
RAW = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


class Cnn(nn.Module):
    """Three maps of different widths and grids; the last activation works in place."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.relu = nn.ReLU()
        self.wide = nn.Conv2d(4, 6, 3, stride=(2, 1), padding=1)
        self.inplace = nn.ReLU(inplace=True)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(6, 2)
        self.unused = nn.Linear(1, 1)
        self.dropout = nn.Dropout(0.5)

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute."""
        stem = self.relu(self.relu(self.stem(pixels)))
        wide = self.inplace(self.wide(stem))
        return self.head(self.dropout(self.pool(wide)).flatten(1))


class Vit(nn.Module):
    """A plain transformer: [CLS], a register, and patches in two halves."""

    def __init__(self, columns: int = 4) -> None:
        super().__init__()
        self.columns = columns
        self.embed = nn.Conv2d(3, 8, 4, stride=(4, SIDE // columns))
        self.extra = nn.Parameter(torch.randn(2, 8))
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute."""
        patches = self.embed(pixels).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.extra.expand(len(pixels), 2, 8), patches], dim=1)
        for block in self.blocks:
            tokens, _ = block(tokens)
        return tokens[:, 0]


class Block(nn.Module):
    """A block that returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, tokens: Tensor) -> tuple[Tensor, None]:
        """Compute."""
        return tokens + self.linear(tokens).tanh(), None


def make_cnn() -> nn.Module:
    return Cnn()


def make_vit(columns: int = 4) -> nn.Module:
    return Vit(columns)


def make_blind() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 7))


def hooked(function: str, *modules: str, **fields: Any) -> PythonModel:
    source = function if ":" in function else f"python:{__name__}:{function}"
    model_fields = {"name": "m", "source": source, "modules": modules, "transform": RAW, **fields}
    return PythonModel.model_validate(model_fields)


def load(function: str, *modules: str, **fields: Any) -> HookedModule:
    model = load_model(hooked(function, *modules, **fields), None, "cpu", SIDE)
    assert isinstance(model, HookedModule)
    return model


def pixels(n: int = 3, side: int = SIDE) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


@torch.inference_mode()
def tokens(model: Model, layers: Any, side: int = SIDE) -> dict[Any, Tensor]:
    return dict(model.residual_stream(model.preprocess(pixels(side=side)), layers))


def as_tokens(feature_map: Tensor) -> Tensor:
    return feature_map.flatten(2).transpose(1, 2)


def twin(model: HookedModule, module: nn.Module) -> Any:
    """The same weights in a module that no hook has touched."""
    module.load_state_dict(model.network.state_dict())
    return module.eval()


# --- what is captured ------------------------------------------------------------------------


@torch.inference_mode()
def test_maps_are_tokens_in_raster_order() -> None:
    model = load("make_cnn", "stem", "wide")
    assert isinstance(model, Model)
    assert model.n_layers == 2
    assert [(s.dim, s.token_map.grid) for s in model.shapes.values()] == [(4, (8, 8)), (6, (4, 8))]
    assert not model.token_map.has_cls
    layers_read = tokens(model, [2, 1, 2])
    assert list(layers_read) == [1, 2]
    direct, x = twin(model, Cnn()), model.preprocess(pixels())
    stem = direct.stem(x)
    torch.testing.assert_close(layers_read[1], as_tokens(stem))
    # Before the activation that follows in place.
    torch.testing.assert_close(layers_read[2], as_tokens(direct.wide(stem.relu())))
    assert (layers_read[2] < 0).any()


@torch.inference_mode()
def test_tokens_of_a_transformer() -> None:
    model = load("make_vit", "blocks.1", "blocks.0", has_cls=True, registers=1)
    assert model.token_map.prefix == 2
    assert model.token_map.grid == (4, 4)
    layers_read = tokens(model, [1, 2])
    direct, x = twin(model, Vit()), model.preprocess(pixels())
    first = torch.cat([direct.extra.expand(3, 2, 8), as_tokens(direct.embed(x))], 1)
    first = direct.blocks[0](first)[0]
    torch.testing.assert_close(layers_read[2], first)  # layers are in the order of `modules`
    torch.testing.assert_close(layers_read[1], direct.blocks[1](first)[0])


TWO_COLUMNS: dict[str, Any] = {"has_cls": True, "registers": 1, "options": {"columns": 2}}


def test_a_grid_that_is_no_square() -> None:
    assert load("make_vit", "blocks.0", grid=(4, 2), **TWO_COLUMNS).token_map.grid == (4, 2)


def test_weights_follow_from_the_seed_and_are_frozen() -> None:
    first, same, reseeded = (
        load("make_cnn", "stem", seed=seed).weights_sha256 for seed in (1, 1, 2)
    )
    assert first == same != reseeded
    state = torch.get_rng_state()
    module = load("make_cnn", "stem").network
    assert torch.equal(state, torch.get_rng_state())
    assert not module.training
    assert not any(weight.requires_grad for weight in module.parameters())


def test_the_input_is_resized_and_normalised() -> None:
    transform = {"input_px": 8, "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.5, 1.0)}
    model = load("make_cnn", "stem", transform=transform)
    grey = model.preprocess(np.full((1, 12, 12, 3), 255, np.uint8))
    assert grey.shape == (1, 3, 8, 8)
    torch.testing.assert_close(grey[0, :, 0, 0], torch.tensor([2.0, 1.0, 0.5]))
    assert model.token_map.grid == (4, 4)
    assert model.token_map.patch_px == 2


@torch.inference_mode()
def test_a_residual_network_of_torchvision() -> None:
    model = load(
        "python:torchvision.models:resnet18",
        "layer1.0.bn1",
        "layer2",
        "layer3.1",
        "layer4",
        transform={"input_px": 64},
    )
    grids = [(shape.dim, shape.token_map.grid) for shape in model.shapes.values()]
    assert grids == [(64, (16, 16)), (128, (8, 8)), (256, (4, 4)), (512, (2, 2))]
    layers_read = tokens(model, [1, 2, 3, 4])
    from torchvision.models import resnet18

    direct, x = twin(model, resnet18()), model.preprocess(pixels())
    x = direct.maxpool(direct.relu(direct.bn1(direct.conv1(x))))
    torch.testing.assert_close(
        layers_read[1], as_tokens(direct.layer1[0].bn1(direct.layer1[0].conv1(x)))
    )
    x = direct.layer2(direct.layer1(x))
    torch.testing.assert_close(layers_read[2], as_tokens(x))
    x = direct.layer3(x)
    torch.testing.assert_close(layers_read[3], as_tokens(x))
    torch.testing.assert_close(layers_read[4], as_tokens(direct.layer4(x)))


# --- which token shows what ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "modules", "fields", "message"),
    [
        ("make_swin", ["layers.0"], {}, "read as 28 x 24 cells(.|\n)*`channels_last: true`"),
        ("make_sam", ["vision_encoder.layers.0"], {}, "read as 7 x 32 cells"),
        ("make_mae", ["layers.1"], {"has_cls": True}, "other values in a second pass(.|\n)*masks"),
        ("make_hiera", ["blocks.0"], {}, "read as 56 x 56 patches in raster order(.|\n)*`grid`"),
        ("make_vjepa", ["out"], {}, "read as 8 x 8 patches in raster order"),
        ("make_cls_last", ["out"], {"has_cls": True}, "changes of the image show another order"),
        ("make_tokens_first", ["out"], {"has_cls": True}, "the first axis is not the images'"),
        ("make_merged", ["out"], {"has_cls": True}, "read as 3 x 3 patches in raster order"),
        ("make_registers_last", ["out"], {"has_cls": True, "registers": 4}, "another order"),
        ("make_columns_first", ["out"], {}, "another order"),
        ("make_broken", ["blocks.1"], {"has_cls": True}, "not finite(.|\n)*NaN"),
    ],
)
def test_tokens_in_another_order_than_the_image_are_refused(
    function: str, modules: list[str], fields: dict[str, Any], message: str
) -> None:
    side = {"make_mae": 224, "make_hiera": 224, "make_vjepa": 64}.get(function, 112)
    with pytest.raises(ModelError, match=message):
        load(f"python:token_orders:{function}", *modules, transform={"input_px": side}, **fields)


@torch.inference_mode()
@pytest.mark.parametrize(
    ("function", "modules", "grids"),
    [
        ("make_swin", ["layers.0", "layers.1"], [(28, 28), (14, 14)]),
        ("make_sam", ["vision_encoder.layers.0", "vision_encoder.layers.1"], [(7, 7), (7, 7)]),
    ],
)
def test_maps_whose_channels_are_last(
    function: str, modules: list[str], grids: list[tuple[int, int]]
) -> None:
    function = f"python:token_orders:{function}"
    model = load(function, *modules, transform={"input_px": 112}, channels_last=True)
    assert [shape.token_map.grid for shape in model.shapes.values()] == grids
    x = model.preprocess(pixels(side=112))
    maps: list[Tensor] = []
    hook = model.blocks[1].register_forward_hook(lambda module, inputs, map_: maps.append(map_))
    model.network(x)
    hook.remove()
    (last,) = dict(model.residual_stream(x, [2])).values()
    assert torch.equal(last, maps[0].flatten(1, 2))
    check_model(model)
    edited = dict(model.edited_stream(x, [1, 2], {1: lambda tokens: tokens + 1.0}))
    plain = dict(model.residual_stream(x, [1]))
    assert torch.equal(edited[1], plain[1] + 1.0)
    assert not torch.equal(edited[2], last)


def test_cells_of_a_mobile_network_overlap_and_are_not_refused() -> None:
    options = {"options": {"model_name": "efficientnet_b0"}, "transform": {"input_px": 128}}
    model = load("python:timm:create_model", "blocks.1", "blocks.4", "blocks.6", **options)
    grids = [shape.token_map.grid for shape in model.shapes.values()]
    assert grids == [(32, 32), (8, 8), (4, 4)]


@pytest.mark.parametrize(
    ("initializer_range", "message"),
    [
        (0.02, r"its values are \de-\d\d at most(.|\n)*trained weights"),
        (0.2, r"all of its 16 x 16 cells alike(.|\n)*trained weights"),
    ],
)
def test_maps_in_which_no_patch_is_located_say_why(initializer_range: float, message: str) -> None:
    options = {"options": {"initializer_range": initializer_range}, "transform": {"input_px": 128}}
    with pytest.raises(ModelError, match=message):
        load("python:token_orders:make_mobilevit", "encoder.layer.2", **options)


def test_layers_of_mobilevit_are_maps() -> None:
    options = {"options": {"initializer_range": 0.5}, "transform": {"input_px": 128}}
    names = [f"encoder.layer.{number}" for number in (2, 3, 4)]
    model = load("python:token_orders:make_mobilevit", *names, **options)
    assert [shape.token_map.grid for shape in model.shapes.values()] == [(16, 16), (8, 8), (4, 4)]
    with pytest.raises(ModelError, match=r"first axis is not the images'(.|\n)*that holds it"):
        load("python:token_orders:make_mobilevit", f"{names[0]}.transformer.layer.0", **options)


# --- from activations to probes --------------------------------------------------------------


@pytest.mark.parametrize("modules", [("stem", "wide"), ("blocks.0", "blocks.1")])
def test_layers_of_different_widths_are_stored_and_read(
    tmp_path: Path, modules: tuple[str, str]
) -> None:
    maps = modules[0] == "stem"
    fields = {} if maps else {"has_cls": True, "registers": 1}
    model = load("make_cnn" if maps else "make_vit", *modules, **fields)
    index, data = build_dataset(tmp_path / "pooled", model, dtype="float32")
    activations = Activations(index)
    assert activations.layers == ("1", "2")
    with torch.inference_mode():
        x = model.preprocess(data["test"])
        for layer, direct in model.residual_stream(x, [1, 2]):
            patches = direct[:, 0 if maps else 2 :]
            mean = activations.pooled("test", "mean", layer)
            np.testing.assert_allclose(mean, patches.mean(1).numpy(), atol=1e-5)
            if maps:
                with pytest.raises(ModelError, match=r"no \[CLS\] token(.|\n)*tokens: mean"):
                    activations.vectors("test", "cls_mean", layer)
            else:
                both = activations.pooled("test", "cls_mean", layer)
                np.testing.assert_allclose(both[:, :8], direct[:, 0].numpy(), atol=1e-5)
                np.testing.assert_array_equal(both[:, 8:], mean)
            alone, _ = build_dataset(tmp_path / f"patches-{layer}", model, layer, dtype="float32")
            reader = Activations(alone).patches("test")
            assert reader.shape == (2 * SHARD, *patches.shape[1:])
            stored = reader.read(0, 2 * SHARD)
            np.testing.assert_allclose(stored, patches.numpy(), atol=1e-5)
    with pytest.raises(BindscopeError, match="no layer"):
        activations.pooled("test", "mean", "final")


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (hooked("make_cnn", "stemm"), r"no submodule 'stemm'; did you mean 'stem'\?"),
        (hooked("make_cnn", "relu"), "submodule 'relu' runs 2 times(.|\n)*one that runs once"),
        (hooked("make_cnn", "unused"), "submodule 'unused' is never run"),
        (hooked("make_cnn", "head"), r"gives \(2, 2\), which is neither tokens(.|\n)*pooling"),
        (hooked("make_cnn", "wide", has_cls=True), r"a map \(2, 6, 4, 8\), which has no \[CLS\]"),
        (hooked("make_vit", "blocks.0", has_cls=True), "2 would leave a square"),
        (hooked("make_vit", "blocks.0", **TWO_COLUMNS), "8 patches are no square grid"),
        (
            hooked("make_vit", "blocks.0", grid=(4, 4), **TWO_COLUMNS),
            "of which 8 are patches, and `grid` is 4 x 4",
        ),
        (hooked("make_blind", "0"), r"does not run on images \(B, 3, 16, 16\)"),
        (
            PythonModel(name="m", source=f"python:{__name__}:make_cnn", n_layers=1),
            r"a plain `nn.Module`(.|\n)*`modules: \[unused, dropout\]`",
        ),
    ],
)
def test_what_hooks_cannot_read(config: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(config, None, "cpu", SIDE)


@pytest.mark.parametrize("layer", [0, "final"])
def test_layers_are_the_modules(layer: Any) -> None:
    model = load("make_cnn", "stem", "wide")
    with pytest.raises(ModelError, match=f"no layer {layer!r}(.|\n)*layers 1 to 2"):
        tokens(model, [layer])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modules": ["a", "b", "a"]}, "names a more than once"),
        ({"has_cls": True, "registers": 1, "prefix": 1}, r"prefix \(1\) counts every token"),
        ({"modules": [], "grid": None}, "give `modules` (.|\n)*or `n_layers`"),
    ],
)
def test_sections_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    config = example()
    hooked_entry = next(model for model in config["models"] if model["name"] == "hooked")
    hooked_entry.update(changes)
    with pytest.raises(ConfigError, match=message):
        load_config(config, "here")


@pytest.mark.parametrize("layers", [[0], [2]])
def test_layers_that_a_grid_cannot_ask_for(layers: list[Any]) -> None:
    config = example()
    fits = config["studies"]["binding_information"]["fits"]
    fits.append({**fits[-1], "name": "more", "models": ["hooked"], "layers": layers})
    with pytest.raises(ConfigError, match="'hooked' has layers 1 to 1 \\(its `modules`\\), not"):
        load_config(config, "here")


def test_a_librarys_version_is_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torchvision is not imported to plan a run, and its version is in the key."""
    monkeypatch.setattr(sys, "modules", {**sys.modules, "torchvision": None})
    foreign = keys.closure(("torchvision.models",)).foreign
    assert foreign == {"torchvision"}


@pytest.mark.slow
def test_from_scenes_to_rows(tmp_path: Path) -> None:
    """Five lines of configuration: a residual network of torchvision through every job."""
    resnet = {
        "name": "resnet18",
        "source": "python:torchvision.models:resnet18",
        "modules": ["layer1", "layer3.1"],
        "extraction": {"dtype": "float32"},
    }
    fits = [
        {
            "name": "means",
            "datasets": ["tiny"],
            "models": ["resnet18"],
            "layers": "all",
            "tokens": ["mean"],
            "probes": ["linear"],
        },
        {
            "name": "cells",
            "datasets": ["tiny"],
            "models": ["resnet18"],
            "layers": [1],
            "tokens": ["patches"],
            "probes": ["attention"],
        },
    ]
    graph = ci_graph({"fits": fits, "learning_curves": []}, models=[resnet])
    rules = ("codes", "anchors", "priors", "labels", "scenes", "pooled", "patches", "index", "fit")
    for product in graph.products.values():
        if product.rule in rules and product.wildcards.get("probe") != "attention":
            script(product.step.script.removesuffix(".py") or product.rule).main(
                job_by_hand(product, tmp_path)
            )
    rows = [
        json.loads((tmp_path / product.path()).read_text())
        for product in graph.select("fit")
        if product.wildcards["probe"] == "linear"
    ]
    assert sorted((row["layer"], row["tokens"]) for row in rows) == [("1", "mean"), ("2", "mean")]
    for row in rows:
        assert row["status"] == "ok"
        assert row["binding_lower_bound_bits"] <= row["h_object_bits"]
    indices = {product.wildcards["array"]: product for product in graph.select("index")}
    pooled, cells = (Activations(tmp_path / indices[a].path()) for a in ("pooled", "patches-1"))
    assert [pooled.vectors("test", "mean", layer).shape[1] for layer in (1, 2)] == [64, 256]
    assert cells.patches("test").shape == (64, 8 * 8, 64)
    assert cells.token_map == TokenMap(0, 0, (8, 8), 4, has_cls=False)
