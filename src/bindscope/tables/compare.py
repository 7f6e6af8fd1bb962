"""Compare a table with a reference: what must be equal, and what may differ by a little.

Run as ``python -m bindscope.tables.compare TABLE.parquet REFERENCE.csv [--tolerance-bits 0.02]``;
``--write`` makes the reference instead. Keys, steps, flags, options and intervals are left out:
they change with the code, or carry no claim of their own. With ``--config``, measured numbers of
models that this configuration trains are left out too, and the output says so: training is chaotic,
so the same seed ends at other weights on another type of CPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bindscope.config.loading import load_file
from bindscope.config.models import Controlled
from bindscope.core.errors import BindscopeError, StoreError
from bindscope.core.files import write_atomic
from bindscope.tables.rows import PathLike
from bindscope.tables.schema import BINDING_INFORMATION
from bindscope.tables.write import read_table

KEY = list(BINDING_INFORMATION.key)
SAME = ["status", "model_kind", "n_layers", "n_train", "n_val", "n_test", "feature_probe"]
EXACT = ["h_object_bits", "h_feature_bits", "h_object_given_feature_bits", "split_gap_bits"]
MEASURED = [
    "loss_object_bits",
    "loss_feature_bits",
    "loss_object_given_feature_bits",
    "null_loss_object_bits",
    "null_loss_feature_bits",
    "binding_bits",
    "conditional_binding_bits",
    "binding_lower_bound_bits",
    "conditional_binding_lower_bound_bits",
    "truth_bits",
    "truth_conditional_bits",
]
STABLE = [*KEY, *SAME, *EXACT, *MEASURED]
EXACT_TOLERANCE_BITS = 1e-6
_DECIMALS = 6


@dataclass
class Comparison:
    """Outcome of a comparison.

    Attributes
    ----------
    deviations
        Largest absolute difference per column, in bits, and the row it stands in.
    problems
        What is wrong, in words; empty where the tables agree.
    not_compared
        Number of rows per model whose measured numbers were left out, because it was trained.
    """

    deviations: dict[str, tuple[float, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    not_compared: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the tables agree."""
        return not self.problems

    def text(self) -> str:
        """Return the deviations and the problems as lines."""
        lines = [
            f"{column:40s} {value:.6f}  {row}" for column, (value, row) in self.deviations.items()
        ]
        lines += [
            f"NOT COMPARED: measured numbers of {model} ({count} rows), which was trained in this "
            "run; its weights differ between types of CPU"
            for model, count in self.not_compared.items()
        ]
        lines += [f"FAILED {problem}" for problem in self.problems]
        lines.append("the tables agree" if self.passed else f"{len(self.problems)} problems")
        return "\n".join(lines) + "\n"


def write_reference(table: pd.DataFrame, path: PathLike) -> None:
    """Write the stable columns of a table as a reference, rounded to 1e-6 bits."""
    text = table[STABLE].round(_DECIMALS).to_csv(index=False, lineterminator="\n")
    write_atomic(Path(path), text)


def compare(
    table: pd.DataFrame,
    reference_csv: PathLike,
    tolerance_bits: float = 0.02,
    trained: Collection[str] = (),
) -> Comparison:
    """Compare the stable columns of a table with a reference.

    Parameters
    ----------
    table
        A `binding_information` table.
    reference_csv
        A file that `write_reference` wrote.
    tolerance_bits
        Largest difference allowed in measured columns; entropies must agree to 1e-6 bits, labels
        and sizes exactly.
    trained
        Models that were trained in the run: their rows must be there with the same labels, sizes
        and entropies, but their measured numbers are not compared.

    Returns
    -------
    Comparison
        Largest deviation per column, and every problem.
    """
    reference = _read_reference(reference_csv)
    left = table[STABLE].astype({"layer": str}).set_index(KEY)
    right = reference.set_index(KEY)
    result = Comparison()
    for names, word in (
        (right.index.difference(left.index), "missing"),
        (left.index.difference(right.index), "not in the reference"),
    ):
        result.problems += [f"row {_name(row)} is {word}" for row in names]
    common = right.index.intersection(left.index)
    left, right = left.loc[common], right.loc[common]
    for column in SAME:
        ours, theirs = left[column].astype(str), right[column].astype(str)
        result.problems += [
            f"{column} of {_name(row)} is {found}, not {wanted}"
            for row, found, wanted in zip(common, ours, theirs, strict=True)
            if found != wanted
        ]
    for column in EXACT:
        _compare_column(result, left[column], right[column], EXACT_TOLERANCE_BITS)
    models = right.index.get_level_values("model")
    result.not_compared = {name: int((models == name).sum()) for name in trained if name in models}
    fixed = ~models.isin(list(trained))
    for column in MEASURED:
        _compare_column(result, left[column][fixed], right[column][fixed], tolerance_bits)
    return result


def trained_models(config: PathLike) -> list[str]:
    """Return the names of the models that a run of a configuration file trains."""
    return [
        model.name
        for model in load_file(config).models
        if isinstance(model, Controlled) and model.source != "controlled:none"
    ]


def _compare_column(
    result: Comparison, left: pd.Series[float], right: pd.Series[float], tolerance: float
) -> None:
    column = str(right.name)
    only_one = left.isna() != right.isna()
    result.problems += [
        f"{column} of {_name(row)} is {left.at[row]}, not {right.at[row]}"
        for row in right.index[only_one]
    ]
    deviation = (left - right).abs().dropna()
    if len(deviation):
        worst: Any = deviation.idxmax()
        result.deviations[column] = (float(deviation.max()), _name(worst))
    result.problems += [
        f"{column} of {_name(row)} differs by {value:.6f} bits, more than {tolerance:g}"
        for row, value in deviation[deviation > tolerance].items()
    ]


def _name(row: Any) -> str:
    return " ".join(map(str, row)) if isinstance(row, tuple) else str(row)


def _read_reference(path: PathLike) -> pd.DataFrame:
    kinds = {column.name: column.kind for column in BINDING_INFORMATION.columns}
    types = {name: "str" if kinds[name] == "string" else kinds[name] for name in STABLE}
    remedy = "make it anew: python -m bindscope.tables.compare --write TABLE.parquet REFERENCE.csv"
    try:
        frame = pd.read_csv(path, dtype=types, keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as error:
        raise StoreError(str(path), f"cannot be read ({error})", remedy) from error
    if list(frame.columns) != STABLE:
        odd = sorted(set(frame.columns) ^ set(STABLE))
        raise StoreError(str(path), f"columns {', '.join(odd)} do not match", remedy)
    return frame


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, or write a reference; return 1 where the tables disagree, 2 where one is bad."""
    parser = argparse.ArgumentParser(prog="bindscope.tables.compare", description=__doc__)
    parser.add_argument("table", help="binding_information.parquet")
    parser.add_argument("reference", help="CSV of stable columns")
    parser.add_argument("--tolerance-bits", type=float, default=0.02)
    parser.add_argument("--config", help="configuration of the run: what it trains")
    parser.add_argument("--write", action="store_true", help="write the reference instead")
    given = parser.parse_args(argv)
    try:
        table = read_table(given.table, BINDING_INFORMATION)
        if given.write:
            write_reference(table, given.reference)
            return 0
        trained = trained_models(given.config) if given.config else []
        result = compare(table, given.reference, given.tolerance_bits, trained)
    except BindscopeError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(result.text())
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main())
