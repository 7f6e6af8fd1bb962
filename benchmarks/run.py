"""Run benchmarks: ``python benchmarks/run.py`` runs all, further arguments name some.

Each prints its table under a line that says command, day, commit and machine (both are what
``docs/measured.md`` quotes) and writes ``results/benchmarks/<name>.json``. The exit status is 1
where a promise is broken or a benchmark fails.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import traceback
from datetime import date
from pathlib import Path

from measure import Options, machine, table, write_record

BENCHMARKS: tuple[str, ...] = (
    "probe_fitting",
    "linear_fits",
    "pair_scoring",
    "binding_id_engines",
    "bounded_memory",
    "extraction",
    "rendering",
    "priors",
    "planning",
    "default_run",
)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks asked for; return 1 where a promise is broken or one of them fails."""
    parsed = _arguments(sys.argv[1:] if arguments is None else arguments)
    options = Options(parsed.size, parsed.device, parsed.threads, parsed.repetitions, parsed.folder)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # before a benchmark imports torch
    names = parsed.names or list(BENCHMARKS)
    problems: list[str] = []
    started = time.monotonic()
    for name in names:
        try:
            problems += run(name, options)
        except Exception:  # the others are still worth running
            traceback.print_exc()
            problems.append(f"{name}: failed")
    print(f"\n{len(names)} benchmarks in {time.monotonic() - started:.0f} s")
    for line in problems:
        print(f"not kept: {line}")
    return 1 if problems else 0


def run(name: str, options: Options) -> list[str]:
    """Run one benchmark, write its record, print its table; return the promises it breaks."""
    module = importlib.import_module(name)
    entries = module.entries(options)
    path = write_record(name, module.TITLE, entries, options)
    print(f"\n{module.TITLE} ({path})\n\n{_origin(name, options)}\n\n{table(entries)}", flush=True)
    return [f"{name}: {line}" for entry in entries for line in entry.broken]


def _origin(name: str, options: Options) -> str:
    """Return the command, day, commit and machine of a table."""
    about, usual = machine(), Options()
    command = f"python benchmarks/run.py {name}" + "".join(
        f" --{field} {getattr(options, field)}"
        for field in ("size", "device", "threads", "repetitions")
        if getattr(options, field) != getattr(usual, field)
    )
    where = about.get("gpu") if options.device == "cuda" else about["processor"]
    return (
        f"`{command}`, {date.today()}, commit {about['commit']}: {where}, {about['cores']} cores, "
        f"load {about['load']} at the end."
    )


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--size", choices=["ci", "full"], default="full")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=_positive, default=2, help="CPU threads of torch")
    parser.add_argument("--repetitions", type=_positive, default=5, help="counted repetitions")
    parser.add_argument("--folder", type=Path, help="where large files lie; default: temporary")
    parsed = parser.parse_args(arguments)
    if unknown := set(parsed.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {BENCHMARKS}")
    if parsed.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            parser.error("--device cuda: torch sees no CUDA device here")
    return parsed


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
