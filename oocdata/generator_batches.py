"""Collect the elements that generators yield in batches, and merge the batches of several.

`GeneratorBatches` runs where a generator does, which may be a worker process; `Merged` takes the
batches of all of them in turn, and at the end what is left over of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.spec import (
    Batch,
    align,
    as_leaf,
    batches_of,
    columns_of,
    leaves,
    map_tree,
    spec_of,
)
from oocdata.errors import ArgumentError, MapError
from oocdata.runs import Run

if TYPE_CHECKING:
    from oocdata.reading.ahead import ReadAhead
    from oocdata.stream import Generated, Stream

_KINDS = {"b": "b", "i": "bi", "u": "bi", "f": "bif", "c": "bifc"}
"""For the kind of a dtype, the kinds of Python numbers that convert to it without hidden loss."""


class GeneratorBatches:
    """The batches of generators in one process, one generator after the other."""

    def __init__(self, generated: Generated, batch_size: int) -> None:
        self._generated, self._size = generated, batch_size
        self._epoch = -1
        self._batches: Iterator[Batch] = iter(())

    def run(self, run: Run) -> list[Batch]:
        """Return the next batch of an epoch's generator; short or empty once that has ended.

        The step determines the generator, as generators take turns. All runs of a process are of
        the same generator, in order.
        """
        if run.epoch != self._epoch:
            index = run.start % max(1, self._generated.workers)
            self._epoch, self._batches = run.epoch, self._begin(run.epoch, index)
        return [next(self._batches, self._empty(0))]

    def _empty(self, length: int) -> Batch:
        batch: Batch = map_tree(
            lambda leaf: np.empty((length, *leaf.shape), leaf.dtype), self._generated.spec
        )
        return batch

    def _begin(self, epoch: int, index: int) -> Iterator[Batch]:
        """Yield full batches, and at the end one that is not full, possibly empty."""
        batch, filled = self._empty(self._size), 0
        for value in self._generated.begin(epoch, index):
            elements = self._checked(value)
            length, at = len(next(leaves(elements))), 0
            while at < length:
                taken = min(length - at, self._size - filled)
                # Copied before the generator continues: it may yield the same array each time.
                for array, part in zip(leaves(batch), leaves(elements), strict=True):
                    array[filled : filled + taken] = part[at : at + taken]
                at, filled = at + taken, filled + taken
                if filled == self._size:
                    yield batch
                    batch, filled = self._empty(self._size), 0
        yield map_tree(lambda array: array[:filled], batch)

    def _checked(self, value: Any) -> Any:
        """Return a yielded value as arrays with a leading axis, in the order of the spec."""
        spec, batched = self._generated.spec, self._generated.batched
        tree = as_yielded(value)
        with suppress(ValueError):  # another tree structure is reported below
            tree = align(tree, spec)
            leaf_specs = leaves(spec)
            tree = map_tree(lambda leaf: _as_dtype(leaf, next(leaf_specs).dtype), tree)
        arrays = map_tree(as_leaf, tree)
        found = spec_of(arrays, axes=int(batched))
        lengths = {array.shape[:1] for array in leaves(arrays)} if batched else set()
        if found != spec or len(lengths) > 1 or () in lengths:
            length = "with batched=True, and one length of all arrays in front, " * batched
            raise MapError(
                f"a generator must yield what its spec says, {length}{spec}; it yielded "
                f"{spec_of(arrays)}. Convert with `.astype(...)` in the generator, or "
                "give `spec`."
            )
        return arrays if batched else map_tree(lambda array: array[None], arrays)


def _as_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return Python numbers as an array of a dtype that can hold them; other values unchanged."""
    if not isinstance(value, bool | int | float | complex | list):
        return value
    array = np.asarray(value)
    if array.dtype.kind in _KINDS.get(dtype.kind, ""):
        with suppress(OverflowError):  # reported as another dtype
            return np.asarray(value, dtype)
    return array


def as_yielded(value: Any) -> Any:
    """Return a yielded value; a list becomes a tuple, as in Keras."""
    return tuple(value) if isinstance(value, list) else value


class Merged:
    """The runs of one pass over a stream: full batches, then the generators' leftovers.

    Run n of `runs` is the next batch of generator n modulo the number of generators; it is short or
    empty once that generator has ended. `number` is the run that `read` returns next.
    """

    def __init__(
        self, runs: ReadAhead, stream: Stream, finish: Callable[[list[Batch]], list[Any]]
    ) -> None:
        self.pass_, self.number = runs.pass_, 0
        self._runs, self._stream, self._finish = runs, stream, finish
        self._generators = max(1, stream.workers)
        differ = stream.dataset.shard or stream.dataset.rng
        self._checksums: set[int] | None = None if differ else set()
        self._batches = self._merge()

    def read(self) -> list[Any] | None:
        """Return the next batch, or None at the end, and after an error: generators can't continue.

        The previous batch is no longer in use.
        """
        self.number += 1
        batch = next(self._batches, None)
        return None if batch is None else self._finish([batch])

    def _merge(self) -> Iterator[Batch]:
        """Yield the full batches of all generators in turn, then the batches of their leftovers."""
        with closing(self._runs):
            size, expected = self._stream.batch_size, self._stream.dataset.length
            running, leftovers, elements = set(range(self._generators)), list[Batch](), 0
            while running:
                turn = self._runs.number
                batches = self._runs.read() or []
                length = len(next(leaves(batches[0])))
                if turn < self._generators:
                    self._check_distinct(batches[0], length)
                elements += length
                if expected is not None and elements > expected:
                    self._refuse_length("more")
                if length == size:
                    yield batches.pop()  # so that nothing here keeps its memory
                elif turn % self._generators in running:
                    running.remove(turn % self._generators)
                    leftovers.append(map_tree(np.copy, batches[0]))
            if expected is not None and elements < expected:
                self._refuse_length(str(elements))
            length = sum(len(next(leaves(batch))) for batch in leftovers)
            spec = self._stream.dataset.spec
            if self._stream.drop_remainder:
                length -= length % size
            cuts = [slice(at, min(at + size, length)) for at in range(0, length, size)]
            whole = map(np.concatenate, columns_of(leftovers, spec))
            yield from batches_of(([array[cut] for cut in cuts] for array in whole), spec)

    def _refuse_length(self, found: str) -> None:
        raise MapError(
            f"`make` must yield the {self._stream.dataset.length} elements of `length`, those of "
            f"all generators together; there were {found}. Leave out `length` if it varies."
        )

    def _check_distinct(self, batch: Batch, length: int) -> None:
        """Raise if two generators begin with the same elements, unless all elements are equal."""
        if self._checksums is None or not length:
            return
        constant = length > 1 and all(
            _bytes(array[:1]) == _bytes(array[-1:]) for array in leaves(batch)
        )
        checksum = crc32(b"".join(map(_bytes, leaves(batch))))
        if not constant and checksum in self._checksums:
            raise ArgumentError(
                "`make` must return another generator in each worker; two of the "
                f"{self._generators} began with the same {length} elements, which would all be "
                "delivered twice. Give shard=True and make the part `index` of `num_shards`, or "
                "rng=True and draw from `rng`, or workers=1."
            )
        self._checksums.add(checksum)

    def close(self) -> None:
        """Stop reading, without waiting for reads in flight. May be called again."""
        self._batches = iter(())
        self._runs.close()


def _bytes(array: NDArray[Any]) -> bytes:
    return b"\0".join(array.flat) if array.dtype.hasobject else array.tobytes()
