"""On the path of the jobs of test_bad_input.py: for two scripts the disk is full.

`pooled` finds too little space before it starts, `priors` none as it writes. The code of the
library is untouched, and so are its keys.
"""

import errno
import os
import re
import shutil
import sys

# Snakemake runs a copy of the script: .snakemake/scripts/tmpabcd.codes.py
SCRIPT = re.search(r"\.snakemake/scripts/tmp\w*\.(\w+)\.py$", (sys.orig_argv or [""])[-1])


def no_space(descriptor: int) -> None:
    """Fail as `os.fsync` does on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


if SCRIPT and SCRIPT[1] == "extract":
    usage = type(shutil.disk_usage("/"))
    shutil.disk_usage = lambda path: usage(10**9, 10**9 - 1000, 1000)
elif SCRIPT and SCRIPT[1] == "priors":
    os.fsync = no_space
