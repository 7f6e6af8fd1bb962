"""On the path of the jobs of chaos.py: a file may grow to so many bytes, and then no further.

The kernel refuses the write, whoever makes it: JSON, safetensors, figures, chunks of a store. The
code of the library is untouched, and so are its keys.
"""

import os
import re
import resource
import sys

# Snakemake runs a copy of the script: .snakemake/scripts/tmpabcd.codes.py
if re.search(r"\.snakemake/scripts/tmp\w*\.\w+\.py$", (sys.orig_argv or [""])[-1]):
    # Python 3.11 takes bytecode that is cut off for whole, and the next process stumbles over it.
    sys.dont_write_bytecode = True
    limit = int(os.environ["CHAOS_BYTES"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
