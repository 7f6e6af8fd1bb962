"""F10: what is subtracted, which fits and which space are shown."""

import json

import numpy as np
from safetensors.numpy import save_file
from sample_tables import GROUPS, default_table, make_row, words

from bindscope.figures import style
from bindscope.figures.job import choose_fits, make_figure, value_names
from bindscope.studies.binding_information.figures import breakdown


def test_breakdown_subtracts_the_null_probe_head_by_head():
    fit = {"0.chained_loss_bits": np.arange(11) / 10, "1.chained_loss_bits": np.arange(11) / 10}
    null = {"0.chained_loss_bits": np.ones(11)}
    gained = breakdown.gains(fit, null, (2, 3))
    assert gained.chained
    np.testing.assert_allclose(gained.features, 1 - np.arange(5) / 10)
    np.testing.assert_allclose(gained.objects, 1 - np.arange(5, 11) / 10)
    plain = {"0.object_loss_bits": np.zeros(6), "0.feature_loss_bits": np.full(5, 2.0)}
    nothing = {"0.object_loss_bits": np.ones(6), "0.feature_loss_bits": np.ones(5)} | null
    gained = breakdown.gains(plain, nothing, (2, 3))
    assert not gained.chained
    np.testing.assert_allclose(gained.features, -1)
    figure = breakdown.draw({"a": gained, "b": gained}, GROUPS)
    assert {"red", "cross", "a", "1.00", "features: \u22125.0 bits"} <= set(words(figure))
    assert breakdown.available({})


def test_breakdown_takes_more_than_two_groups():
    groups = [*GROUPS, ("size", ("small", "large"))]
    part = breakdown.Breakdown(np.zeros(12), np.zeros(7), chained=True)
    assert "cross large" in words(breakdown.draw(dict.fromkeys("abcd", part), groups))


def test_the_breakdown_shows_quadratic_on_cls_or_what_comes_nearest():
    fits = [
        (("d", "m", "mean", "quadratic"), "quadratic", {}),
        (("d", "m", "cls", "linear"), "linear", {}),
        (("d", "m", "cls", "quadratic"), "quadratic", {}),
        (("d", "n", "mean", "dnn"), "dnn", {}),
        (("d", "n", "patches", "attention"), "attention_quadratic", {}),
    ]
    assert choose_fits(fits, ("n", "m")) == [
        ("d", "n", "mean", "dnn"),
        ("d", "m", "cls", "quadratic"),
    ]


def test_the_breakdown_shows_the_largest_space(tmp_path, monkeypatch):
    groups, fits, nulls = {}, ([], []), ([], [])
    for dataset, size in (("small", 1), ("large", 3), ("medium", 2)):
        groups[dataset] = value_names([{"name": n, "size": size} for n in ("color", "shape")], True)
        losses = {"0.chained_loss_bits": np.zeros(2 * size + size**2)}
        for kind, model in ((fits, "vit-objects"), (nulls, "null")):
            tokens_ = "null" if model == "null" else "cls"
            row = make_row(model, tokens=tokens_, dataset=dataset)
            path = tmp_path / f"{dataset}-{model}"
            path.with_suffix(".jsonl").write_text(json.dumps(row) + "\n")
            save_file(losses, path.with_suffix(".safetensors"))
            kind[0].append(path.with_suffix(".jsonl"))
            kind[1].append(path.with_suffix(".safetensors"))
    files = {"fits": fits[0], "fits_details": fits[1], "nulls": nulls[0], "nulls_details": nulls[1]}
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, *_: drawn.append(figure))
    make_figure("breakdown", default_table(), files, "a", "b", groups=groups)
    assert {"vit-objects (large)", "green", "triangle"} <= set(words(drawn[0]))
    assert not {"vit-objects (small)", "vit-objects (medium)"} & set(words(drawn[0]))
