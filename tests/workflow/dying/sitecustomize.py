"""On the path of the jobs of test_deaths.py: of every script one job dies.

Of half of the scripts it exits, of the others it is killed.

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


def first(script: str) -> bool:
    """Note that a job of this script dies; false if one did before."""
    try:
        Path(RECORDS, script).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


if RECORDS and SCRIPT:
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        """Die at the first write, if no job of this script has died yet."""
        if first(SCRIPT[1]):
            if len(SCRIPT[1]) % 2:
                os._exit(1)
            os.kill(os.getpid(), signal.SIGKILL)
        real_fsync(descriptor)

    os.fsync = fsync
