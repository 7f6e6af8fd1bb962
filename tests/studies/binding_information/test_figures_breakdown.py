"""What is subtracted, which fits and which space are shown."""

import json

import numpy as np
from drawing import reason
from safetensors.numpy import save_file
from sample_tables import GROUPS, make_row, make_table, to_input, words

from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_information.figures.breakdown import (
    breakdown,
    choose_fits,
    gains,
)
from bindscope.studies.binding_information.figures.shared import DAGGER
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.tables.write import write_table


def test_breakdown_subtracts_the_fit_from_the_prior_by_feature_group():
    fit = {f"{seed}.chained_loss_bits": np.arange(11) / 10 for seed in (0, 1)}
    fit |= {f"{seed}.chained_prior_bits": np.ones(11) for seed in (0, 1)}
    gained = gains(fit, {}, (2, 3))
    assert gained.condition == "features"
    np.testing.assert_allclose(gained.prior, [2, 3, 6])
    np.testing.assert_allclose(gained.saved, [1.9, 2.1, 1.5])
    counted = {"0.chained_loss_bits": np.arange(13) / 10, "0.chained_prior_bits": np.ones(13)}
    gained = gains(counted, {}, (2, 3))
    assert gained.condition == "counts"
    np.testing.assert_allclose(gained.saved, [1.9, 2.1, 0.3])


def test_breakdown_of_plain_probes_subtracts_from_the_null_probe():
    plain = {"0.object_loss_bits": np.zeros(6), "0.feature_loss_bits": np.full(5, 2.0)}
    nothing = {"0.object_loss_bits": np.ones(6), "0.feature_loss_bits": np.ones(5)}
    gained = gains(plain, nothing, (2, 3))
    assert gained.condition == ""
    np.testing.assert_allclose(gained.saved, [-2, -3, 6])
    assert gains(plain, {}, (2, 3)) is None
    figure = breakdown.draw({"a": gained, "b": gained}, GROUPS)
    heads = {"color\n2.00 bits", "shape\n3.00 bits", "objects\n6.00 bits"}
    assert heads | {"a", "6.00", "\u22122.00"} <= set(words(figure))
    assert reason(breakdown, {}, [])


def test_the_breakdown_shows_quadratic_on_cls_or_what_comes_nearest():
    families = {
        ("d", "m", "mean", "quadratic"): "quadratic",
        ("d", "m", "cls", "linear"): "linear",
        ("d", "m", "cls", "quadratic"): "quadratic",
        ("d", "n", "mean", "dnn"): "dnn",
        ("d", "n", "patches", "attention"): "attention_quadratic",
        ("d", "m2", "cls", "quadratic"): "quadratic",
    }
    home = {"m": "group", "m2": "group"}
    assert choose_fits(families, ("n", "m", "m2"), home) == [
        ("d", "n", "mean", "dnn"),
        ("d", "m", "cls", "quadratic"),
    ]


def test_the_breakdown_shows_the_largest_space_and_marks_estimated_priors(tmp_path):
    groups, products = {}, {"fits": [], "nulls": []}
    for dataset, size in (("small", 1), ("large", 3), ("medium", 2)):
        groups[dataset] = [
            {"name": "color", "values": ["red", "blue", "green"][:size]},
            {"name": "shape", "values": ["circle", "square", "triangle"][:size]},
        ]
        zeros = np.zeros(2 * size + size**2)
        losses = {"0.chained_loss_bits": zeros, "0.chained_prior_bits": zeros}
        for role, names in (
            ("fits", {"dataset": dataset, "model": "vit", "tokens": "cls", "probe": "quadratic"}),
            ("nulls", {"dataset": dataset, "probe": "quadratic"}),
        ):
            row = make_row(**{"model": "null", "tokens": "null", **names})
            path = tmp_path / f"{dataset}-{role}.jsonl"
            path.write_text(json.dumps(row) + "\n")
            save_file(losses, path.with_suffix(".safetensors"))
            details = path.with_suffix(".safetensors")
            products[role].append(to_input(path, names, details=details))
    table = make_table([make_row("vit", dataset="large", flags="assumed_prior")])
    write_table(table, tmp_path / "binding_information", BINDING_SCHEMA)
    products["table"] = [to_input(tmp_path / "binding_information.parquet")]
    data = breakdown.read(
        Inputs(
            products,
            {"groups": groups, "models": ["vit"], "model_groups": [], "positive_controls": []},
        )
    )
    assert list(data["breakdowns"]) == [f"vit (large){DAGGER}"]
    assert {f"vit (large){DAGGER}", "color\n0.00 bits", "objects given features\n0.00 bits"} <= set(
        words(breakdown.draw(**data))
    )
