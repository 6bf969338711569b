"""Read rows of unequal length: a source reports where rows are, and then reads runs of them.

Its array has one axis, the rows. A box of it has no single shape, so rows are first located
(`locate`), which gives their lengths, and then read into memory of that size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.concat import Concat
from oocdata.engines.ragged import affected_rows, boxes_of_runs, read_bounds, scatter_runs
from oocdata.engines.source import Boxes, Source, Storage, WithStorage
from oocdata.errors import ArgumentError, SourceError
from oocdata.threads import cached_property


class RaggedSource(ABC):
    """A source of rows of unequal length."""

    @property
    @abstractmethod
    def inner(self) -> tuple[int, ...]:
        """Shape of one position of a row."""

    @abstractmethod
    def locate(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the place at which each row begins, and its length; any order, repeats allowed.

        Places are those of an array that has all rows, or count from each row's own beginning.
        """

    @abstractmethod
    def read_rows(
        self, rows: Ints, starts: Ints, counts: Ints, out: NDArray[Any], targets: Ints
    ) -> None:
        """Read a run of each row, and write it from ``out[targets[i]]`` on.

        Run i begins at place ``starts[i]``, see `locate`, and has ``counts[i]`` positions. `out`
        has shape ``(positions, *inner)``, is C-contiguous and of any dtype.
        """

    def run_boxes(self, rows: Ints, starts: Ints, counts: Ints) -> Iterable[Boxes]:
        """Return the boxes that `read_rows` reads, to fetch them before."""
        return []

    def read_boxes(self, origins: Ints, extent: Extent) -> Iterable[Boxes]:
        """Return the boxes that are read for rows; reads where they are."""
        return self.run_boxes(origins[:, 0], *self.locate(origins[:, 0]))

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> NoReturn:
        raise ArgumentError("rows of unequal length must be padded to be read as boxes.")


def is_ragged(source: Source) -> bool:
    """Return whether rows of a source are of unequal length, so that `locate` accepts it."""
    if isinstance(source, Concat):
        return source.axis == 0 and all(map(is_ragged, source.parts))
    return isinstance(source, RaggedSource)


def inner_shape(source: Source) -> tuple[int, ...]:
    """Return the shape of one position of a row."""
    first: Any = source.parts[0] if isinstance(source, Concat) else source
    return tuple(first.inner)


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """Rows of one or several sources, of known lengths, ready to be read."""

    lengths: Ints
    shares: list[tuple[Any, Ints, Ints, Ints]]
    """Each source, the places of its rows among all rows, the rows, and where each begins."""

    def read(self, firsts: Ints, counts: Ints, out: NDArray[Any], targets: Ints) -> None:
        """Read a run of each row, from its position `firsts` on; see `RaggedSource.read_rows`."""
        for source, at, rows, starts in self.shares:
            source.read_rows(rows, starts + firsts[at], counts[at], out, targets[at])

    def boxes(self, firsts: Ints, counts: Ints) -> Iterator[Boxes]:
        """Yield the boxes that `read` reads."""
        for source, at, rows, starts in self.shares:
            yield from source.run_boxes(rows, starts + firsts[at], counts[at])


def locate(*members: tuple[Source, Ints, Ints]) -> LocatedRows:
    """Locate rows of ragged sources; a member is a source, its rows, and their places among all."""
    lengths, shares = np.zeros(sum(len(places) for *_, places in members), np.int64), []
    for source, rows, places in members:
        parts: Iterable[Any] = [(source, np.arange(len(rows)), rows[:, None])]
        if isinstance(source, Concat):
            parts = source.shares(rows[:, None])
        for part, which, within in parts:
            at, own = places[which], within[:, 0]
            starts, lengths[at] = part.locate(own)
            shares.append((part, at, own, starts))
    return LocatedRows(lengths, shares)


@dataclass(frozen=True, eq=False)
class RaggedRows(WithStorage, RaggedSource):
    """Rows that are consecutive in an array; a `Source`.

    `values` has all rows, one after the other, and shape ``(n, …)``. `offsets` are int64 of one
    axis: the position in `values` at which each row begins, and the end of the last row.
    """

    values: Source
    offsets: Source

    @property
    def row_source(self) -> Source:
        return self.offsets

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.offsets.shape[0] - 1,)

    @property
    def inner(self) -> tuple[int, ...]:
        return self.values.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @cached_property
    def _storage(self) -> Storage:
        """How the values are stored; a chunk is the average number of rows per chunk."""
        values, offsets = self.values.storage(), self.offsets.storage()
        combined = replace(
            values,
            layout=f"rows of unequal length in {values.layout}",
            strides=None,
            parts=(0,),
            part_names=(),
            episodes=False,
            dimensions=(),
            files=tuple(dict.fromkeys((*values.files, *offsets.files))),
            opened=None,
            table_bytes=values.table_bytes + offsets.table_bytes,
            cached_whole=values.cached_whole + offsets.cached_whole,
        )
        rows, stored = self.shape[0], self.values.shape[0]
        if values.chunks is None or not rows or not stored:
            return replace(combined, chunks=None)
        # Averages, because the lengths of rows differ.
        chunk_rows = min(rows, max(1, round(values.chunks[0] * rows / stored)))
        nbytes = values.chunk_bytes
        if nbytes is None:
            lengths = map(min, values.chunks, self.values.shape)
            nbytes = int(np.prod(list(lengths))) * self.dtype.itemsize
        return replace(combined, chunks=(chunk_rows,), chunk_bytes=nbytes)

    def locate(self, rows: Ints) -> tuple[Ints, Ints]:
        stored = self._storage
        most = self.values.shape[0]
        starts, stops = read_bounds(self.offsets, rows, most, stored.path, stored.key)
        return starts, stops - starts

    def read_rows(
        self, rows: Ints, starts: Ints, counts: Ints, out: NDArray[Any], targets: Ints
    ) -> None:
        try:
            scatter_runs(self.values, starts, counts, out, targets)
        except SourceError as error:
            error.set_rows(affected_rows(error, rows, starts, starts + counts))
            raise

    def run_boxes(self, rows: Ints, starts: Ints, counts: Ints) -> Iterator[Boxes]:
        return boxes_of_runs(self.values, starts, counts)
