"""Define batches and requests of sparse and ragged rows, which are several arrays.

Some of these are as long as the number of values, which is known only after the rows are located.
So a `MultiArrayRequest` first locates its rows, then writes them into batches; rows of several
requests are joined in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocdata.box import Ints
from oocdata.datasets.dataset import Draw
from oocdata.datasets.request import ArrayRequest, Composite, Request, singles_of
from oocdata.datasets.view import View
from oocdata.engines.buffers import empty_parts, rounded_size

_ALIGNED = 64
"""A number of values that takes a multiple of `buffers.ALIGNMENT` bytes in any dtype."""


class MultiArrayBatch(ABC):
    """A batch that consists of several arrays."""

    __slots__ = ()

    @property
    @abstractmethod
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The arrays of which TensorFlow makes a tensor."""

    @abstractmethod
    def __len__(self) -> int: ...


def aligned_length(numbers: int) -> int:
    """Return a number of values, rounded up to an aligned size."""
    return -(-numbers // _ALIGNED) * _ALIGNED


def allocate(
    sizes: Sequence[int], inner: tuple[int, ...], dtype: DTypeLike
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Allocate arrays of different lengths, one for each batch that is read together.

    Each array is the start of a region as long as the longest, so that the regions are tensors of
    one shape. A single batch gets no extra memory, because TensorFlow copies a slice of a tensor
    that does not end at an aligned address. Also returns all regions as one array, for writing into
    all batches at once; drop it afterwards. `inner` is the shape of a value.
    """
    room = sizes[0] if len(sizes) == 1 else aligned_length(max(sizes, default=0))
    nbytes = len(sizes) * room * prod(inner) * np.dtype(dtype).itemsize
    whole, parts = empty_parts([(room, *inner)] * len(sizes), dtype, rounded_size(nbytes))
    if whole is None:  # no values, or objects
        whole = np.empty((room * len(sizes), *inner), dtype)
        parts = [whole[at * room : (at + 1) * room] for at in range(len(sizes))]
    return whole, [part[:size] for part, size in zip(parts, sizes, strict=True)]


@dataclass(frozen=True)
class MultiArrayRequest(Composite):
    """A request for rows whose batch is several arrays, or an array of data-dependent shape.

    Members are requests of rows of one or several views, with their places; `view` is the first of
    these views, which makes batches of the rows of all.
    """

    members: tuple[tuple[Request, Ints], ...]
    view: MultiArrayView

    def read(self) -> Any:
        (batch,) = self.read_parts([self.shape[0]])
        return batch

    def read_parts(self, lengths: list[int], room: int = 0) -> list[Any]:
        return self.view.read_batches(self.members, lengths)


@dataclass(frozen=True, eq=False, repr=False)
class MultiArrayView(View):
    """A view of rows whose batch is several arrays, or an array of data-dependent shape."""

    is_multi_array = True

    @abstractmethod
    def read_batches(
        self, members: Sequence[tuple[Request, Ints]], lengths: list[int]
    ) -> list[Any]:
        """Return batches of the given numbers of rows, read at once; see `read_parts`.

        `members` are requests of rows, with their places among the rows of all batches.
        """

    def requests(self, positions: Ints, draw: Draw) -> tuple[ArrayRequest, ...]:
        (request,) = singles_of(super().requests(positions, draw))
        members = ((request, np.arange(len(positions))),)
        return (MultiArrayRequest(members, request.shape, request.dtype, self),)

    def __getitem__(self, key: Any) -> Any:
        return self.take([key])[0] if type(key) is int else super().__getitem__(key)


def join_requests(requests: Sequence[ArrayRequest], where: Sequence[Ints]) -> ArrayRequest:
    """Return one request for the elements of several, which each have some places of a batch."""
    first = requests[0]
    shape = (sum(map(len, where)), *first.shape[1:])
    if not isinstance(first, MultiArrayRequest):
        if len(requests) == 1:
            return first
        return Composite(tuple(zip(requests, where, strict=True)), shape, first.dtype)
    members = [
        (member, places[own])
        for request, places in zip(requests, where, strict=True)
        for member, own in request.members  # type: ignore[attr-defined]  # as the first
    ]
    return replace(first, members=tuple(members), shape=shape)
