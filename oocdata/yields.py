"""What a generator yields, gathered in batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.datasets.spec import Batch, align, as_leaf, leaves, map_tree, spec_of, spec_text
from oocdata.errors import MapError
from oocdata.runs import Run

if TYPE_CHECKING:
    from oocdata.stream import Generated

__all__ = ["Yields", "as_yielded"]

_KINDS = {"b": "b", "i": "bi", "u": "bi", "f": "bif", "c": "bifc"}
"""Of Python's numbers, which kinds a dtype of a kind takes without a loss that nobody sees."""


class Yields:
    """The batches of generators in one process, one generator after the other."""

    def __init__(self, generated: Generated, batch_size: int) -> None:
        self._generated, self._size = generated, batch_size
        self._epoch = -1
        self._batches: Iterator[Batch] = iter(())

    def run(self, run: Run) -> list[Batch]:
        """Return the next batch of an epoch's generator: a short or empty one when it has ended.

        Which generator follows from the step, as they take turns. The runs of a process are all of
        the same generator, in order.
        """
        if run.epoch != self._epoch:
            index = run.start % max(1, self._generated.workers)
            self._epoch, self._batches = run.epoch, self._begin(run.epoch, index)
        return [next(self._batches, self._new(0))]

    def _new(self, length: int) -> Batch:
        batch: Batch = map_tree(
            lambda leaf: np.empty((length, *leaf.shape), leaf.dtype), self._generated.spec
        )
        return batch

    def _begin(self, epoch: int, index: int) -> Iterator[Batch]:
        """Yield full batches, then one that is not."""
        batch, filled = self._new(self._size), 0
        for value in self._generated.begin(epoch, index):
            piece = self._agreed(value)
            length, at = len(next(leaves(piece))), 0
            while at < length:
                taken = min(length - at, self._size - filled)
                # Copied before the generator goes on: it may yield one array again and again.
                for array, part in zip(leaves(batch), leaves(piece), strict=True):
                    array[filled : filled + taken] = part[at : at + taken]
                at, filled = at + taken, filled + taken
                if filled == self._size:
                    yield batch
                    batch, filled = self._new(self._size), 0
        yield map_tree(lambda array: array[:filled], batch)

    def _agreed(self, value: Any) -> Any:
        """Return what was yielded as arrays with a leading axis, in the order of the spec."""
        spec, batched = self._generated.spec, self._generated.batched
        tree = as_yielded(value)
        with suppress(ValueError):  # another tree: told below
            tree = align(tree, spec)
            wanted = leaves(spec)
            tree = map_tree(lambda leaf: _of_python(leaf, next(wanted).dtype), tree)
        found = map_tree(as_leaf, tree)
        said = spec_of(found, axes=int(batched))
        lengths = {array.shape[:1] for array in leaves(found)} if batched else set()
        if said != spec or len(lengths) > 1:
            raise MapError(
                f"a generator must yield what its spec says, {spec_text(spec)}; it yielded "
                f"{spec_text(said)}{' of unlike lengths' * (said == spec)}. Convert with "
                "`.astype(...)` in the generator, or give `spec`."
            )
        return found if batched else map_tree(lambda array: array[None], found)


def _of_python(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return Python's own numbers as an array of a dtype that can hold them; others as they are."""
    if not isinstance(value, bool | int | float | complex | list):
        return value
    array = np.asarray(value)
    fits = array.dtype.kind in _KINDS.get(dtype.kind, "")
    return np.asarray(value, dtype) if fits else array


def as_yielded(value: Any) -> Any:
    """Return what was yielded; a list is a tuple, as for Keras."""
    return tuple(value) if isinstance(value, list) else value
