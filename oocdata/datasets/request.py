"""A request: the boxes that one array of a batch is made of, and how they lie in it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.buffers import empty, empty_parts
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError

__all__ = ["Placement", "Request"]


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
        """Return the view of a batch whose axes are those of storage, shape (n, *lengths)."""
        if self.is_plain:
            return out.reshape((len(out), *lengths))
        if self.flipped:
            whole, reverse = slice(None), slice(None, None, -1)
            turned = [reverse if axis in self.flipped else whole for axis in range(out.ndim - 1)]
            out = out[(whole, *turned)]
        moved = out.transpose(0, *[axis + 1 for axis in self.kept])
        return moved[(slice(None), *[None if axis is None else slice(None) for axis in self.axes])]


@dataclass(frozen=True)
class Request:
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
    def nbytes(self) -> int:
        """Bytes of the batch's array."""
        return prod(self.shape) * self.dtype.itemsize

    def read(self) -> Any:
        """Read the boxes into fresh memory, and return it as the batch's array."""
        out = empty(self.shape, self.dtype)
        self.read_into(out)
        return out

    def read_parts(self, lengths: list[int], number: int) -> list[Any]:
        """Read boxes at once, into an array of its own for each batch; see `empty_parts`."""
        shapes = [(length, *self.shape[1:]) for length in lengths]
        whole, parts = empty_parts(shapes, self.dtype, number)
        if whole is not None:
            self.read_into(whole)
            return list(parts)
        scratch = empty(self.shape, self.dtype)
        self.read_into(scratch)
        stops = itertools.accumulate(lengths)
        for part, stop in zip(parts, stops, strict=True):
            part[...] = scratch[stop - len(part) : stop]
        return list(parts)

    def read_into(self, out: NDArray[Any]) -> None:
        """Read the boxes into memory of this shape and dtype, C-contiguous."""
        if out.size == 0:
            return
        numbering = out.ndim - len(self.placement.kept)
        if numbering != 1:
            out = out.reshape(-1, *self.shape[numbering:])
        stored = self.placement.stored(out, self.extent.lengths)
        self.source.read(self.origins, self.extent, stored)

    def crop(
        self, axes: tuple[int, ...], size: tuple[int, ...], offsets: NDArray[np.int64]
    ) -> Request:
        """Return the request for a part of each element, of a size that fits.

        Axes are counted from the element's end; offsets, shape (elements, len(axes)), are the first
        places kept.
        """
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
