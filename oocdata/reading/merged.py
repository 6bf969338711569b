"""Merge the batches of several generators: in turn, and at the end what is left over of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.spec import Batch, batches_of, columns_of, leaves, map_tree
from oocdata.errors import ArgumentError, MapError

if TYPE_CHECKING:
    from oocdata.reading.ahead import ReadAhead
    from oocdata.stream import Stream

__all__ = ["Merged"]


class Merged:
    """The runs of one pass over a stream: full batches, then the generators' leftovers.

    Run n of `runs` is the next batch of generator n modulo the number of generators; it is short or
    empty once that generator has ended. The attribute `number` is the run that `read` returns next.
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
        """Return the next batch, or None at the end; the previous one is no longer in use."""
        self.number += 1
        try:
            batch = next(self._batches, None)
        except BaseException:  # a generator that has raised can't continue
            self.close()
            raise
        if batch is None:
            self.close()
            return None
        return self._finish([batch])

    def _merge(self) -> Iterator[Batch]:
        """Yield the full batches of all generators in turn, then the batches of their leftovers."""
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
