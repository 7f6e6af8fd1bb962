"""``make presets-small``: run small presets one after another and keep what each shows.

``python -m bindscope.commands.presets [preset ...] [-- arguments of snakemake]``
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bindscope.cli import load_graph
from bindscope.commands import launch
from bindscope.errors import BindscopeError
from bindscope.graph.paths import PATHS

FOLDER = Path("config/presets")
KEPT = Path("results/presets")
# What a preset shows: products without a key in their path, which the next preset replaces.
SHOWN = ("figure", "table_binding_information", "table_priors", "table_attention", "report")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the presets that are named, or every small one; 1 if one of them failed."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    names, extra = given, []
    if "--" in given:
        names, extra = given[: given.index("--")], given[given.index("--") + 1 :]
    try:
        return run_presets(Path.cwd(), names, extra)
    except BindscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run_presets(root: Path, names: Sequence[str] = (), extra: Sequence[str] = ()) -> int:
    """Run presets in turn; one that fails does not hold up the others.

    Parameters
    ----------
    root
        The clone.
    names
        Presets by name (``resolution_small``); default: all whose name ends in ``_small``.
    extra
        Further arguments of Snakemake.

    Returns
    -------
    int
        0, or 1 where a preset failed. Figures, tables and report of each are copied to
        ``results/presets/<name>``, because the next preset writes its own in their place.

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
    lines = []
    failed = 0
    for name in chosen:
        configfile = str(FOLDER / f"{name}.yaml")
        started = time.monotonic()
        code = launch.run(root, ["--configfile", configfile, *extra])
        seconds = time.monotonic() - started
        failed += code != 0
        kept = keep(root, name) if code == 0 else f"FAILED (exit code {code})"
        lines.append(f"  {name:24} {seconds:7.0f} s  {kept}")
    print("\nPresets:\n" + "\n".join(lines))
    return int(failed > 0)


def keep(root: Path, name: str) -> str:
    """Copy what a preset shows to its own folder; return that folder.

    What an earlier run of the preset left there goes; where nothing was made (a dry run) the
    folder is empty.
    """
    target = root / KEPT / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for product in load_graph(str(root / FOLDER / f"{name}.yaml")).of(*SHOWN):
        for output in PATHS[product.rule]:
            path = root / product.path(output)
            if path.is_file():
                shutil.copy2(path, target / path.name)
    return str(KEPT / name)


if __name__ == "__main__":
    sys.exit(main())
