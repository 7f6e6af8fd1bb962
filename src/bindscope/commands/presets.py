"""``make presets-small``: run small presets one after another, check and keep what each shows.

``python -m bindscope.commands.presets [--quick] [preset ...] [-- arguments of snakemake]``
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path

from bindscope.cli import load_graph
from bindscope.commands import launch
from bindscope.commands.plan import NOTHING, explain
from bindscope.commands.quick import write_quick
from bindscope.core.errors import BindscopeError
from bindscope.core.paths import PATHS

FOLDER = Path("config/presets")
KEPT = Path("results/presets")
# Figures and tables of presets in the size of CI, with the configurations that were run.
KEPT_QUICK = Path("results/presets/quick")
LINES = 40
# What a preset shows: products without a key in their path, which the next preset replaces.
SHOWN = (
    "figure", "table_binding_information", "table_priors", "table_attention",
    "table_scene_statistics", "report",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the presets that are named, or every small one; 1 if one of them failed."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    extra: list[str] = []
    if "--" in given:
        given, extra = given[: given.index("--")], given[given.index("--") + 1 :]
    parser = argparse.ArgumentParser(prog="python -m bindscope.commands.presets")
    parser.add_argument("--quick", action="store_true", help="few scenes and steps, as in CI")
    parser.add_argument("presets", nargs="*", metavar="PRESET")
    options = parser.parse_args(given)
    try:
        return run_presets(Path.cwd(), options.presets, extra, quick=options.quick)
    except BindscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run_presets(
    root: Path, names: Sequence[str] = (), extra: Sequence[str] = (), quick: bool = False
) -> int:
    """Run presets in turn; one that fails does not hold up the others.

    Parameters
    ----------
    root
        The clone.
    names
        Presets by name (``resolution_small``); default: all whose name ends in ``_small``.
    extra
        Further arguments of Snakemake.
    quick
        Run them with few scenes and steps (`bindscope.commands.quick`).

    Returns
    -------
    int
        0, or 1 where a preset failed; then the end of its log is shown last. Figures, tables and
        report of each are copied to ``results/presets/<name>``, because the next preset writes its
        own in their place. Those of quick presets are moved, to ``results/presets/quick/<name>``:
        nothing that means nothing is left where results are looked for.

    Raises
    ------
    BindscopeError
        If there is no preset of a name, or another run is at work in the folder.
    """
    known = {path.stem: path for path in sorted((root / FOLDER).glob("*.yaml"))}
    chosen = list(names) or [name for name in known if name.endswith("_small")]
    for name in chosen:
        if name not in known:
            raise BindscopeError(
                name, f"there is no such preset in {FOLDER}", f"choose from: {', '.join(known)}"
            )
    lines, failures = [], []
    for name in chosen:
        started = time.monotonic()
        configfile, kept = FOLDER / f"{name}.yaml", KEPT / name
        if quick:
            preset, kept = configfile, KEPT_QUICK / name
            configfile = KEPT_QUICK / f"{name}.yaml"
            write_quick(root / preset, root / configfile)
        outcome = run_preset(root, str(configfile), extra)
        if outcome is None:
            keep(root, str(configfile), kept, shutil.move if quick else shutil.copy2)
        else:
            failures.append(f"\n==> the end of {name}, which failed\n{end_of_log(root)}")
        seconds = time.monotonic() - started
        lines.append(f"  {name:24} {seconds:7.0f} s  {kept if outcome is None else outcome}")
    print("\n".join(failures))
    print("\nPresets:\n" + "\n".join(lines), flush=True)
    return int(bool(failures))


def run_preset(root: Path, configfile: str, extra: Sequence[str]) -> str | None:
    """Run one preset and check it; say what failed, or None."""
    if code := launch.run(root, ["--configfile", configfile, *extra], launch.FORKED):
        return f"FAILED (exit code {code})"
    dry = {"-n", "--dry-run", "--dryrun"} & set(extra)
    if not dry and (found := problems(root, configfile)):
        return "FAILED: " + "; ".join(found)
    return None


def end_of_log(root: Path) -> str:
    """Return the last lines of Snakemake's last log; failed jobs' own logs stand in it."""
    logs = sorted((root / ".snakemake/log").glob("*.snakemake.log"))
    return "\n".join(logs[-1].read_text().splitlines()[-LINES:]) if logs else "there is no log"


def problems(root: Path, configfile: str) -> list[str]:
    """List what is wrong after a run that Snakemake ended well; should be nothing.

    Figures and tables that are not there, empty or wrong (a table that can be read obeys its
    schema: numbers are finite, and null only with a reason), fits that failed, and what a second
    run would make again.
    """
    from PIL import Image

    from bindscope.tables.schema import declared
    from bindscope.tables.write import read_table

    schemas = declared()
    found = []
    graph = load_graph(str(root / configfile))
    for product in graph.of("figure"):
        try:
            with Image.open(root / product.path("png")) as image:
                low, high = image.convert("L").getextrema()
        except OSError as error:
            found.append(f"{product.path('png')}: {error}")
            continue
        if low == high:
            found.append(f"{product.path('png')}: nothing is drawn")
    for product in graph.of("table"):
        try:
            schema = schemas[product.wildcards["table"]]
            table = read_table(root / product.path("parquet"), schema)
        except BindscopeError as error:
            found.append(str(error))
            continue
        if table.empty:
            found.append(f"{product.path('parquet')}: no rows")
        elif "status" in table and (failed := table[table["status"] == "failed"]).size:
            reasons = ", ".join(sorted(set(failed["reason"])))
            found.append(f"{product.path('parquet')}: {len(failed)} fits failed ({reasons})")
    with chdir(root):
        again = explain(graph, configfile)
    return found if again == NOTHING else [*found, f"a second run would make again:\n{again}"]


def keep(root: Path, configfile: str, kept: Path, put: Callable[[Path, Path], object]) -> None:
    """Copy what a preset shows to its own folder, or move it (`put`).

    What an earlier run of the preset left there goes; where nothing was made (a dry run) the
    folder is empty.
    """
    target = root / kept
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for product in load_graph(str(root / configfile)).of(*SHOWN):
        for output in PATHS[product.rule]:
            path = root / product.path(output)
            if path.is_file():
                put(path, target / path.name)


if __name__ == "__main__":
    sys.exit(main())
