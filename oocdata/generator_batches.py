"""Collect the elements that generators yield in batches."""

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

__all__ = ["GeneratorBatches", "as_yielded"]

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
        if () in lengths:
            raise MapError(
                "a generator must yield arrays of several elements with batched=True; it yielded "
                f"{spec_text(spec_of(arrays))}. Leave out `batched`."
            )
        if found != spec or len(lengths) > 1:
            raise MapError(
                f"a generator must yield what its spec says, {spec_text(spec)}; it yielded "
                f"{spec_text(found)}{' of unlike lengths' * (found == spec)}. Convert with "
                "`.astype(...)` in the generator, or give `spec`."
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
