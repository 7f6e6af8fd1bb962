"""How often each claim is made of planted representations: of genuine cases, and of impostors.

python tests/impostors/impostors.py                                  all studies: hours of one core
python tests/impostors/impostors.py --study concepts --seeds 20      one of them, fewer seeds
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

import cases_binding_id  # noqa: E402
import cases_binding_information  # noqa: E402
import cases_concepts  # noqa: E402
import cases_same_object  # noqa: E402
import cases_together  # noqa: E402
from cases import Case, judge_case  # noqa: E402
from rates_figure import draw  # noqa: E402

from bindscope.figures import style  # noqa: E402
from bindscope.statistics.claims import Claim  # noqa: E402
from bindscope.statistics.proportions import wilson_interval  # noqa: E402
from bindscope.studies.binding_id.claims import CLAIMS as OF_BINDING_ID  # noqa: E402
from bindscope.studies.binding_information.claims import CLAIMS as OF_INFORMATION  # noqa: E402
from bindscope.studies.concepts.claims import CLAIMS as OF_CONCEPTS  # noqa: E402
from bindscope.studies.same_object.claims import CLAIMS as OF_SAME_OBJECT  # noqa: E402
from bindscope.studies.together.claims import CLAIMS as OF_TOGETHER  # noqa: E402

# The claims of each study, and the planted cases that test them.
BATTERIES: Mapping[str, tuple[Sequence[Claim], Sequence[Case]]] = {
    "binding_information": (OF_INFORMATION, cases_binding_information.CASES),
    "same_object": (OF_SAME_OBJECT, cases_same_object.CASES),
    "concepts": (OF_CONCEPTS, cases_concepts.CASES),
    "binding_id": (OF_BINDING_ID, cases_binding_id.CASES),
    "together": (OF_TOGETHER, cases_together.CASES),
}
REFERENCE = Path("resources/reference/claims.csv")
TABLE, FIGURE = Path("results/tables/claims.parquet"), Path("results/figures/claims")
COLUMNS = ["study", "claim", "case", "kind", "holds", "n"]
GENUINE, IMPOSTOR = "genuine", "impostor"
# A genuine case holds at least this often; an impostor at most so often, and so does the upper end
# of its interval.
LEAST_GENUINE, MOST_IMPOSTOR, MOST_IMPOSTOR_HIGH = 0.90, 0.05, 0.10
SEEDS_A_TASK = 5


def claim_rates(
    names: Iterable[str], n_seeds: int, workers: int = 1, only: Sequence[str] = ()
) -> pd.DataFrame:
    """Judge every claim of every planted case of some studies.

    Parameters
    ----------
    names
        The studies.
    n_seeds
        Seeds 0, 1, ... of each case.
    workers
        Processes, each with one thread.
    only
        Names of cases; none: all of them.

    Returns
    -------
    DataFrame
        A row per study, claim and case: `kind` (genuine or impostor), `holds` of `n` seeds, and
        the rate with Wilson's 95 % interval (`rate`, `low`, `high`).
    """
    blocks = [
        range(first, min(first + SEEDS_A_TASK, n_seeds))
        for first in range(0, n_seeds, SEEDS_A_TASK)
    ]
    tasks = [
        (study, i, seeds)
        for study in names
        for i, case in enumerate(BATTERIES[study][1])
        if not only or case.name in only
        for seeds in blocks
    ]
    if workers == 1:
        parts = [_rows_of(*task) for task in tqdm(tasks, unit="task", disable=None)]
    else:
        os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # children inherit them
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            running = [pool.submit(_rows_of, *task) for task in tasks]
            done = tqdm(as_completed(running), total=len(running), unit="task", disable=None)
            parts = [future.result() for future in done]
    rows = pd.DataFrame([row for part in parts for row in part], columns=COLUMNS)
    keys = COLUMNS[:4]
    counts = rows.groupby(keys, sort=False)[["holds", "n"]].sum().reset_index()
    return with_intervals(counts.sort_values(keys, ignore_index=True))


def _rows_of(study: str, case_index: int, seeds: Sequence[int]) -> list[tuple[object, ...]]:
    torch.set_num_threads(1)
    claims, cases = BATTERIES[study]
    case = cases[case_index]
    return [
        (study, name, case.name, GENUINE if name in case.genuine else IMPOSTOR, int(holds), 1)
        for seed in seeds
        for name, holds in judge_case(case, claims, seed).items()
    ]


def with_intervals(counts: pd.DataFrame) -> pd.DataFrame:
    """Add the rate of "holds" and its interval to counts (`holds`, `n`)."""
    low, high = wilson_interval(counts["holds"].to_numpy(), counts["n"].to_numpy())
    return counts.assign(rate=counts["holds"] / counts["n"], low=low, high=high)


def failures(rates: pd.DataFrame) -> list[str]:
    """List the cases of which a claim is made too often, or too seldom."""
    impostor = rates["kind"] == IMPOSTOR
    liars = impostor & ((rates["rate"] > MOST_IMPOSTOR) | (rates["high"] > MOST_IMPOSTOR_HIGH))
    missed = ~impostor & (rates["rate"] < LEAST_GENUINE)
    return [
        f"{_name(row)}: holds for {row['holds']} of {row['n']} seeds"
        for row in rates[liars | missed].to_dict("records")
    ]


def _name(row: Mapping[Any, Any]) -> str:
    return f"{row['study']}: {row['claim']}, {row['kind']} {row['case']!r}"


def write_reference(rates: pd.DataFrame) -> None:
    """Replace rows of cases that were tried in the committed counts; drop cases that are gone."""
    reference = pd.read_csv(REFERENCE)
    untried = {(study, case.name) for study, (_, cases) in BATTERIES.items() for case in cases}
    untried -= set(zip(rates["study"], rates["case"], strict=True))
    rows = zip(reference["study"], reference["case"], strict=True)
    remaining = reference[[row in untried for row in rows]]
    both = pd.concat([remaining, rates[COLUMNS]]).sort_values(COLUMNS[:4])
    both.to_csv(REFERENCE, index=False)


def main() -> None:
    """Count, write the table and the figure, and print which bars were missed."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument(
        "--study", action="append", choices=BATTERIES, help="only this study, repeatable"
    )
    arguments.add_argument("--case", action="append", default=[], help="only this, repeatable")
    arguments.add_argument("--seeds", type=int, default=100, help="seeds of each case (100)")
    arguments.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (cores)")
    arguments.add_argument("--write-reference", action="store_true", help=f"write {REFERENCE}")
    options = arguments.parse_args()
    names = {case.name for _, cases in BATTERIES.values() for case in cases}
    if unknown := sorted({*options.case} - names):
        arguments.error(f"no case is called {', '.join(unknown)}")
    rates = claim_rates(options.study or BATTERIES, options.seeds, options.workers, options.case)
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    rates.to_parquet(TABLE, index=False)
    style.save(draw(rates), FIGURE.with_suffix(".png"), FIGURE.with_suffix(".svg"))
    if options.write_reference:
        write_reference(rates)
    lines = failures(rates)
    print(*lines, sep="\n", end="\n" if lines else "")
    print(f"{len(rates)} claims of cases, {options.seeds} seeds: {len(lines)} outside the bars")
    print(f"{TABLE} {FIGURE}.png")
    raise SystemExit(1 if lines else 0)


if __name__ == "__main__":
    main()
