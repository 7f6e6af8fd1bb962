"""An easy kind of scenes, and small models that are trained on it."""

from pathlib import Path
from typing import Any

from bindscope.config.codes import SceneDistribution
from bindscope.config.models import Controlled
from bindscope.core.files import canonical_json
from bindscope.models.training import Trained, train, write_training
from bindscope.models.training_scenes import FreshScenes

TINY = {"n_layers": 2, "width": 32, "n_heads": 2, "patch_px": 8}
EASY = SceneDistribution.model_validate(
    {
        "name": "easy",
        "space": {
            "kind": "uniform",
            "groups": [{"name": "color", "size": 2}, {"name": "shape", "size": 2}],
            "min_objects": 1,
            "max_objects": 2,
        },
        "split": {"rule": "random"},
        "render": {
            "kind": "shapes",
            "size_px": 32,
            "object_px": 13,
            "margin_px": 1,
            "placement": "grid",
            "area": "released",
        },
    }
)


def configured(objective: str = "objects", seed: int = 0, **training: Any) -> Controlled:
    """Return a small model for the easy scenes."""
    schedule = {"dataset": "easy", "steps": 4, "batch_size": 32, "learning_rate": 5e-3}
    return Controlled.model_validate(
        {
            "name": "vit",
            "source": f"controlled:{objective}",
            "architecture": TINY,
            "training": schedule | training,
            "seed": seed,
        }
    )


def trained(config: Controlled) -> Trained:
    """Train it on fresh scenes."""
    return train(config, EASY, FreshScenes(EASY, config.training.batch_size, config.seed))


def write(trained: Trained, folder: Path, config: Controlled | None = None) -> Path:
    """Write a training as the pipeline does, its recipe in the manifest, whose path returns."""
    recipe = (config or configured()).model_dump(
        mode="json", exclude={"name", "extraction", "input_px"}
    )
    spec = {
        "model": recipe,
        "dataset": EASY.model_dump(mode="json", exclude={"name"}),
        "threads": 1,
        "device": "cpu",
    }
    folder.mkdir(exist_ok=True)
    paths = [folder / f"vit{end}" for end in (".safetensors", ".history.json", ".json")]
    write_training(trained, *paths, spec=canonical_json(spec), code="own:chained")
    return paths[-1]
