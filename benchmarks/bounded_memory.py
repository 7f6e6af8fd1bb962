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
from collections.abc import Iterable, Iterator
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
    "full": {"patches": (5000, 10_000, 20_000), "cls": (20_000, 100_000, 400_000)},
}
SHARD = {"ci": {"patches": 50, "cls": 100}, "full": {"patches": 500, "cls": 2000}}
MEMORY_MB = {"ci": 256, "full": 1024}
PROMISED_GB = {"patches": 3.0, "cls": 1.5}
EPOCH_SHARE = 0.9
PROBES: dict[str, dict[str, Any]] = {
    "attention": {"family": "attention_quadratic", "steps": 4},
    "quadratic": {"family": "quadratic", "steps": 20},
    "linear": {"family": "linear", "steps": 5, "l2": [0.01]},
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
            for heads in GROUPS:
                _write_labels(folder / f"labels-{heads}-{n}", n, GROUPS[heads], rng)
    (folder / "ready").touch()


def _parts(n: int) -> dict[str, int]:
    """Scenes of each split."""
    return {name: n * tenths // 10 for name, tenths in PARTS.items()}


def _write_shard(path: Path, n: int, values: Any) -> None:
    """Write a shard of patches with [CLS], or of pooled vectors, repeating `values`."""
    from bindscope.store.writer import StoreWriter

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
    """Write random codes, and anchors that belong to them, of every split."""
    import numpy as np
    from probe_problems import PRIOR, feature_codes

    from bindscope.store.arrays import write_arrays

    for split, count in _parts(n).items():
        objects = (rng.random((count, int(np.prod(sizes)))) < 0.25).astype(np.uint8)
        features = feature_codes(objects, sizes)
        prior = np.full(objects.shape, PRIOR, np.float32)
        anchors = {"object": prior, "object_given_feature": prior}
        anchors["feature"] = np.zeros(features.shape, np.float32)
        codes = {"objects": objects, "features": features}
        for name, arrays in (("codes", codes), ("anchors", anchors)):
            store, manifest = folder / f"{name}-{split}.zarr", folder / f"{name}-{split}.json"
            write_arrays(store, manifest, arrays, spec="{}", code="bench")


def _write_index(folder: Path, kind: str, n: int, shard: int) -> None:
    """List the first shards of each split: the smaller data sets are parts of the largest."""
    from bindscope.activations.index import build_index
    from bindscope.files import write_json

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
    """Train for one epoch, cold, against the longer of reading and computing alone."""
    n = max(SCENES[options.size]["patches"])
    found = _child(folder, options, "epoch", "patches", n, heads, "attention")
    slower = "disk" if found["disk_s"] > found["compute_s"] else "compute"
    return Entry(
        f"attention epoch, {_parts(n)['train']:,} scenes, {heads} heads", found["epoch_s"],
        f"{slower} alone", found[f"{slower}_s"], EPOCH_SHARE,
        "disk + compute", found["disk_s"] + found["compute_s"],
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
    from bindscope.information.job import load_data, run_fit

    torch.set_num_threads(threads)
    probe = TypeAdapter[Any](AnyProbe).validate_python(
        {"name": "p", "memory_mb": MEMORY_MB[size], "threads": threads, **PROBES[name]}
    )
    labels = folder / f"labels-{heads}-{n}"
    data = load_data(
        [str(labels / f"codes-{split}.json") for split in PARTS],
        [str(labels / f"anchors-{split}.json") for split in PARTS],
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
    from bindscope.probes.base import all_parts
    from bindscope.probes.batches import make_source
    from bindscope.probes.protocols import _Live, converged_plan
    from bindscope.probes.runs import Labels, Run, build

    start = time.perf_counter()
    source = make_source(probe, data)
    standardise_s = time.perf_counter() - start
    print(f"inputs measured in {standardise_s:.1f} s", file=sys.stderr, flush=True)
    labels = Labels(data, source.device)
    runs = [Run(0, h, build(probe, h, source.shape)) for h in all_parts(data.sizes)]
    live = [_Live(run, converged_plan(probe)) for run in runs]
    steps = data.train.n_scenes // probe.batch_size
    drop_from_cache(files)
    start = time.perf_counter()
    waited = train(live, labels, islice(source.train(probe.batch_size, 0), steps))
    epoch_s = time.perf_counter() - start
    print(f"epoch in {epoch_s:.1f} s, {waited:.1f} waiting", file=sys.stderr, flush=True)
    drop_from_cache(files)
    disk_s = read_all(files)
    batch = next(source.train(probe.batch_size, 0))
    train(live, labels, [batch])
    start = time.perf_counter()
    train(live, labels, repeat(batch, STEPS_OF_FLOOR))
    compute_s = (time.perf_counter() - start) / STEPS_OF_FLOOR * steps
    return {
        "epoch_s": epoch_s, "disk_s": disk_s, "compute_s": compute_s, "waited_s": waited,
        "standardise_s": standardise_s, "disk_gb": sum(f.stat().st_size for f in files) / 1e9,
    }  # fmt: skip


def train(live: list[Any], labels: Any, batches: Iterable[Any]) -> float:
    """Take the steps of `fit_stochastic` on batches; return the seconds spent waiting for them."""
    from bindscope.probes.runs import bits_lost

    waited, before = 0.0, time.perf_counter()
    for inputs, scenes in batches:
        waited += time.perf_counter() - before
        for one in live:
            bits, anchors, truth = labels.of("train", one.run.heads, scenes)
            bits_lost(one.run.family(inputs, bits, anchors), truth).sum(1).mean().backward()
            one.step(1e-3)
        before = time.perf_counter()
    return waited


def drop_from_cache(files: Iterable[Path]) -> None:
    """Ask the kernel to drop files from the page cache."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(files: Iterable[Path]) -> float:
    """Read files one after the other and do nothing with them; return the seconds."""
    start, buffer = time.perf_counter(), bytearray(2**23)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - start


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
