"""Several sources end to end along one axis, as one array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.buffers import empty
from oocdata.engines.source import Annotations, Source, Storage
from oocdata.errors import MismatchedPartsError

__all__ = ["Concat", "concatenate"]

_SCRATCH_BYTES = 4 << 20


class Concat:
    """Sources end to end.

    Parameters
    ----------
    parts : tuple of Source
        Alike but for their length along the axis, which is not 0.
    axis : int
        Of the array as stored.
    """

    def __init__(self, parts: tuple[Source, ...], axis: int) -> None:
        self.parts, self.axis = parts, axis
        lengths = np.array([part.shape[axis] for part in parts], np.int64)
        self._ends = lengths.cumsum()
        self._starts = self._ends - lengths
        shape = list(parts[0].shape)
        shape[axis] = int(self._ends[-1])
        self.shape, self.dtype = tuple(shape), parts[0].dtype

    def __reduce__(self) -> tuple[type[Concat], tuple[tuple[Source, ...], int]]:
        return (Concat, (self.parts, self.axis))

    def storage(self) -> Storage:
        """Return the first part's storage, with what all parts have together."""
        return self._storage

    @cached_property
    def _storage(self) -> Storage:
        each = [part.storage() for part in self.parts]
        sizes = [one.stored_bytes for one in each]
        chunks = [one.chunks for one in each if one.chunks is not None]
        return replace(
            each[0],
            path=f"{each[0].path or 'memory'} and {len(each) - 1} more",
            stored_bytes=None if None in sizes else sum(size or 0 for size in sizes),
            chunks=tuple(map(max, zip(*chunks, strict=True))) if chunks else None,
            chunk_bytes=max((one.chunk_bytes or 0 for one in each), default=0) or None,
            strides=None,
            parts=tuple(self._starts.tolist()),
            parts_axis=self.axis,
            dimensions=_common_names([one.dimensions for one in each]),
            files=tuple(dict.fromkeys(file for one in each for file in one.files)),
            version="".join(one.version for one in each),
            opened=_opened([one.opened for one in each]),
            table_bytes=sum(one.table_bytes for one in each),
            annotations=partial(_common, each),
        )

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        axis = self.axis
        first = origins[:, axis]
        owners = self._ends.searchsorted(first, side="right")
        span = extent.spans[axis]
        if span > 1:
            crossing = (first + span > self._ends[owners]).nonzero()[0]
            if len(crossing):
                for box in crossing.tolist():
                    self._read_across(origins[box], extent, out[box : box + 1])
                owners[crossing] = -1
        for part, places, moved in self._shares(owners, origins):
            _read_to(part, moved, extent, out, places)

    def shares(
        self, origins: NDArray[np.int64]
    ) -> Iterator[tuple[Source, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield parts, which of the boxes begin in each, and their origins there."""
        return self._shares(self._ends.searchsorted(origins[:, self.axis], side="right"), origins)

    def _shares(
        self, owners: NDArray[np.int64], origins: NDArray[np.int64]
    ) -> Iterator[tuple[Source, NDArray[np.int64], NDArray[np.int64]]]:
        order = owners.argsort(kind="stable")
        ordered = owners[order]
        borders = (ordered[1:] != ordered[:-1]).nonzero()[0] + 1
        for places in np.split(order, borders.tolist()):
            if len(places) and owners[places[0]] >= 0:
                owner = int(owners[places[0]])
                moved = origins[places]
                moved[:, self.axis] -= self._starts[owner]
                yield self.parts[owner], places, moved

    def _read_across(self, origin: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Read one box that lies in several parts, from each what it holds."""
        axis, stride, length = self.axis, extent.strides[self.axis], extent.lengths[self.axis]
        done = 0
        while done < length:
            place = int(origin[axis]) + done * stride
            owner = int(self._ends.searchsorted(place, side="right"))
            left = -(-(int(self._ends[owner]) - place) // stride)
            stop = min(length, done + left)
            moved = origin[None].copy()
            moved[0, axis] = place - int(self._starts[owner])
            cut = (*[slice(None)] * (axis + 1), slice(done, stop))
            part = extent.with_axis(axis, stop - done, stride)
            self.parts[owner].read(moved, part, out[cut])
            done = stop


def _read_to(
    part: Source,
    origins: NDArray[np.int64],
    extent: Extent,
    out: NDArray[Any],
    places: NDArray[np.int64],
) -> None:
    """Write ``out[places[i]] = the box at origins[i]``; `places` in order."""
    first, last = int(places[0]), int(places[-1]) + 1
    if last - first == len(places):
        part.read(origins, extent, out[first:last])
        return
    nbytes = extent.size * out.itemsize
    count = max(1, min(len(places), _SCRATCH_BYTES // nbytes))
    scratch = empty((count, *extent.lengths), out.dtype)
    for start in range(0, len(places), count):
        some = places[start : start + count]
        part.read(origins[start : start + count], extent, scratch[: len(some)])
        out[some] = scratch[: len(some)]


def _opened(each: list[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
    """Return how to open the parts again as one: a list of files, or of datasets of one file."""
    if any(one is None or not isinstance(one.get("target"), str) for one in each):
        return None
    known: list[Mapping[str, Any]] = [one for one in each if one is not None]
    first = known[0]
    for name in ("target", "key"):
        rest = {other: value for other, value in first.items() if other != name}
        if all({o: v for o, v in one.items() if o != name} == rest for one in known):
            return {**first, name: [one.get(name) for one in known]}
    return None


def _common_names(each: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names that axes have in all parts; empty for an axis that has none such."""
    if not all(each):
        return ()
    names = tuple("" if len(set(same)) > 1 else same[0] for same in zip(*each, strict=True))
    return names if any(names) else ()


def _common(each: list[Storage]) -> Annotations:
    """Return what is said of all parts; None for what is not said of each, or not the same."""
    said = [one.annotations() for one in each]
    first = said[0]
    names = dict.fromkeys(name for one in said for name in one.attributes)
    return Annotations(
        {name: _agreed([one.attributes.get(name) for one in said]) for name in names},
        _agreed([one.fill_value for one in said]) if first.fill_value is not None else None,
    )


def _agreed(values: list[Any]) -> Any:
    """Return the value that all are; None where they differ."""
    return values[0] if all(_same(one, values[0]) for one in values) else None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray | np.generic) or isinstance(other, np.ndarray | np.generic):
        first, second = np.asarray(one), np.asarray(other)
        numbers = first.dtype.kind in "fc" and second.dtype.kind in "fc"
        return bool(np.array_equal(first, second, equal_nan=numbers))
    return bool(one == other or (one != one and other != other))


def concatenate(sources: Sequence[Source], axis: int) -> Source:
    """Return sources end to end as one.

    Parameters
    ----------
    sources : sequence of Source
        At least one.
    axis : int
        Of the arrays as stored.

    Raises
    ------
    oocdata.errors.MismatchedPartsError
        If shapes besides the axis or dtypes differ, or how the numbers are packed; the message
        names the first part that differs.
    """
    first = sources[0]
    if len(sources) == 1:
        return first
    for number, part in enumerate(sources):
        if _beside(part.shape, axis) != _beside(first.shape, axis) or part.dtype != first.dtype:
            where = part.storage()
            raise MismatchedPartsError(
                f"parts must have one dtype, and one shape besides axis {axis}; part 0 has "
                f"{first.shape} {first.dtype}, part {number} has {part.shape} {part.dtype}. "
                "Open them one by one and use `.astype`, or leave that one out.",
                path=where.path,
                key=where.key,
            )
    packed = first.storage().packed
    for number, part in enumerate(sources):
        where = part.storage()
        if where.packed != packed:
            raise MismatchedPartsError(
                "parts must hold numbers that are packed alike, because they are delivered as "
                f"stored; part 0 has {packed or 'none packed'}, part {number} has "
                f"{where.packed or 'none packed'}. Open them through xarray, which unpacks them: "
                "ooc.open([xarray.open_dataset(path)['name'] for path in paths]).",
                path=where.path,
                key=where.key,
            )
    flat = [
        one
        for part in sources
        for one in (part.parts if isinstance(part, Concat) and part.axis == axis else (part,))
    ]
    # A part without rows owns nothing, and would share its start with the next.
    filled = tuple(part for part in flat if part.shape[axis])
    return Concat(filled, axis) if len(filled) > 1 else (filled or (first,))[0]


def _beside(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :] if axis < len(shape) else (len(shape),)
