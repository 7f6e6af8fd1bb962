"""The state of a descent on disk: whole or absent, and never taken for that of another one."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bindscope.core.files import remove_stale, sha256, write_atomic

log = logging.getLogger(__name__)
KEEP_S = 45.0  # so that a death costs less than a minute
WORTH_S = 1.0  # of work that a sparing checkpoint keeps when it is done


@dataclass(frozen=True)
class Checkpoint:
    """A safetensors file whose header holds a key and a record (JSON).

    Attributes
    ----------
    path
        The file.
    key
        What decides the result: a file with another key is not read.
    sparing
        Whether it is written only every `KEEP_S` seconds, and at the end of what takes `WORTH_S`.
    """

    path: Path
    key: str
    sparing: bool = False

    def is_due(self, seconds: float, *, last: bool) -> bool:
        """Return whether to write, so many seconds after the last time; `last`: at the end."""
        return not self.sparing or seconds > (WORTH_S if last else KEEP_S)

    def write(self, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
        """Replace the file; `record` names the `step`.

        Raises
        ------
        StoreError
            If the disk is full or may not be written.
        """
        content = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        text = json.dumps(record)  # of floats, all digits
        header = {"key": self.key, "record": text, "sha256": _digest(content, text)}
        write_atomic(self.path, save(content, header))

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
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
    asked for in the same order, and each end in the same bits as before.

    Parameters
    ----------
    output
        A file of the job; the checkpoints stand beside it, and are not outputs, which Snakemake
        would delete with the others of a job that failed.
    key
        What decides the result.
    """

    def __init__(self, output: Path | str, key: str) -> None:
        self.output, self.key, self.number = Path(output), key, 0

    def take(self) -> Checkpoint:
        """Return the checkpoint of the next part."""
        self.number += 1
        path = self.output.with_name(f"{self.output.name}.{self.number}.checkpoint")
        return Checkpoint(path, f"{self.key} {self.number}", sparing=True)

    def remove(self) -> None:
        """Delete all of them, when the results are safe."""
        for path in self.output.parent.glob(f"{self.output.name}.*.checkpoint"):
            Checkpoint(path, self.key).remove()


def _digest(tensors: dict[str, Tensor], record: str) -> str:
    """Hash what a checkpoint holds: safetensors itself has no checksum."""
    return sha256(save(tensors) + record.encode())
