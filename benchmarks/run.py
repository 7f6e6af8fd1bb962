"""Run benchmarks: ``python benchmarks/run.py`` runs all, further arguments name some.

Prints one table each, writes ``results/benchmarks/<name>.json``, and with ``--docs`` puts the
tables into ``docs/benchmarks.md`` between the marks of their names.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import time
import traceback
from datetime import date
from pathlib import Path

from measure import ROOT, Entry, Options, machine, table, write_record

BENCHMARKS: tuple[str, ...] = (
    "probe_fitting", "bounded_memory", "extraction", "rendering", "priors", "assignment_priors",
    "workflow_overhead", "second_run", "script_imports", "cost_growth", "default_run",
)  # fmt: skip
PAGE = ROOT / "docs" / "benchmarks.md"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks asked for; returns 1 where a promise is broken or one of them fails."""
    given = _arguments(sys.argv[1:] if arguments is None else arguments)
    options = Options(given.size, given.device, given.threads, given.repetitions, given.folder)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # before a benchmark imports torch
    names = given.names or list(BENCHMARKS)
    if given.docs:
        for name in names:
            marks(name, PAGE)
    problems: list[str] = []
    started = time.monotonic()
    for name in names:
        try:
            problems += run(name, options, given.docs)
        except Exception:  # the others are still worth running
            traceback.print_exc()
            problems.append(f"{name}: failed")
    print(f"\n{len(names)} benchmarks in {time.monotonic() - started:.0f} s")
    for line in problems:
        print(f"not kept: {line}")
    return 1 if problems else 0


def run(name: str, options: Options, docs: bool) -> list[str]:
    """Run one benchmark, put its table into the page; returns the promises that it breaks."""
    found = measured(name, options)
    if docs:
        put_into_page(name, table_of(name, found), options, PAGE)
    return [f"{name}: {line}" for entry in found for line in entry.broken]


def measured(name: str, options: Options) -> list[Entry]:
    """Run one benchmark, write its record and print its table; returns its entries."""
    module = importlib.import_module(name)
    found: list[Entry] = module.entries(options)
    path = write_record(name, module.TITLE, found, options)
    print(f"\n{module.TITLE} ({path})\n\n{table_of(name, found)}", flush=True)
    return found


def table_of(name: str, found: list[Entry]) -> str:
    """Return the table of a benchmark: its own if it has one, or the harness's."""
    text: str = getattr(importlib.import_module(name), "table", table)(found)
    return text


def marks(name: str, page: Path) -> re.Pattern[str]:
    """Return the pattern of what stands between the marks of a name; the page must have them."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(page.read_text()):
        raise SystemExit(f"{page}: no marks <!-- {name} --> and <!-- /{name} -->; add them")
    return pattern


def fill(name: str, text: str, page: Path) -> None:
    """Replace what stands between ``<!-- name -->`` and ``<!-- /name -->`` of a page."""
    pattern = marks(name, page)
    page.write_text(pattern.sub(lambda m: f"{m[1]}{text}\n{m[2]}", page.read_text()))


def put_into_page(name: str, text: str, options: Options, page: Path) -> None:
    """Fill the page with a table and the command, the day and the machine that it is from."""
    about = machine()
    where = about.get("gpu") if options.device == "cuda" else about["processor"]
    command = f"python benchmarks/run.py {name}"
    command += "".join(
        f" --{field} {getattr(options, field)}"
        for field in ("size", "device", "threads", "repetitions")
        if getattr(options, field) != getattr(Options(), field)
    )
    head = f"`{command}`, {date.today()}: {where}, {about['cores']} cores, "
    head += f"load {about['load']:.1f} at the end.\n\n"
    fill(name, head + text, page)


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--size", choices=["ci", "full"], default="full")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=positive, default=2, help="CPU threads of torch")
    parser.add_argument("--repetitions", type=positive, default=5, help="counted repetitions")
    parser.add_argument("--folder", type=Path, help="where large files lie; default: temporary")
    parser.add_argument("--docs", action="store_true", help="put the tables into the docs page")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {BENCHMARKS}")
    if given.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            parser.error("--device cuda: torch sees no CUDA device here")
    return given


def positive(text: str) -> int:
    """Read a number of at least 1 from the command line."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
