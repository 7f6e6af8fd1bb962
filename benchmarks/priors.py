"""Exact entropies H(O), H(F), H(O|F) of every preset's datasets.

Every preset is computed in a fresh interpreter, because counts are remembered within one: the time
is that of the computation alone, compared with the whole process (start and imports included).
Presets of equal spaces and splits cost the same; the time of one is the sum over its datasets.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from measure import ROOT, Entry, Options

TITLE = "Priors"
PROMISED_S = 1.0
PRESETS = sorted((ROOT / "config" / "presets").glob("*.yaml"))

COMPUTE = """
import json, sys, time
import yaml
from bindscope.config.codes import CountedSpace
from bindscope.config.root import Config
from bindscope.priors.entropies import entropies
datasets = Config.model_validate(yaml.safe_load(open(sys.argv[1]))).datasets
known = [d for d in datasets if not isinstance(d.space, CountedSpace)]
start = time.perf_counter()
rows = [row for dataset in known for row in entropies(dataset)]
print(json.dumps({"s": time.perf_counter() - start, "datasets": len(known), "rows": rows}))
"""


def entries(options: Options) -> list[Entry]:
    """Time every preset whose spaces are known without a look at scenes."""
    return [entry for path in PRESETS if (entry := _preset(path, options))]


def _preset(path: Path, options: Options) -> Entry | None:
    runs, whole = [], []
    for _ in range(options.repetitions):
        start = time.perf_counter()
        runs.append(_run(path))
        whole.append(time.perf_counter() - start)
    if not runs[0]["datasets"]:
        return None
    bits = {row["h_object_bits"] for row in runs[0]["rows"]}
    return Entry(
        f"{path.stem} ({runs[0]['datasets']} datasets)", median(run["s"] for run in runs),
        against="with start and imports", against_s=median(whole), seconds_promised=PROMISED_S,
        notes={"h_object_bits": sorted(bits)},
    )  # fmt: skip


def _run(path: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", COMPUTE, str(path)], cwd=ROOT, capture_output=True, text=True,
        check=True, env={"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found
