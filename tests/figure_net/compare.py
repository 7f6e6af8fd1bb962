"""Compare two files of figures: `compare.py BEFORE AFTER`; each figure of before must be in after.

The order of artists within an axes is not compared; that of legends' entries is. Lines without a
finite point and collections without a path are left out: nobody sees them.
"""

import gzip
import json
import sys
from collections import defaultdict

ORDERLESS = ("lines", "collections", "patches", "texts", "images")


def seen(one, kind):
    """Whether a line has a finite point, and a collection an area or a segment."""
    if kind == "lines":
        return any(isinstance(p, list) and "nan" not in p for p in one["xy"])
    return kind != "collections" or any(one["paths"])


def canonical(figure):
    """Return a figure with artists of an axes in an order of their own."""
    for axes in figure["axes"]:  # the order of drawing moves limits in their last digits
        for name in ("xlim", "ylim"):
            axes[name] = [f"{float(end):.5g}" for end in axes[name]]
    figure["size"] = [round(float(inches), 9) for inches in figure["size"]]
    for axes in figure["axes"]:
        for kind in ORDERLESS:
            for one in axes[kind]:  # nobody sees the colour of an edge without a width
                if kind == "collections" and not one["hatch"] and set(one["width"]) <= {"0.0", 0}:
                    one["edge"] = None
            there = [one for one in axes[kind] if seen(one, kind)]
            axes[kind] = sorted(there, key=lambda one: json.dumps(one, sort_keys=True))
    return figure


def read(path):
    """Return figures by name or test."""
    found = defaultdict(dict)
    for line in gzip.open(path, "rt").read().splitlines():
        name, figure = json.loads(line)
        figure = canonical(figure)
        found[name][json.dumps(figure, sort_keys=True)] = figure
    return found


def differences(a, b, at=""):
    """Yield where two structures differ."""
    if type(a) is not type(b):
        yield at, a, b
    elif isinstance(a, dict):
        for key in sorted({*a, *b}):
            yield from differences(a.get(key), b.get(key), f"{at}.{key}")
    elif isinstance(a, list):
        if len(a) != len(b):
            yield f"{at}.len", len(a), len(b)
        for i, (one, two) in enumerate(zip(a, b)):
            yield from differences(one, two, f"{at}[{i}]")
    elif a != b:
        yield at, a, b


before, after = (read(path) for path in sys.argv[1:3])
only = sys.argv[3:]
same, bad = 0, 0
for name, figures in before.items():
    if only and not any(one in name for one in only):
        continue
    for text, figure in figures.items():
        if text in after.get(name, {}):
            same += 1
            continue
        bad += 1
        others = list(after.get(name, {}).values())
        if not others:
            print(name, "NOT THERE")
            continue
        best = min((list(differences(figure, other)) for other in others), key=len)
        print(name, len(best), "differences")
        for at, a, b in best[:8]:
            print("   ", at, str(a)[:160], "->", str(b)[:160])
print(same, "equal,", bad, "not")
sys.exit(bool(bad))
