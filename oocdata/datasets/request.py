"""A request: what one array of a batch is made of, and how that lies in it.

Of one source (`Request`: boxes), or of several, each of which fills some places of the batch
(`Composite`).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.buffers import Read, empty, empty_parts
from oocdata.engines.places import read_to
from oocdata.engines.soon import Asks, asked, soon
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError
from oocdata.threads import cached_property

__all__ = ["ArrayRequest", "Composite", "Placement", "Request", "asked_for", "of_sources"]


@dataclass(frozen=True)
class Placement:
    """Where the axes of storage lie in an element as delivered.

    Attributes
    ----------
    axes : tuple of int or None
        For each axis of storage the element's axis that it becomes; None for one of length 1 that
        is left out.
    flipped : tuple of int
        Axes of the element that are delivered in reverse.
    """

    axes: tuple[int | None, ...]
    flipped: tuple[int, ...] = ()

    @cached_property
    def kept(self) -> list[int]:
        """The axes of the element in the order of storage."""
        return [axis for axis in self.axes if axis is not None]

    @cached_property
    def is_plain(self) -> bool:
        """Whether the element has the order of storage, so that adding axes of length 1 is all."""
        return not self.flipped and self.kept == sorted(self.kept)

    def stored(self, out: NDArray[Any], lengths: tuple[int, ...]) -> NDArray[Any]:
        """Return the view of a batch whose axes are those of storage, shape (n, *lengths).

        Where boxes are numbered by several axes, n counts all of them.
        """
        if self.is_plain:
            return out.reshape((-1, *lengths))
        numbering = out.ndim - len(self.kept)
        if numbering != 1:
            out = out.reshape(-1, *out.shape[numbering:])
        if self.flipped:
            whole, reverse = slice(None), slice(None, None, -1)
            turned = [reverse if axis in self.flipped else whole for axis in range(out.ndim - 1)]
            out = out[(whole, *turned)]
        moved = out.transpose(0, *[axis + 1 for axis in self.kept])
        return moved[(slice(None), *[None if axis is None else slice(None) for axis in self.axes])]


class ArrayRequest(ABC):
    """What one array of a batch is made of.

    Attributes
    ----------
    shape : tuple of int
        Of the batch's array.
    dtype : numpy.dtype
        As delivered.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    @abstractmethod
    def sources(self) -> tuple[Request, ...]:
        """The requests that it is made of, each of one source."""

    @property
    def nbytes(self) -> int:
        """Bytes of the batch's array."""
        return prod(self.shape) * self.dtype.itemsize

    def read(self) -> Any:
        """Read into fresh memory, and return it as the batch's array."""
        out = empty(self.shape, self.dtype)
        self.read_into(out)
        return out

    def read_parts(self, lengths: list[int], read: Read, room: int = 0) -> list[Any]:
        """Read at once, into an array of its own for each batch; see `empty_parts`.

        They lie in memory for `room` elements, if those are more.
        """
        shapes = [(length, *self.shape[1:]) for length in lengths]
        nbytes = room * prod(self.shape[1:]) * self.dtype.itemsize
        whole, parts = empty_parts(shapes, self.dtype, read, nbytes)
        if whole is not None:
            self.read_into(whole)
            return list(parts)
        scratch = empty(self.shape, self.dtype)
        self.read_into(scratch)
        stops = itertools.accumulate(lengths)
        for part, stop in zip(parts, stops, strict=True):
            part[...] = scratch[stop - len(part) : stop]
        return list(parts)

    @abstractmethod
    def read_into(self, out: NDArray[Any]) -> None:
        """Read into memory of this shape and dtype, C-contiguous."""

    @abstractmethod
    def read_to(self, out: NDArray[Any], places: NDArray[np.int64]) -> None:
        """Read element i into ``out[places[i]]`` of a larger batch; `places` ascend."""

    @abstractmethod
    def crop(
        self, axes: tuple[int, ...], size: tuple[int, ...], offsets: NDArray[np.int64]
    ) -> Self:
        """Return the request for a part of each element, of a size that fits.

        Axes are counted from the element's end; offsets, shape (elements, len(axes)), are the first
        places kept.
        """


@dataclass(frozen=True)
class Request(ArrayRequest):
    """Boxes wanted of one source.

    Attributes
    ----------
    source : Source
    origins : ndarray of int64, shape (boxes, N)
    extent : Extent
    shape : tuple of int
        Of the batch's array. Its first axes number the boxes: one axis, or (element, time) where
        each row of a window is a box of its own.
    dtype : numpy.dtype
        As delivered.
    placement : Placement
    """

    source: Source
    origins: NDArray[np.int64]
    extent: Extent
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    placement: Placement

    @property
    def sources(self) -> tuple[Request, ...]:
        """The request itself."""
        return (self,)

    def read_into(self, out: NDArray[Any]) -> None:
        """Read the boxes into memory of this shape and dtype, C-contiguous."""
        if out.size == 0:
            return
        stored = self.placement.stored(out, self.extent.lengths)
        self.source.read(self.origins, self.extent, stored)

    def read_to(self, out: NDArray[Any], places: NDArray[np.int64]) -> None:
        """Read the boxes of element i into ``out[places[i]]``; `places` ascend."""
        if out.size == 0:
            return
        each = len(self.origins) // max(1, self.shape[0])
        if each != 1:  # each row of a window is a box of its own
            places = (places[:, None] * each + np.arange(each)).ravel()
        stored = self.placement.stored(out, self.extent.lengths)
        read_to(self.source, self.origins, self.extent, stored, places)

    def crop(
        self, axes: tuple[int, ...], size: tuple[int, ...], offsets: NDArray[np.int64]
    ) -> Self:
        """Return the request for a part of each element; see `ArrayRequest.crop`."""
        shape, origins, extent = list(self.shape), self.origins.copy(), self.extent
        ndim = len(self.placement.kept)
        each = np.repeat(offsets, len(origins) // max(1, len(offsets)), axis=0)
        for axis, length, offset in zip(axes, size, each.T, strict=True):
            if -axis > ndim:
                raise ArgumentError(
                    f"`axes` must be axes of the element, which has {ndim}; got {axis}."
                )
            stored = self.placement.axes.index(ndim + axis)
            whole, stride = extent.lengths[stored], extent.strides[stored]
            if ndim + axis in self.placement.flipped:
                offset = whole - length - offset
            origins[:, stored] += offset * stride
            extent = extent.with_axis(stored, length, stride)
            shape[axis] = length
        return replace(self, origins=origins, extent=extent, shape=tuple(shape))


@dataclass(frozen=True)
class Composite(ArrayRequest):
    """Several requests, each of which fills some places of the batch.

    Attributes
    ----------
    members : tuple of (request, places)
        Places ascend, and all of them together are those of the batch, each once. The requests are
        alike in dtype and in shape but for their length.
    shape : tuple of int
    dtype : numpy.dtype
    """

    members: tuple[tuple[ArrayRequest, NDArray[np.int64]], ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def sources(self) -> tuple[Request, ...]:
        """The requests of all members, each of one source."""
        return tuple(of_sources(request for request, _ in self.members))

    def read_into(self, out: NDArray[Any]) -> None:
        """Read each member into its places."""
        for request, places in self.members:
            request.read_to(out, places)

    def read_to(self, out: NDArray[Any], places: NDArray[np.int64]) -> None:
        """Read each member into its places among these."""
        for request, own in self.members:
            request.read_to(out, places[own])

    def crop(
        self, axes: tuple[int, ...], size: tuple[int, ...], offsets: NDArray[np.int64]
    ) -> Self:
        """Return the request for a part of each element; see `ArrayRequest.crop`."""
        members = tuple(
            (request.crop(axes, size, offsets[places]), places) for request, places in self.members
        )
        shape = (self.shape[0], *members[0][0].shape[1:])
        return replace(self, members=members, shape=shape)


def asked_for(requests: Iterable[ArrayRequest]) -> AbstractContextManager[Sequence[Asks]]:
    """Have what requests take out of stores under way for as long as a block takes."""
    each = of_sources(requests)
    return asked(one for own in each for one in soon(own.source, own.origins, own.extent))


def of_sources(requests: Iterable[ArrayRequest]) -> list[Request]:
    """Return the requests of one source each that requests are made of."""
    return [one for request in requests for one in request.sources]
