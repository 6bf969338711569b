"""Define `Dataset`, the base class of all datasets.

A dataset is a frozen description. `requests` maps positions to boxes of sources, and `assemble`
turns the arrays that were read into elements; composing datasets reads nothing.
"""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self, overload
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from oocdata import registry
from oocdata.blocks import ADDRESSABLE, AnyBlocks, typical_length
from oocdata.box import Ints
from oocdata.datasets.ids import as_ids
from oocdata.datasets.request import ArrayRequest, Request, prefetching, singles_of
from oocdata.datasets.spec import ArraySpec, Batch, Spec, elements_of, leaves, map_tree
from oocdata.datasets.splitting import Splitting
from oocdata.engines.buffers import ALIGNMENT, empty
from oocdata.engines.byte_rows import OBJECT_BYTES, largest_rows
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError, without_methods
from oocdata.index import as_positions, as_range, slice_range
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.map import Map
    from oocdata.datasets.patches import Patches
    from oocdata.datasets.zip import Cached, Zip
    from oocdata.loader import Loader
    from oocdata.order import Order

_READ, _FIRST = operator.methodcaller("read"), operator.itemgetter(0)

_INTEGERS_PER_BOX = 10
"""Integers per box while boxes are gathered from chunks, counted: chunk, row in the chunk, sort
order, target, and NumPy's temporary arrays."""

_FEW = 1 << 16
"""Elements that are read at once by their positions, for which reading takes some 80 bytes each."""


@dataclass(frozen=True)
class Draw:
    """Inputs of random draws, which depend on nothing else, such as the reading process."""

    seed: int = 0
    epoch: int = 0
    step: int = 0
    lane: int = 0
    """First lane of the batch, or of the rank's part of the batch."""
    positions: Ints | None = None
    """Positions of the batch's elements in the loader's dataset."""
    whole: Draw | None = None
    """Draw of the batch of which this is a part."""

    @cached_property
    def rng(self) -> np.random.Generator:
        """Generator of the whole batch; its batched functions draw from it in turn."""
        return self.whole.rng if self.whole else self._generator(0, self.step, self.lane)

    def rng_of(self, place: int) -> np.random.Generator:
        """Return the generator of the element at one place of the batch."""
        position = place if self.positions is None else int(self.positions[place])
        return self._generator(1, position)

    def of(self, places: Ints) -> Draw:
        """Return the draw for some elements of the batch."""
        positions = places if self.positions is None else self.positions[places]
        return replace(self, positions=positions, whole=self)

    def _generator(self, kind: int, *words: int) -> np.random.Generator:
        # SeedSequence accepts no negative integers, so the sign is passed as a separate word.
        key = [abs(self.seed), int(self.seed < 0), kind, self.epoch, *words]
        return np.random.default_rng(key)


def fields_of(value: Any) -> dict[str, Any]:
    """Return the init fields of a dataclass instance, by name."""
    return {field.name: getattr(value, field.name) for field in fields(value) if field.init}


class Described:
    """Base class of frozen dataclasses whose fields are their description.

    `oocdata.describe` writes the fields as JSON, recursively.
    """

    def __getstate__(self) -> dict[str, Any]:
        # Pickle the description alone, not cached properties; but keep the spec of a mapped
        # function, or each process would call the function to find it.
        names = {**getattr(self, "__dataclass_fields__", vars(self)), "spec": None}
        return {name: value for name, value in vars(self).items() if name in names}

    def describe(self) -> dict[str, Any]:
        """Return the fields that the object can be made from again, by name."""
        return fields_of(self)


_WINDOWS = (
    "; a View has it. Make windows of Views before you zip or map them, of several by "
    "ooc.windows((x, 4), y)"
)
"""Advice for the methods of a View that make windows."""


@without_methods(
    {
        "astype": "; a View has it. Convert Views before you zip them, or in .map",
        "batch": "; oocdata's own is .batches(size)",
        "next_frame": _WINDOWS,
        "prefetch": "; oocdata's own is .batches(size).to_tf(prefetch=…)",
        "repeat": "; oocdata's own is .batches(size).to_tf(epochs=…); iterating again is the next "
        "epoch",
        "shape": "; .spec describes its elements. `fit` takes .batches(size).to_tf()",
        "shuffle": "; oocdata's own is .batches(size, shuffle=True)",
        "skip": "; oocdata's own are slices: dataset[100:]",
        "to_keras": "; oocdata's own is .batches(size).to_keras()",
        "to_tf": "; oocdata's own is .batches(size).to_tf()",
        "windows": _WINDOWS,
    }
)
class Dataset(Described, Splitting, ABC):
    """Elements by position: the base class of views, windows, patches, zips, maps and others.

    Every dataset has a length, can be indexed, is a map-style dataset for PyTorch and a
    random-access source for Grain. Datasets are immutable; methods return new ones and read
    nothing, unless they say so.
    """

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """Shapes and dtypes of an element's arrays: an `ArraySpec`, or a tuple or dict of specs."""

    def requests(self, positions: Ints, draw: Draw) -> tuple[ArrayRequest, ...]:
        """Return one request per array for the elements at checked positions; reads nothing."""
        members = self._members
        return tuple([request for part in members for request in part.requests(positions, draw)])

    def boxes(self, positions: Ints) -> list[Request]:
        """Return the requests of single sources for the elements at positions; reads nothing."""
        return singles_of(self.requests(positions, Draw()))

    def assemble(self, arrays: Iterator[NDArray[Any]], positions: Ints, draw: Draw) -> Batch:
        """Return the batch made of the arrays of `requests`, in the same order."""
        spec = self.spec
        if isinstance(spec, ArraySpec):
            return next(arrays)
        return map_tree(lambda _: next(arrays), spec)

    @property
    def blocks(self) -> AnyBlocks:
        """Blocks of positions that are stored together, of the member with the largest blocks."""
        found, count = [part.blocks for part in self._members], len(self)
        return max(found, key=lambda blocks: typical_length(blocks, count), default=ADDRESSABLE)

    @cached_property
    def is_mapped(self) -> bool:
        """Whether batches pass through user functions, which are called batch by batch."""
        return any(part.is_mapped for part in self._members)

    @cached_property
    def has_requests_by_part(self) -> bool:
        """Whether the requests for a batch depend on its elements: each has some of them."""
        return any(part.has_requests_by_part for part in self._members)

    @cached_property
    def is_multi_array(self) -> bool:
        """Whether a batch has leaves of several arrays, `SparseBatch` or `RaggedBatch`."""
        return any(part.is_multi_array for part in self._members)

    def row_lengths(self) -> Ints | None:
        """Return the length of each element of ragged rows, or None for other elements.

        The longest counts if an element has several ragged rows.
        """
        found = [part.row_lengths() for part in self._members]
        known = [lengths for lengths in found if lengths is not None]
        return np.maximum.reduce(known) if known else None

    def array_bytes(self, elements: int) -> list[int]:
        """Return the size of each array of a batch, in bytes; upper bounds for ragged rows."""
        if self.is_multi_array:
            return [nbytes for part in self._members for nbytes in part.array_bytes(elements)]
        specs = list(leaves(self.spec))
        arrays = [leaf.nbytes * elements for leaf in specs]
        if not any(leaf.dtype.hasobject for leaf in specs):
            return arrays
        objects = self._object_bytes(elements)
        return [*arrays, -(-objects // ALIGNMENT) * ALIGNMENT]  # callers align each size

    def _object_bytes(self, elements: int) -> int:
        """Return an upper bound for the bytes of the ``bytes`` objects in a batch."""
        counts = [sizes for source in self.sources() if (sizes := source.storage().row_sizes)]
        if not counts or not len(self):
            return 0
        total_counts, nbytes = np.sum(counts, axis=0), 0
        for request in self.boxes(np.zeros(1, np.int64)):
            if request.dtype.hasobject:
                rows = len(request.origins) * request.extent.size  # per element
                nbytes += rows * (largest_rows(total_counts, elements) + elements * OBJECT_BYTES)
        return nbytes

    def input_bytes(self, elements: int) -> int:
        """Return the bytes of intermediate arrays of elements that are not read into the batch."""
        return sum(part.input_bytes(elements) for part in self._members)

    def location_bytes(self, elements: int) -> int:
        """Return the bytes of the integers that locate elements while they are read.

        These are the origins of all boxes, and for one array at a time the chunk of each box, its
        position in the chunk, and its target.
        """
        requests, itemsize = self.boxes(np.zeros(1, np.int64)), np.dtype(np.int64).itemsize
        origins = sum(request.origins.nbytes for request in requests)
        boxes = max((len(request.origins) for request in requests), default=0)
        return elements * (itemsize + origins + _INTEGERS_PER_BOX * itemsize * boxes)

    def sources(self) -> list[Source]:
        """Return the distinct sources that are read."""
        if self._members:
            found = [source for part in self._members for source in part.sources()]
        else:
            first = np.zeros(min(1, len(self)), np.int64)
            found = [request.source for request in self.boxes(first)]
        return list({id(source): source for source in found}.values())

    def read(self, positions: Ints, draw: Draw) -> Batch:
        """Read the elements at checked positions as one batch."""
        requests = self.requests(positions, draw)
        if not self.is_remote:
            return self.assemble(map(_READ, requests), positions, draw)
        with prefetching(requests):
            return self.assemble(map(_READ, requests), positions, draw)

    def read_requested(self, positions: Ints, draw: Draw) -> Batch:
        """Read elements whose bytes in stores have been requested, by `prefetching`; see `read`."""
        return self.assemble(map(_READ, self.requests(positions, draw)), positions, draw)

    @cached_property
    def is_remote(self) -> bool:
        """Whether a source is read over a network."""
        return any(source.storage().is_remote for source in self.sources())

    @cached_property
    def is_refetched(self) -> bool:
        """Whether a source is fetched again on each read, because it has no cache folder."""
        stored = (source.storage() for source in self.sources())
        return any(storage.is_remote and not storage.cache for storage in stored)

    def take(self, positions: ArrayLike) -> Any:
        """Read the elements at positions as one batch.

        Parameters
        ----------
        positions : array_like of int or bool, shape (n,)
            In any order, with repeats; negative positions count from the end.

        Returns
        -------
        ndarray, or tuple or dict of ndarray
            Each of shape ``(n, *element)``.

        Raises
        ------
        oocdata.errors.PositionError
            If a position is out of range.
        oocdata.errors.SourceError
            If a row can't be read.

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.open(np.arange(10, 20)).take([3, -1, 3])
        array([13, 19, 13])
        """
        return self._take(as_positions(positions, len(self)))

    def _take(self, chosen: Ints) -> Any:
        # Outside a Loader there is no step, so a hash of the positions seeds mapped functions.
        return self.read(chosen, Draw(step=crc32(chosen.tobytes()), positions=chosen))

    def read_all(self) -> NDArray[Any]:
        """Read all elements, which are one array each; many elements in blocks."""
        if len(self) <= _FEW:
            batch: NDArray[Any] = self.take(np.arange(len(self)))
            return batch
        spec: Any = self.spec
        out = empty((len(self), *spec.shape), spec.dtype)
        for _ in registry.call("each_block", self, lambda block: None, out=out):
            pass
        return out

    @overload
    def __getitem__(self, key: slice | range | list[Any] | NDArray[Any]) -> Self: ...

    @overload
    def __getitem__(self, key: Any) -> Any: ...

    def __getitem__(self, key: Any) -> Any:
        """Read one element (an int), or select elements without reading (slice, array or mask)."""
        if isinstance(key, slice):
            return self._select(slice_range(range(len(self)), key))
        if isinstance(key, range) and key and all(0 <= at < len(self) for at in (key[0], key[-1])):
            return self._select(key)
        if isinstance(key, bool | np.bool_ | tuple | str):
            hints = {
                str: " Only a View of records has fields by name.",
                bool: " Compare the values of a View: np.asarray(labels) == 3.",
            }
            raise ArgumentError(
                "an index must be an int, a slice, an int array or a bool mask; got "
                f"{key!r}.{hints.get(type(key), '')}"
            )
        length = len(self)
        try:
            position = operator.index(key)
        except TypeError:
            return self._select(as_positions(key, length))
        if not -length <= position < length:
            as_positions([position], length)  # raises
        return map_tree(_FIRST, self._take(np.array([position % length])))

    def __iter__(self) -> Iterator[Any]:
        # Python's own iterators take an IndexError of a mapped function for the end.
        for position in range(len(self)):
            yield self[position]

    def __reversed__(self) -> Iterator[Any]:
        for position in reversed(range(len(self))):
            yield self[position]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Read all elements: ``np.asarray(dataset)``."""
        if copy is False:
            raise ArgumentError(
                "an array of a dataset must be a copy, because it is read; got copy=False."
            )
        if self.is_multi_array or not isinstance(self.spec, ArraySpec):
            raise ArgumentError(
                f"an array must be made of elements that are one dense array each; got {self!r}. "
                "`take` reads elements of several arrays; `pad` makes dense rows of ragged ones."
            )
        try:
            values = self.read_all()
        except MemoryError as error:
            raise MemoryError(
                f"an array of all elements must fit in memory; {self} does not. `fit` and "
                "`predict` take .batches(size).to_tf(), which reads a few batches at a time."
            ) from error
        return values if dtype is None else values.astype(dtype, copy=False)

    def __getitems__(self, positions: Sequence[int]) -> list[Any]:
        """Read several elements at once; PyTorch's fetcher calls this on map-style datasets."""
        return elements_of(self.take(positions), self.spec, len(positions))

    def filter(self, mask: ArrayLike | Dataset) -> Self:
        """Select the elements where a mask is True; reads nothing but the mask.

        Parameters
        ----------
        mask : array_like of bool, shape (len,), or View of bool
            A View is read into memory. The selection takes 8 bytes per selected element.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the dtype is not bool, or the length differs from the dataset's.

        Examples
        --------
        >>> import oocdata as ooc
        >>> labels = np.array([3, 1, 3, 2])
        >>> np.asarray(ooc.open(np.arange(4)).filter(labels == 3))
        array([0, 2])
        """
        flags = as_ids("mask", mask, "b", len(self))
        return self._select(as_range(np.flatnonzero(flags)))

    def enumerate(self) -> Zip:
        """Return pairs ``(position, element)``, with int64 positions in this dataset.

        Positions stay with their elements in later selections, splits and shuffles.

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.open(np.arange(10, 20)).enumerate()[::-3].take([1])
        (array([6]), array([16]))
        """
        return registry.call("enumerate", self)

    def map(
        self,
        fn: Callable[..., Any],
        *,
        batched: bool = True,
        rng: bool = False,
        spec: Any = None,
    ) -> Map:
        """Apply a NumPy function to each batch (or element) after reading.

        Parameters
        ----------
        fn : callable
            Called as ``fn(batch)``; as ``fn(x, y)`` if the batch is a tuple. Returns an array, a
            tuple or a dict. May modify its arguments in place.
        batched : bool
            False: call `fn` on one element at a time, and stack the results.
        rng : bool
            Pass a `numpy.random.Generator` as ``rng=``. With ``batched=False`` its state depends on
            (seed, epoch, position) only. With ``batched=True`` it depends on (seed, epoch, step),
            and in data-parallel training on the rank's part of the batch: ranks draw different
            numbers.
        spec : tree of ArraySpec, optional
            Shapes and dtypes of a result's element. By default `fn` is called on one element when
            the spec is first needed. ``ArraySpec((512,), "int64", "padded")``: `fn` pads each batch
            to a length of its own, at most 512.

        Returns
        -------
        Map

        Raises
        ------
        oocdata.errors.ArgumentError
            If `fn` is not callable, or the batches are sparse or ragged.
        oocdata.errors.MapError
            Later, when reading: if results differ from the spec, or in length from the batch.

        Examples
        --------
        >>> import oocdata as ooc
        >>> view = ooc.open(np.arange(6).reshape(3, 2))
        >>> view.map(lambda x: x * 10)[2]
        array([40, 50])
        """
        return registry.call("map", self, fn, batched, rng, spec)

    def cache(self, folder: str | os.PathLike[str] | None = None, *, workers: int = 0) -> Cached:
        """Read and compute all elements now, and return a dataset of the results.

        Use it for functions or decoding that are slower than reading an array. Later epochs, runs
        and processes read the results as fast as a ``.npy`` file, in any order.

        Parameters
        ----------
        folder : path, optional
            Folder for the arrays. Each dataset has a subfolder there: an existing cache of the same
            data and functions is reused, and an unfinished one is completed. Functions are compared
            by their code and the objects that it names, not by files and environment variables that
            they read, the state of random generators, or versions of libraries. By default the
            elements are cached in memory, and may take half of `oocdata.set_memory`.
        workers : int
            Number of worker processes, as for `batches`.

        Returns
        -------
        Cached
            The same elements. It is split like this dataset, so that no two parts share a row of
            the original arrays.

        Raises
        ------
        oocdata.errors.ArgumentError
            If elements are drawn at random (cache before that step), are not arrays of one shape,
            or exceed the memory.
        oocdata.errors.SourceError
            If an element can't be read, or the folder can't be written.

        Examples
        --------
        >>> import tempfile, oocdata as ooc
        >>> roots = ooc.open(np.arange(6.0)).map(np.sqrt)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cached = roots.cache(folder)
        ...     cached[4], len(cached)
        (np.float64(2.0), 6)
        """
        return registry.call("cache", self, folder, workers)

    def sparse(self) -> Dataset:
        """Return the same elements with sparse batches instead of dense ones.

        For rows of sparse matrices (``csr_matrix`` of AnnData), also in a zip with other datasets.
        A batch of them is a `SparseBatch` (indices, values and dense shape), and a
        ``tf.sparse.SparseTensor`` in `Loader.to_tf`. Functions, windows and patches need dense
        rows: apply them to the other members of a zip.

        Raises
        ------
        oocdata.errors.ArgumentError
            If no rows are of a sparse matrix.
        """
        result = self._as_sparse()
        if result is None:
            raise ArgumentError(
                "sparse batches must be of rows of a sparse matrix (a csr_matrix of AnnData), or "
                f"of a zip of such with others; got {self!r}. Call `.sparse()` before `.batches`, "
                "and zip with what is mapped."
            )
        return result

    def _as_sparse(self) -> Dataset | None:
        """Return the result of `sparse`, or None if no rows are sparse."""
        return None

    def patches(
        self,
        size: int | Sequence[int],
        *,
        step: int | Sequence[int] | None = None,
        per_row: int | None = None,
        axes: Sequence[int] | None = None,
    ) -> Patches:
        """Return crops of elements as elements; only their bytes or chunks are read.

        Parameters
        ----------
        size : int or sequence of int
            Length of a patch along each of `axes`.
        step : int or sequence of int, optional
            Distance between neighbouring patches of a grid, along each axis; by default `size`.
            Patches that would exceed the edge are left out.
        per_row : int, optional
            Number of random patches per element, instead of a grid. Their places are a pure
            function of (seed, epoch, position).
        axes : sequence of int, optional
            Axes of the element; negative ones count from the end. By default the last ``len(size)``
            axes; ``(0, 1)`` for pictures with channels last, also beside masks without channels.
            All arrays of an element get the same crop: x and y of a window, all members of a zip.

        Returns
        -------
        Patches
            The patches of an element are adjacent.

        Raises
        ------
        oocdata.errors.ArgumentError
            If an element lacks an axis or is smaller than a patch, or its arrays differ in length
            along an axis.

        Examples
        --------
        >>> import oocdata as ooc
        >>> tiles = ooc.open(np.arange(32).reshape(2, 4, 4)).patches((2, 2))
        >>> len(tiles), tiles[1].tolist()
        (8, [[2, 3], [6, 7]])
        """
        return registry.call("patches", self, size, step, per_row, axes)

    def batches(
        self,
        batch_size: int,
        *,
        shuffle: bool | str | Order = False,
        seed: int = 0,
        weights: ArrayLike | Dataset | None = None,
        bucket: Sequence[int] | None = None,
        drop_remainder: bool = False,
        workers: int = 0,
    ) -> Loader:
        """Return a `Loader` of batches, a function (step, epoch) → batch.

        Parameters
        ----------
        batch_size : int
            Number of elements in a batch.
        shuffle : bool, "global", "block" or Order
            False: in order. True: the best kind for this storage. "global": a random permutation of
            all elements. "block": stored chunks in random order, the elements of several chunks
            mixed.
        seed : int
            Determines, with the epoch, the order, random patches, and the generators of `map`.
        weights : array_like of float, shape (len,), or View, optional
            Draw with replacement, in proportion to these weights. In an epoch of n = len(self)
            draws, an element with share w of the sum is drawn floor(n w) or ceil(n w) times, and
            n w times on average over epochs. Needs `shuffle`, and 12 bytes per element. See
            `oocdata.balanced`.
        bucket : sequence of int, optional
            Batch ragged rows (`oocdata.ragged`) of similar length together. The ascending numbers
            are the longest rows of each bucket: ``(16, 32)`` makes buckets of lengths up to 16, 17
            to 32, and above. Each element is in one batch of an epoch, and all batches but the last
            are full: at the border of two buckets one batch has rows of both. Batches are in random
            order with `shuffle`, else ordered by bucket. Takes 8 bytes per element.
        drop_remainder : bool
            Drop the last batch of an epoch if it is short.
        workers : int
            Number of worker processes for iteration and ``to_tf``; 0: read in threads of this
            process. Use workers for `map` functions that hold the GIL; reading itself releases the
            GIL. The batches do not depend on the number. Workers start and end with an iterator,
            and need no ``if __name__ == "__main__"`` guard. Arrays in memory are copied once, to
            shared memory; each worker has its own chunk cache. A worker that spends more than
            ``OOCDATA_WORKER_SECONDS`` (environment variable; 600) on one read is considered hung.

        Returns
        -------
        Loader

        Raises
        ------
        oocdata.errors.ArgumentError
            If an argument is invalid, or `workers` is given and a function or source can't be
            pickled.

        Examples
        --------
        >>> import oocdata as ooc
        >>> loader = ooc.open(np.arange(10)).batches(4, shuffle=True, seed=7)
        >>> len(loader), loader.batch(step=2).shape
        (3, (2,))
        """
        return registry.call(
            "loader", self, batch_size, shuffle, seed, weights, bucket, drop_remainder, workers
        )
