"""What every dataset can do, given which rows an element is made of.

A dataset is a frozen description: positions in, row numbers out (`requests`), and how the arrays
that come back make elements (`assemble`). It never touches storage, so composing reads nothing;
`read` is the one place where the two meet.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.above import above
from oocdata.datasets.spec import Batch, Spec, map_tree
from oocdata.errors import ArgumentError, EmptyError
from oocdata.index import Selection, as_count, as_positions, slice_range
from oocdata.sources.buffers import empty_batch
from oocdata.sources.source import Source
from oocdata.splits import split_ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from oocdata.datasets.map import Map
    from oocdata.loader import Loader
    from oocdata.order import Order

__all__ = ["Blocks", "Dataset", "Draw", "Request"]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Rows wanted of one source.

    Attributes
    ----------
    source : Source
    rows : ndarray of int64, shape (batch,) or (batch, time)
    """

    source: Source
    rows: NDArray[np.int64]

    def read(self) -> NDArray[Any]:
        """Read the rows into a fresh batch array, shape (*rows.shape, *element)."""
        element = self.source.shape[1:]
        out = empty_batch((*self.rows.shape, *element), self.source.dtype)
        flat = np.ascontiguousarray(self.rows).reshape(-1)
        self.source.read_into(flat, out.reshape(len(flat), *element))
        return out


@dataclass(frozen=True)
class Draw:
    """Where a batch stands: what randomness may depend on, and nothing else.

    Attributes
    ----------
    seed, epoch, step : int

    Examples
    --------
    >>> int(Draw(7, 0, 3).rng.integers(100)) == int(Draw(7, 0, 3).rng.integers(100))
    True
    """

    seed: int = 0
    epoch: int = 0
    step: int = 0

    @cached_property
    def rng(self) -> np.random.Generator:
        """One generator for the batch; the functions of a chain draw from it in turn."""
        # SeedSequence takes what is not negative: the sign becomes a word of its own.
        return np.random.default_rng([abs(self.seed), int(self.seed < 0), self.epoch, self.step])


@dataclass(frozen=True, slots=True)
class Blocks:
    """Runs of positions whose rows are stored together.

    Attributes
    ----------
    length : int
        Positions in a block; 1 where each row is addressable.
    first : int
        Positions in the first block, which may be cut: 1 ≤ first ≤ length.
    """

    length: int
    first: int


class Dataset(ABC):
    """Elements by position. See `View` and its methods for how datasets are made."""

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """Shape and dtype of an element's arrays."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def requests(self, positions: NDArray[np.int64]) -> tuple[Request, ...]:
        """Return the rows that elements are made of: pure arithmetic, nothing is read.

        Parameters
        ----------
        positions : ndarray of int64, shape (batch,)
            Each within ``[0, len(self))``.
        """

    @abstractmethod
    def assemble(self, arrays: Iterator[NDArray[Any]], draw: Draw) -> Batch:
        """Return the batch made of the arrays that `requests` asked for, in that order."""

    @abstractmethod
    def select(self, positions: Selection) -> Self:
        """Return the dataset of the elements at checked positions, in that order."""

    @property
    @abstractmethod
    def blocks(self) -> Blocks:
        """Which runs of positions are stored together."""

    @property
    def is_mapped(self) -> bool:
        """Whether a function of the user's makes the batches: it must get them one by one."""
        return False

    def gap_positions(self, gap: int) -> int:
        """Return how many positions to drop so that `gap` rows lie between neighbours, unused."""
        return gap

    def read(self, positions: NDArray[np.int64], draw: Draw) -> Batch:
        """Read the elements at checked positions as one batch."""
        arrays = (request.read() for request in self.requests(positions))
        return self.assemble(arrays, draw)

    def take(self, positions: ArrayLike) -> Batch:
        """Read the elements at positions as one batch.

        Parameters
        ----------
        positions : array_like of int or bool, shape (n,)
            Any order, repeats allowed; negative ones count from the end.

        Returns
        -------
        ndarray, tuple or dict of ndarray
            With a leading axis of length n.

        Raises
        ------
        oocdata.errors.PositionError
            If a position does not exist.
        oocdata.errors.SourceError
            If storage can't deliver a row.
        """
        chosen = as_positions(positions, len(self))
        # Outside a Loader there is no step: what a mapped function draws depends on what is taken.
        return self.read(chosen, Draw(step=crc32(chosen.tobytes())))

    def __getitem__(self, key: Any) -> Any:
        """Read one element (an int), or select without reading (a slice, int array or mask)."""
        if isinstance(key, slice):
            return self.select(slice_range(range(len(self)), key))
        if isinstance(key, range) and key and all(0 <= at < len(self) for at in (key[0], key[-1])):
            return self.select(key)
        if isinstance(key, bool | np.bool_ | tuple):
            raise ArgumentError(
                f"an index must be an int, a slice, an int array or a bool mask; got {key!r}."
            )
        try:
            position = operator.index(key)
        except TypeError:
            return self.select(as_positions(key, len(self)))
        batch = self.take([position])
        return map_tree(lambda array: array[0], batch)

    def __getitems__(self, positions: Sequence[int]) -> list[Any]:
        """Read several elements at once: what PyTorch's fetcher calls on a map-style dataset."""
        batch = self.take(positions)
        return [map_tree(operator.itemgetter(i), batch) for i in range(len(positions))]

    def split(self, *sizes: float, gap: int = 0) -> tuple[Self, ...]:
        """Split by range: no copy, nothing read, and no two parts share a row.

        Parameters
        ----------
        *sizes : float or int
            Fractions (each > 0, sum ≤ 1) or counts of elements.
        gap : int
            Rows left unused between neighbouring parts. Windows that would reach across the border
            are dropped besides, so even 0 never leaks a row.

        Returns
        -------
        tuple of Dataset
            One for each size, in order.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the sizes don't fit, e.g. fractions over 1; or if parts would share a row, because
            one was chosen twice, or windows were in another order.

        Examples
        --------
        >>> import oocdata as ooc
        >>> frames = ooc.open(np.zeros((10, 2)))
        >>> [len(part) for part in frames.split(0.6, 0.2, 0.2)]
        [6, 2, 2]
        >>> [len(part) for part in frames.next_frame().split(0.5, 0.5)]
        [4, 4]
        """
        rows = as_count("gap", gap, at_least=0)
        dropped = self.gap_positions(rows)
        return tuple(self.select(part) for part in split_ranges(len(self), sizes, dropped))

    def shard(self, num_shards: int, index: int) -> Self:
        """Return one of `num_shards` disjoint parts whose union is everything.

        Parameters
        ----------
        num_shards : int
        index : int
            0 ≤ index < num_shards.

        Returns
        -------
        Dataset
            A contiguous part, so that a shard reads its own chunks only; lengths differ by at most
            1.

        Examples
        --------
        >>> import oocdata as ooc
        >>> [len(ooc.open(np.zeros((10, 2))).shard(3, i)) for i in range(3)]
        [3, 3, 4]
        """
        shards = as_count("num_shards", num_shards)
        place = as_count("index", index, at_least=0)
        if place >= shards:
            raise ArgumentError(f"`index` must be less than `num_shards` ({shards}); got {place}.")
        length = len(self)
        if length < shards:
            raise EmptyError(f"`num_shards` must be at most the length, {length}; got {shards}.")
        return self.select(range(length * place // shards, length * (place + 1) // shards))

    def map(
        self,
        fn: Callable[..., Any],
        *,
        batched: bool = True,
        rng: bool = False,
        spec: Any = None,
    ) -> Map:
        """Apply a NumPy function to each batch (or element) after it is read.

        Parameters
        ----------
        fn : callable
            Gets the batch: ``fn(x)``, ``fn(x, y)`` for a tuple, ``fn({…})`` for a dict. It may
            change its arguments in place. Returns an array, a tuple or a dict.
        batched : bool
            False: `fn` gets one element at a time; the results are stacked.
        rng : bool
            Pass ``rng=``, a `numpy.random.Generator` that depends on (seed, epoch, step) alone.
        spec : tree of ArraySpec, optional
            What an element looks like afterwards. Without it one element is tried when it is first
            needed.

        Examples
        --------
        >>> import oocdata as ooc
        >>> view = ooc.open(np.arange(6).reshape(3, 2))
        >>> view.map(lambda x: x * 10)[2]
        array([40, 50])
        """
        made: Map = above("datasets.map", "Map")(self, fn, batched, rng, spec)
        return made

    def batches(
        self,
        batch_size: int,
        *,
        shuffle: bool | str | Order = False,
        seed: int = 0,
        drop_remainder: bool = False,
        workers: int = 0,
    ) -> Loader:
        """Return the `Loader` of this dataset: (step, epoch) → batch.

        Parameters
        ----------
        batch_size : int
        shuffle : bool, "global", "block" or Order
            False: in order. True: the best kind for this storage. "global": a true permutation of
            all elements. "block": stored chunks in random order, mixed within a window of several.
        seed : int
            With the epoch, fixes the order and what `map` functions draw.
        drop_remainder : bool
            Drop the last batch of an epoch when it is short.
        workers : int
            Processes that read, for iteration and ``to_tf``; 0: this one does, in threads. They
            are for `map` functions that are bound by Python: reading is done in threads without
            the GIL as it is. What a batch holds does not depend on them. They start with an
            iterator and end with it, and need no ``if __name__ == "__main__"`` guard. Arrays in
            memory are copied once, to memory that all share; each keeps decoded chunks of its own.
            One that is busy with a read for ``OOCDATA_WORKER_SECONDS`` (environment; 600) is taken
            to hang.

        Raises
        ------
        oocdata.errors.ArgumentError
            If an argument breaks its rule; or `workers` are asked for, and a function or source
            can't be pickled to be sent to them.

        Examples
        --------
        >>> import oocdata as ooc
        >>> loader = ooc.open(np.arange(10)).batches(4, shuffle=True, seed=7)
        >>> len(loader), loader.batch(step=2).shape
        (3, (2,))
        """
        make = above("loader", "make_loader")
        loader: Loader = make(self, batch_size, shuffle, seed, drop_remainder, workers)
        return loader
