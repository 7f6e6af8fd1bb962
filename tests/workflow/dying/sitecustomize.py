"""On the path of the jobs of test_deaths.py: the first job of every rule dies once, as it writes.

The death is in `os.fsync`, which every product passes on its way to the disk, so it strikes with a
product half written. The code of the library is untouched, and so are its keys.
"""

import os
import re
import signal
import sys
from pathlib import Path

HOW = os.environ.get("DIE")
RECORDS = os.environ.get("DIE_RECORDS")
# Snakemake runs a copy of the script: .snakemake/scripts/tmpabcd.codes.py
SCRIPT = re.search(r"\.snakemake/scripts/tmp\w*\.(\w+)\.py$", (sys.orig_argv or [""])[-1])

if HOW and RECORDS and SCRIPT:
    record = Path(RECORDS) / SCRIPT[1]
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        """Die at the first write of the first job of this rule."""
        try:
            record.touch(exist_ok=False)
        except FileExistsError:
            return real_fsync(descriptor)
        if HOW == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)

    os.fsync = fsync
