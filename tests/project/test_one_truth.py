"""The same numbers on every type of CPU: two instruction sets of this one are compared."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HELPERS = Path(__file__).parents[1] / "helpers"
TOLERANCE = 0.02  # bits, that of `make check-reference`
# From so many scenes its probes decode a part of the pairing: each head's ridge is chosen among
# several that are nearly as good. With fewer, or an untrained model, the prior itself was compared.
MODEL, SCENES = "zoo:matching-captions-unpaired-0", "1500"
# Each library has its own way to be kept from the newest instructions that it finds.
OLDER = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512_SKX",
}


def measured(environment: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Measure in a process of its own, with some of its environment set."""
    run = subprocess.run(
        [sys.executable, str(HELPERS / "one_truth.py"), MODEL, SCENES],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        cwd=HELPERS.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    rows: dict[str, dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    return rows


@pytest.mark.slow
@pytest.mark.timeout(900)  # of a busy machine; a minute of a core
@pytest.mark.whole
def test_an_older_instruction_set_measures_the_same() -> None:
    newest, oldest = measured({}), measured(OLDER)
    assert newest.keys() == oldest.keys()
    differences, far = [], {}
    for row, measurement in newest.items():
        assert measurement["numbers"].keys() == oldest[row]["numbers"].keys()
        assert measurement["flags"] == oldest[row]["flags"]
        assert 1 < measurement["numbers"]["pairing_lower_bound_bits"] < 9
        for name, value in measurement["numbers"].items():
            difference = abs(value - oldest[row]["numbers"][name])
            differences.append(difference)
            if difference > TOLERANCE:
                far[f"{row} {name}"] = difference
    assert len(differences) > 20
    assert any(differences), "the environment has changed nothing: the test is blind"
    assert not far, far
