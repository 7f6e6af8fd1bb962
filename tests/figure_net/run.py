"""Draw every figure of a finished run from its tables: `run.py CONFIG... OUT.json.gz [PNGS]`.

The working directory is that of the run; nothing is written there.
"""

import gzip
import json
import os
import sys
import traceback
from pathlib import Path

import yaml

import bindscope
from bindscope.config.loading import load_config
from bindscope.core.graph import read_inputs
from bindscope.figures import style
from bindscope.studies.build import build
from bindscope.tables import rows
from figure_net.dump import dump


def draw(implementation, inputs):
    """Return the figure, or words where there is nothing to see; the old way and the new one."""
    import importlib

    name, _, attribute = implementation.partition(":")
    found = importlib.import_module(name)
    if attribute:
        from bindscope.figures.job import drawn

        return drawn(implementation, inputs)
    data = found.read(inputs)
    reason = found.available(**data)
    return style.placeholder(reason) if reason else found.draw(**data)


def main(configs, out, pngs=None):
    """Draw all figures of a configuration."""
    print(bindscope.__file__)
    raw = {}
    for path in configs:
        raw |= yaml.safe_load(Path(path).read_text())
    graph = build(load_config(raw, configs[-1]))
    rows._check_names = lambda *_: None  # the run may be of an older version of the code
    found = {}
    for product in graph.of("figure"):
        name = product.wildcards["figure"]
        if name not in os.environ.get("ONLY", name).split(","):
            continue
        spec = json.loads(product.spec)
        try:
            figure = draw(spec["implementation"], read_inputs(spec, product.files()))
        except FileNotFoundError as error:
            print(name, "NOT THERE", error)
            continue
        except Exception:
            traceback.print_exc()
            print(name, "FAILED")
            continue
        found[name] = style.styled(dump)(figure)
        print(name, len(json.dumps(found[name])))
        if pngs:
            Path(pngs).mkdir(parents=True, exist_ok=True)
            style.save(figure, f"{pngs}/{name}.png", f"{pngs}/{name}.svg")
    with gzip.open(out, "wt") as file:
        file.write("\n".join(json.dumps([n, d], sort_keys=True) for n, d in found.items()))


if __name__ == "__main__":
    args = sys.argv[1:]
    at = next(i for i, arg in enumerate(args) if arg.endswith(".gz"))
    main(args[:at], args[at], *args[at + 1 :])
