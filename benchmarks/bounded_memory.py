"""Memory and speed of fits whose activations are larger than the memory that they may take.

A synthetic store is written by our own writer: patch tokens of scenes x 257 x 1,024 in float16, and
[CLS] of two layers. Fits of the pipeline's own job run in processes of their own, whose peak
resident memory is the kernel's VmHWM (anonymous pages, and those of files that are mapped; not the
page cache, through which activations are read). The same store with more or fewer of its shards in
the index shows what depends on the number of scenes.

A streamed step is compared with a step whose activations are held in memory: both are the seconds
that 20 more steps add to a fit with as many evaluations, the streamed fits on a store that was
dropped from the page cache. Reading the files of those steps, cold, and doing nothing with them is
the other floor.

With ``--folder FOLDER`` the stores (12 GB) are written there once and stay; without, to a temporary
folder that is deleted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import Entry, Options, Other

TITLE = "Memory of fits, and steps that read from the disk"
TOKENS, DIM, LAYERS = 257, 1024, 2
GROUPS = (8, 8)
PARTS = {"train": 8, "val": 1, "test": 1}  # tenths of the scenes
SCENES = {
    "ci": {"patches": (500,), "cls": (1000, 20_000)},
    "full": {"patches": (6500, 20_000), "cls": (20_000, 100_000, 400_000)},
}
SHARD = {"ci": {"patches": 50, "cls": 100}, "full": {"patches": 500, "cls": 2000}}
MEMORY_MB = {"ci": {"patches": 128, "cls": 64}, "full": {"patches": 768, "cls": 512}}
HELD_MB = 8192
TIMED = {"ci": 500, "full": 6500}  # scenes; they can be held in memory
BATCH = {"ci": 8, "full": 128}  # 40 batches are less than an epoch
STEPS = (20, 40)  # as many evaluations in both
PROMISED_GB = {"patches": 3.0, "cls": 1.5}
PROMISED_SHARE = 0.9  # of the longer of both floors
PROBES: dict[str, dict[str, Any]] = {
    "attention": {"family": "attention_quadratic", "steps": 2},
    "quadratic": {"family": "quadratic", "steps": 4},
    "linear": {"family": "linear", "steps": 1},
}


def entries(options: Options) -> list[Entry]:
    """Write the stores, run the fits."""
    counts = SCENES[options.size]
    with _stores(options) as folder:
        timed = [_memory(folder, options, "patches", n, "attention") for n in counts["patches"]]
        timed += [
            _memory(folder, options, "cls", n, probe)
            for n in counts["cls"]
            for probe in ("quadratic", "linear")
        ]
        return [*timed, _streaming(folder, options)]


def _memory(folder: Path, options: Options, kind: str, n: int, probe: str) -> Entry:
    """Fit a few steps in a process of its own: the whole job, standardising to test losses."""
    fields = {"memory_mb": MEMORY_MB[options.size][kind], **PROBES[probe]}
    (seconds,), peak_gb = _fits(folder, options, kind, n, fields, [fields["steps"]])
    what = {"patches": f"{TOKENS} x {DIM}", "cls": str(DIM)}[kind]
    name = f"{probe} fit, {n:,} scenes x {what}, memory_mb {fields['memory_mb']}"
    return Entry(name, seconds, limits={"peak GB": (peak_gb, PROMISED_GB[kind])})


def _streaming(folder: Path, options: Options) -> Entry:
    """Time a streamed step, a step on activations in memory, and the reading alone."""
    batch, size, n = BATCH[options.size], options.size, TIMED[options.size]
    seconds, peaks = {}, {}
    for name, memory_mb in (("streamed", MEMORY_MB[size]["patches"]), ("held", HELD_MB)):
        fields = PROBES["attention"] | {"batch_size": batch, "memory_mb": memory_mb}
        steps = [1, *STEPS]  # the first fit of a process warms it up
        (_, short, long), peaks[name] = _fits(folder, options, "patches", n, fields, steps)
        seconds[name] = (long - short) / (STEPS[1] - STEPS[0])
    some = _files(folder, options, n // 10)  # a tenth of the scenes
    _drop_from_cache(some)
    start = time.perf_counter()
    for path in some:
        path.read_bytes()
    cold = (time.perf_counter() - start) * batch / (n // 10)
    floors = {"a step held in memory": seconds["held"], "reading its files, cold": cold}
    longest = max(floors, key=lambda name: floors[name])
    return Entry(
        f"attention, a streamed step of {batch} scenes",
        seconds["streamed"],
        [Other(k, v, PROMISED_SHARE if k == longest else None) for k, v in floors.items()],
        notes={f"{name}_peak_gb": peak for name, peak in peaks.items()},
    )


def _fits(
    folder: Path, options: Options, kind: str, n: int, fields: dict[str, Any], steps: list[int]
) -> tuple[list[float], float]:
    """Fit in a new process, with each number of steps; return seconds and its peak memory in GB."""
    task = {
        "folder": str(folder),
        "kind": kind,
        "n": n,
        "steps": steps,
        "threads": options.threads,
        "probe": {"name": "p", "threads": options.threads, **fields},
        "files": [str(path) for path in _files(folder, options, n, kind)],
    }
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(options.threads)},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{task['probe']} on {n} scenes failed\n{done.stderr[-4000:]}")
    measured = json.loads(done.stdout.splitlines()[-1])
    print(kind, n, fields, measured, file=sys.stderr, flush=True)
    return measured["seconds"], measured["peak_gb"]


def fit_in_this_process(task: dict[str, Any]) -> dict[str, Any]:
    """Run the fits of a task; their seconds, and the peak of this process's memory."""
    import torch
    from probe_problems import ADAPTER

    from bindscope.priors.labels import DatasetLabels
    from bindscope.studies.binding_information.fit import load_data, run_fit

    torch.set_num_threads(task["threads"])
    folder, name = Path(task["folder"]), f"{task['kind']}-{task['n']}"
    data = load_data(
        DatasetLabels(folder / f"labels-{task['n']}" / "labels.json"),
        str(folder / f"{name}.index.json"),
        {"tokens": task["kind"], "layer": 1},
        GROUPS,
    )
    seconds = []
    for steps in task["steps"]:
        probe = ADAPTER.validate_python(task["probe"] | {"steps": steps})
        _drop_from_cache([Path(name) for name in task["files"]])
        start = time.perf_counter()
        run_fit(probe, data, [0], "none")
        seconds.append(time.perf_counter() - start)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 / 1e9 for line in status if line.startswith("VmHWM"))
    return {"seconds": seconds, "peak_gb": peak}


def _files(folder: Path, options: Options, n: int, kind: str = "patches") -> list[Path]:
    """Return the files of the first shards of training scenes."""
    shards = range(_parts(n)["train"] // SHARD[options.size][kind])
    stores = (folder / kind / f"train-{i}.zarr" for i in shards)
    return [path for store in stores for path in sorted(store.rglob("*")) if path.is_file()]


def _drop_from_cache(files: list[Path]) -> None:
    """Ask the kernel to drop files from the page cache."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def _stores(options: Options) -> Iterator[Path]:
    """Give a folder with the stores; a named one keeps them."""
    if options.folder is not None and (options.folder / "ready").exists():
        yield options.folder
        return
    folder = options.folder or Path(tempfile.mkdtemp(prefix="bounded-memory-"))
    try:
        _write_stores(folder, options.size)
        yield folder
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def _write_stores(folder: Path, size: str) -> None:
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
            _write_labels(folder / f"labels-{n}", n, rng)
    (folder / "ready").touch()


def _parts(n: int) -> dict[str, int]:
    """Scenes of each split."""
    return {name: n * tenths // 10 for name, tenths in PARTS.items()}


def _write_shard(path: Path, n: int, values: Any) -> None:
    """Write a shard of patches with [CLS], or of pooled vectors, repeating `values`."""
    from bindscope.core.store.writer import StoreWriter

    pooled = values.shape[0] == LAYERS
    with StoreWriter(
        path.with_suffix(".zarr"),
        path.with_suffix(".json"),
        spec=json.dumps(path.name),
        code="bench",
        attributes={"layers": ["0", "1"]} if pooled else {},
    ) as writer:
        if pooled:
            writer.create("cls", (LAYERS, n, DIM), "float16", sample_axis=1)
            writer.write("cls", values[:, :n])
            return
        writer.create("patches", (n, TOKENS, DIM), "float16")
        writer.create("cls", (n, DIM), "float16")
        for _ in range(0, n, len(values)):
            writer.write("patches", values)
            writer.write("cls", values[:, 0])


def _write_labels(folder: Path, n: int, rng: Any) -> None:
    """Write random codes, anchors that belong to them, and what lists them, of every split."""
    import numpy as np
    from probe_problems import PRIOR

    from bindscope.codes.space import feature_code
    from bindscope.core.files import write_json
    from bindscope.core.store.writer import write_arrays
    from bindscope.priors.labels import build_labels

    for split, count in _parts(n).items():
        objects = (rng.random((count, int(np.prod(GROUPS)))) < 0.25).astype(np.uint8)
        features = feature_code(objects, GROUPS)
        prior = np.full(objects.shape, PRIOR, np.float32)
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


if __name__ == "__main__":
    print(json.dumps(fit_in_this_process(json.load(sys.stdin))))
