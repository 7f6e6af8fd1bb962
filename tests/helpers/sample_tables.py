"""Made-up rows in the shape and the range of the default configuration's results, and their use."""

import json
from functools import cache

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from bindscope.core.interfaces import ProductFiles
from bindscope.core.keys import spec_key
from bindscope.core.parquet import seal
from bindscope.core.store.writer import StoreWriter
from bindscope.studies.binding_information.quantities import (
    ESTIMATES,
    EVIDENCE,
    PAIRING,
    QUANTITIES,
    RATIOS,
    SHARES,
)
from bindscope.studies.binding_information.schemas import (
    BINDING_SCHEMA,
    CURVE_SCHEMA,
    above_truth,
)
from bindscope.studies.datasets.figures import Sheet
from bindscope.studies.datasets.tables import PRIORS, SCENE_STATISTICS
from bindscope.tables.schema import frame_of, ordered

KEYS = {"spec_key": "ab" * 32, "code_key": f"{'cd' * 8}:{'ef' * 8}"}
GROUPS = [("color", ("red", "blue")), ("shape", ("circle", "square", "cross"))]
H_OBJECT, H_FEATURE = 26.488, 7.217
FAMILIES = {
    "linear": "linear",
    "quadratic": "quadratic",
    "shared": "quadratic_reuse",
    "multilinear": "multilinear_reuse",
    "dnn": "dnn",
    "attention": "attention_quadratic",
}
NULL_GAP = {
    "linear": 0.3,
    "quadratic": 2.5,
    "shared": 1.4,
    "multilinear": 1.3,
    "dnn": 0.4,
    "attention": 2.6,
}
PENALTY = {
    "linear": 1.9,
    "quadratic": 0.0,
    "shared": 0.9,
    "multilinear": 1.0,
    "dnn": -0.3,
    "attention": 0.0,
}


def to_input(path, names=None, **files):
    """Return a product as a table or figure is given it; its rows must show `KEYS`."""
    return ProductFiles(
        KEYS | (names or {}), {"": str(path)} | {k: str(v) for k, v in files.items()}
    )


CONSTANT = {
    "status": "ok",
    "reason": None,
    "control": "none",
    "model_seed": 0,
    "n_train": 12000,
    "n_val": 2000,
    "n_test": 2000,
    "split_gap_bits": 0.0,
    "protocol": "converged",
    "steps": 400,
    "flags": "",
    **KEYS,
}
COUNTED = {"h_counts_given_feature_bits": 11.292, "h_object_given_counts_bits": 7.979}


def make_row(
    model="vit-objects",
    layer="4",
    tokens="cls",
    probe="quadratic",
    seed=0,
    loss_object=17.4,
    loss_feature=4.1,
    loss_given=15.0,
    dataset="colorshape",
    kind="controlled",
    truth=(None, None),
    h=(H_OBJECT, H_FEATURE),
    width=0.12,
    **changes,
):
    """Return one consistent row of the table, losses in bits."""
    h_given = h[0] - h[1]
    row = {
        "dataset": dataset,
        "model": model,
        "layer": layer,
        "tokens": tokens,
        "probe": probe,
        "seed": seed,
        "model_kind": kind,
        "n_layers": 0 if kind == "known-answer" else 4,
        "h_object_bits": h[0],
        "h_feature_bits": h[1],
        "h_object_given_feature_bits": h_given,
        "loss_object_bits": loss_object,
        "loss_feature_bits": loss_feature,
        "loss_object_given_feature_bits": loss_given,
        "null_loss_object_bits": h[0] + NULL_GAP[probe],
        "null_loss_feature_bits": h[1] + 0.2,
        "binding_bits": h[0] - loss_object,
        "conditional_binding_bits": h_given - (loss_object - loss_feature),
        "conditional_binding_lower_bound_bits": h_given - loss_given,
        "truth_bits": truth[0],
        "truth_conditional_bits": truth[1],
        **{share.value: 0.9 for share in SHARES},
        "feature_probe": "quadratic" if probe in ("shared", "multilinear") else FAMILIES[probe],
        "options": json.dumps({"family": FAMILIES[probe], "rank": 16}),
        **CONSTANT,
    }
    chained = h_given - loss_given + max(h[1] - loss_feature + 0.1, 0)
    row["binding_lower_bound_bits"] = min(max(row["binding_bits"], chained), h[0])
    for quantity in ESTIMATES:
        if quantity.value in row:
            row[quantity.low] = row[quantity.value] - width
            row[quantity.high] = row[quantity.value] + width
    return row | changes


def complete(row):
    """Fill in what follows from the rest of a row: parts of the chain, and what chooses.

    Counts are told apart where the row has their entropies (`COUNTED`).
    """
    h = {name: row[f"h_{name}_bits"] for name in ("object", "feature", "object_given_feature")}
    row = {"h_counts_given_feature_bits": None, "h_object_given_counts_bits": None} | row
    h |= {name: row[f"h_{name}_bits"] for name in ("counts_given_feature", "object_given_counts")}
    _clip(row)
    total, conditional = (
        row[f"{name}_lower_bound_bits"] for name in ("binding", "conditional_binding")
    )
    known = total is not None and conditional is not None
    defaults = {
        "feature_lower_bound_bits": min(total - conditional, h["feature"]) if known else None
    }
    for part, entropy in (("count", "counts_given_feature"), ("pairing", "object_given_counts")):
        split = h[entropy] is not None and conditional is not None
        share = h[entropy] / (h["object_given_feature"] or 1.0) if split else 0.0
        defaults[f"{part}_lower_bound_bits"] = conditional * share if split else None
    defaults |= {"prior_loss_object_bits": h["object"], "loss_object_anchored_bits": h["object"]}
    row = defaults | row
    for bound, loss, prior in (
        ("feature", "chained_feature", "feature"),
        ("count", "counts_given_feature", "counts_given_feature"),
        ("pairing", "object_given_counts", "object_given_counts"),
        ("conditional_binding", "object_given_feature", "object_given_feature"),
    ):
        bound_bits, entropy = row[f"{bound}_lower_bound_bits"], h[prior]
        row.setdefault(f"prior_loss_{prior}_bits", entropy)
        if row.get(f"loss_{loss}_bits") is None:
            lost = None if bound_bits is None or entropy is None else max(entropy - bound_bits, 0.0)
            row[f"loss_{loss}_bits"] = lost
        for end, shift in (("low", -0.1), ("high", 0.1)):
            row.setdefault(f"{bound}_lower_bound_bits_{end}", bound_bits and bound_bits + shift)
    _clip(row)
    pairing = row[PAIRING.value]
    row.setdefault(EVIDENCE, None if pairing is None else pairing * row["n_test"])
    for quantity in RATIOS:
        part, whole = row[quantity.value], row[quantity.entropy]
        row.setdefault(quantity.ratio, part / whole if part is not None and whole else None)
    for name, column in (
        ("object", "object"),
        ("feature", "feature"),
        ("object_anchored", "object_anchored"),
        ("chained_feature", "chained_feature"),
        ("chained_object", "object_given_feature"),
    ):
        row.setdefault(f"val_loss_{name}_bits", row[f"loss_{column}_bits"])
    counted = h["counts_given_feature"] is not None
    if row["reason"] is None and not counted:
        row["reason"] = "no counts: not told apart here"
    return row


def _clip(row):
    """Keep bounds and their ends between nothing and all there is."""
    for quantity in QUANTITIES:
        for name in quantity.interval:
            if row.get(name) is not None:
                row[name] = min(max(row[name], 0.0), row[quantity.entropy])


def vit_rows(seeds=(0,)):
    """Rows of three small transformers: the grid of the default configuration."""
    floor = {"vit-random": (24.9, 6.9), "vit-features": (24.6, 1.0), "vit-objects": (17.4, 2.2)}
    mean_floor = {
        "vit-random": (24.0, 6.6),
        "vit-features": (21.6, 0.9),
        "vit-objects": (19.3, 3.0),
    }
    rng = np.random.default_rng(0)
    rows = []

    def add(model, layer, tokens, probe, seed):
        loss, feature = (floor if tokens == "cls" else mean_floor)[model]
        if tokens == "patches":
            loss, feature = loss - 9.5, feature * 0.4
        share = int(layer) / 4
        noise = rng.normal(0, 0.15)
        loss_o = H_OBJECT - share * (H_OBJECT - loss) + PENALTY[probe] * share + noise
        loss_f = H_FEATURE - share * (H_FEATURE - feature) + 0.2 * PENALTY[probe] * share
        conditional = min(H_OBJECT - H_FEATURE, max(loss_o - loss_f + 0.3 * share, 0.05))
        rows.append(
            make_row(model, str(layer), tokens, probe, seed, loss_o, max(loss_f, 0.02), conditional)
        )

    for seed in seeds:
        for model in floor:
            for tokens in ("cls", "mean"):
                for layer in range(5):
                    for probe in ("linear", "quadratic"):
                        add(model, layer, tokens, probe, seed)
                for probe in ("shared", "multilinear", "dnn"):
                    add(model, 4, tokens, probe, seed)
            add(model, 4, "patches", "attention", seed)
    return rows


GIVEN = H_OBJECT - H_FEATURE
# encoder, truth of B_O and B*, then per probe (linear, quadratic, dnn): the paper's B_O and B*,
# and the bound on B*
KNOWN = (
    ("knows-nothing", 0.0, 0.0, (-0.3, -0.3, -0.07), (-2.5, -2.4, -0.01), (-0.2, -0.2, -0.01)),
    ("knows-features", 7.217, 0.0, (5.6, -1.6, -0.09), (4.0, -3.1, -0.01), (5.8, -1.4, -0.01)),
    ("rotated", H_OBJECT, GIVEN, (26.48, 19.27, 19.26), (26.4, 19.2, 19.25), (26.48, 19.27, 19.26)),
    ("half-the-time", 16.85, 9.64, (16.0, 8.8, 9.51), (15.9, 8.7, 9.54), (16.0, 8.8, 9.58)),
    ("superposed", H_OBJECT, GIVEN, (25.6, 21.2, 18.66), (23.8, 18.6, 18.59), (25.5, 20.0, 18.54)),
    ("cipher", H_OBJECT, GIVEN, (-0.7, -0.6, -0.4), (26.1, 23.1, 18.3), (26.4, 26.7, 19.2)),
)


def known_rows(dataset="known"):
    """Rows of known-answer encoders with the numbers of docs/known_answers.md."""
    rows = []
    for model, truth, conditional_truth, *cells in KNOWN:
        for probe, cell in zip(("linear", "quadratic", "dnn"), cells, strict=True):
            binding, conditional, bound = cell
            loss = H_OBJECT - binding
            row = make_row(
                model,
                "0",
                "cls",
                probe,
                0,
                loss,
                max(conditional - GIVEN + loss, 0.0),
                GIVEN - bound,
                dataset,
                "known-answer",
                (truth, conditional_truth),
                width=0.08,
            )
            total = min(bound + min(truth - conditional_truth, H_FEATURE), truth)
            row |= {
                "binding_lower_bound_bits": total,
                "binding_lower_bound_bits_low": total - 0.08,
                "binding_lower_bound_bits_high": total + 0.08,
            }
            rows.append(row)
    return rows


def make_table(rows):
    """Make a valid table of rows."""
    frame = ordered(frame_of([complete(row) for row in rows], BINDING_SCHEMA), BINDING_SCHEMA)
    frame.loc[above_truth(frame), "flags"] = "above_truth"
    return frame


def default_table(seeds=(0,)):
    """Make the table of the default configuration."""
    return _default_table(seeds).copy()


@cache
def _default_table(seeds):
    return make_table(vit_rows(seeds) + known_rows())


def curve_table():
    """Make the table of learning curves of one fit at two shares of the train scenes."""
    rows = [
        {
            "dataset": "colorshape",
            "model": "vit-objects",
            "layer": "4",
            "tokens": "cls",
            "control": "none",
            "probe": "linear",
            "quantity": quantity,
            "seed": 0,
            "n_train_scenes": n,
            "n_test_scenes": 100,
            "share": n / 800,
            "entropy_bits": 8.0,
            "prior_loss_bits": 8.0,
            "lower_bound_bits": 2.0 + n / 400,
            "lower_bound_bits_low": 1.9 + n / 400,
            "lower_bound_bits_high": 2.1 + n / 400,
            "steps": 100,
            "flags": "",
            "reason": "no end is in sight",
            **KEYS,
        }
        for quantity in ("feature", "pairing")
        for n in (400, 800)
    ]
    return ordered(frame_of(rows, CURVE_SCHEMA), CURVE_SCHEMA)


def priors_table(datasets=("colorshape", "known")):
    """Make the table of priors."""
    rows = [
        {
            "dataset": name,
            "split": split,
            "h_object_bits": H_OBJECT,
            "h_feature_bits": H_FEATURE,
            "h_object_given_feature_bits": H_OBJECT - H_FEATURE,
            "n_feature_codes": 3486,
            "split_gap_bits": 0.0,
            "method": "exact",
            "counts_reason": "not told apart here",
            **KEYS,
        }
        for name in datasets
        for split in ("train", "val", "test")
    ]
    return frame_of(rows, PRIORS.schema)


def statistics_table(datasets=(("colorshape", 0.6, 0.3), ("smaller", 3.2, 0.1))):
    """Make the table of scene statistics from (dataset, camera height, mean occlusion)."""
    rows = [
        {
            "dataset": name,
            "split": split,
            "backend": "raycast",
            "camera_height": height,
            "n_scenes": 100,
            "n_objects": 600,
            "mean_occlusion": hidden,
            "hidden_ratio": 0.0,
            **KEYS,
        }
        for name, height, hidden in datasets
        for split in ("train", "val", "test")
    ]
    return frame_of(rows, SCENE_STATISTICS.schema)


def paper_table():
    """Rows like the paper's main table, for a model, dataset and probes of the paper's names."""
    return _paper_table().copy()


@cache
def _paper_table():
    published = {"linear": (34.0, 1.4), "quadratic": (21.6, 1.7), "dnn": (20.4, 1.6)}
    h = (39.94129173, 7.03342290)
    rows = [
        make_row(
            "dinov2-large",
            "24",
            "cls",
            probe,
            seed,
            loss + 0.1 * seed,
            feature,
            20.0 - seed * 0.1,
            dataset="balanced-colorshape",
            kind="hf",
            h=h,
            n_layers=24,
            model_seed=None,
            null_loss_object_bits=h[0] + {"linear": 15.4, "quadratic": 12.0, "dnn": 8.1}[probe],
        )
        for probe, (loss, feature) in published.items()
        for seed in (0, 1, 2)
    ]
    attention = make_row(
        "dinov2-large",
        "24",
        "patches",
        "attention",
        0,
        3.3,
        0.4,
        2.9,
        dataset="balanced-colorshape",
        kind="hf",
        h=h,
        n_layers=24,
        model_seed=None,
        null_loss_object_bits=h[0] + 11.0,
    )
    return make_table([*rows, attention])


def pairing_row(value, width, entropy, **names):
    """Return a row of bits about what goes with what, for the joins of `together`."""
    return {
        "probe": "best",
        "control": "none",
        "seed": 0,
        "flags": "",
        "h_object_given_counts_bits": entropy,
        "pairing_lower_bound_bits": value,
        "pairing_lower_bound_bits_low": value - width,
        "pairing_lower_bound_bits_high": value + width,
        "pairing_ratio": value / entropy,
        **KEYS,
        **names,
    }


def write_rows(folder, schema, rows):
    """Write rows as a table that is not checked, and return it as an input."""
    counts = {column.name: 0 for column in schema.columns if column.kind == "int64"}
    frame = frame_of([counts | row for row in rows], schema)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    path = folder / f"{schema.name}.parquet"
    parquet.write_table(table.replace_schema_metadata({"bindscope.schema": schema.stamp}), path)
    path.write_bytes(seal(path.read_bytes()))
    return to_input(path)


def words(figure):
    """Return all text of a figure, with plain spaces."""
    texts = figure.findobj(mpl.text.Text)
    return [text.get_text().replace("\u00a0", " ") for text in texts]


def sheet(n=2, side=12, n_objects=2):
    """Make scenes of 6 possible objects, with a box for the first of each."""
    images = np.arange(n * side * side * 3).reshape(n, side, side, 3).astype(np.uint8)
    cells = np.full((n, n_objects + 1), -1, np.int16)
    cells[:, :n_objects] = np.arange(n_objects) % 6
    boxes = np.full((n, n_objects + 1, 4), -1, np.int16)
    boxes[:, 0] = (1, 2, 5, 9)
    return Sheet("test", images, cells, boxes)


def write_sheet(folder, scenes):
    """Write scenes as a shard, and return its manifest."""
    base = folder / f"test-00000-{spec_key('s')[:8]}"
    store, manifest = base.with_suffix(".zarr"), base.with_suffix(".json")
    about = {"split": "test", "start": 0}
    with StoreWriter(store, manifest, spec="s", code="c", attributes=about) as writer:
        for name in ("images", "cells", "boxes"):
            array = getattr(scenes, name)
            writer.create(name, array.shape, str(array.dtype))
            writer.write(name, array)
    return manifest


def history(seed=0, targets=("object", "chained")):
    """Return the history of one fit."""
    return [
        {"seed": seed, "target": target, "step": step, "split": split, "loss_bits": 26.0 - step}
        for target in targets
        for split in ("train", "val")
        for step in (1, 5, 10)
    ]
