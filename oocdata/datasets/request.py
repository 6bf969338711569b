"""Define requests: the boxes of sources that one array of a batch consists of.

A `Request` reads boxes of one source; a `Composite` fills a batch from several requests.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.buffers import empty, empty_parts
from oocdata.engines.copying import copy_reordered, read_to
from oocdata.engines.prefetch import Fetch, Link, fetches, prefetched
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError
from oocdata.threads import cached_property


@dataclass(frozen=True)
class Placement:
    """Mapping from the axes of a stored array to the axes of an element.

    `axes` has for each stored axis the axis of the element, None for a dropped axis of length 1;
    `flipped` the axes of the element that are delivered in reverse.
    """

    axes: tuple[int | None, ...]
    flipped: tuple[int, ...] = ()

    @cached_property
    def delivered_axes(self) -> list[int]:
        """Axes of the element, in the order of storage."""
        return [axis for axis in self.axes if axis is not None]

    @cached_property
    def is_plain(self) -> bool:
        """Whether a batch needs no transposing or flipping, only axes of length 1."""
        return not self.flipped and self.delivered_axes == sorted(self.delivered_axes)

    def stored(self, out: NDArray[Any], lengths: tuple[int, ...]) -> NDArray[Any]:
        """Return the view of a batch in the axes of storage, shape (n, *lengths).

        `n` is the product of all leading axes of the batch that number boxes.
        """
        if self.is_plain:
            return out.reshape((-1, *lengths))
        leading = out.ndim - len(self.delivered_axes)
        if leading != 1:
            out = out.reshape(-1, *out.shape[leading:])
        if self.flipped:
            forwards, backwards = slice(None), slice(None, None, -1)
            axes = range(out.ndim - 1)
            flips = [backwards if axis in self.flipped else forwards for axis in axes]
            out = out[(forwards, *flips)]
        out = out.transpose(0, *[axis + 1 for axis in self.delivered_axes])
        return out[(slice(None), *[None if axis is None else slice(None) for axis in self.axes])]


class ArrayRequest(ABC):
    """A request for one array of a batch, with its shape, and its dtype as delivered."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    @abstractmethod
    def singles(self) -> tuple[Request, ...]:
        """The requests of one source each that this one consists of."""

    @property
    def nbytes(self) -> int:
        """Size of the batch's array, in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    def read(self) -> Any:
        """Read into new memory, and return the batch's array."""
        out = empty(self.shape, self.dtype)
        self.read_to(out)
        return out

    def read_parts(self, lengths: list[int], room: int = 0) -> list[Any]:
        """Read several batches at once, each into its own array; see `empty_parts`.

        The memory has space for at least `room` elements.
        """
        whole, parts = self.empty_parts(lengths, room)
        if whole is not None:
            self.read_to(whole)
            return list(parts)
        scratch = empty(self.shape, self.dtype)
        self.read_to(scratch)
        stops = itertools.accumulate(lengths)
        for part, stop in zip(parts, stops, strict=True):
            part[...] = scratch[stop - len(part) : stop]
        return list(parts)

    def empty_parts(self, lengths: list[int], room: int) -> tuple[Any, Sequence[Any]]:
        """Return memory for several batches; see `oocdata.engines.buffers.empty_parts`."""
        shapes = [(length, *self.shape[1:]) for length in lengths]
        nbytes = room * prod(self.shape[1:]) * self.dtype.itemsize
        return empty_parts(shapes, self.dtype, nbytes)

    @abstractmethod
    def read_to(self, out: NDArray[Any], places: Ints | None = None) -> None:
        """Read element i into ``out[places[i]]``, or without places into ``out[i]``.

        `out` is C-contiguous memory of this dtype, and `places` ascend.
        """

    @abstractmethod
    def crop(self, axes: tuple[int, ...], size: tuple[int, ...], offsets: Ints) -> Self:
        """Return the request for a crop of each element, whose size must fit.

        Negative `axes` count from the element's end. `offsets`, shape (elements, len(axes)), are
        the starts of the crops.
        """


@dataclass(frozen=True)
class Request(ArrayRequest):
    """A request for boxes of one source, with origins of shape (boxes, N).

    Boxes are numbered by the first axis of `shape`, or by the first two (element, time) if each row
    of a window is a separate box.
    """

    source: Source
    origins: Ints
    extent: Extent
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    placement: Placement

    @property
    def singles(self) -> tuple[Request, ...]:
        return (self,)

    def read_to(self, out: NDArray[Any], places: Ints | None = None) -> None:
        if out.size == 0:
            return
        stored = self.placement.stored(out, self.extent.lengths)
        if places is None:
            self.source.read(self.origins, self.extent, stored)
            return
        boxes = len(self.origins) // max(1, self.shape[0])
        if boxes != 1:  # each row of a window is a separate box
            places = (places[:, None] * boxes + np.arange(boxes)).ravel()
        read_to(self.source, self.origins, self.extent, stored, places)

    def crop(self, axes: tuple[int, ...], size: tuple[int, ...], offsets: Ints) -> Self:
        axes = tuple(axis if axis < 0 else axis + 1 - len(self.shape) for axis in axes)
        extent, moves = _cropped(self.extent, self.placement, axes, size)
        shape, origins = list(self.shape), self.origins.copy()
        each = len(origins) // max(1, len(offsets))
        if each != 1:
            offsets = np.repeat(offsets, each, axis=0)
        for axis, (length, stored, first, step), offset in zip(axes, moves, offsets.T, strict=True):
            origins[:, stored] += offset * step + first
            shape[axis] = length
        source, dtype, placement = self.source, self.dtype, self.placement
        return type(self)(source, origins, extent, tuple(shape), dtype, placement)


@lru_cache(64)
def _cropped(
    extent: Extent, placement: Placement, axes: tuple[int, ...], size: tuple[int, ...]
) -> tuple[Extent, list[tuple[int, int, int, int]]]:
    """Return the extent of crops; and for each axis their length, and how offsets move origins.

    That is the stored axis, what is added for offset 0, and the step from offset to offset.
    """
    ndim, moves = len(placement.delivered_axes), []
    for axis, length in zip(axes, size, strict=True):
        if -axis > ndim:
            raise ArgumentError(
                f"`axes` must be axes of the element, which has {ndim}; got {axis}."
            )
        stored = placement.axes.index(ndim + axis)
        whole, stride = extent.lengths[stored], extent.strides[stored]
        first, step = 0, stride
        if ndim + axis in placement.flipped:
            first, step = (whole - length) * stride, -stride
        moves.append((length, stored, first, step))
        extent = extent.with_axis(stored, length, stride)
    return extent, moves


@dataclass(frozen=True)
class Composite(ArrayRequest):
    """Several requests that each fill some places of a batch: (request, places).

    Places ascend; together they are all places of the batch, each once. The requests have equal
    dtypes and, except for their length, equal shapes.
    """

    members: tuple[tuple[ArrayRequest, Ints], ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def singles(self) -> tuple[Request, ...]:
        return tuple(singles_of(request for request, _ in self.members))

    def read_to(self, out: NDArray[Any], places: Ints | None = None) -> None:
        for request, own in self.members:
            request.read_to(out, own if places is None else places[own])

    def crop(self, axes: tuple[int, ...], size: tuple[int, ...], offsets: Ints) -> Self:
        members = tuple(
            (request.crop(axes, size, offsets[places]), places) for request, places in self.members
        )
        shape = (self.shape[0], *members[0][0].shape[1:])
        return replace(self, members=members, shape=shape)


def read_columns(
    requests: Sequence[ArrayRequest], lengths: list[int], room: int = 0
) -> Iterator[list[Any]]:
    """Read several batches at once; yield those of each request, as `ArrayRequest.read_parts` does.

    Boxes that are part of another request's are copied from its arrays, which are read before.
    PDEBench's fields, whose inputs are the first 10 of 21 steps, come 1.6 times as fast by `to_tf`.
    """
    found: dict[int, list[Any]] = {}
    for number, request in enumerate(requests):
        regions = ((other, _region(request, larger)) for other, larger in enumerate(requests))
        other, region = next((pair for pair in regions if pair[1] is not None), (number, None))
        if region is not None:  # memory first, in the order in which the next read needs it too
            parts = list(request.empty_parts(lengths, room)[1])
        if other not in found:
            found[other] = requests[other].read_parts(lengths, room)
        if region is not None:
            for part, whole in zip(parts, found[other], strict=True):
                copy_reordered(whole[region], part)
            found[number] = parts
        yield found[number]


def _region(request: ArrayRequest, larger: ArrayRequest) -> tuple[slice, ...] | None:
    """Return the part of the elements of `larger` that those of a request are, or None.

    Each element is one box. Bytes of a store are not copied, because they were requested for both.
    """
    if not (
        isinstance(request, Request)
        and isinstance(larger, Request)
        and request.source is larger.source
        and request.placement == larger.placement
        and not request.placement.flipped
        and request.dtype == larger.dtype
        and 0 < request.nbytes < larger.nbytes
        and len(request.shape) == len(larger.shape)
        and len(request.origins) == request.shape[0] == len(larger.origins)
        and not request.source.storage().is_remote
    ):
        return None
    moves = request.origins - larger.origins
    if (moves != moves[0]).any():
        return None
    region = [slice(None)] * len(request.shape)  # a time axis of one row is no axis of the box
    first = len(request.shape) - len(request.placement.delivered_axes)
    boxes = (
        zip(each.lengths, each.strides, strict=True) for each in (request.extent, larger.extent)
    )
    axes = zip(request.placement.axes, moves[0].tolist(), *boxes, strict=True)
    for axis, move, (length, step), (whole, stride) in axes:
        start, rest = divmod(move, stride)
        if rest or (step != stride and length > 1) or not 0 <= start <= whole - length:
            return None
        if axis is not None:
            region[axis + first] = slice(start, start + length)
    return tuple(region)


def prefetching(requests: Iterable[ArrayRequest]) -> AbstractContextManager[Sequence[Link]]:
    """Return a context in which the bytes that requests need from stores are being fetched."""
    return prefetched(stored_reads(requests))


def stored_reads(requests: Iterable[ArrayRequest]) -> list[Fetch]:
    """Return what requests read from stores."""
    return [
        fetch
        for request in singles_of(requests)
        for fetch in fetches(request.source, request.origins, request.extent)
    ]


def singles_of(requests: Iterable[ArrayRequest]) -> list[Request]:
    """Return the requests of one source each that requests consist of."""
    return [one for request in requests for one in request.singles]
