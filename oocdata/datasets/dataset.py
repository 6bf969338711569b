"""What every dataset can do, given which boxes an element is made of.

A dataset is a frozen description: positions in, boxes out (`requests`), and how the arrays that
come back make elements (`assemble`). Composing reads nothing; `read` is where the two meet.
"""

from __future__ import annotations

import itertools
import operator
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata import chain
from oocdata.blocks import ADDRESSABLE, AnyBlocks, BlockIds, typical_length
from oocdata.datasets.request import ArrayRequest, asked_for, of_sources
from oocdata.datasets.spec import ArraySpec, Batch, Spec, leaves, map_tree
from oocdata.datasets.splitting import Splitting
from oocdata.engines.buffers import ALIGNMENT
from oocdata.engines.byte_rows import OBJECT_BYTES, largest_rows
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError
from oocdata.index import as_array, as_positions, as_run, slice_range
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.cached import Cached
    from oocdata.datasets.map import Map
    from oocdata.datasets.patches import Patches
    from oocdata.datasets.zip import Zip
    from oocdata.loader import Loader
    from oocdata.order import Order

__all__ = ["Dataset", "Described", "Draw", "fields_of", "public_names", "rows_where"]

_OURS = {
    "shuffle": ".batches(size, shuffle=True)",
    "batch": ".batches(size)",
    "repeat": ".batches(size).to_tf(epochs=…); iterating again is the next epoch",
    "prefetch": ".batches(size).to_tf(prefetch=…)",
}
"""Methods of other libraries that people try from habit, and what does it here."""

_READ = operator.methodcaller("read")

_PLACES = 10
"""Integers for a box while it is gathered from chunks, counted: of the chunk, of the row in it, by
which boxes are sorted, where they go, and what NumPy makes on the way."""


@dataclass(frozen=True)
class Draw:
    """What randomness may depend on, and nothing else: never who reads."""

    seed: int = 0
    epoch: int = 0
    step: int = 0
    lane: int = 0
    """The first lane of the batch, or of the rank's part of it."""
    positions: NDArray[np.int64] | None = None
    """Of the batch's elements in the loader's dataset."""

    @cached_property
    def rng(self) -> np.random.Generator:
        """One generator for the batch; the batched functions of a chain draw from it in turn."""
        return self._generator(0, self.step, self.lane)

    def rng_of(self, place: int) -> np.random.Generator:
        """Return the generator of one element, at a place of the batch."""
        position = place if self.positions is None else int(self.positions[place])
        return self._generator(1, position)

    def of(self, places: NDArray[np.int64]) -> Draw:
        """Return the same for the elements at some places: functions draw in turn from `rng`."""
        part = replace(self, positions=places if self.positions is None else self.positions[places])
        part.__dict__["rng"] = self.rng
        return part

    def _generator(self, kind: int, *words: int) -> np.random.Generator:
        # SeedSequence takes what is not negative: the sign becomes a word of its own.
        key = [abs(self.seed), int(self.seed < 0), kind, self.epoch, *words]
        return np.random.default_rng(key)


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields that a dataclass is made from again."""
    return {field.name: getattr(value, field.name) for field in fields(value) if field.init}


def public_names(self: object) -> list[str]:
    """Return what users call: fields, and what each class names in `_public`; for completion.

    Without what the package alone calls, which is as much again.
    """
    public = {name for kind in type(self).__mro__ for name in vars(kind).get("_public", ())}
    public.update(getattr(self, "__dataclass_fields__", ()))
    return [name for name in object.__dir__(self) if name in public or name.startswith("_")]


class Described:
    """A frozen dataclass whose fields are its description: a dataset, or what one is made of.

    `oocdata.describe` writes them as JSON, with all that is described in them.
    """

    def __getstate__(self) -> dict[str, Any]:
        # The description alone travels; and what a function was seen to return, or every process
        # would run it once more.
        own = {**getattr(self, "__dataclass_fields__", vars(self)), "spec": None}
        return {name: value for name, value in vars(self).items() if name in own}

    def describe(self) -> dict[str, Any]:
        """Return what it is made from again, by name."""
        return fields_of(self)


class Dataset(Described, Splitting):
    """Elements by position. See `View` and its methods for how datasets are made."""

    _public: ClassVar[Sequence[str]] = (
        "batches", "cache", "describe", "enumerate", "filter", "folds", "map", "patches",
        "sample_shape", "shard", "sparse", "spec", "split", "split_at", "take",
    )  # fmt: skip
    __dir__ = public_names

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """Shape and dtype of an element's arrays."""

    def requests(self, positions: NDArray[np.int64], draw: Draw) -> tuple[ArrayRequest, ...]:
        """Return the boxes that elements at checked positions are made of; nothing is read."""
        requests = [part.requests(positions, draw) for part in self._members]
        return tuple(itertools.chain.from_iterable(requests))

    def assemble(
        self, arrays: Iterator[NDArray[Any]], positions: NDArray[np.int64], draw: Draw
    ) -> Batch:
        """Return the batch made of the arrays that `requests` asked for, in that order."""
        spec = self.spec
        batch: Batch = (
            next(arrays) if isinstance(spec, ArraySpec) else map_tree(lambda _: next(arrays), spec)
        )
        return batch

    @property
    def blocks(self) -> AnyBlocks:
        """Which positions are stored together: in the part that costs most to read badly."""
        found = [part.blocks for part in self._members]
        runs = [blocks for blocks in found if not isinstance(blocks, BlockIds)]
        ids = [blocks for blocks in found if isinstance(blocks, BlockIds)]
        count = len(self)
        longest = max(runs, key=lambda blocks: typical_length(blocks, count), default=ADDRESSABLE)
        return ids[0] if ids and longest == ADDRESSABLE else longest

    @property
    def is_mapped(self) -> bool:
        """Whether a function of the user's makes the batches: it must get them one by one."""
        return any(part.is_mapped for part in self._members)

    @property
    def is_composed(self) -> bool:
        """Whether some leaves of a batch are several arrays: `SparseBatch` or `RaggedBatch`."""
        return any(part.is_composed for part in self._members)

    def row_lengths(self) -> NDArray[np.int64] | None:
        """Return the length of each element, where they are rows of unequal length; else None.

        Of several such rows in an element, that of the longest.
        """
        found = [part.row_lengths() for part in self._members]
        known = [lengths for lengths in found if lengths is not None]
        return np.maximum.reduce(known) if known else None

    def array_bytes(self, elements: int) -> list[int]:
        """Return the bytes of each array of a batch of so many elements.

        Of rows of unequal length the most that so many of them take, besides their places.
        """
        if self.is_composed:
            return [nbytes for part in self._members for nbytes in part.array_bytes(elements)]
        specs = list(leaves(self.spec))
        unequal = any(leaf.dtype.hasobject for leaf in specs)
        arrays = [leaf.nbytes * elements for leaf in specs]
        if not unequal:
            return arrays
        objects = self._object_bytes(elements)
        return [*arrays, -(-objects // ALIGNMENT) * ALIGNMENT]  # which nobody has to align

    def _object_bytes(self, elements: int) -> int:
        """Return the most that the rows of unequal length take of which elements are made."""
        sizes = [some for source in self.sources() if (some := source.storage().row_sizes)]
        if not sizes or not len(self):
            return 0
        together, found = np.sum(sizes, axis=0), 0
        first = np.zeros(1, np.int64)
        for request in of_sources(self.requests(first, Draw(positions=first))):
            if request.dtype.hasobject:
                rows = len(request.origins) * request.extent.size  # of an element
                found += rows * (largest_rows(together, elements) + elements * OBJECT_BYTES)
        return found

    def input_bytes(self, elements: int) -> int:
        """Return the bytes that so many elements are read into first, where not into the batch."""
        return sum(part.input_bytes(elements) for part in self._members)

    def place_bytes(self, elements: int) -> int:
        """Return the bytes of the integers that say where so many elements lie as they are read.

        The origins of all boxes; and of one array at a time, in which chunk each box lies, where in
        it, and where it goes.
        """
        first = np.zeros(1, np.int64)
        requests = of_sources(self.requests(first, Draw(positions=first)))
        origins = sum(one.origins.nbytes for one in requests)
        most = max((len(one.origins) for one in requests), default=0)
        return elements * (first.itemsize + origins + _PLACES * first.itemsize * most)

    def sources(self) -> list[Source]:
        """Return the sources that are read, each once."""
        if self._members:
            found = [source for part in self._members for source in part.sources()]
        else:
            requests = self.requests(np.zeros(min(1, len(self)), np.int64), Draw())
            found = [request.source for request in of_sources(requests)]
        return list({id(source): source for source in found}.values())

    @property
    def _can_cut(self) -> list[bool]:
        """Whether each array of an element is made of axes of storage, so that patches cut it."""
        found = [can for part in self._members for can in part._can_cut]
        return found or [True] * len(list(leaves(self.spec)))

    def read(self, positions: NDArray[np.int64], draw: Draw) -> Batch:
        """Read the elements at checked positions as one batch."""
        requests = self.requests(positions, draw)
        if not self.is_remote:
            return self.assemble(map(_READ, requests), positions, draw)
        with asked_for(requests):
            return self.assemble(map(_READ, requests), positions, draw)

    def gather(self, positions: NDArray[np.int64], draw: Draw) -> Batch:
        """Read as `read` does; what lies in stores was asked for, or it comes piece by piece."""
        return self.assemble(map(_READ, self.requests(positions, draw)), positions, draw)

    @cached_property
    def is_remote(self) -> bool:
        """Whether anything is read from a store."""
        return any(source.storage().is_remote for source in self.sources())

    @cached_property
    def is_far(self) -> bool:
        """Whether something is fetched from a store whenever it is read: no folder keeps it."""
        stored = (source.storage() for source in self.sources())
        return any(storage.is_remote and not storage.cache for storage in stored)

    def take(self, positions: ArrayLike) -> Batch:
        """Read the elements at positions as one batch.

        Parameters
        ----------
        positions : array_like of int or bool, shape (n,)
            Any order, repeats allowed; negative ones count from the end.

        Returns
        -------
        ndarray, tuple or dict of ndarray, each of shape ``(n, *element)``

        Raises
        ------
        oocdata.errors.PositionError
            If a position does not exist.
        oocdata.errors.SourceError
            If storage can't deliver a row.
        """
        chosen = as_positions(positions, len(self))
        # Outside a Loader there is no step: what a mapped function draws depends on what is taken.
        return self.read(chosen, Draw(step=crc32(chosen.tobytes()), positions=chosen))

    def __getitem__(self, key: Any) -> Any:
        """Read one element (an int), or select without reading (a slice, int array or mask)."""
        if isinstance(key, slice):
            return self._select(slice_range(range(len(self)), key))
        if isinstance(key, range) and key and all(0 <= at < len(self) for at in (key[0], key[-1])):
            return self._select(key)
        if isinstance(key, bool | np.bool_ | tuple):
            raise ArgumentError(
                f"an index must be an int, a slice, an int array or a bool mask; got {key!r}."
            )
        try:
            position = operator.index(key)
        except TypeError:
            return self._select(as_positions(key, len(self)))
        batch = self.take([position])
        return map_tree(lambda array: array[0], batch)

    def __getitems__(self, positions: Sequence[int]) -> list[Any]:
        """Read several elements at once: what PyTorch's fetcher calls on a map-style dataset."""
        batch = self.take(positions)
        return [map_tree(operator.itemgetter(i), batch) for i in range(len(positions))]

    def __getattr__(self, name: str) -> NoReturn:
        if name in _OURS:
            raise AttributeError(
                f"a {type(self).__name__} has no method `{name}`; oocdata's own is {_OURS[name]}."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def filter(self, mask: ArrayLike | Dataset) -> Self:
        """Return the dataset of the elements for which a mask is true; reads the mask alone.

        Parameters
        ----------
        mask : array_like of bool, shape (len,), or View of bool
            One for each element. A View is read in blocks; what stays in memory is 8 bytes for each
            element that is left.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the mask is not bool, or not one for each element.

        Examples
        --------
        >>> import oocdata as ooc
        >>> labels = np.array([3, 1, 3, 2])
        >>> np.asarray(ooc.open(np.arange(4)).filter(labels == 3))
        array([0, 2])
        """
        if isinstance(mask, Dataset):
            if mask.spec != ArraySpec((), np.dtype(np.bool_)):
                raise ArgumentError(
                    f"`mask` must be a View of one bool for each element; got {mask!r}. A View of "
                    "numbers is compared in memory: .filter(np.asarray(view) == 3)."
                )
            count, places = len(mask), rows_where("mask", mask)
        else:
            given = as_array("mask", mask)
            if given.ndim != 1 or given.dtype != np.bool_:
                raise ArgumentError(
                    f"`mask` must be one bool for each element; got {given.dtype} of shape "
                    f"{given.shape}. Positions are chosen by dataset[positions]."
                )
            count, places = len(given), np.flatnonzero(given)
        if count != len(self):
            raise ArgumentError(
                f"`mask` must have one bool for each of the {len(self)} elements; got {count}."
            )
        return self._select(as_run(places))

    def enumerate(self) -> Zip:
        """Return pairs (position, element): int64, the positions of this dataset.

        They stay with their elements through later selections, splits and shuffles.

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.open(np.arange(10, 20)).enumerate()[::-3].take([1])
        (array([6]), array([16]))
        """
        made: Zip = chain.make("enumerate", self)
        return made

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
            Pass ``rng=``, a `numpy.random.Generator`. With ``batched=False`` it depends on (seed,
            epoch, position) alone. With ``batched=True`` it depends on (seed, epoch, step) and, in
            a rank of data-parallel training, on which part of the batch the rank reads: ranks draw
            different numbers.
        spec : tree of ArraySpec, optional
            What an element looks like afterwards. Without it the function is run on one element
            when the spec is first needed.

        Examples
        --------
        >>> import oocdata as ooc
        >>> view = ooc.open(np.arange(6).reshape(3, 2))
        >>> view.map(lambda x: x * 10)[2]
        array([40, 50])
        """
        made: Map = chain.make("map", self, fn, batched, rng, spec)
        return made

    def cache(self, folder: str | os.PathLike[str] | None = None, *, workers: int = 0) -> Cached:
        """Read and compute every element now, once, and return the dataset that reads the results.

        For functions or decoding that take longer than reading an array. Later epochs, runs and
        processes read at the speed of a ``.npy``, in any order.

        Parameters
        ----------
        folder : path, optional
            Where the arrays are kept; there may be caches of several datasets in it, each in a
            folder of its own. One of the same data and functions is used as it is; one that is
            half written is gone on with. By default the elements stay in memory, where they take
            at most half of `oocdata.set_memory`.
        workers : int
            Processes that compute, as in `batches`.

        Returns
        -------
        Cached
            The same elements. It is split as this dataset is, so that no two parts share a row of
            the arrays it was made of.

        Raises
        ------
        oocdata.errors.ArgumentError
            If elements are drawn at random (cache before that), are no arrays of one shape, or
            don't fit into memory.
        oocdata.errors.SourceError
            If storage can't deliver an element, or the folder can't be written.

        Examples
        --------
        >>> import tempfile, oocdata as ooc
        >>> roots = ooc.open(np.arange(6.0)).map(np.sqrt)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cached = roots.cache(folder)
        ...     cached[4], len(cached)
        (np.float64(2.0), 6)
        """
        made: Cached = chain.make("cache", self, folder, workers)
        return made

    def sparse(self) -> Dataset:
        """Return the same elements, rows of sparse matrices as they are stored.

        For rows of AnnData's sparse matrices, and a zip of them with others. In a batch each such
        array is a `SparseBatch` (indices, values and the dense shape); `Loader.to_tf` gives it as
        ``tf.sparse.SparseTensor``. Functions, windows and patches need dense rows: zip with what
        is mapped.

        Raises
        ------
        oocdata.errors.ArgumentError
            If there are no such rows.
        """
        made = self._as_sparse()
        if made is None:
            raise ArgumentError(
                "sparse batches must be of rows of a sparse matrix (a csr_matrix of AnnData), or "
                f"of a zip of such with others; got {self!r}. Call `.sparse()` before `.batches`, "
                "and zip with what is mapped."
            )
        return made

    def _as_sparse(self) -> Dataset | None:
        """Return what `sparse` does; None where no rows are sparse."""
        return None

    def patches(
        self,
        size: int | Sequence[int],
        *,
        step: int | Sequence[int] | None = None,
        per_row: int | None = None,
        axes: Sequence[int] | None = None,
    ) -> Patches:
        """Return parts of elements as elements: only their bytes or chunks are read.

        Parameters
        ----------
        size : int or sequence of int
            Places along each of `axes`.
        step : int or sequence of int, optional
            A grid: from one patch to the next along each axis; by default `size`. Patches that
            would reach over the edge are left out.
        per_row : int, optional
            So many random patches of each element instead of a grid: their places are a pure
            function of (seed, epoch, position).
        axes : sequence of int, optional
            Axes of the element, negative ones counted from its end; by default the last
            ``len(size)`` (of windows, those of a row). Of every array of an element the same part
            is cut: x and y of a window, all of a zip.

        Raises
        ------
        oocdata.errors.ArgumentError
            If an element has no such axes, is smaller than a patch, or its arrays differ along
            them.

        Examples
        --------
        >>> import oocdata as ooc
        >>> tiles = ooc.open(np.arange(32).reshape(2, 4, 4)).patches((2, 2))
        >>> len(tiles), tiles[1].tolist()
        (8, [[2, 3], [6, 7]])
        """
        made: Patches = chain.make("patches", self, size, step, per_row, axes)
        return made

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
        """Return the `Loader` of this dataset: (step, epoch) → batch.

        Parameters
        ----------
        batch_size : int
        shuffle : bool, "global", "block" or Order
            False: in order. True: the best kind for this storage. "global": a true permutation of
            all elements. "block": stored chunks in random order, mixed within a window of several.
        seed : int
            With the epoch, fixes the order, random patches, and what `map` functions draw.
        weights : array_like of float, shape (len,), or View, optional
            Draw with replacement, each element in proportion to its weight: in an epoch of
            n = len(self) draws, an element of share w comes floor(n w) or ceil(n w) times, and over
            epochs n w times on average. Takes 12 bytes an element, and a shuffle. See `balanced`.
        bucket : sequence of int, optional
            Of rows of unequal length (`oocdata.ragged`), batch those of like length together. These
            are the longest rows of each bucket, ascending: ``(16, 32)`` makes buckets of up to 16,
            of 17 to 32, and of longer rows. Every element comes once an epoch, all batches but the
            last are full, and come in a random order with `shuffle`, else by bucket. Where one
            bucket ends and the next begins, one batch has rows of both. Takes 8 bytes an element.
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
        loader: Loader = chain.make(
            "loader", self, batch_size, shuffle, seed, weights, bucket, drop_remainder, workers
        )
        return loader


def rows_where(name: str, flags: Dataset) -> NDArray[np.int64]:
    """Return the positions at which the one number of an element is not 0; reads in blocks."""

    def places(block: Any) -> NDArray[np.int64]:
        values = block.values.reshape(-1)
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise ArgumentError(f"`{name}` must hold flags; got NaN in {flags!r}.")
        found: NDArray[np.int64] = np.flatnonzero(values) + block.rows.start
        return found

    each = chain.make("each_block", flags, places)
    return np.concatenate([np.zeros(0, np.int64), *each])
