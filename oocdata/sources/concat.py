"""Several sources as one array along the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import MismatchedPartsError
from oocdata.index import Cut
from oocdata.sources.adapt import Converted, chunk_bytes, cut_source, layout_of
from oocdata.sources.source import Layout, Source

__all__ = ["Concat", "concatenate"]


@dataclass(frozen=True, slots=True)
class Concat:
    """Sources end to end.

    Attributes
    ----------
    parts : tuple of Source
        With one element shape and dtype.
    part_starts : tuple of int
        The first row of each part.
    """

    parts: tuple[Source, ...]
    part_starts: tuple[int, ...]

    converts = True

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        last = self.parts[-1].shape
        return (self.part_starts[-1] + last[0], *last[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.parts[0].dtype

    @property
    def chunk_rows(self) -> int:
        """The parts' largest."""
        return max(part.chunk_rows for part in self.parts)

    @property
    def chunk_bytes(self) -> int:
        """The parts' largest."""
        return max(chunk_bytes(part) for part in self.parts)

    def layout(self) -> Layout:
        """Return the first part's layout, with the number of parts and all bytes."""
        layouts = [layout_of(part) for part in self.parts]
        sizes = [layout.stored_bytes for layout in layouts]
        first = layouts[0]
        return replace(
            first,
            path=f"{first.path or 'memory'} and {len(layouts) - 1} more",
            stored_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        )

    def cut(self, cuts: tuple[Cut, ...]) -> Source:
        """Return the source of ``row[cuts]``."""
        return replace(self, parts=tuple(cut_source(part, cuts) for part in self.parts))

    def owner(self, row: int) -> tuple[Source, int]:
        """Return the part that holds a row, and the row in it."""
        number = int(np.searchsorted(self.part_starts, row, side="right")) - 1
        return self.parts[number], row - self.part_starts[number]

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]``; `out` may have any numeric dtype."""
        if len(rows) == 0:
            return
        owners = np.searchsorted(self.part_starts, rows, side="right") - 1
        for owner in np.unique(owners).tolist():
            places = np.flatnonzero(owners == owner)
            part = self.parts[owner]
            part = part if out.dtype == part.dtype else Converted(part, out.dtype)
            wanted = rows[places] - self.part_starts[owner]
            first, last = int(places[0]), int(places[-1]) + 1
            if last - first == len(places):
                part.read_into(wanted, out[first:last])
            else:
                scattered = np.empty((len(places), *out.shape[1:]), out.dtype)
                part.read_into(wanted, scattered)
                out[places] = scattered


def concatenate(parts: Sequence[Source]) -> Source:
    """Return sources end to end as one.

    Raises
    ------
    oocdata.errors.MismatchedPartsError
        If element shapes or dtypes differ, or how the numbers are packed; the message names the
        first part that differs.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    for number, part in enumerate(parts):
        if part.shape[1:] != first.shape[1:] or part.dtype != first.dtype:
            raise MismatchedPartsError(
                f"parts must have rows of one shape and dtype; part 0 has {first.shape[1:]} "
                f"{first.dtype}, part {number} has {part.shape[1:]} {part.dtype}. "
                "Open them one by one and use `.astype`, or leave that file out.",
                path=layout_of(part).path,
            )
    packed = layout_of(first).packed
    for number, part in enumerate(parts):
        layout = layout_of(part)
        if layout.packed != packed:
            raise MismatchedPartsError(
                "parts must hold numbers that are packed alike, because they are delivered as "
                f"stored; part 0 has {packed or 'none packed'}, part {number} has "
                f"{layout.packed or 'none packed'}. Open them through xarray, which unpacks them: "
                "ooc.open([xarray.open_dataset(path)['name'] for path in paths]).",
                path=layout.path,
                key=layout.key,
            )
    flat = [one for part in parts for one in (part.parts if isinstance(part, Concat) else (part,))]
    # A part without rows owns nothing, and would share its start with the next.
    filled = tuple(part for part in flat if part.shape[0]) or (first,)
    lengths = [part.shape[0] for part in filled]
    starts = tuple(int(end - n) for end, n in zip(np.cumsum(lengths), lengths, strict=True))
    return Concat(filled, starts)
