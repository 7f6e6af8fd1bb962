"""On the path of the jobs of test_deaths.py: of every script one job exits and one is killed.

The death is in `os.fsync`, which every product passes on its way to the disk, so it strikes with a
product half written. The code of the library is untouched, and so are its keys.
"""

import os
import re
import signal
import sys
from pathlib import Path

RECORDS = os.environ.get("DIE_RECORDS")
# Snakemake runs a copy of the script: .snakemake/scripts/tmpabcd.codes.py
SCRIPT = re.search(r"\.snakemake/scripts/tmp\w*\.(\w+)\.py$", (sys.orig_argv or [""])[-1])


def first(death: str) -> bool:
    """Note that a job of this script dies so; false if one did before."""
    try:
        Path(RECORDS, f"{SCRIPT[1]}.{death}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


if RECORDS and SCRIPT:
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        """Die at the first write, if no job of this script has died so yet."""
        if first("exit"):
            os._exit(1)
        if first("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        real_fsync(descriptor)

    os.fsync = fsync
