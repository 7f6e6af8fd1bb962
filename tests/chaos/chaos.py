"""Faults, counted: ``make chaos ROUNDS=280``, or ``python tests/chaos/chaos.py --rounds 280``.

Each round copies a finished clone, does it a fault (or damages ten files of ten kinds at once), and
starts the run again; where that is refused or ``bindscope verify`` finds damage,
``bindscope verify --repair`` follows. A round ends

- *equal*: the run alone gave the results of an undisturbed one, byte for byte;
- *refused*: it stopped with a remedy, and the repair gave them;
- *healed*: it went through, ``verify`` named the damage, and the repair gave them;
- *wrong*: anything else, be it other results that ``verify`` takes for sound or a bare traceback.
"""

import argparse
import ctypes
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from harness import Clone, warm_python

from bindscope.core.digests import KEYS, read_keys, write_digests
from bindscope.core.files import is_alive

HERE = Path(__file__).parent
VERDICTS = ("equal", "refused", "healed", "wrong")
# What runs again in the rounds that disturb a run; their like are among them.
RULES = (
    "codes",
    "anchors",
    "scenes",
    "training",
    "encoded",
    "pooled",
    "index",
    "fit",
    "null",
    "attention",
    "learning_curve",
    "table",
    "figure",
    "report",
)
SCRIPTS = {"pooled": "extract", "null": "fit"}  # of other names than their rules
PATIENCE_S = int(os.environ.get("CHAOS_PATIENCE_S", "240"))
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


@dataclass(frozen=True)
class Round:
    """What was done, to how many files at once, and how it ended."""

    fault: str
    target: str
    verdict: str
    note: str = ""
    faults: int = 1


# --- the run and its results ---------------------------------------------------------------------


def run_cut(folder: Path) -> Clone:
    """Run a cut of the CI's preset that has every kind of file."""
    clone = Clone.make(folder)
    study = "studies.binding_information"
    clone.edit(
        {
            "datasets.0.shard_size.train": 128,
            "report.figures": ["tokens"],
            f"{study}.fits.0.layers": "last",
            f"{study}.fits.0.probes": ["linear"],
        }
    )
    clone.snakemake()
    return clone


def command(clone: Clone, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return what `make run` starts."""
    return [
        python,
        "-m",
        "bindscope.commands.run",
        "--configfile",
        clone.configfile,
        "--cores",
        "2",
        *arguments,
    ]


def start(
    clone: Clone,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
    **options: object,
) -> subprocess.Popen[str]:
    """Start a run in a process group of its own."""
    return subprocess.Popen(
        command(clone, *arguments, python=python),
        cwd=clone.path,
        text=True,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(clone.path / "src"), **(environment or {})},
        **options,  # type: ignore[call-overload]
    )


def judge(clone: Clone, sound: Mapping[str, str]) -> tuple[str, str]:
    """Run again, repair if need be, and compare; what disturbs nothing may be warm."""
    run = start(clone, python=warm_python())
    output = run.communicate(timeout=PATIENCE_S)[0]
    checked = clone.bindscope("verify", check=False)
    if run.returncode == 0 and checked.returncode == 0:
        return ("equal", "") if clone.results() == sound else ("wrong", different(clone, sound))
    if run.returncode and not has_remedy(output):
        return "wrong", f"the run said:\n{output}"
    repaired = clone.bindscope("verify", "--repair", check=False)
    if repaired.returncode:
        return "wrong", f"the repair said:\n{repaired.stdout}{repaired.stderr}\n{output}"
    if clone.results() != sound:
        return "wrong", f"after a repair, {different(clone, sound)}\n{output}{checked.stderr}"
    return "refused" if run.returncode else "healed", checked.stderr


def has_remedy(output: str) -> bool:
    """Whether a message tells a user what to do, and no developer where."""
    return "remedy: " in output and "Traceback" not in output


def different(clone: Clone, sound: Mapping[str, str]) -> str:
    """Name files that are not those of an undisturbed run."""
    results = clone.results()
    paths = sorted(path for path in {*results, *sound} if results.get(path) != sound.get(path))
    return f"{len(paths)} files differ: {', '.join(paths[:4])}"


# --- damage to files -----------------------------------------------------------------------------


def kinds(clone: Clone) -> dict[str, list[Path]]:
    """Return all files of results by folder and suffix; of stores, chunks and metadata."""
    groups: dict[str, list[Path]] = {}
    for name in clone.results():
        path = Path(name)
        suffix = "".join(path.suffixes) if ".zarr" not in name else f".zarr/{path.name[:2]}"
        groups.setdefault(f"{path.parts[0].partition('.')[0]} {suffix}", []).append(
            clone.path / "results" / path
        )
    return groups


def flip(path: Path, chance: random.Random) -> None:
    """Change one bit."""
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, chance: random.Random) -> None:
    """Cut the end off."""
    os.truncate(path, chance.randrange(path.stat().st_size))


def delete(path: Path, _: random.Random) -> None:
    """Delete one file."""
    path.unlink()


def exchange(path: Path, chance: random.Random) -> None:
    """Put another file of the same suffix in its place."""
    like = sorted(set(path.parents[1].rglob(f"*{path.suffix}")) - {path})
    others = [candidate for candidate in like if candidate.is_file()]
    path.write_bytes(chance.choice(others).read_bytes() if others else b"another")


def damage(
    how: Callable[[Path, random.Random], None],
    number: int,
    clone: Clone,
    chance: random.Random,
    files: int = 1,
) -> tuple[str, str]:
    """Damage files of the kinds whose turn it is; half of the time the time of change stays."""
    by_kind = sorted(kinds(clone).items())
    turn = [by_kind[i % len(by_kind)] for i in range(number * files, (number + 1) * files)]
    for path in {chance.choice(paths) for _, paths in turn}:
        before = path.stat()
        how(path, chance)
        if path.exists() and chance.random() < 0.5:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return ", ".join(sorted({kind for kind, _ in turn})), ""


def lose_records(number: int, clone: Clone, chance: random.Random) -> tuple[str, str]:
    """Lose what Snakemake knows, and a product with it."""
    shutil.rmtree(clone.path / ".snakemake")
    damage(delete, chance.randrange(1000), clone, chance)
    return ".snakemake", ""


def bring_foreign(number: int, clone: Clone, chance: random.Random) -> tuple[str, str]:
    """Put a sound product of other code, or of another configuration, in the place of one.

    As if an older folder had been restored, or a clone that shares the results had run. Half of the
    time Snakemake's records are gone, too; else they speak of the product that was there.
    """
    places = sorted((clone.path / "results").rglob("*.sha256"))
    place = places[number % len(places)]
    lines = place.read_text().splitlines()[len(KEYS) :]
    files = [place.parent / line.partition("  ")[2] for line in lines]
    if files[0].suffix in (".jsonl", ".csv", ".html", ".svg"):
        files[0].write_bytes(files[0].read_bytes() + b" ")
    changed = chance.choice(KEYS)
    write_digests(map(str, files), read_keys(place) | {changed: "0" * 64})
    if chance.random() < 0.5:
        shutil.rmtree(clone.path / ".snakemake")
    return f"{place.relative_to(clone.path / 'results').parts[0]} of another {changed}", ""


# --- runs that are disturbed ---------------------------------------------------------------------


def children(pid: int) -> list[int]:
    """Return the processes that one started."""
    with suppress(OSError):
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []


def kill(
    victim: str, sent: signal.Signals, number: int, clone: Clone, chance: random.Random
) -> tuple[str, str]:
    """Kill a job, its Snakemake, or all processes, at some moment of a job."""
    rule = RULES[number % len(RULES)]
    run = start(clone, "--forcerun", rule)
    deadline = time.monotonic() + PATIENCE_S
    while not (jobs := clone.jobs(SCRIPTS.get(rule, rule))) and time.monotonic() < deadline:
        if run.poll() is not None:
            raise AssertionError(f"no job of {rule}: {run.communicate()[0]}")
        time.sleep(0.05)
    time.sleep(chance.uniform(0, 2.0))
    with suppress(ProcessLookupError):
        if victim == "job":
            os.kill(chance.choice(jobs), sent)
        elif victim == "Snakemake":
            os.kill(chance.choice(children(run.pid)), sent)
        else:
            os.killpg(run.pid, sent)
    run.communicate(timeout=PATIENCE_S)
    return rule, ""


def log_out(number: int, clone: Clone, chance: random.Random) -> tuple[str, str]:
    """Leave the shell that started a run with nohup: the run goes on to its end."""
    rule = RULES[number % len(RULES)]
    words = " ".join(command(clone, "--forcerun", rule))
    shell = subprocess.Popen(
        ["bash", "-c", f"nohup {words} >run.log 2>&1 & echo $!; sleep 600"],
        text=True,
        cwd=clone.path,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(clone.path / "src")},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # ignored under nohup
    )
    assert shell.stdout
    run = int(shell.stdout.readline())
    time.sleep(chance.uniform(1, 5))
    os.killpg(shell.pid, signal.SIGHUP)
    shell.communicate()
    deadline = time.monotonic() + PATIENCE_S
    while is_alive(run) and time.monotonic() < deadline:
        time.sleep(0.1)
    log = (clone.path / "run.log").read_text()
    return rule, "" if "Done in" in log else f"a run ended with its shell:\n{log}"


def fill_disk(number: int, clone: Clone, chance: random.Random) -> tuple[str, str]:
    """Let no job write more than some bytes into a file."""
    # A file system gives a log a block or nothing; of nothing the run's screen knows.
    rule, limit = RULES[number % len(RULES)], int(10 ** chance.uniform(2.7, 4.5))
    path = os.pathsep.join(map(str, (clone.path / "src", HERE / "full_disk")))
    environment = {"PYTHONPATH": path, "CHAOS_BYTES": str(limit)}
    run = start(clone, "--forcerun", rule, environment=environment, python=warm_python())
    output = run.communicate(timeout=PATIENCE_S)[0]
    reported = run.returncode == 0 or (has_remedy(output) and "the disk is full" in output)
    return f"{rule} store" if rule in ("codes", "scenes") else rule, "" if reported else output


def forbid(number: int, clone: Clone, chance: random.Random) -> tuple[str, str]:
    """Make a folder of results read-only, for root too."""
    rule = RULES[number % len(RULES)]
    folders = [path for path in sorted((clone.path / "results").rglob("*")) if path.is_dir()]
    for folder in folders:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    drop = partial(ctypes.CDLL(None).prctl, PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)
    run = start(clone, "--forcerun", rule, preexec_fn=drop)
    output = run.communicate(timeout=PATIENCE_S)[0]
    for folder in folders:
        folder.chmod(stat.S_IRWXU)
    return rule, "" if run.returncode and has_remedy(output) else output


def run_twice(number: int, clone: Clone, chance: random.Random) -> tuple[str, str]:
    """Start two runs at once: one is refused with a remedy, or finds nothing to do."""
    rule = RULES[number % len(RULES)]
    runs = [start(clone, "--forcerun", rule, python=warm_python())]
    time.sleep(chance.uniform(0, 3))
    runs.append(start(clone, python=warm_python()))
    outputs = [run.communicate(timeout=PATIENCE_S)[0] for run in runs]
    wrong = [
        s for run, s in zip(runs, outputs, strict=True) if run.returncode and not has_remedy(s)
    ]
    messages = wrong if any(run.returncode == 0 for run in runs) else outputs
    return rule, "\n".join(messages)


DAMAGE: dict[str, Callable[[Path, random.Random], None]] = {
    "flipped bit": flip,
    "truncated file": truncate,
    "deleted file": delete,
    "exchanged file": exchange,
}
FAULTS: dict[str, Callable[[int, Clone, random.Random], tuple[str, str]]] = {
    **{name: partial(damage, how) for name, how in DAMAGE.items()},
    "lost records": lose_records,
    "foreign product": bring_foreign,
    "kill -9 of a job": partial(kill, "job", signal.SIGKILL),
    "kill -9 of Snakemake": partial(kill, "Snakemake", signal.SIGKILL),
    "kill -9 of all": partial(kill, "all", signal.SIGKILL),
    "Ctrl-C": partial(kill, "all", signal.SIGINT),
    "lost terminal": partial(kill, "all", signal.SIGHUP),
    "logout": log_out,
    "full disk": fill_disk,
    "read-only results": forbid,
    "two runs": run_twice,
}


# --- rounds --------------------------------------------------------------------------------------


@contextmanager
def copied(clone: Clone) -> Iterator[Clone]:
    """Copy a clone for one round."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield clone.copy(Path(folder).resolve() / "clone")


def one_round(
    clone: Clone, sound: Mapping[str, str], fault: str, number: int, files: int = 1
) -> Round:
    """Do one fault to a copy, and say how it ended; `number` decides all that is drawn."""
    inflict = FAULTS[fault]
    n = files if fault in DAMAGE else 1
    with copied(clone) as copy:
        target, complaint = (partial(inflict, files=n) if fault in DAMAGE else inflict)(
            number, copy, random.Random(number)
        )
        verdict, note = judge(copy, sound)
    if complaint:
        verdict, note = "wrong", f"{complaint}\nthen {verdict}: {note}"
    return Round(fault, target, verdict, note, n)


def rounds(
    clone: Clone, faults: Sequence[tuple[str, int]], workers: int = 2, files: int = 1
) -> Iterator[Round]:
    """Do faults, in several copies at once; those to files to so many of them in a round."""
    sound = clone.results()
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda fault: one_round(clone, sound, *fault, files), faults)


def drawn(first: int, n: int) -> list[tuple[str, int]]:
    """Take faults in turn, each with another target in its next round."""
    names = list(FAULTS)
    return [
        (names[i % len(names)], i // len(names) + 5 * (i % len(names)))
        for i in range(first, first + n)
    ]


def main() -> int:
    """Print a line per round, then the table; 1 if anything ended wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--files", type=int, default=10, help="files that a round damages at once")
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        clone = run_cut(Path(folder).resolve() / "clone")
        faults = drawn(options.first, options.rounds)
        ended = rounds(clone, faults, options.workers, options.files)
        for i, each in enumerate(ended, options.first):
            counts[each.fault, each.verdict] += each.faults
            print(f"{i:5} {each.verdict:8} {each.fault}: {each.target}", flush=True)
            if each.verdict == "wrong":
                print(each.note, flush=True)
    print("\nfault," + ",".join(VERDICTS))
    for fault in FAULTS:
        print(f"{fault}," + ",".join(str(counts[fault, verdict]) for verdict in VERDICTS))
    wrong = sum(n for (_, verdict), n in counts.items() if verdict == "wrong")
    print(f"{counts.total()} faults in {options.rounds} rounds, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
