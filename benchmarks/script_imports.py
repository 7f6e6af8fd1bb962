"""What the imports of each script cost, in processor seconds.

The floor is the import of what the script cannot do without: torch, pandas (tables, figures, the
report), or NumPy with zarr (whoever reads or writes a store), or NumPy.
"""

from __future__ import annotations

import os
import subprocess
import sys

from measure import ROOT, Entry, Options, run_python

TITLE = "Imports of the scripts (processor time)"
PROMISED_S = {"torch": 1.5, "": 0.6}
FLOORS = ("torch", "pandas", "zarr", "numpy")  # the first that a script loads is its floor
SCRIPTS = sorted((ROOT / "workflow" / "scripts").glob("*.py"))


def entries(options: Options) -> list[Entry]:
    """Measure all scripts; the best of the repetitions counts, the first one may compile."""
    floors = {name: _best(f"import {name}", options) for name in FLOORS}
    found = []
    for script in SCRIPTS:
        code = f"import runpy; runpy.run_path({str(script)!r})"
        floor = _floor(code)
        promised = PROMISED_S.get(floor, PROMISED_S[""])
        found.append(
            Entry(script.stem, _best(code, options), f"import {floor}" if floor else "",
                  floors.get(floor), seconds_promised=promised)
        )  # fmt: skip
    return found


def _best(code: str, options: Options) -> float:
    return min(run_python(ROOT, "-c", code) for _ in range(min(options.repetitions, 2) + 1))


def _floor(code: str) -> str:
    """Return the heaviest library that some code loads; empty for none of them."""
    names = run_and_read(f"{code}\nimport sys; print(*sys.modules)").split()
    return next((name for name in FLOORS if name in names), "")


def run_and_read(code: str) -> str:
    """Run some code in a fresh interpreter and return what it prints."""
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
