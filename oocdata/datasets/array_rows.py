"""Define `ArrayRows`: a selection of the rows of one array, and the boxes that they are.

A row has one position along each *sample axis*. Rows are numbered in C order along the sample axes,
counting the selected positions only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from oocdata.blocks import ADDRESSABLE, AnyBlocks, Blocks, blocks_from_ids
from oocdata.box import Extent, Ints
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.request import ArrayRequest, Placement, Request
from oocdata.datasets.shared_rows import Rows, arrays_of
from oocdata.datasets.spec import ArraySpec
from oocdata.engines.axes import axis_numbers
from oocdata.engines.gather.grid import chunks_along
from oocdata.engines.source import Source, Storage
from oocdata.errors import ArgumentError
from oocdata.index import Cut, Selection, compose_ranges, is_all, repeats, select, take
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.episodes import Episodes

MOST_IDS = 1 << 23
"""Largest number of irregular positions whose chunks are looked up one by one."""


@dataclass(frozen=True, eq=False, repr=False)
class ArrayRows(Dataset):
    """A selection of the rows of one array; for the fields see `View`, its subclass."""

    source: Source
    axes: tuple[int, ...]
    cuts: tuple[Cut, ...]
    rows: Selection
    order: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, source: Source, axis: int | str | Sequence[int | str] | None = 0) -> Self:
        """Return the view of all rows of a source, along one or several sample axes."""
        shape = source.shape
        axes = axis_numbers(axis, len(shape), source.storage())
        order = tuple(stored_axis for stored_axis in range(len(shape)) if stored_axis not in axes)
        rows = range(prod(shape[stored_axis] for stored_axis in axes))
        return cls(source, axes, tuple(map(range, shape)), rows, order, source.dtype)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def storage(self) -> Storage:
        """Description of how the array is stored."""
        return self.source.storage()

    @cached_property
    def grid(self) -> tuple[range, ...]:
        """Selected positions along each sample axis."""
        return tuple(self.places_along(axis) for axis in self.axes)

    def places_along(self, axis: int) -> range:
        """Return the selected positions along an axis of the stored array that was not dropped."""
        places = self.cuts[axis]
        assert isinstance(places, range)
        return places

    @cached_property
    def element(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(len(self.places_along(axis)) for axis in self.order)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Lengths of the sample axes, or ``(len,)`` after a selection of rows."""
        lengths = tuple(map(len, self.grid))
        return lengths if is_all(self.rows, prod(lengths)) else (len(self),)

    @cached_property
    def spec(self) -> ArraySpec:
        return ArraySpec(self.element, self.dtype)

    # Boxes of rows --------------------------------------------------------------------------------

    @cached_property
    def extent(self) -> Extent:
        """Extent of one row."""
        extent = Extent.of([1] * len(self.cuts))
        for axis in self.order:
            places = self.places_along(axis)
            extent = extent.with_axis(axis, len(places), abs(places.step))
        return extent

    @cached_property
    def placement(self) -> Placement:
        """Mapping from the axes of the stored array to the axes of a row."""
        places = {axis: number for number, axis in enumerate(self.order)}
        flipped = [places[axis] for axis in self.order if self.places_along(axis).step < 0]
        return Placement(tuple(places.get(axis) for axis in range(len(self.cuts))), tuple(flipped))

    @cached_property
    def _corner(self) -> Ints:
        """Lowest selected position along each axis that is no sample axis, shape (N, 1)."""
        corner = np.zeros((len(self.cuts), 1), np.int64)
        for axis, places in enumerate(self.cuts):
            if places:  # not an empty range, nor position 0
                corner[axis] = places if isinstance(places, int) else min(places[0], places[-1])
        return corner

    def origins(self, positions: Ints) -> Ints:
        """Return the origins of the rows at positions, shape (n, N)."""
        # Column-major, because the origins of all rows are used one axis at a time.
        origins = self._corner.repeat(len(positions), axis=1)
        for axis, places in zip(self.axes, self.places(take(self.rows, positions)), strict=True):
            origins[axis] = places
        return origins.T

    def requests(self, positions: Ints, draw: Draw) -> tuple[ArrayRequest, ...]:
        origins, shape = self.origins(positions), (len(positions), *self.element)
        return (Request(self.source, origins, self.extent, shape, self.dtype, self.placement),)

    def places(self, numbers: Ints | int) -> list[Any]:
        """Return the positions along each sample axis of rows, from their numbers, or of one."""
        if len(self.grid) == 1:
            (places,) = self.grid
            return [numbers * places.step + places.start]
        per_axis = np.unravel_index(numbers, [len(places) for places in self.grid])
        return [take(places, indices) for places, indices in zip(self.grid, per_axis, strict=True)]

    # Chunks ---------------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> AnyBlocks:
        """Blocks of positions whose rows share a storage chunk along the sample axes.

        Regularly spaced rows along one axis of one array have blocks in closed form, and need no
        memory, if their step divides the chunk. Otherwise the chunk of each position is looked up,
        for up to `MOST_IDS` positions, or for any index array.
        """
        chunks, rows, storage = self._chunk_lengths, self.rows, self.storage
        if len(self) == 0 or max(chunks) == 1:
            return ADDRESSABLE
        has_parts = len(storage.parts) > 1 and storage.parts_axis in self.axes
        is_plain = len(chunks) == 1 and not has_parts
        if isinstance(rows, range) and (is_plain or len(self) > MOST_IDS):
            at = next(place for place, chunk in enumerate(chunks) if chunk > 1)
            places, each = self.grid[at], prod(map(len, self.grid[at + 1 :]))
            places = compose_ranges(places, rows) if len(chunks) == 1 else places[:: rows.step]
            # Blocks of one length would drift from the chunks, and each chunk be decoded twice.
            if chunks[at] % places.step == 0 or len(self) > MOST_IDS:
                length, first = _positions_per_chunk(places, chunks[at])
                return Blocks(length * each, first * each)
        found = blocks_from_ids(len(self), lambda positions: self.chunk_ids(take(rows, positions)))
        lengths = np.diff(found.begins)
        is_regular = found.order is None and (lengths[1:-1] == lengths.max()).all()
        return Blocks(int(lengths.max()), int(lengths[0])) if is_regular else found

    def chunk_ids(self, numbers: Ints) -> Ints:
        """Return a number of the chunk along the sample axes of rows, from their numbers."""
        ids = np.zeros(len(numbers), np.int64)
        storage, shape, lengths = self.storage, self.source.shape, self._chunk_lengths
        for axis, places, chunk in zip(self.axes, self.places(numbers), lengths, strict=True):
            parts = storage.parts if axis == storage.parts_axis else (0,)
            (here,), count = chunks_along(shape[axis], chunk, parts, places)
            ids = ids * count + here
        return ids

    @property
    def _chunk_lengths(self) -> list[int]:
        chunks = self.storage.chunks
        return [1] * len(self.axes) if chunks is None else [chunks[axis] for axis in self.axes]

    @cached_property
    def default_episodes(self) -> Episodes:
        """The episodes of windows that are given none."""
        from oocdata.datasets.episodes import episodes_of  # not for `import oocdata`

        return episodes_of(self, None)

    # Selections and splits ------------------------------------------------------------------------

    def _select(self, positions: Selection) -> Self:
        return replace(self, rows=select(self.rows, positions))

    def _row_positions(self, at: int) -> Selection:
        shape = self.sample_shape
        if len(shape) == 1:
            return range(len(self))
        along = np.repeat(np.arange(shape[at]), prod(shape[at + 1 :]))
        return np.tile(along, prod(shape[:at]))

    def _arrays(self) -> tuple[Hashable, ...]:
        files, arrays = self.storage.row_files, arrays_of(self.source)
        values = set(arrays_of(self.source, values=True))
        twice = repeats(self.rows) or len(set(files)) < len(files)
        return (*arrays * (2 if twice else 1), *values.difference(arrays))

    def _rows(self, positions: Selection, *, ids: bool = False) -> Iterator[Rows]:
        yield Rows(self, positions, range(len(positions)))

    _elements_are_rows = True

    def _select_along(self, at: int, places: range) -> Self:
        axis, chosen = self.axes[at], compose_ranges(self.grid[at], places)
        view = replace(self, cuts=(*self.cuts[:axis], chosen, *self.cuts[axis + 1 :]))
        return replace(view, rows=range(prod(map(len, view.grid))))

    @property
    def _axes_of_rows(self) -> int:
        return len(self.axes)

    def _sample_axis_number(self, axis: int | str) -> int:
        numbers = axis_numbers(axis, len(self.source.shape), self.storage)
        if len(numbers) != 1 or numbers[0] not in self.axes:
            raise ArgumentError(f"`axis` must be one of the sample axes {self.axes}; got {axis!r}.")
        return self.axes.index(numbers[0])


def _positions_per_chunk(places: range, chunk: int) -> tuple[int, int]:
    """Return the number of positions in a chunk along an axis, and in the first chunk."""
    step, within = places.step, places.start % chunk
    left = (within if step < 0 else chunk - 1 - within) // abs(step) + 1
    length = max(1, chunk // abs(step))
    return length, min(left, length)
