"""Measure one training step of every probe family against its literal twin.

``python benchmarks/probe_step.py`` times forward, backward and AdamW of the plain object probe in
float32, ours and the twin of ``tests/unit/slow_twins.py`` (z repeated for every head, a small
product per head, as in the released code), side by side in one run and from the same weights;
checks that both give the same loss; prints a table and writes JSON.

Sizes are the paper's: 64 heads, 1,024 dimensions, batches of 512 (attention: 32 scenes of 256
patch tokens and [CLS]). The median of a few repetitions is reported, after one that is not counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "unit")]

from slow_twins import random_inputs, twin_of  # noqa: E402

from bindscope.config.probes import AnyProbe  # noqa: E402
from bindscope.probes.base import Target  # noqa: E402
from bindscope.probes.module import InputShape  # noqa: E402
from bindscope.probes.runs import bits_lost, build  # noqa: E402

FAMILIES: dict[str, dict[str, Any]] = {
    "linear": {},
    "quadratic": {},
    "quadratic_reuse": {},
    "multilinear_reuse": {},
    "dnn": {"hidden": 256},
    "attention_quadratic": {},
}


def main() -> int:
    """Time all families, print the table, write JSON."""
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    print(f"{'family':22}{'ours ms':>10}{'twin ms':>10}{'ratio':>8}")
    rows = []
    for family in arguments.families:
        row = measure(family, arguments)
        rows.append(row)
        print(f"{family:22}{row['ours_ms']:10.1f}{row['twin_ms']:10.1f}{row['ratio']:8.1f}")
    sizes = {k: v for k, v in vars(arguments).items() if k not in ("json", "families")}
    record = {"rows": rows, **sizes, "cpu": platform.processor(), "torch": torch.__version__}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    print(f"written to {arguments.json}")
    return 0


def measure(family: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the times of one family in milliseconds, and their ratio."""
    config = TypeAdapter[AnyProbe](AnyProbe).validate_python(
        {"name": "p", "family": family, **FAMILIES[family]}
    )
    (heads,) = Target("object", (arguments.values, arguments.values)).parts
    attention = family == "attention_quadratic"
    ours = build(config, heads, InputShape(arguments.dim, attention))
    twin = twin_of(ours, config)
    batch, tokens = (arguments.images, arguments.tokens) if attention else (arguments.batch, 0)
    inputs, bits, _ = random_inputs(
        torch.Generator().manual_seed(0), batch, arguments.dim, heads, tokens, dtype=torch.float32
    )
    times: dict[str, list[float]] = {"ours": [], "twin": []}
    optimisers = {
        "ours": torch.optim.AdamW(ours.parameters(), fused=True),
        "twin": torch.optim.AdamW(twin.parameters(), fused=True),
    }
    for repetition in range(arguments.repetitions + 1):
        losses = {}
        for name, probe in (("ours", ours), ("twin", twin)):
            start = time.perf_counter()
            loss = bits_lost(probe(inputs, bits), bits).sum(1).mean()
            loss.backward()
            optimisers[name].step()
            optimisers[name].zero_grad()
            if repetition:
                times[name].append(1e3 * (time.perf_counter() - start))
            losses[name] = loss.item()
        if abs(losses["ours"] - losses["twin"]) > 1e-3 * losses["twin"]:
            raise SystemExit(f"{family}: the losses differ: {losses}")
    median = {name: statistics.median(values) for name, values in times.items()}
    return {
        "family": family,
        "ours_ms": median["ours"],
        "twin_ms": median["twin"],
        "ratio": median["twin"] / median["ours"],
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--values", type=int, default=8, help="values per group; heads = square")
    parser.add_argument("--dim", type=int, default=1024, help="dimension of z and of tokens")
    parser.add_argument("--batch", type=int, default=512, help="scenes per step")
    parser.add_argument("--images", type=int, default=32, help="scenes per step of attention")
    parser.add_argument("--tokens", type=int, default=256, help="patch tokens per scene")
    parser.add_argument("--repetitions", type=int, default=3, help="counted steps")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    default = ROOT / "results" / "benchmarks" / "probe_step.json"
    parser.add_argument("--json", type=Path, default=default, help="where the record goes")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
