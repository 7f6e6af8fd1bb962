"""What the default run costs when nothing is to be done.

Works in a fresh copy of the working tree. Nothing is computed: the run before the second run has
scripts that only make their outputs. The floor is Snakemake saying its version.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from default_run import fresh_copy
from measure import Entry, Options, medians, run_python, side_by_side

TITLE = "The default run again"
PROMISED_S = 4.0
RUN = ("-m", "snakemake", "--cores", "all")  # not quiet: it says "Nothing to be done"

STUB = """\
from pathlib import Path

for path in map(Path, snakemake.output):
    if path.suffix == ".zarr":
        path.mkdir(parents=True)
        path = path / "zarr.json"
    path.write_text("{}")
"""


def entries(options: Options) -> list[Entry]:
    """Time the run that finds nothing to do."""
    folder = fresh_copy()
    try:
        times = _time(folder, options)
    finally:
        shutil.rmtree(folder)
    return [
        Entry("default run, nothing to do", times["again"], "snakemake --version",
              times["version"], seconds_promised=PROMISED_S),
    ]  # fmt: skip


def _time(folder: Path, options: Options) -> dict[str, float]:
    for script in (folder / "workflow/scripts").glob("*.py"):
        script.write_text(STUB)
    run_python(folder, *RUN)
    runs = {
        "again": lambda: run_python(folder, *RUN, says="Nothing to be done"),
        "version": lambda: run_python(folder, "-m", "snakemake", "--version"),
    }
    return medians(side_by_side(runs, options))
