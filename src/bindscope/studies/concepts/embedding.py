"""An embedding of scenes with its split and its probes, and what these recognize in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bindscope.studies.concepts.counting import SplitBy
from bindscope.studies.concepts.recognition import Readout, fit_probes, recognize
from bindscope.studies.concepts.rows import Row
from bindscope.studies.concepts.scenes import Floats, Scenes, completeness
from bindscope.studies.concepts.splits import Parts, split_scenes
from bindscope.studies.concepts.vectors import SingleScenes


class Embedded:
    """Embeddings (n, d) of n scenes, with their split and the maps that decode them.

    `readout` defaults to linear probes, fitted on a share of the scenes; `parts` to
    `splits.split_scenes`. `single` are scenes of one object, where there are any.
    """

    def __init__(
        self,
        z: Floats,
        scenes: Scenes,
        readout: Readout | None = None,
        single: SingleScenes | None = None,
        split_by: SplitBy = "objects",
        device: str = "cpu",
        parts: Parts | None = None,
    ) -> None:
        self.z, self.scenes, self.single, self.split_by = z, scenes, single, split_by
        self.parts, self.device = parts or split_scenes(scenes, split_by), device
        self.readout = readout or fit_probes(z, scenes, self.parts.probed, device=device)
        self.completeness = completeness(scenes)

    @property
    def flags(self) -> list[str]:
        """What to know before the numbers are believed, of `tables.EMBEDDING_FLAGS`."""
        lacking = self.completeness
        texts = {
            "absent_values": lacking.absent_values > 0,
            "fewer_dimensions_than_objects": self.z.shape[1] < len(self.scenes.present),
            "incomplete": not lacking.complete,
            "probes_not_converged": not self.readout.converged,
            "unseen_objects": self.readout.unseen > 0,
        }
        return [name for name, holds in texts.items() if holds]

    def about(self, *more: str) -> Row:
        """Return the columns that all rows of the embedding share, with `more` flags."""
        return {
            "split_by": self.split_by, "dim": self.z.shape[1],
            "n_objects": len(self.scenes.present), "n_slots": self.scenes.n_slots,
            "n_missing_scenes": self.completeness.missing,
            "flags": ";".join(sorted([*self.flags, *more])),
        }  # fmt: skip


def recognition_rows(embedded: Embedded, queries: Mapping[str, Readout]) -> Iterator[Row]:
    """Yield what probes and queries recognize in scenes whose objects probes were not fitted on."""
    read = embedded.parts.read
    scored = embedded.scenes.take(read)
    for name, readout in {"probes": embedded.readout, **queries}.items():
        for row in recognize(readout, embedded.z[read], scored):
            yield {"variant": name, "level": 0, **row}
