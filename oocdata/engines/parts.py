"""Datasets of one file that one source reads: where each begins, and what it is called.

Ten thousand short datasets as so many sources would be read by a loop over them. As one source
they are a table of numbers beside it: contiguous ones are rows at known offsets (`RowOffsets`), and
chunks are numbered on from one dataset to the next, each of which begins with a chunk of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import SourceError
from oocdata.threads import cached_property

__all__ = ["JoinedParts", "RowOffsets"]


@dataclass(frozen=True, eq=False)
class JoinedParts:
    """Datasets of one file along an axis of the array that a source reads.

    Attributes
    ----------
    keys : tuple of str
    lengths : ndarray of int64, shape (parts,)
        Places along the axis.
    axis : int
    unit : int
        Each part begins at a multiple of it: the places of a chunk, or 1.
    steps : ndarray of int64, shape (parts,), or None
        Places of a stored chunk along the axis, where that differs: each part is one chunk then.

    Examples
    --------
    >>> parts = JoinedParts(("a", "b", "c"), np.array([5, 0, 3]), axis=0, unit=4)
    >>> parts.starts, parts.stop
    (array([0, 8, 8]), 12)
    """

    keys: tuple[str, ...] = field(repr=False)
    lengths: NDArray[np.int64] = field(repr=False)
    axis: int
    unit: int
    steps: NDArray[np.int64] | None = field(default=None, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinedParts, (self.keys, self.lengths, self.axis, self.unit, self.steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JoinedParts) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    @cached_property
    def _digest(self) -> bytes:
        """What tells these parts from others."""
        names = "\0".join(self.keys).encode("utf-8", "surrogateescape")
        from hashlib import blake2b  # not for `import oocdata`

        made = blake2b(names, digest_size=16)
        made.update(self.lengths.tobytes() + b"%d %d" % (self.axis, self.unit))
        return made.digest()

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        ends: NDArray[np.int64] = np.cumsum(-(-self.lengths // self.unit) * self.unit)
        return ends

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each part begins along the axis, shape (parts,)."""
        return np.concatenate(([0], self._ends[:-1]))

    @property
    def stop(self) -> int:
        """Places along the axis, with those between parts, which hold nothing."""
        return int(self._ends[-1])

    def of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the part at places along the axis."""
        return self._ends.searchsorted(places, side="right")

    def concern(self, error: SourceError) -> SourceError:
        """Say which part an error is about: the first, with those of its rows that lie in it."""
        if error.rows:
            rows = np.array(error.rows, np.int64)
            part = int(self.of(rows[:1])[0])
            within = rows[self.of(rows) == part] - self.starts[part]
            error.key, error.count = self.keys[part], None
            error.concern(within[within < self.lengths[part]])
        return error


@dataclass(frozen=True, eq=False)
class RowOffsets:
    """Where the rows of contiguous datasets lie; a `oocdata.engines.strided.ChunkOffsets`.

    Each row is a chunk of its own, so that parts may have any length.

    Attributes
    ----------
    parts : JoinedParts
        Of unit 1, along the slowest axis.
    offset_of : ndarray of int64, shape (parts,)
        Of the first byte of each.
    chunk_shape : tuple of int
        Of one place along the axis.
    step : int
        Bytes from one row to the next.
    """

    parts: JoinedParts
    offset_of: NDArray[np.int64] = field(repr=False)
    chunk_shape: tuple[int, ...]
    step: int

    BYTES: ClassVar[int] = 24
    """For each part: its offset, length and end."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowOffsets) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.parts, self.offset_of.tobytes(), self.chunk_shape, self.step

    @cached_property
    def _shift(self) -> NDArray[np.int64]:
        return self.offset_of - self.parts.starts * self.step

    def offsets(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the byte offset of each row, given as the place of a chunk."""
        return self.of_rows(places[:, self.parts.axis])

    def of_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the byte offset of each row."""
        found: NDArray[np.int64] = self._shift[self.parts.of(rows)] + rows * self.step
        return found
