"""Measures a model of the zoo on freshly drawn scenes and prints the numbers as JSON.

A program of its own, because what limits the instructions of a library is read when it is loaded.
"""

import json
import sys
from typing import Any

import numpy as np
import pandas as pd
import torch
from pydantic import TypeAdapter

import bindscope
from bindscope.codes.sampling import sample_codes
from bindscope.config.loading import load_file
from bindscope.config.models import AnyModel
from bindscope.models.loading import load_model
from bindscope.scenes.render import render_scenes

PROBES = [
    {"family": "linear", "targets": ["chained"]},
    {"family": "quadratic", "targets": ["chained"], "rank": 4, "steps": 40},
    {"family": "set", "targets": ["chained"], "steps": 20},
]


def measured(source: str, n: int) -> dict[str, dict[str, Any]]:
    """Return every number of a model in bits, and the flags, by token input and probe."""
    config = load_file("config/config.yaml")
    dataset = next(dataset for dataset in config.datasets if dataset.name == "matching")
    objects = sample_codes(dataset, "test", 0, n)
    images = render_scenes(dataset, "test", 0, objects)["images"]
    entry = TypeAdapter(AnyModel).validate_python({"name": "zoo", "source": source})
    model = load_model(entry, None, "cpu", dataset.render.size_px)
    tokens = []
    for start in range(0, n, 250):
        pixels = model.preprocess(images[start : start + 250])
        [(_, residuals)] = model.residual_stream(pixels, [model.n_layers])
        tokens.append(residuals.numpy().astype(np.float16).astype(np.float32))
    activations = np.concatenate(tokens)
    table = bindscope.binding_information(
        {"cls": activations[:, 0], "patches": activations[:, 1:]},
        objects,
        space=dataset.space,
        probes=PROBES,
        device="cpu",
    ).table
    columns = [name for name in table if name.startswith(("loss_", "val_loss_"))]
    columns += [name for name in table if name.endswith("lower_bound_bits")]
    return {
        f"{row['layer']} {row['tokens']} {row['probe']}": {
            "flags": row["flags"],
            "numbers": {name: row[name] for name in columns if pd.notna(row[name])},
        }
        for _, row in table.iterrows()
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
