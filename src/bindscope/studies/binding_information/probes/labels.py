"""Codes and anchors of scenes as a fit uses them: gathered on the device, cut for some heads.

Codes stay uint8 and are stored once, however many targets read them; each batch makes the floats
that it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from bindscope.fitting.rows import Rows, as_rows, row_bytes, whole
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.probes.data import SplitData

Labelled: TypeAlias = tuple[Tensor, Tensor | None, Tensor]


@dataclass(frozen=True)
class Labels:
    """Labels of some scenes.

    `columns` are `objects` uint8 (B, K), `features` uint8 (B, n), `counts` uint8 (B, T) where there
    are count bits, and the anchors, float32.
    """

    columns: Mapping[str, Tensor]

    @classmethod
    def held(cls, split: SplitData, device: torch.device) -> Labels:
        """Read those of a whole split."""
        rows = label_rows(split)
        return cls({name: torch.from_numpy(whole(rows[name])).to(device) for name in rows})

    @classmethod
    def of_batch(
        cls, names: Sequence[str], values: Sequence[Tensor], device: torch.device
    ) -> Labels:
        """Take what was read, in the order of `label_rows`."""
        tensors = (value.to(device) for value in values)
        return cls(dict(zip(names, tensors, strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Labels]) -> Labels:
        """Join those of successive scenes."""
        return cls({n: torch.cat([part.columns[n] for part in parts]) for n in parts[0].columns})

    def __len__(self) -> int:
        """Return the number of scenes."""
        return len(self.columns["objects"])

    def at(self, scenes: Tensor | slice) -> Labels:
        """Return those of some of the scenes."""
        return Labels({name: values[scenes] for name, values in self.columns.items()})

    def of(self, heads: Heads) -> Labelled:
        """Return input bits (B, length), anchors (B, heads) or None, and true bits (B, heads)."""
        bits = self._joined(heads.codes).float()
        anchors = self._joined(heads.priors) if heads.anchored else None
        return bits, anchors, bits[:, heads.first :]

    def _joined(self, names: Sequence[str]) -> Tensor:
        columns = [self.columns[name] for name in names]
        return columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)


def label_rows(split: SplitData) -> dict[str, Rows]:
    """Return the labels of a split as rows."""
    return {name: as_rows(values) for name, values in split.labels.items()}


def label_bytes(split: SplitData) -> int:
    """Return how many bytes the labels of a scene take."""
    return sum(map(row_bytes, label_rows(split).values()))
