"""The batches of several generators as one: in turn, and at the end what is left of all."""

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
    """The runs of one pass over a stream: full batches, and at last what the generators leave.

    Run number n of `runs` is the next batch of generator n modulo their number, a short or empty
    one when it has ended. `number` is the run that `read` returns next.
    """

    def __init__(
        self, runs: ReadAhead, stream: Stream, finish: Callable[[list[Batch]], list[Any]]
    ) -> None:
        self.over, self.number = runs.over, 0
        self._runs, self._stream, self._finish = runs, stream, finish
        self._generators = max(1, stream.workers)
        self._going = set(range(self._generators))
        self._left: list[Batch] = []
        self._elements, self._over = 0, False
        given = stream.dataset
        self._begun: set[int] | None = None if given.shard or given.rng else set()

    def read(self) -> list[Any] | None:
        """Return the next batches, None after the last; those before are no longer in use."""
        self.number += 1
        try:
            batches = self._batches()
        except BaseException:  # generators that have failed are over
            self.close()
            raise
        if not batches:
            self.close()
            return None
        return self._finish(batches)

    def _batches(self) -> list[Batch]:
        size, wanted = self._stream.batch_size, self._stream.dataset.length
        while self._going:
            turn = self._runs.number
            batch = (self._runs.read() or [])[0]
            length = len(next(leaves(batch)))
            if turn < self._generators:
                self._differ(batch, length)
            self._elements += length
            if wanted is not None and self._elements > wanted:
                self._refuse_length("more")
            if length == size:
                return [batch]
            if turn % self._generators in self._going:
                self._going.remove(turn % self._generators)
                self._left.append(map_tree(np.copy, batch))
        left, self._left = self._left, []
        if wanted is not None and self._elements < wanted and not self._over:
            self._refuse_length(str(self._elements))
        self._over = True
        if not left:
            return []
        length, spec = sum(len(next(leaves(batch))) for batch in left), self._stream.dataset.spec
        if self._stream.drop_remainder:
            length -= length % size
        cuts = [slice(at, min(at + size, length)) for at in range(0, length, size)]
        whole = map(np.concatenate, columns_of(left, spec))
        return batches_of(([array[cut] for cut in cuts] for array in whole), spec)

    def _refuse_length(self, found: str) -> None:
        self.close()
        raise MapError(
            f"`make` must yield the {self._stream.dataset.length} elements of `length`, those of "
            f"all generators together; there were {found}. Leave out `length` if it varies."
        )

    def _differ(self, batch: Batch, length: int) -> None:
        """Raise if two generators begin with the same elements, unless all elements are alike."""
        if self._begun is None or not length:
            return
        constant = length > 1 and all(
            _bytes(array[:1]) == _bytes(array[-1:]) for array in leaves(batch)
        )
        found = crc32(b"".join(map(_bytes, leaves(batch))))
        if not constant and found in self._begun:
            self.close()
            raise ArgumentError(
                "`make` must return another generator in each worker; two of the "
                f"{self._generators} began with the same {length} elements, which would all be "
                "delivered twice. Give shard=True and make the part `index` of `num_shards`, or "
                "rng=True and draw from `rng`, or workers=1."
            )
        self._begun.add(found)

    def close(self) -> None:
        """End the reading without waiting for it. May be called again."""
        self._going, self._left, self._over = set(), [], True
        self._runs.close()


def _bytes(array: NDArray[Any]) -> bytes:
    return b"\0".join(array.flat) if array.dtype.hasobject else array.tobytes()
