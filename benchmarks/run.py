"""Run benchmarks: ``python benchmarks/run.py`` runs all, further arguments name some.

Prints one table each, writes ``results/benchmarks/<name>.json``, and with ``--docs`` puts the
tables into ``docs/benchmarks.md`` between the marks of their names.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re

from measure import ROOT, Entry, Options, machine, table, write_record

BENCHMARKS: tuple[str, ...] = (
    "priors", "assignment_priors", "workflow_overhead", "second_run", "script_imports",
)  # fmt: skip
PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> int:
    """Run the benchmarks asked for; returns 1 where a promise is broken."""
    arguments = _arguments()
    options = Options(arguments.size, arguments.device, arguments.threads, arguments.repetitions)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # before a benchmark imports torch
    broken: list[str] = []
    for name in arguments.names or BENCHMARKS:
        module = importlib.import_module(name)
        found: list[Entry] = module.entries(options)
        path = write_record(name, module.TITLE, found, options)
        text = table(found)
        print(f"\n{module.TITLE} ({path})\n\n{text}", flush=True)
        if arguments.docs:
            put_into_page(name, text, options)
        broken += [f"{name}: {line}" for entry in found for line in entry.broken]
    for line in broken:
        print(f"not kept: {line}")
    return 1 if broken else 0


def put_into_page(name: str, text: str, options: Options) -> None:
    """Replace what stands between ``<!-- name -->`` and ``<!-- /name -->`` of the page."""
    about = machine()
    where = about.get("gpu") if options.device == "cuda" else about["processor"]
    head = f"{where}, {about['cores']} cores, load {about['load']:.1f} at the end.\n\n"
    page = PAGE.read_text()
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{PAGE}: no marks <!-- {name} --> and <!-- /{name} -->; add them")
    PAGE.write_text(pattern.sub(lambda m: f"{m[1]}{head}{text}\n{m[2]}", page))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--size", choices=["ci", "full"], default="full")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of torch")
    parser.add_argument("--repetitions", type=int, default=5, help="counted repetitions")
    parser.add_argument("--docs", action="store_true", help="put the tables into the docs page")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {BENCHMARKS}")
    return arguments


if __name__ == "__main__":
    raise SystemExit(main())
