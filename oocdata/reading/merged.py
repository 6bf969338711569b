"""Merge the batches of several generators: in turn, and at the end what is left over of each."""

from __future__ import annotations

from collections.abc import Callable
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
        self._running = set(range(self._generators))
        self._leftovers: list[Batch] = []
        self._elements, self._ended = 0, False
        differ = stream.dataset.shard or stream.dataset.rng
        self._checksums: set[int] | None = None if differ else set()

    def read(self) -> list[Any] | None:
        """Return the next batches, or None at the end; the previous ones are no longer in use."""
        self.number += 1
        try:
            batches = self._batches()
        except BaseException:  # a generator that has raised can't continue
            self.close()
            raise
        if not batches:
            self.close()
            return None
        return self._finish(batches)

    def _batches(self) -> list[Batch]:
        size, expected = self._stream.batch_size, self._stream.dataset.length
        while self._running:
            turn = self._runs.number
            batch = (self._runs.read() or [])[0]
            length = len(next(leaves(batch)))
            if turn < self._generators:
                self._check_distinct(batch, length)
            self._elements += length
            if expected is not None and self._elements > expected:
                self._refuse_length("more")
            if length == size:
                return [batch]
            if turn % self._generators in self._running:
                self._running.remove(turn % self._generators)
                self._leftovers.append(map_tree(np.copy, batch))
        leftovers, self._leftovers = self._leftovers, []
        if expected is not None and self._elements < expected and not self._ended:
            self._refuse_length(str(self._elements))
        self._ended = True
        if not leftovers:
            return []
        length = sum(len(next(leaves(batch))) for batch in leftovers)
        spec = self._stream.dataset.spec
        if self._stream.drop_remainder:
            length -= length % size
        cuts = [slice(at, min(at + size, length)) for at in range(0, length, size)]
        whole = map(np.concatenate, columns_of(leftovers, spec))
        return batches_of(([array[cut] for cut in cuts] for array in whole), spec)

    def _refuse_length(self, found: str) -> None:
        self.close()
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
            self.close()
            raise ArgumentError(
                "`make` must return another generator in each worker; two of the "
                f"{self._generators} began with the same {length} elements, which would all be "
                "delivered twice. Give shard=True and make the part `index` of `num_shards`, or "
                "rng=True and draw from `rng`, or workers=1."
            )
        self._checksums.add(checksum)

    def close(self) -> None:
        """Stop reading, without waiting for reads in flight. May be called again."""
        self._running, self._leftovers, self._ended = set(), [], True
        self._runs.close()


def _bytes(array: NDArray[Any]) -> bytes:
    return b"\0".join(array.flat) if array.dtype.hasobject else array.tobytes()
