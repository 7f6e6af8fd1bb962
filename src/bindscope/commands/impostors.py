"""How often each claim is made of planted representations: of genuine cases, and of impostors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from bindscope.core.errors import BindscopeError
from bindscope.core.registries import resolve, studies
from bindscope.statistics.claims import Case, Claim, judge_case
from bindscope.statistics.proportions import wilson_interval

REFERENCE = Path("resources/reference/claims.csv")
COLUMNS = ["study", "claim", "case", "kind", "holds", "n"]
GENUINE, IMPOSTOR = "genuine", "impostor"
# A genuine case holds at least this often; an impostor at most so often, and so does the upper end
# of its interval.
LEAST_GENUINE, MOST_IMPOSTOR, MOST_IMPOSTOR_HIGH = 0.90, 0.05, 0.10
SEEDS_A_TASK = 5


def battery(study: str) -> tuple[Sequence[Claim], Sequence[Case]]:
    """Return the claims of a study and the planted cases that test them."""
    entry = studies()[study]
    return resolve(entry.claims), resolve(entry.planted)


def studies_with_claims() -> list[str]:
    """Return the names of the studies that make claims."""
    return [name for name, study in studies().items() if study.claims]


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
        for i, case in enumerate(battery(study)[1])
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
    import torch

    torch.set_num_threads(1)
    claims, cases = battery(study)
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


def run_battery(
    names: Sequence[str], only: Sequence[str], n_seeds: int, workers: int, write: bool
) -> int:
    """Count, write the table and the figure, and say which bars were missed: 1 if any was.

    Parameters
    ----------
    names
        Studies; none: all of them.
    only, n_seeds, workers
        As in `claim_rates`.
    write
        Whether the counts become the committed reference.
    """
    from bindscope.figures import style
    from bindscope.figures.claims import draw

    if unknown := set(names) - set(studies_with_claims()):
        choices = ", ".join(studies_with_claims())
        raise BindscopeError(", ".join(sorted(unknown)), "makes no claims", f"choose of {choices}")
    if not (chosen := names or studies_with_claims()):
        raise BindscopeError("studies", "none makes claims", "declare `claims` in a study.py")
    rates = claim_rates(chosen, n_seeds, workers, only)
    table, figure = Path("results/tables/claims.parquet"), Path("results/figures/claims")
    table.parent.mkdir(parents=True, exist_ok=True)
    figure.parent.mkdir(parents=True, exist_ok=True)
    rates.to_parquet(table, index=False)
    style.save(draw(rates), figure.with_suffix(".png"), figure.with_suffix(".svg"))
    if write:
        reference = pd.read_csv(REFERENCE)
        again = reference["study"].isin(chosen) & (reference["case"].isin(only) if only else True)
        reference = reference[~again]
        both = pd.concat([reference, rates[COLUMNS]]).sort_values(COLUMNS[:4])
        both.to_csv(REFERENCE, index=False)
    lines = failures(rates)
    for line in lines:
        print(line)
    print(f"{len(rates)} claims of cases, {n_seeds} seeds each: {len(lines)} outside the bars")
    print(f"{table} {figure}.png")
    return 1 if lines else 0
