"""Tables of IsSameObject, by hand."""

import numpy as np
import pandas as pd

from bindscope.studies.same_object.scores import LEADS, PAIRS


def ends(column, value, half=0.01):
    return {column: value, f"{column}_low": value - half, f"{column}_high": value + half}


def row(model, layer, family, accuracy, **columns):
    base = {
        "dataset": "d",
        "model": model,
        "layer": layer,
        "probe": family,
        "family": family,
        "grid": "8x8",
        "n_layers": 4,
        "rank": 0,
        "seed": 0,
        "n_images": 50,
        "n_train_images": 50,
        "n_val_images": 30,
        "flags": "",
        "accuracy": accuracy,
        "val_loss_bits": 1 - accuracy,
        "class_pair_accuracy": np.nan,
        **{name: np.nan for lead in LEADS for name in lead.interval},
        **ends("image_majority_lead", 0.2),
    }
    return base | columns


def whole_table(rows):
    """Make a table of rows with the columns that the report reads."""
    table = pd.DataFrame(rows).assign(n_skipped=0)
    for score in PAIRS:
        if score.value not in table:
            table[score.value] = 0.7
        if score.low:
            table[score.low] = table[score.high] = table[score.value]
    return table
