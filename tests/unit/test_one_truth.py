"""The same numbers on every type of CPU: two instruction sets of this one are compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOLERANCE = 0.02  # bits, that of `make check-reference`
# Each library has its own way to be kept from the newest instructions that it finds.
OLDER = {
    "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512_SKX",
}  # fmt: skip


def measured(environment: dict[str, str]) -> dict[str, float]:
    """Measure in a process of its own, with some of its environment set."""
    found = subprocess.run(
        [sys.executable, str(HERE / "one_truth.py"), "zoo:matching-none-0", "1200"],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        cwd=HERE.parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
    numbers: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return numbers


@pytest.mark.slow
def test_an_older_instruction_set_measures_the_same() -> None:
    newest, oldest = measured({}), measured(OLDER)
    assert newest.keys() == oldest.keys()
    assert len(newest) > 20
    differences = {name: abs(newest[name] - oldest[name]) for name in newest}
    assert any(differences.values()), "the environment has changed nothing: the test is blind"
    far = {name: value for name, value in differences.items() if value > TOLERANCE}
    assert not far, far
