"""Memory and speed of fits whose activations are larger than memory.

A synthetic store is written by our own writer: patch tokens of scenes x 257 x 1,024 in float16, and
[CLS] of two layers. Fits of the pipeline's own job run in processes of their own, whose peak
resident memory is the kernel's VmHWM (anonymous pages, and those of files that are mapped; not the
page cache, through which activations are read). The same store with more or fewer of its shards in
the index shows what depends on the number of scenes.

An epoch starts with the store dropped from the page cache. Its floor is the longer of two times
measured in the same run: reading the files of the epoch, cold, and doing nothing with them; and as
many training steps on a batch that is in memory, cast and scaled.

``python benchmarks/bounded_memory.py prepare FOLDER SIZE`` writes the stores once (12 GB); ``run.py
bounded_memory --folder FOLDER`` then uses them and leaves them there. Without, they are written to
a temporary folder and deleted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, repeat
from pathlib import Path
from typing import Any

from measure import Entry, Options

TITLE = "Memory of fits, and epochs that read from the disk"
TOKENS, DIM, LAYERS = 257, 1024, 2
PARTS = {"train": 8, "val": 1, "test": 1}  # tenths of the scenes
GROUPS = {64: (8, 8), 4: (2, 2)}  # heads: sizes of the feature groups
SCENES = {
    "ci": {"patches": (500, 1000), "cls": (1000, 40_000)},
    "full": {"patches": (5000, 20_000), "cls": (20_000, 100_000, 400_000)},
}
EPOCH = {"ci": 1000, "full": 5000}  # scenes of which an epoch is timed; they do not fit in memory
SHARD = {"ci": {"patches": 50, "cls": 100}, "full": {"patches": 500, "cls": 2000}}
MEMORY_MB = {
    "ci": {"patches": 256, "cls": 64},
    "full": {"patches": 768, "cls": 512},
}
PROMISED_GB = {"patches": 3.0, "cls": 1.5}
EPOCH_SHARE = 0.9
PROBES: dict[str, dict[str, Any]] = {
    "attention": {"family": "attention_quadratic", "steps": 2},
    "quadratic": {"family": "quadratic", "steps": 4},
    "linear": {"family": "linear", "steps": 1, "l2": [0.01]},
}
STEPS_OF_FLOOR = 6  # training steps on one batch in memory, after one that is not counted


def entries(options: Options) -> list[Entry]:
    """Write the stores, run the fits, delete the stores."""
    with _folder(options) as folder:
        counts = SCENES[options.size]
        epochs = [_epoch(folder, options, heads) for heads in GROUPS]
        found = [_memory(folder, options, "patches", n, "attention") for n in counts["patches"]]
        found += [
            _memory(folder, options, "cls", n, probe)
            for n in counts["cls"]
            for probe in ("quadratic", "linear")
        ]
        return found + epochs


@contextmanager
def _folder(options: Options) -> Iterator[Path]:
    """Give a folder with the stores; one that `prepare` made before is left as it is."""
    if options.folder is not None and (options.folder / "ready").exists():
        yield options.folder
        return
    folder = Path(tempfile.mkdtemp(prefix="bounded-memory-", dir=options.folder))
    try:
        prepare(folder, options.size)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def prepare(folder: Path, size: str) -> None:
    """Write patches and vectors of the largest number of scenes; labels and an index for each."""
    import numpy as np

    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((50, TOKENS, DIM), dtype=np.float32).astype(np.float16)
    vectors = rng.standard_normal((LAYERS, 2000, DIM), dtype=np.float32).astype(np.float16)
    for kind, counts in SCENES[size].items():
        for split, count in _parts(max(counts)).items():
            for i in range(count // SHARD[size][kind]):
                path = folder / kind / f"{split}-{i}"
                _write_shard(path, SHARD[size][kind], tokens if kind == "patches" else vectors)
        for n in counts:
            _write_index(folder, kind, n, SHARD[size][kind])
            for heads in GROUPS if (kind, n) == ("patches", EPOCH[size]) else (64,):
                _write_labels(folder / f"labels-{heads}-{n}", n, GROUPS[heads], rng)
    (folder / "ready").touch()


def _parts(n: int) -> dict[str, int]:
    """Scenes of each split."""
    return {name: n * tenths // 10 for name, tenths in PARTS.items()}


def _write_shard(path: Path, n: int, values: Any) -> None:
    """Write a shard of patches with [CLS], or of pooled vectors, repeating `values`."""
    from bindscope.core.store.writer import StoreWriter

    pooled = values.ndim == 3 and values.shape[0] == LAYERS
    with StoreWriter(
        path.with_suffix(".zarr"), path.with_suffix(".json"), spec=json.dumps(path.name),
        code="bench", attributes={"layers": ["0", "1"]} if pooled else {},
    ) as writer:  # fmt: skip
        if pooled:
            writer.create("cls", (LAYERS, n, DIM), "float16", sample_axis=1)
            writer.write("cls", slice(0, n), values[:, :n])
            return
        writer.create("patches", (n, TOKENS, DIM), "float16")
        writer.create("cls", (n, DIM), "float16")
        for start in range(0, n, len(values)):
            rows = slice(start, start + len(values))
            writer.write("patches", rows, values)
            writer.write("cls", rows, values[:, 0])


def _write_labels(folder: Path, n: int, sizes: tuple[int, ...], rng: Any) -> None:
    """Write random codes, anchors that belong to them, and what lists them, of every split."""
    import numpy as np

    from bindscope.core.files import write_json
    from bindscope.core.store.arrays import write_arrays
    from bindscope.priors.labels import build_labels

    for split, count in _parts(n).items():
        objects = (rng.random((count, int(np.prod(sizes)))) < 0.25).astype(np.uint8)
        grid = objects.reshape(-1, *sizes)
        features = np.concatenate([grid.max(2), grid.max(1)], axis=1)
        prior = np.full(objects.shape, -np.log(3.0), np.float32)  # log-odds of rate 1/4
        anchors = {"object": prior, "object_given_feature": prior}
        anchors["feature"] = np.zeros(features.shape, np.float32)
        codes = {"objects": objects, "features": features}
        for name, arrays in (("codes", codes), ("anchors", anchors)):
            store, manifest = folder / f"{name}-{split}.zarr", folder / f"{name}-{split}.json"
            write_arrays(store, manifest, arrays, spec="{}", code="bench")
    paths = [[folder / f"{name}-{s}.json" for s in PARTS] for name in ("codes", "anchors")]
    write_json(folder / "priors.json", [])
    write_json(folder / "labels.json", build_labels(*paths, folder / "priors.json", folder))


def _write_index(folder: Path, kind: str, n: int, shard: int) -> None:
    """List the first shards of each split: the smaller data sets are parts of the largest."""
    from bindscope.activations.index import build_index
    from bindscope.core.files import write_json

    parts = _parts(n)
    shards = {
        split: [folder / kind / f"{split}-{i}.json" for i in range(count // shard)]
        for split, count in parts.items()
    }
    write_json(folder / f"{kind}-{n}.index.json", build_index(shards, parts, folder))


def _memory(folder: Path, options: Options, kind: str, n: int, probe: str) -> Entry:
    """Fit a few steps in a process of its own: the whole job, standardising to test losses."""
    found = _child(folder, options, "fit", kind, n, 64, probe)
    what = {"patches": f"{TOKENS} x {DIM}", "cls": str(DIM)}[kind]
    return Entry(
        f"{probe} fit, {n:,} scenes x {what}", found["wall_s"],
        limits={"peak GB": (found["peak_gb"], PROMISED_GB[kind])}, notes=found,
    )  # fmt: skip


def _epoch(folder: Path, options: Options, heads: int) -> Entry:
    """Train for one epoch, cold, against the longest of three times that no overlap can beat."""
    n = EPOCH[options.size]
    found = _child(folder, options, "epoch", "patches", n, heads, "attention")
    slower = "disk" if found["disk_s"] > found["compute_s"] else "compute"
    both = found["made_cpu_s"] + found["compute_cpu_s"]
    return Entry(
        f"attention epoch, {_parts(n)['train']:,} scenes, {heads} heads", found["epoch_s"],
        f"{slower} alone", found[f"{slower}_s"], EPOCH_SHARE,
        "processor time of both, over cores", both / (os.cpu_count() or 1),
        limits={"peak GB": (found["peak_gb"], PROMISED_GB["patches"])}, notes=found,
    )  # fmt: skip


def _child(folder: Path, options: Options, *task: object) -> dict[str, float]:
    """Run a task in a new process and return what it measured."""
    given = [str(folder), options.size, str(options.threads), *map(str, task)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run(
        [sys.executable, __file__, "task", *given], env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{given} failed\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(*task, {name: round(value, 2) for name, value in found.items()}, flush=True)
    return found


def task(
    folder: Path, size: str, threads: int, what: str, kind: str, n: int, heads: int, name: str
) -> dict[str, float]:
    """Do one task in this process; seconds by name, and the peak of its memory."""
    import torch
    from pydantic import TypeAdapter

    from bindscope.config.probes import AnyProbe
    from bindscope.priors.labels import Labels
    from bindscope.studies.binding_information.fit import load_data, run_fit

    torch.set_num_threads(threads)
    probe = TypeAdapter[Any](AnyProbe).validate_python(
        {"name": "p", "memory_mb": MEMORY_MB[size][kind], "threads": threads, **PROBES[name]}
    )
    data = load_data(
        Labels(folder / f"labels-{heads}-{n}" / "labels.json"),
        str(folder / f"{kind}-{n}.index.json"), {"tokens": kind, "layer": 1}, GROUPS[heads],
    )  # fmt: skip
    start = time.perf_counter()
    if what == "fit":
        run_fit(probe, data, [0], "none")
        found = {"wall_s": time.perf_counter() - start}
    else:
        shards = range(data.train.n_scenes // SHARD[size][kind])
        files = [f for i in shards for f in sorted((folder / kind).glob(f"train-{i}.zarr/*/c.*"))]
        found = epoch(probe, data, files)
    return found | {"peak_gb": peak_gb()}


def epoch(probe: Any, data: Any, files: list[Path]) -> dict[str, float]:
    """Time one cold epoch of training steps, its reading alone, and its computing alone."""
    from bindscope.studies.binding_information.probes.base import all_parts
    from bindscope.studies.binding_information.probes.batches import make_source
    from bindscope.studies.binding_information.probes.protocols import converged
    from bindscope.studies.binding_information.probes.runs import start

    source = make_source(probe, data)
    print("inputs are measured", file=sys.stderr, flush=True)
    runs = [start(probe, h, source.shape) for h in all_parts(data.sizes)]
    plan = converged(probe).plan
    optimisers = [plan.optimiser(run.module) for run in runs]
    steps = data.train.n_scenes // probe.batch_size
    found = {"disk_gb": sum(f.stat().st_size for f in files) / 1e9}

    def measured(name: str, function: Callable[..., float | None], *given: Any) -> None:
        start, cpu = time.perf_counter(), time.process_time()
        waited = function(*given)
        found[f"{name}_s"] = time.perf_counter() - start
        found[f"{name}_cpu_s"] = time.process_time() - cpu
        if waited is not None:
            found[f"{name}_waited_s"] = waited
        print(name, found, file=sys.stderr, flush=True)

    batches = source.train(probe.batch_size, 0)
    drop_from_cache(files)
    measured("epoch", train, runs, optimisers, islice(batches, steps))
    batch = next(batches)
    batches.close()
    drop_from_cache(files)
    measured("disk", read_all, files)
    train(runs, optimisers, [batch])
    measured("compute", train, runs, optimisers, repeat(batch, STEPS_OF_FLOOR))
    for name in ("compute_s", "compute_cpu_s"):
        found[name] *= steps / STEPS_OF_FLOOR
    drop_from_cache(files)
    measured("made", exhaust, islice(source.train(probe.batch_size, 0), steps))
    return found


def train(runs: list[Any], optimisers: Any, batches: Iterable[Any]) -> float:
    """Take the steps of a fit on batches; return the seconds spent waiting for them."""
    from bindscope.studies.binding_information.probes.runs import backward

    waited, before = 0.0, time.perf_counter()
    for inputs, _, labels in batches:
        waited += time.perf_counter() - before
        for run in runs:
            backward(run.family, inputs, labels.of(run.heads))
        for optimiser in optimisers:
            optimiser.step(1e-3)
        before = time.perf_counter()
    return waited


def exhaust(batches: Iterable[Any]) -> None:
    """Make batches and do nothing with them."""
    for _ in batches:
        pass


def drop_from_cache(files: Iterable[Path]) -> None:
    """Ask the kernel to drop files from the page cache."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(files: Iterable[Path]) -> None:
    """Read files one after the other and do nothing with them."""
    buffer = bytearray(2**23)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def peak_gb() -> float:
    """Return the peak of this process's resident memory (VmHWM) in 1e9 bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e9
    raise SystemExit("/proc/self/status has no VmHWM: this benchmark needs Linux")


if __name__ == "__main__":
    command, root, chosen, *rest = sys.argv[1:]
    if command == "prepare":
        prepare(Path(root), chosen)
    else:
        threads, what, kind, scenes, heads, name = rest
        print(json.dumps(task(Path(root), chosen, int(threads), what, kind, int(scenes),
                              int(heads), name)))  # fmt: skip
