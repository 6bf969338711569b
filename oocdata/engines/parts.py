"""Read many datasets of one file as one source: where each begins, and its key.

Rows of contiguous datasets are at known offsets (`RowOffsets`), and chunks are numbered across
datasets, each of which begins with a new chunk: no loop over ten thousand short datasets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from oocdata.box import Ints
from oocdata.engines.source import Keyed
from oocdata.errors import SourceError
from oocdata.threads import cached_property


@dataclass(frozen=True, eq=False)
class JoinedParts(Keyed):
    """Datasets of one file, along one axis of the array that a source reads.

    `lengths` (int64) are those of the parts along the axis. Each part begins at a multiple of
    `unit`: the length of a chunk, or 1.
    """

    keys: tuple[str, ...] = field(repr=False)
    lengths: Ints = field(repr=False)
    axis: int
    unit: int

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinedParts, (self.keys, self.lengths, self.axis, self.unit)

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return self.keys, self.lengths.tobytes(), self.axis, self.unit

    @cached_property
    def _ends(self) -> Ints:
        ends: Ints = np.cumsum(-(-self.lengths // self.unit) * self.unit)
        return ends

    @cached_property
    def starts(self) -> Ints:
        """Position along the axis at which each part begins, shape (parts,)."""
        return np.concatenate(([0], self._ends[:-1]))

    @property
    def stop(self) -> int:
        """Length along the axis, including the unused positions between parts."""
        return int(self._ends[-1])

    def of(self, places: Ints) -> Ints:
        """Return the part number at positions along the axis."""
        return self._ends.searchsorted(places, side="right")

    def assign_part(self, error: SourceError) -> SourceError:
        """Set an error's key to the first part concerned, and its rows to those of that part."""
        if error.rows:
            rows = np.array(error.rows, np.int64)
            part = int(self.of(rows[:1])[0])
            within = rows[self.of(rows) == part] - self.starts[part]
            error.key, error.count = self.keys[part], None
            error.set_rows(within[within < self.lengths[part]])
        return error


@dataclass(frozen=True, eq=False)
class RowOffsets(Keyed):
    """Byte offsets of rows of contiguous datasets; a `oocdata.engines.strided.ChunkOffsets`.

    Each row is one chunk, of `chunk_shape`, so that parts may have any length; they have the unit
    1, along the slowest axis. `offset_of` (int64) is the byte offset of each part, and `step` the
    bytes from one row to the next.
    """

    parts: JoinedParts
    offset_of: Ints = field(repr=False)
    chunk_shape: tuple[int, ...]
    step: int

    BYTES: ClassVar[int] = 24
    """Bytes per part: its offset, length and end."""

    @property
    def _key(self) -> tuple[object, ...]:
        return self.parts, self.offset_of.tobytes(), self.chunk_shape, self.step

    @cached_property
    def _shift(self) -> Ints:
        return self.offset_of - self.parts.starts * self.step

    def offsets(self, places: Ints) -> Ints:
        """Return the byte offsets of rows, given as positions in the grid of chunks."""
        rows = places[:, self.parts.axis]
        offsets: Ints = self._shift[self.parts.of(rows)] + rows * self.step
        return offsets
