"""A plugin of pytest (`-p figure_net.recorder`): every figure that a test draws goes to a file.

FIGURE_NET names the file: gzipped lines of JSON, `[test without parameters, figure]`.
"""

import functools
import gzip
import json
import os

from matplotlib.figure import Figure

from bindscope.figures import style
from figure_net.dump import dump

FOUND: list[str] = []
_styled = style.styled


def recording(draw):
    drawn = _styled(draw)

    @functools.wraps(drawn)
    def wrapped(*args, **kwargs):
        made = drawn(*args, **kwargs)
        if isinstance(made, Figure):
            test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" (")[0].partition("[")[0]
            FOUND.append(json.dumps([test, _styled(dump)(made)], sort_keys=True))
        return made

    return wrapped


style.styled = recording


def pytest_sessionfinish():
    """Write what was drawn."""
    with gzip.open(os.environ["FIGURE_NET"], "wt") as file:
        file.write("\n".join(sorted(set(FOUND))))
