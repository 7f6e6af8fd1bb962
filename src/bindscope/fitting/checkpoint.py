"""The state of a descent on disk: whole or absent, and never taken for that of another one."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bindscope.core.files import open_atomic, remove_stale

log = logging.getLogger(__name__)
KEEP_S = 45.0  # so that a death costs less than a minute
WORTH_S = 1.0  # of work that a sparing checkpoint keeps when it is done
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
Item = TypeVar("Item")
SavedState: TypeAlias = tuple[dict[str, Tensor], dict[str, Any]]  # tensors, and what JSON can hold


@dataclass(frozen=True)
class Checkpoint:
    """A safetensors file whose header holds a key and a record (JSON).

    The key decides the result: a file with another one is not read. A `sparing` one is written only
    every `KEEP_S` seconds, and at the end of what takes `WORTH_S`.
    """

    path: Path
    key: str
    sparing: bool = False

    def is_due(self, seconds: float, *, last: bool = False) -> bool:
        """Return whether to write, so many seconds after the last time; `last`: at the end."""
        return not self.sparing or seconds > (WORTH_S if last else KEEP_S)

    def from_item(self, first: int) -> Checkpoint:
        """Return it with the number of its first item in its key."""
        return Checkpoint(self.path, f"{self.key} from {first}", self.sparing)

    def write(self, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
        """Replace the file, a tensor at a time; `record` names the `step`."""
        text = json.dumps(record)  # of floats, all digits
        header = {"key": self.key, "record": text, "sha256": _digest(tensors, text)}
        layout = json.dumps({"__metadata__": header} | _layout(tensors)).encode()
        layout += b" " * (-len(layout) % 8)  # numbers after it are aligned
        with open_atomic(self.path) as file:
            file.write(len(layout).to_bytes(8, "little") + layout)
            for _, value in _in_order(tensors):
                file.write(_bytes(value))

    def read(self) -> SavedState | None:
        """Return tensors and record, or None: no file, a damaged one, or one of another key."""
        if not self.path.is_file():
            return None
        try:
            with safe_open(str(self.path), framework="pt") as file:
                header = file.metadata() or {}
                if header.get("key") != self.key:
                    log.info("%s is of another configuration or code: starting afresh", self.path)
                    return None
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            if header.get("sha256") != _digest(tensors, header.get("record", "")):
                raise ValueError("its digest differs")
        except (SafetensorError, OSError, ValueError) as error:
            log.warning("%s is damaged (%s): starting afresh", self.path, error)
            return None
        record = json.loads(header["record"])
        log.info("going on after step %d, from %s", record["step"], self.path)
        return tensors, record

    def remove(self) -> None:
        """Delete the file, and what killed attempts at writing it left."""
        self.path.unlink(missing_ok=True)
        if self.path.parent.is_dir():
            remove_stale(self.path)


class Checkpoints:
    """The sparing checkpoints of a job's parts, which are computed one after the other.

    A job that is killed runs again from its start: parts that were done are read, the one that was
    interrupted goes on, and what was too short to be kept is computed again. So the parts must be
    asked for in the same order, and each end in the same bits as before. The checkpoints stand
    beside `output`, a file of the job, and are not outputs, which Snakemake would delete with the
    others of a job that failed.
    """

    def __init__(self, output: Path | str, key: str) -> None:
        self.output, self.key, self.number = Path(output), key, 0

    def take(self) -> Checkpoint:
        """Return the checkpoint of the next part."""
        self.number += 1
        path = self.output.with_name(f"{self.output.name}.{self.number}.checkpoint")
        return Checkpoint(path, f"{self.key} {self.number}", sparing=True)

    def remember(self, make: Callable[[Checkpoints], SavedState]) -> SavedState:
        """Return what the next part makes of checkpoints; an earlier attempt may have it."""
        whole, began = self.take(), monotonic()
        if (state := whole.read()) is not None:
            return state
        parts = self._inside(whole)
        tensors, record = make(parts)
        if whole.is_due(monotonic() - began, last=True):
            whole.write(tensors, record | {"step": parts.number})
            parts.remove()
        return tensors, record

    def each(
        self, items: Iterable[Item], make: Callable[[Item], SavedState]
    ) -> Iterator[SavedState]:
        """Yield what is made of each item, which an earlier attempt may have kept.

        What takes `KEEP_S` together is kept together, in a file that is written once; items come in
        the same order in every attempt.
        """
        parts = self._inside(self.take())
        done, segment = 0, parts.take().from_item(0)
        while (state := segment.read()) is not None:
            states = split_states(state)
            yield from states
            done += len(states)
            segment = parts.take().from_item(done)
        fresh: list[SavedState] = []
        began = monotonic()
        for item in islice(items, done, None):
            fresh.append(make(item))
            yield fresh[-1]
            if segment.is_due(monotonic() - began):
                done += len(fresh)
                _write_joined(segment, fresh, done)
                segment, began = parts.take().from_item(done), monotonic()
                fresh.clear()
        if fresh and segment.is_due(monotonic() - began, last=True):
            _write_joined(segment, fresh, done + len(fresh))

    def _inside(self, whole: Checkpoint) -> Checkpoints:
        """Return the checkpoints of the parts of what was taken last."""
        return Checkpoints(self.output.with_name(f"{self.output.name}.{self.number}"), whole.key)

    def remove(self) -> None:
        """Delete all of them, when the results are safe, and those that were never finished."""
        for path in self.output.parent.glob(f"{self.output.name}.*.checkpoint*"):
            name, end, _ = path.name.rpartition(".checkpoint")
            Checkpoint(path.with_name(name + end), self.key).remove()


def take(checkpoints: Checkpoints | None) -> Checkpoint | None:
    """Return the checkpoint of the next part, or None where nothing is kept."""
    return checkpoints.take() if checkpoints else None


def remember(
    checkpoints: Checkpoints | None, make: Callable[[Checkpoints | None], SavedState]
) -> SavedState:
    """Return what `make` returns, by `Checkpoints.remember` where there are checkpoints."""
    return checkpoints.remember(make) if checkpoints else make(None)


def each(
    checkpoints: Checkpoints | None, items: Iterable[Item], make: Callable[[Item], SavedState]
) -> Iterator[SavedState]:
    """Yield what `make` makes of items, by `Checkpoints.each` where there are checkpoints."""
    return checkpoints.each(items, make) if checkpoints else map(make, items)


def _write_joined(checkpoint: Checkpoint, states: Sequence[SavedState], done: int) -> None:
    tensors, record = join_states(states)
    checkpoint.write(tensors, record | {"step": done})


def join_states(states: Sequence[SavedState]) -> SavedState:
    """Return several states as one."""
    tensors: dict[str, Tensor] = {}
    for i, (values, _) in enumerate(states):
        tensors |= {f"{i}.{name}": value for name, value in values.items()}
    return tensors, {"records": [record for _, record in states]}


def split_states(state: SavedState) -> list[SavedState]:
    """Return the states that `join_states` has joined."""
    tensors, record = state
    parts: list[dict[str, Tensor]] = [{} for _ in record["records"]]
    for name, value in tensors.items():
        number, _, short = name.partition(".")
        parts[int(number)][short] = value
    return list(zip(parts, record["records"], strict=True))


def _digest(tensors: dict[str, Tensor], record: str) -> str:
    """Hash what a checkpoint holds: safetensors itself has no checksum."""
    digest = hashlib.sha256(json.dumps([record, _layout(tensors)]).encode())
    for _, value in _in_order(tensors):
        digest.update(_bytes(value))
    return digest.hexdigest()


def _in_order(tensors: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Return tensors in the order of their bytes: wide numbers first, so that all are aligned."""
    return sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))


def _layout(tensors: dict[str, Tensor]) -> dict[str, dict[str, Any]]:
    """Return the header of a safetensors file without its metadata."""
    layout, start = {}, 0
    for name, value in _in_order(tensors):
        stop = start + value.numel() * value.itemsize
        kind = {"dtype": _DTYPES[value.dtype], "shape": list(value.shape)}
        layout[name], start = kind | {"data_offsets": [start, stop]}, stop
    return layout


def _bytes(value: Tensor) -> memoryview:
    """Return the bytes of a tensor; on a CPU they are its memory, if it is contiguous."""
    flat = value.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data
