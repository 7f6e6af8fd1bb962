"""How time and memory of the pipeline's steps grow: each quantity varied alone, with exponents.

``python benchmarks/cost_growth.py [STEP ...]`` measures those steps (all without arguments), merges
them into the committed record ``resources/benchmarks/cost_growth.json``, and writes the tables of
``docs/benchmarks.md`` and ``docs/scaling.md`` from it; ``--tables`` measures nothing. As part of
``run.py`` it measures everything and leaves the committed record alone.

Each point runs in a fork of its own on one CPU thread: the shorter of two repetitions (one of the
long curves), and the growth of resident memory over the bare process, inputs included. A curve is
fitted in logarithms by y = b x^p, or, where a fixed part explains it better, by y = a + b x^p with
a >= 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from measure import ROOT, Entry, Options, alone, machine
from numpy.typing import NDArray

TITLE = "Growth of cost"
RECORD = ROOT / "resources" / "benchmarks" / "cost_growth.json"
FAMILIES = ("linear", "quadratic", "quadratic_reuse", "multilinear_reuse", "dnn")
# A fixed part is reported where it lowers the residual to less than this share of the power law's.
BETTER, NEGLIGIBLE = 0.8, 0.015
REPETITIONS = 2  # one for curves with a label, which take seconds a point


@dataclass(frozen=True)
class Axis:
    """One quantity and its values.

    Attributes
    ----------
    name
        What is varied, as `Case` calls it (`side`: shown as heads K).
    values
        For ``--size full``; ``ci`` takes `small`.
    small
        At least 4 of them too.
    base
        Other fields of `Case` than the default ones.
    label
        Name in the tables where `base` makes it another curve of the same step.
    """

    name: str
    values: tuple[int, ...]
    small: tuple[int, ...]
    base: tuple[tuple[str, int], ...] = ()
    label: str = ""


SCENES = Axis("scenes", (512, 1024, 2048, 4096, 8192), (64, 128, 256, 512))
MORE_SCENES = Axis("scenes", (1024, 2048, 4096, 8192, 16384, 32768), (64, 128, 256, 512))
HEADS = Axis("side", (3, 4, 5, 6, 7, 8), (3, 4, 5, 6))
SEEDS = Axis("seeds", (1, 2, 4, 8), (1, 2, 3, 4))
LAYERS = Axis("layers", (2, 4, 8, 16), (1, 2, 3, 4))
TOKENS = Axis("tokens", (16, 64, 144, 256), (4, 9, 16, 25))
JOBS = Axis("jobs", (1, 2, 4, 8, 16, 24), (1, 2, 3, 4))
# The paper's size: 8 x 8 objects, d = 1024; a ViT-L's blocks over 256 patches.
LARGE = (("side", 8), ("dim", 1024))
LARGE_FIT = (*LARGE, ("scenes", 512), ("batch", 256))
LARGE_VIT = (("dim", 1024), ("tokens", 256), ("scenes", 8))
STEPS_LARGE = Axis("steps", (4, 8, 16, 32), (1, 2, 3, 4), LARGE_FIT, "d 1024")
SCENES_LARGE = Axis(
    "scenes", (1024, 2048, 4096, 8192), (64, 128, 192, 256), (*LARGE, ("steps", 1)), "d 1024"
)
RENDER_LARGE = Axis(
    "scenes", (256, 512, 1024, 2048), (16, 32, 48, 64), (("side", 8), ("px", 256)), "256 px"
)
PRIORS_LARGE = Axis("scenes", (1024, 4096, 16384, 32768), (16, 32, 48, 64), (("side", 8),), "8 x 8")
LAYERS_LARGE = Axis("layers", (1, 2, 3, 4), (1, 2, 3, 4), LARGE_VIT, "ViT-L")
STEPS_ATTENTION = Axis(
    "steps", (1, 2, 3, 4), (1, 2, 3, 4),
    (*LARGE, ("scenes", 64), ("tokens", 256), ("batch", 32)), "d 1024",
)  # fmt: skip
AXES: dict[str, tuple[Axis, ...]] = {
    "render": (MORE_SCENES, HEADS, RENDER_LARGE),
    "priors": (MORE_SCENES, HEADS, PRIORS_LARGE),
    "pooled": (SCENES, LAYERS, TOKENS, LAYERS_LARGE),
    "patches": (SCENES, LAYERS, TOKENS),
    **dict.fromkeys(FAMILIES, (SCENES, HEADS, SEEDS)),
    "linear": (SCENES, HEADS, SEEDS, SCENES_LARGE),
    "quadratic": (SCENES, HEADS, SEEDS, STEPS_LARGE, SCENES_LARGE),
    "quadratic_reuse": (SCENES, HEADS, SEEDS, STEPS_LARGE),
    "dnn": (SCENES, HEADS, SEEDS, STEPS_LARGE),
    "attention_quadratic": (SCENES, HEADS, TOKENS, SEEDS, STEPS_ATTENTION),
    "rows": (MORE_SCENES, HEADS, SEEDS),
    "plan": (JOBS,),
}
# Where the default case would take minutes.
SMALLER: dict[str, dict[str, int]] = {
    "pooled": {"scenes": 128}, "patches": {"scenes": 128},
    "attention_quadratic": {"scenes": 512, "tokens": 16, "steps": 10},
}  # fmt: skip
FEWER_SCENES = {"pooled": 16, "patches": 16, "attention_quadratic": 4}


@dataclass(frozen=True)
class Curve:
    """y = fixed + unit x^exponent.

    Attributes
    ----------
    exponent, fixed, unit
        The fit; `fixed` is 0 where the plain power law was taken.
    residual
        Root mean square of log(y / fit).
    """

    exponent: float
    fixed: float
    unit: float
    residual: float

    def at(self, x: float) -> float:
        """Return the fitted y."""
        return float(self.fixed + self.unit * x**self.exponent)


def fit_curve(x: Sequence[float], y: Sequence[float]) -> Curve:
    """Fit a power law, or one with a fixed part where that is much closer."""
    xs, ys = np.asarray(x, float), np.maximum(np.asarray(y, float), 1e-9)
    power = _power(xs, ys)
    if power.residual <= NEGLIGIBLE:
        return power
    found = min((_with_fixed(xs, ys, p) for p in np.arange(0.1, 3.01, 0.05)),
                key=lambda curve: curve.residual)  # fmt: skip
    return found if found.residual < BETTER * power.residual else power


def _power(x: NDArray[Any], y: NDArray[Any]) -> Curve:
    design = np.column_stack([np.log(x), np.ones_like(x)])
    (p, log_unit), *_ = np.linalg.lstsq(design, np.log(y), rcond=None)
    unit = float(np.exp(log_unit))
    return Curve(float(p), 0.0, unit, _residual(y, unit * x**p))


def _with_fixed(x: NDArray[Any], y: NDArray[Any], p: float) -> Curve:
    """Least squares of relative errors with both parts >= 0, for one exponent."""
    design = np.column_stack([1 / y, x**p / y])
    (a, b), *_ = np.linalg.lstsq(design, np.ones_like(y), rcond=None)
    if a < 0:
        a, b = 0.0, float((x**p / y).sum() / np.square(x**p / y).sum())
    if b <= 0:
        a, b = float((1 / y).sum() / np.square(1 / y).sum()), 0.0
    return Curve(float(p), float(a), float(b), _residual(y, a + b * x**p))


def _residual(y: NDArray[Any], fitted: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(np.log(y / np.maximum(fitted, 1e-30))))))


def entries(options: Options) -> list[Entry]:
    """Measure every step against every quantity."""
    return [measure(step, axis, options) for step, axes in AXES.items() for axis in axes]


def measure(step: str, axis: Axis, options: Options) -> Entry:
    """Measure one curve."""
    from growth_steps import STEPS, Case, n_jobs

    small = options.size == "ci"
    case = replace(Case(), **{**({} if axis.label else SMALLER.get(step, {})), **dict(axis.base)})
    if small:
        case = replace(case, scenes=min(case.scenes, 128), steps=min(case.steps, 4))
    points: dict[str, list[Any]] = {"x": [], "seconds": [], "memory_mb": [], "result": []}
    for value in axis.small if small else axis.values:
        scale = FEWER_SCENES.get(step, 1) if axis.name == "scenes" and not axis.label else 1
        given = replace(case, **{axis.name: max(value // scale, 16) if scale > 1 else value})
        runs = [
            alone(STEPS[step].work, given, prepare=STEPS[step].prepare, threads=1)
            for _ in range(1 if small or axis.label or step == "plan" else REPETITIONS)
        ]
        best = min(runs, key=lambda run: run.seconds)
        x = given.heads if axis.name == "side" else getattr(given, axis.name)
        points["x"].append(n_jobs(given) if axis.name == "jobs" else x)
        points["seconds"].append(best.seconds)
        points["memory_mb"].append(best.peak_mb - best.start_mb)
        points["result"].append(best.result)
    notes = {"step": step, "axis": label(axis), **points}
    return Entry(f"{step} against {label(axis)}", points["seconds"][0], notes=notes)


def label(axis: Axis) -> str:
    """Return the name of a quantity in tables."""
    name = "heads K" if axis.name == "side" else axis.name
    return f"{name} ({axis.label})" if axis.label else name


def curves(notes: dict[str, Any]) -> tuple[Curve, Curve]:
    """Return the curves of time and of memory of an entry."""
    return fit_curve(notes["x"], notes["seconds"]), fit_curve(notes["x"], notes["memory_mb"])


def table(found: Sequence[Entry]) -> str:
    """Return a row per curve; the harness takes this in place of its own."""
    return rows_table([dict(entry.notes) for entry in found])


def rows_table(found: Sequence[dict[str, Any]]) -> str:
    """Return the Markdown table of the notes of entries."""
    lines = [
        "| step | varied | from, to | s | time ~ | residual | MB | memory ~ | residual |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for notes in found:
        x, seconds, memory = notes["x"], notes["seconds"], notes["memory_mb"]
        time, space = curves(notes)
        cells = [
            notes["step"], notes["axis"], f"{x[0]:,}, {x[-1]:,}",
            f"{seconds[0]:.3g}, {seconds[-1]:.3g}", _law(time, "s"), f"{time.residual:.0%}",
            f"{memory[0]:.0f}, {memory[-1]:.0f}", _law(space, "MB"), f"{space.residual:.0%}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _law(curve: Curve, unit: str) -> str:
    power = f"x^{curve.exponent:.2f}"
    return f"{curve.fixed:.3g} {unit} + {power}" if curve.fixed else power


def merge(found: Sequence[Entry], path: Path = RECORD) -> dict[str, Any]:
    """Put entries into the committed record in the place of those of the same name."""
    record: dict[str, Any] = {"curves": {}}
    if path.exists():
        record = json.loads(path.read_text())
    about = machine() | {"date": date.today().isoformat()}
    for entry in found:
        record["curves"][entry.what] = dict(entry.notes) | {"machine": about}
    order = [f"{step} against " for step in AXES]
    ordered = sorted(
        record["curves"].items(),
        key=lambda item: next(i for i, start in enumerate(order) if item[0].startswith(start)),
    )
    record["curves"] = dict(ordered)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return record


def main() -> int:
    """Measure some steps into the committed record and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(AXES)}")
    parser.add_argument("--tables", action="store_true", help="measure nothing, write the pages")
    parser.add_argument("--only", help="only the quantity whose label this is (`d 1024`)")
    given = parser.parse_args()
    if unknown := set(given.steps) - set(AXES):
        parser.error(f"no step {', '.join(sorted(unknown))}")
    import scaling

    if not given.tables:
        for step in given.steps or AXES:
            for axis in AXES[step]:
                if given.only in (None, axis.label or axis.name):
                    entry = measure(step, axis, Options(threads=1))
                    merge([entry])
                    print(rows_table([dict(entry.notes)]).splitlines()[-1], flush=True)
    scaling.write_pages()
    return 0


if __name__ == "__main__":
    sys.exit(main())
