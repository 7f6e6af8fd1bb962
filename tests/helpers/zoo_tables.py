"""A made-up table of a zoo: seven objectives of three training seeds, two datasets, best rows.

The numbers are those of the first measurements, with
some spread over training seeds.
"""

import json
from functools import cache

import numpy as np
from sample_tables import FAMILIES, H_FEATURE, known_rows, make_row, make_table

from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.tables.schema import validate

OBJECTIVES = (
    "objects",
    "features",
    "captions",
    "captions-unpaired",
    "masked",
    "self-distillation",
    "none",
)
GROUPS = [{"name": name, "models": [f"{name}-{seed}" for seed in range(3)]} for name in OBJECTIVES]
MODELS = [model for group in GROUPS for model in group["models"]]
CONFIG = {
    "datasets": [
        {"name": name, "space": {"groups": [{"name": "color"}, {"name": "shape"}]}}
        for name in ("matching", "counting")
    ],
    "models": [{"name": name, "source": f"zoo:matching-{name}", "seed": 0} for name in MODELS],
    "studies": {"binding_information": {"groups": GROUPS}},
}
# H(F), H(M|F), H(O|M)
ENTROPIES = {"matching": (9.613, 0.0, 9.492), "counting": (H_FEATURE, 11.292, 7.979)}
# Share of H(F), H(M|F), H(O|M) read from [CLS], and from patches, of the last layer.
SHARES = {
    "objects": ((0.999, 0.98, 0.998), (0.999, 0.99, 0.998)),
    "features": ((0.999, 0.55, 0.17), (0.999, 0.93, 0.945)),
    "captions": ((0.92, 0.85, 0.82), (0.98, 0.95, 0.945)),
    "captions-unpaired": ((0.94, 0.8, 0.58), (0.97, 0.94, 0.92)),
    "masked": ((0.5, 0.3, 0.28), (0.99, 0.97, 0.98)),
    "self-distillation": ((0.6, 0.35, 0.33), (0.97, 0.93, 0.9)),
    "none": ((0.52, 0.32, 0.37), (0.98, 0.95, 0.947)),
}
ENDS = ("", "_low", "_high")


def parts_row(
    dataset,
    model,
    layer="4",
    tokens="cls",
    probe="best",
    decoded=(5.0, 0.0, 3.0),
    h=None,
    truth=(None, None, None),
    counted=True,
    width=0.1,
    **changes,
):
    """Return a row with the three parts: bounds `decoded`, entropies `h`, in bits."""
    h = h or ENTROPIES[dataset]
    what, how_many, pairing = decoded
    total, whole = sum(decoded), sum(h)
    remainder = h[1] + h[2] - how_many - pairing
    family = FAMILIES.get(probe, "linear" if tokens == "cls" else "set")
    row = make_row(
        model,
        layer,
        tokens,
        "linear",
        loss_object=whole - total + 1.5,
        loss_feature=h[0] - what + 0.2,
        loss_given=remainder,
        dataset=dataset,
        h=(whole, h[0]),
        width=width,
    )
    row |= {
        "probe": probe,
        "options": json.dumps({"family": family}),
        "h_counts_given_feature_bits": h[1] if counted else None,
        "h_object_given_counts_bits": h[2] if counted else None,
        "truth_feature_bits": truth[0],
        "truth_count_bits": truth[1],
        "truth_pairing_bits": truth[2],
    }
    bounds = {
        "feature": what,
        "count": how_many if counted else None,
        "pairing": pairing if counted else None,
        "binding": total,
    }
    for name, value in bounds.items():
        for end, shift in zip(ENDS, (0, -width, width), strict=True):
            row[f"{name}_lower_bound_bits{end}"] = None if value is None else value + shift
    if counted and not h[1]:
        row |= {"count_ratio": None, "reason": "no count_ratio: counts follow from features"}
    return row | changes


def parts_table(rows):
    """Make a table of such rows; it must be valid."""
    return validate(make_table(rows), BINDING_SCHEMA, "made up")


def zoo_rows(families=("linear",), seed=0):
    """Rows of 21 models, two token inputs, four layers and two datasets; fits and best rows."""
    rng = np.random.default_rng(seed)
    rows = []
    for dataset, h in ENTROPIES.items():
        for objective, by_tokens in SHARES.items():
            for model_seed in range(3):
                for tokens, last in zip(("cls", "patches"), by_tokens, strict=True):
                    for layer in range(1, 5):
                        rise = (layer / 4) ** 0.7 if tokens == "cls" else 1 - 0.04 * (4 - layer)
                        shares = np.array(last) * rise + rng.normal(0, 0.012, 3)
                        bounds = [float(min(s, 0.9999) * e) for s, e in zip(shares, h, strict=True)]
                        probes = families if tokens == "cls" else ("set",)
                        for probe in ("best", *probes):
                            less = 0.0 if probe == "best" else 0.01
                            rows.append(
                                parts_row(
                                    dataset,
                                    f"{objective}-{model_seed}",
                                    str(layer),
                                    tokens,
                                    probe,
                                    [value - less * (value > 0) for value in bounds],
                                    model_seed=model_seed,
                                )
                            )
    return rows


def zoo_table(families=("linear",), known=True):
    """Make the table of the zoo, with known-answer encoders."""
    return _zoo_table(families, known).copy()


@cache
def _zoo_table(families, known):
    return parts_table(zoo_rows(families) + (known_rows() if known else []))
