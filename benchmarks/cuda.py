"""Check and time everything on a GPU: ``python benchmarks/cuda.py``, one table at the end.

For a machine that has the lock's packages and a CUDA build of torch. First the checks: the device,
one step and a whole fit of every probe family against the CPU, extraction against the CPU in
float32 and bfloat16, known answers. Then every benchmark of ``run.py`` with ``--device cuda``.
Writes JSON; exits with 1 where a check fails or a promise is broken, with 2 where there is no CUDA
device.

``--device cpu`` rehearses all of it without one: then the second of two results is computed with
another number of threads, so that sums are split in another way there too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measure import RECORDS, Entry, Options, machine
from numpy.typing import NDArray
from run import BENCHMARKS, positive

# Largest difference of logits and gradients of one step, as a share of the largest CPU value, in
# float32 without TF32: sums in another order, up to 1e5 terms long.
STEP_TOLERANCE = 1e-4
# Difference of a fit's test losses in bits per scene: the convex fits stop within their tolerance
# of one optimum; the others take every step from rounded gradients (the reference's tolerance).
FIT_TOLERANCE_BITS = {"linear": 1e-3}
OTHERS_TOLERANCE_BITS = 0.02
# Root mean square of the difference as a share of that of the CPU's float32 activations, worst
# layer: bfloat16 has 8 bits of mantissa.
EXTRACTION_TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}
# Known answers: never above by more than 0.02 bits, never below by more than 1 % of H(O)
# (docs/known_answers.md).
ABOVE_BITS, BELOW_SHARE = 0.02, 0.01
ENCODERS = ("zero", "features", "identity")


@dataclass(frozen=True)
class Check:
    """What was checked, what was found, and the most that is allowed."""

    what: str
    found: float
    allowed: float
    unit: str = ""

    @property
    def passed(self) -> bool:
        """Whether it holds; NaN does not."""
        return self.found <= self.allowed


@dataclass(frozen=True)
class Sizes:
    """How large the checks are."""

    side: int
    n_objects: int
    n_train: int
    dim: int
    tokens: int
    steps: int
    layers: int
    width: int
    px: int
    images: int
    n_known: int


SIZES = {
    "full": Sizes(8, 18, 4096, 1024, 64, 60, 12, 384, 224, 64, 4096),
    "ci": Sizes(3, 3, 128, 16, 4, 4, 2, 64, 32, 8, 2048),
}


def main(arguments: list[str] | None = None) -> int:
    """Check, time, write, print."""
    given = _arguments(sys.argv[1:] if arguments is None else arguments)
    os.environ["OMP_NUM_THREADS"] = str(given.threads)  # before torch is imported
    import torch

    if given.device == "cuda" and not torch.cuda.is_available():
        print("benchmarks/cuda.py: torch sees no CUDA device; nothing was checked or timed")
        return 2
    torch.set_num_threads(given.threads)
    options = Options(given.size, given.device, given.threads, given.repetitions)
    started = time.monotonic()
    checks = list(run_checks(SIZES[given.size], given.device))
    entries, failures = ({}, []) if given.checks_only else run_benchmarks(given.names, options)
    write(given.json, checks, entries, failures, options)
    print(f"\n{summary(checks, entries, failures)}")
    about = machine()
    where = about.get("gpu", about["processor"]) if given.device == "cuda" else about["processor"]
    print(f"{where}, {time.monotonic() - started:.0f} s, record: {given.json}")
    broken = [line for found in entries.values() for entry in found for line in entry.broken]
    return 1 if failures or broken or not all(check.passed for check in checks) else 0


def run_checks(sizes: Sizes, device: str) -> Iterator[Check]:
    """Run the checks one after the other; one that raises is one that fails."""
    for check in (check_device, check_steps, check_fits, check_extraction, check_known_answers):
        try:
            for found in check(sizes, device):
                print(_line(found), flush=True)
                yield found
        except Exception as error:
            traceback.print_exc()
            yield Check(f"{check.__name__}: {type(error).__name__}", float("nan"), 0.0)


def check_device(sizes: Sizes, device: str) -> Iterator[Check]:
    """A job gets a device, and what is computed there is right."""
    import torch

    from bindscope.core.devices import hold_device

    with hold_device(device) as held:
        a = torch.arange(64.0, device=held).view(8, 8)
        found = float((a @ a - (a.cpu() @ a.cpu()).to(held)).abs().max())
    yield Check(f"product on {held}", found, 0.0)


def check_steps(sizes: Sizes, device: str) -> Iterator[Check]:
    """Logits and gradients of one training step of every family, from the same weights."""
    import torch
    from problems import FAMILIES, probe

    from bindscope.studies.binding_information.probes.batches import make_source
    from bindscope.studies.binding_information.probes.module import build
    from bindscope.studies.binding_information.probes.runs import bits_lost

    for family in FAMILIES:
        data = _data(sizes, family)
        config = probe(family)
        heads = next(p for p in _parts(data.sizes) if p.name == "chained_object")
        results = []
        for where in _sides(device):
            placed = config.model_copy(update={"device": where})
            source = make_source(placed, data)
            module = build(placed, heads, source.shape, 0, where)
            with torch.no_grad():  # zero factors would make most gradients zero
                for i, p in enumerate(module.parameters()):
                    p.add_(0.01 * _noise(p.shape, i).to(where))
            inputs, _, labels = next(source.train(128, 0))
            bits, prior, truth = labels.of(heads)
            logits = module(inputs, bits, prior)
            bits_lost(logits, truth).sum(1).mean().backward()  # type: ignore[no-untyped-call]
            results.append([logits, *(p.grad for p in module.parameters() if p.grad is not None)])
        pairs = zip(*results, strict=True)
        worst = max(_difference(here.detach().cpu(), there.detach().cpu()) for here, there in pairs)
        yield Check(f"one step, {family}", worst, STEP_TOLERANCE, "of the largest")


def check_fits(sizes: Sizes, device: str) -> Iterator[Check]:
    """A whole fit of every family: test losses of all targets."""
    from problems import FAMILIES, probe

    from bindscope.studies.binding_information.fit import run_fit

    for family in FAMILIES:
        data = _data(sizes, family)
        fields = {"steps": 2 * sizes.steps} if family == "linear" else {"steps": sizes.steps}
        losses = []
        for where in _sides(device):
            (result,) = run_fit(probe(family, device=where, **fields), data, [0], "none")
            losses.append({k: float(v.sum()) for k, v in result.head_losses.items()})
        worst = max(abs(losses[0][target] - losses[1][target]) for target in losses[0])
        allowed = FIT_TOLERANCE_BITS.get(family, OTHERS_TOLERANCE_BITS)
        yield Check(f"fit, {family}", worst, allowed, "bits")


def check_extraction(sizes: Sizes, device: str) -> Iterator[Check]:
    """Pooled tokens of all layers and patches of the last one, through the stores."""
    from bindscope.config.models import Extraction

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (sizes.images, sizes.px, sizes.px, 3), dtype=np.uint8)
    fields = {"batch_size": max(4, sizes.images // 3), "dtype": "float32"}
    expected = _extracted(sizes, images, Extraction.model_validate(fields))
    for precision, allowed in EXTRACTION_TOLERANCE.items():
        asked = Extraction.model_validate({**fields, "device": device, "precision": precision})
        with _other_threads(device):
            found = _extracted(sizes, images, asked)
        worst = max(
            _rms(expected[name][i] - found[name][i]) / _rms(expected[name][i])
            for name in expected
            for i in range(len(expected[name]))
        )
        yield Check(f"extraction, {precision}", worst, allowed, "of the rms")


def check_known_answers(sizes: Sizes, device: str) -> Iterator[Check]:
    """Linear and quadratic probes on encoders whose information is known in closed form."""
    from problems import dataset, probe

    from bindscope.codes.sampling import sample_codes
    from bindscope.codes.space import feature_code
    from bindscope.config.information import Information
    from bindscope.config.models import KnownAnswer
    from bindscope.models.known_answer import encode, truth
    from bindscope.priors.anchors import anchors
    from bindscope.priors.entropies import entropies
    from bindscope.studies.binding_information.estimates import estimate
    from bindscope.studies.binding_information.fit import run_fit
    from bindscope.studies.binding_information.probes.data import ProbeData, SplitData

    scenes = dataset(4, 4, sizes.n_known)
    prior = next(row for row in entropies(scenes) if row["split"] == "test")
    for encoder in ENCODERS:
        config = KnownAnswer(name="m", source=f"known-answer:{encoder}")
        splits = {}
        for split, n in scenes.n_scenes.model_dump().items():
            o = sample_codes(scenes, split, 0, n)
            z = encode(config, scenes, split, 0, o)["cls"]
            splits[split] = SplitData(z, o, feature_code(o, (4, 4)), anchors(scenes, o))
        data = ProbeData(**splits, sizes=(4, 4))
        (result,) = run_fit(probe("linear", device=device), data, [0], "none")
        row = estimate(result, prior, data.test.objects, data.test.features, Information())
        known = truth(config, scenes)[0]
        assert known is not None
        off = row["binding_lower_bound_bits"] - known
        allowed = ABOVE_BITS if off > 0 else BELOW_SHARE * row["h_object_bits"]
        yield Check(f"known answer, {encoder}: {known:.2f} bits", abs(off), allowed, "bits off")


def run_benchmarks(names: list[str], options: Options) -> tuple[dict[str, list[Entry]], list[str]]:
    """Run the benchmarks; returns their entries by name, and those that failed."""
    import run

    found: dict[str, list[Entry]] = {}
    failures = []
    for name in names or run.BENCHMARKS:  # looked up here: a test puts others in their place
        try:
            found[name] = run.measured(name, options)
        except Exception:
            traceback.print_exc()
            failures.append(name)
    return found, failures


def write(
    path: Path,
    checks: list[Check],
    entries: dict[str, list[Entry]],
    failures: list[str],
    options: Options,
) -> None:
    """Write all that was found as JSON."""
    record = {
        "machine": machine(), "options": asdict(options), "failures": failures,
        "checks": [asdict(check) | {"passed": check.passed} for check in checks],
        "benchmarks": {
            name: [asdict(e) | {"share": e.share, "ratio": e.ratio} for e in found]
            for name, found in entries.items()
        },
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def summary(checks: list[Check], entries: dict[str, list[Entry]], failures: list[str]) -> str:
    """Return the short table: checks, then a line per timing."""
    lines = [_line(check) for check in checks]
    lines += [f"{'FAILED':8}benchmark {name}" for name in failures]
    for name, found in entries.items():
        for e in found:
            share = "" if e.share is None else f"{e.share:.0%} of {e.floor}"
            ratio = "" if e.ratio is None else f"{e.ratio:.2g}x {e.against}"
            state = "BROKEN" if e.broken else "kept" if _promises(e) else ""
            lines.append(
                f"{state:8}{name}, {e.what:40}{1e3 * e.seconds:>12,.1f} ms  {share:18}{ratio}"
            )
    return "\n".join(lines)


def _promises(entry: Entry) -> bool:
    promised = (entry.share_promised, entry.ratio_promised, entry.seconds_promised)
    return bool(entry.limits) or any(value is not None for value in promised)


def _line(check: Check) -> str:
    state = "ok" if check.passed else "FAILED"
    return (
        f"{state:8}{check.what:48}{check.found:>10.2g} {check.unit} (at most {check.allowed:.2g})"
    )


def _sides(device: str) -> Iterator[str]:
    """Give the CPU, then the device, in its own way of splitting sums."""
    yield "cpu"
    with _other_threads(device):
        yield device


@contextmanager
def _other_threads(device: str) -> Iterator[None]:
    """Compute with another number of threads if the device is the CPU too."""
    import torch

    before = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(before + 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _data(sizes: Sizes, family: str) -> Any:
    from problems import dataset, probe_data

    scenes = dataset(sizes.side, sizes.n_objects, sizes.n_train)
    tokens = sizes.tokens if family == "attention_quadratic" else 0
    return probe_data(scenes, sizes.dim, tokens)


def _parts(group_sizes: tuple[int, ...]) -> Any:
    from bindscope.studies.binding_information.probes.base import all_parts

    return all_parts(group_sizes)


def _noise(shape: Any, seed: int) -> Any:
    import torch

    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _difference(here: Any, there: Any) -> float:
    """Return the largest difference as a share of the largest value."""
    return float((here - there).abs().max() / here.abs().max().clamp_min(1e-30))


def _rms(values: NDArray[Any]) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).mean()))


def _extracted(sizes: Sizes, images: NDArray[np.uint8], extraction: Any) -> dict[str, Any]:
    """Extract into stores in a temporary folder; returns arrays with the layers first."""
    from problems import vit

    from bindscope.activations.extraction import extract_patches, extract_pooled
    from bindscope.core.devices import hold_device
    from bindscope.core.store.reader import open_store
    from bindscope.core.store.writer import StoreWriter
    from bindscope.models.loading import load_model

    config = vit(sizes.layers, sizes.width, sizes.px, 16, extraction)
    arrays = {}
    calls: dict[str, Callable[..., None]] = {
        "pooled": lambda m, w: extract_pooled(m, images, w, extraction),
        "patches": lambda m, w: extract_patches(m, sizes.layers, images, w, extraction),
    }
    with tempfile.TemporaryDirectory() as folder, hold_device(extraction.device) as device:
        model = load_model(config, None, device)
        for name, extract in calls.items():
            paths = Path(folder) / f"{name}.zarr", Path(folder) / f"{name}.json"
            with StoreWriter(*paths, spec="{}", code="") as writer:
                extract(model, writer)
            opened = open_store(paths[1])
            for array in opened.names:
                values = opened.read(array)
                arrays[f"{name}.{array}"] = values if name == "pooled" else values[None]
    return arrays


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to time; default: all")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--size", choices=["ci", "full"], default="full")
    parser.add_argument("--threads", type=positive, default=os.cpu_count() or 1)
    parser.add_argument("--repetitions", type=positive, default=5)
    parser.add_argument("--checks-only", action="store_true", help="time nothing")
    parser.add_argument("--json", type=Path, default=RECORDS / "cuda.json")
    found = parser.parse_args(arguments)
    if unknown := set(found.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {BENCHMARKS}")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
