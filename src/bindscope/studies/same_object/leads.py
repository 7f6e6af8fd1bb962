"""By how much one probe is ahead of another one on the same pairs, with paired intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bindscope.core.errors import StoreError
from bindscope.core.interfaces import Given
from bindscope.statistics.bootstrap import interval, resampled_means
from bindscope.studies.same_object.marks import weights_name
from bindscope.tables.rows import Row, read_rows, rerun

# Family -> the column that says by how much it is ahead; of positions: how far behind.
RIVALS = {
    "quadratic": "quadratic_lead",
    "quadratic_position": "quadratic_position_lead",
    "position": "position_lead",
}
Samples = Mapping[int, NDArray[np.float64]]


def rows_with_leads(fits: Sequence[Given], n_samples: int, seed: int) -> list[Row]:
    """Read the rows of fits, and add to each by how much others are ahead of it, or it of others.

    Added are `quadratic_lead` and `quadratic_position_lead`, the accuracy of those probes of the
    same tokens minus the row's, and `position_lead`, the row's accuracy minus that of the probe
    that reads positions alone; each with a 95 % interval over test images that are drawn for both
    probes at once. None where there is no such probe, and for shuffled labels.

    Parameters
    ----------
    fits
        Products with `images`: what is right of each test image.
    n_samples, seed
        Resamples of the test images.

    Raises
    ------
    StoreError
        If probes of one grid were not asked about the same pairs.
    """
    found = [
        (row, _of_images(given, row)) for given in fits for row in read_rows(given)
    ]  # fmt: skip
    true = [one for one in found if one[0]["control"] == "none"]
    for _, group in groupby(sorted(true, key=_pairs_key), key=_pairs_key):
        _add(list(group), n_samples, seed)
    return [row for row, _ in found]


def _pairs_key(one: tuple[Row, Any]) -> tuple[str, str]:
    return one[0]["dataset"], one[0]["grid"]


def _of_images(given: Given, row: Row) -> NDArray[np.float64]:
    arrays = load_file(given.files["images"])
    return arrays[weights_name(row["layer"], row["seed"], row["rank"])].astype(np.float64)


def _add(found: Sequence[tuple[Row, NDArray[np.float64]]], n_samples: int, seed: int) -> None:
    """Add the leads of all rows about the same pairs, from the same resamples."""
    pairs = found[0][1][:, 1]
    for row, counts in found:
        if not np.array_equal(counts[:, 1], pairs):
            where = " ".join(str(row[name]) for name in ("dataset", "model", "layer", "probe"))
            raise StoreError(where, "was measured on other pairs than its rivals", rerun(where))
    right = np.column_stack([counts[:, 0] for _, counts in found])
    drawn = resampled_means(np.column_stack([right, pairs]), n_samples, seed)
    shares = drawn[:, :-1] / drawn[:, -1:]
    accuracies = right.sum(0) / pairs.sum()
    rows = [row for row, _ in found]
    for i, row in enumerate(rows):
        for family, column in RIVALS.items():
            j = _rival(rows, row, family)
            if j is None or rows[j] is row:
                continue
            sign = -1 if family == "position" else 1
            row[column] = sign * float(accuracies[j] - accuracies[i])
            ends = interval(sign * (shares[:, j] - shares[:, i]))
            row[f"{column}_low"], row[f"{column}_high"] = ends


def _rival(rows: Sequence[Row], row: Row, family: str) -> int | None:
    """Return the number of the first row of a family that reads the same tokens, or none."""
    for j, other in enumerate(rows):
        reads_the_same = all(other[name] == row[name] for name in ("model", "layer"))
        if other["family"] == family and (family == "position" or reads_the_same):
            return j
    return None
