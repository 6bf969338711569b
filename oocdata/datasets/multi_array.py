"""Define batches and requests of sparse and ragged rows, which are several arrays.

Such a batch takes the place of an array in the tree of a batch. Some of its arrays are as long as
the number of values, which is known only after the rows are located. So a `MultiArrayRequest` first
locates its rows, then writes them into batches; rows of several requests are joined in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocdata.datasets.dataset import Dataset, Draw, fields_of
from oocdata.datasets.request import ArrayRequest, Composite, Request
from oocdata.datasets.spec import Spec, align, leaves, map_tree
from oocdata.datasets.view import View
from oocdata.engines.buffers import Read, empty_parts
from oocdata.errors import ArgumentError

__all__ = [
    "MultiArrayBatch", "MultiArrayRequest", "MultiArrayView", "aligned_length", "allocate",
    "join_requests", "multi_array_requests", "placeholder_if_multi_array",
]  # fmt: skip

_ALIGNED = 64
"""A number of values that takes a multiple of `buffers.ALIGNMENT` bytes in any dtype."""


class MultiArrayBatch(ABC):
    """A batch that consists of several arrays."""

    __slots__ = ()

    @property
    @abstractmethod
    def value_arrays(self) -> tuple[NDArray[Any], ...]:
        """Arrays that are as long as the number of values."""

    @property
    @abstractmethod
    def layout_array(self) -> NDArray[np.int64]:
        """The array that describes the others; its shape depends only on the number of rows."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def rows(self, start: int, stop: int) -> Self:
        """Return a range of rows, copied."""


def aligned_length(numbers: int) -> int:
    """Return a number of values, rounded up to an aligned size.

    Examples
    --------
    >>> aligned_length(3), aligned_length(128)
    (64, 128)
    """
    return -(-numbers // _ALIGNED) * _ALIGNED


def allocate(
    sizes: Sequence[int], inner: tuple[int, ...], dtype: DTypeLike, read: Read
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Allocate arrays of different lengths, one for each batch that is read together.

    Each array is the start of a region as long as the longest, so that the regions are tensors of
    one shape. A single batch gets no extra memory, because TensorFlow copies a slice of a tensor
    that does not end at an aligned address. Also returns all regions as one array, for writing into
    all batches at once; drop it afterwards. `inner` is the shape of a value.
    """
    room = sizes[0] if len(sizes) == 1 else aligned_length(max(sizes, default=0))
    whole, parts = empty_parts([(room, *inner)] * len(sizes), dtype, read)
    if whole is None:  # no values, or objects
        whole = np.empty((room * len(sizes), *inner), dtype)
        parts = [whole[at * room : (at + 1) * room] for at in range(len(sizes))]
    return whole, [part[:size] for part, size in zip(parts, sizes, strict=True)]


class MultiArrayRequest(ArrayRequest):
    """A request for rows whose batch is several arrays, or an array of data-dependent shape."""

    @abstractmethod
    def locate(self) -> Any:
        """Locate the rows, and find their lengths."""

    @abstractmethod
    def join(self, shares: Sequence[tuple[Any, NDArray[np.int64]]], rows: int) -> Any:
        """Return the located rows of several requests as one, by their places among all rows."""

    @abstractmethod
    def make_batches(self, located: Any, lengths: list[int], read: Read) -> list[Any]:
        """Return batches of the given numbers of rows, read from located rows; see `read_parts`."""

    @property
    def padding(self) -> str:
        """Description of the padding, if any; requests with different padding can't be joined."""
        return ""

    def read(self) -> Any:
        """Read as one batch."""
        (batch,) = self.read_parts([self.shape[0]], Read())
        return batch

    def read_parts(self, lengths: list[int], read: Read, room: int = 0) -> list[Any]:
        """Read several batches at once; see `ArrayRequest.read_parts`."""
        return self.make_batches(self.locate(), lengths, read)


@dataclass(frozen=True, eq=False, repr=False)
class MultiArrayView(View):
    """A view of rows whose batch is several arrays, or an array of data-dependent shape."""

    _request: ClassVar[type[Request]]
    """A `MultiArrayRequest` with the fields that the subclass adds to `View`."""

    is_multi_array = True

    def requests(self, positions: NDArray[np.int64], draw: Draw) -> tuple[Request, ...]:
        """Return the request for the rows at positions."""
        (request,) = super().requests(positions, draw)
        fields = fields_of(self)
        added = {name: value for name, value in fields.items() if name not in _VIEW_FIELDS}
        return (self._request(**fields_of(request), **added),)

    def __getitem__(self, key: Any) -> Any:
        """Read one row as the only row of a batch, or select without reading."""
        return self.take([key])[0] if type(key) is int else super().__getitem__(key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Raise ArgumentError, because the rows are not dense."""
        raise ArgumentError(
            f"an array must be made of dense rows of one length; got {self!r}. `pad` makes them of "
            "rows of unequal length."
        )


_VIEW_FIELDS = View.__dataclass_fields__


@dataclass(frozen=True)
class MultiArrayComposite(MultiArrayRequest, Composite):
    """Several composed requests that each fill some places of the batch."""

    members: tuple[tuple[MultiArrayRequest, NDArray[np.int64]], ...]

    def locate(self) -> Any:
        """Locate the rows of all members, in their places."""
        located = [(request.locate(), places) for request, places in self.members]
        return self.join(located, self.shape[0])

    def join(self, shares: Sequence[tuple[Any, NDArray[np.int64]]], rows: int) -> Any:
        """Join rows by the method of the members."""
        return self.members[0][0].join(shares, rows)

    def make_batches(self, located: Any, lengths: list[int], read: Read) -> list[Any]:
        """Make batches by the method of the members."""
        return self.members[0][0].make_batches(located, lengths, read)


class _Placeholder(Composite):
    """A placeholder for a request whose rows are read by a joined request."""

    def read(self) -> None:
        """Return None, without reading."""


def placeholder_if_multi_array(request: ArrayRequest) -> ArrayRequest:
    """Return a placeholder for a request that was joined with others, else the request itself."""
    if isinstance(request, MultiArrayRequest):
        return _Placeholder((), (0,), request.dtype)
    return request


def join_requests(
    requests: Sequence[ArrayRequest], where: Sequence[NDArray[np.int64]]
) -> ArrayRequest:
    """Return one request for the elements of several, which each have some places of a batch."""
    first = requests[0]
    if len(requests) == 1:
        return first
    kind: type[Composite] = (
        MultiArrayComposite if isinstance(first, MultiArrayRequest) else Composite
    )
    shape = (sum(map(len, where)), *first.shape[1:])
    return kind(tuple(zip(requests, where, strict=True)), shape, first.dtype)


def multi_array_requests(
    part: Dataset, requests: Sequence[ArrayRequest], spec: Spec
) -> list[MultiArrayRequest]:
    """Return the requests of a part for arrays that are not dense, in the order of a spec."""
    composed = (request for request in requests if isinstance(request, MultiArrayRequest))
    tree = map_tree(lambda leaf: None if leaf.form == "dense" else next(composed), part.spec)
    return [request for request in leaves(align(tree, spec)) if request is not None]
