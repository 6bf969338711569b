"""Batches that are several arrays: sparse rows, and rows of unequal length.

Each is a value like an array of its rows, and takes the place of one in the tree of a batch. Some
of its arrays are as long as there are numbers in the batch (`rooms`), one has a fixed shape. How
long they are is known only once the rows are found, so a request (`ComposedRequest`) finds its rows
first, then writes them into batches; and rows of several requests are joined between the two.
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
    "Composed", "ComposedRequest", "ComposedView", "composed_requests", "room_for", "rooms",
    "together", "without_rows",
]  # fmt: skip

_ALIGNED = 64
"""Numbers of any dtype that take a multiple of `buffers.ALIGNMENT` bytes."""


class Composed(ABC):
    """A batch that is several arrays."""

    __slots__ = ()

    @property
    @abstractmethod
    def long(self) -> tuple[NDArray[Any], ...]:
        """The arrays that are as long as there are numbers."""

    @property
    @abstractmethod
    def fixed(self) -> NDArray[np.int64]:
        """The array by which the others are understood; of one shape for batches of one length."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def rows(self, start: int, stop: int) -> Self:
        """Return the rows of a range, copied."""


def room_for(numbers: int) -> int:
    """Return so many numbers, or a few more so that they end at an aligned place.

    Examples
    --------
    >>> room_for(3), room_for(128)
    (64, 128)
    """
    return -(-numbers // _ALIGNED) * _ALIGNED


def rooms(
    sizes: Sequence[int], inner: tuple[int, ...], dtype: DTypeLike, read: Read
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Return memory for arrays of unlike lengths, one for each batch that is read together.

    Each is the beginning of as much memory as the longest takes, so that they are tensors of one
    shape side by side. One alone has no more than it needs, because TensorFlow copies a part of a
    tensor that does not end at an aligned place. The first array is all of them, with as much
    memory each, to write into at once and drop; `inner` is the shape of one place.
    """
    room = sizes[0] if len(sizes) == 1 else room_for(max(sizes, default=0))
    whole, parts = empty_parts([(room, *inner)] * len(sizes), dtype, read)
    if whole is None:  # there are no numbers, or they are objects
        whole = np.empty((room * len(sizes), *inner), dtype)
        parts = [whole[at * room : (at + 1) * room] for at in range(len(sizes))]
    return whole, [part[:size] for part, size in zip(parts, sizes, strict=True)]


class ComposedRequest(ArrayRequest):
    """Rows of which a batch is several arrays, or an array whose shape they tell."""

    @abstractmethod
    def found(self) -> Any:
        """Return the rows, of which it is known how long each is."""

    @abstractmethod
    def joined(self, shares: Sequence[tuple[Any, NDArray[np.int64]]], rows: int) -> Any:
        """Return rows that several requests found as one, by the places of each among all."""

    @abstractmethod
    def batches(self, found: Any, lengths: list[int], read: Read) -> list[Any]:
        """Return batches of so many rows each, made of those found; see `read_parts`."""

    @property
    def filling(self) -> str:
        """How rows are filled up, if they are: requests that differ in it are not joined."""
        return ""

    def read(self) -> Any:
        """Read as one batch."""
        (batch,) = self.read_parts([self.shape[0]], Read())
        return batch

    def read_parts(self, lengths: list[int], read: Read, room: int = 0) -> list[Any]:
        """Read at once, as a batch for each length; see `ArrayRequest.read_parts`."""
        return self.batches(self.found(), lengths, read)


@dataclass(frozen=True, eq=False, repr=False)
class ComposedView(View):
    """A view of rows of which a batch is several arrays, or an array whose shape they tell."""

    _request: ClassVar[type[Request]]
    """A `ComposedRequest` with the fields of the view's own class besides those of `Request`."""

    is_composed = True

    def requests(self, positions: NDArray[np.int64], draw: Draw) -> tuple[Request, ...]:
        """Return the rows at positions."""
        (one,) = super().requests(positions, draw)
        own = {name: value for name, value in fields_of(self).items() if name not in _OF_VIEW}
        return (self._request(**fields_of(one), **own),)

    def __getitem__(self, key: Any) -> Any:
        """Read one row, as its batch has it, or select and cut without reading."""
        return self.take([key])[0] if type(key) is int else super().__getitem__(key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Raise: an array has dense rows of one length."""
        raise ArgumentError(
            f"an array must be made of dense rows of one length; got {self!r}. `pad` makes them of "
            "rows of unequal length."
        )


_OF_VIEW = View.__dataclass_fields__


@dataclass(frozen=True)
class ComposedComposite(ComposedRequest, Composite):
    """Several such requests, each of which fills some places of the batch."""

    members: tuple[tuple[ComposedRequest, NDArray[np.int64]], ...]

    def found(self) -> Any:
        """Return the rows of all members, each in its place."""
        return self.joined([(one.found(), where) for one, where in self.members], self.shape[0])

    def joined(self, shares: Sequence[tuple[Any, NDArray[np.int64]]], rows: int) -> Any:
        """Return rows as the members join them."""
        return self.members[0][0].joined(shares, rows)

    def batches(self, found: Any, lengths: list[int], read: Read) -> list[Any]:
        """Return batches as the members make them."""
        return self.members[0][0].batches(found, lengths, read)


class _Elsewhere(Composite):
    """Stands for the rows of one part that are joined with those of others."""

    def read(self) -> None:
        """Read nothing."""


def without_rows(request: ArrayRequest) -> ArrayRequest:
    """Return a request that reads nothing in place of one whose rows are joined elsewhere."""
    return _Elsewhere((), (0,), request.dtype) if isinstance(request, ComposedRequest) else request


def together(requests: Sequence[ArrayRequest], where: Sequence[NDArray[np.int64]]) -> ArrayRequest:
    """Return the request for the elements of several, each of which has some places of a batch."""
    first = requests[0]
    if len(requests) == 1:
        return first
    kind: type[Composite] = ComposedComposite if isinstance(first, ComposedRequest) else Composite
    shape = (sum(map(len, where)), *first.shape[1:])
    return kind(tuple(zip(requests, where, strict=True)), shape, first.dtype)


def composed_requests(
    part: Dataset, requests: Sequence[ArrayRequest], spec: Spec
) -> list[ComposedRequest]:
    """Return the requests of a part for arrays that are not dense, in the order of a spec."""
    rest = iter(one for one in requests if isinstance(one, ComposedRequest))
    own = map_tree(lambda leaf: None if leaf.form == "dense" else next(rest), part.spec)
    return [one for one in leaves(align(own, spec)) if one is not None]
