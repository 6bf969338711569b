"""What a worker process gets: the loader pickled, and its arrays beside it in shared memory.

A loader is a description, mostly of a few hundred bytes. Arrays in it (data in memory, positions)
are left out of the pickle (PEP 574): they are copied to shared memory once, which all workers map.
"""

from __future__ import annotations

import os
import pickle
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.map import Map
from oocdata.datasets.spec import leaves
from oocdata.errors import ArgumentError
from oocdata.sources.buffers import ALIGNMENT
from oocdata.workers.arena import nameless

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["Description", "check_workers", "dumps", "loads"]


def check_workers(loader: Loader) -> None:
    """Check that a loader can be sent to other processes; copies no array.

    Raises
    ------
    oocdata.errors.ArgumentError
        If it can't: names the function or what else is at fault, and says why.
    """
    _pickled(loader)


@dataclass(frozen=True, slots=True)
class Description:
    """Parts in one piece of shared memory: the pickle first, then its arrays.

    Attributes
    ----------
    descriptor : int
        To be handed to the workers and closed.
    lengths : tuple of int
        Bytes of each part; each begins at a multiple of `ALIGNMENT`.

    Examples
    --------
    >>> import mmap, numpy as np, oocdata as ooc
    >>> loader = ooc.open(np.arange(6)).batches(2)
    >>> sent = Description.of(loader)
    >>> memory = mmap.mmap(sent.descriptor, 0, access=mmap.ACCESS_COPY)
    >>> loads(memory, sent.lengths).batch(1)
    array([2, 3])
    >>> os.close(sent.descriptor)
    """

    descriptor: int
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, loader: Loader) -> Description:
        """Pickle a loader and copy what it holds to shared memory."""
        parts = _pickled(loader)
        lengths = tuple(memoryview(part).nbytes for part in parts)
        descriptor = nameless(sum(map(_aligned, lengths)))
        place = 0
        for part, length in zip(parts, lengths, strict=True):
            left = memoryview(part).cast("B")
            start = place
            while left:
                written = os.pwrite(descriptor, left, start)
                left, start = left[written:], start + written
            place += _aligned(length)
        return cls(descriptor, lengths)


def loads(memory: Any, lengths: Sequence[int]) -> Any:
    """Return what was described; its arrays lie in `memory`."""
    views, place = [], 0
    for length in lengths:
        views.append(memoryview(memory)[place : place + length])
        place += _aligned(length)
    return pickle.loads(views[0], buffers=views[1:])


def dumps(value: object, beside: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Pickle a value for another process, which never imports this one's script.

    With cloudpickle, what is defined in the script, in a function or in a notebook travels by
    value. Without it, such a thing is refused.
    """
    try:
        import cloudpickle
    except ImportError:
        file = BytesIO()
        _WithoutScript(file, pickle.HIGHEST_PROTOCOL, buffer_callback=beside).dump(value)
        return file.getvalue()
    pickled: bytes = cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=beside)
    return pickled


class _WithoutScript(pickle.Pickler):
    """Refuses functions and classes that another process would look for in its own script."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | types.FunctionType) and value.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{value.__qualname__} is defined in the script; that takes cloudpickle "
                "(pip install cloudpickle), or a module of its own"
            )
        return NotImplemented


def _pickled(loader: Loader) -> list[Any]:
    """Return the pickle of a loader, and the buffers that it leaves out."""
    _ = loader.spec  # found here, by trying an element: a worker needn't
    beside: list[pickle.PickleBuffer] = []
    try:
        return [dumps(loader, beside.append), *(buffer.raw() for buffer in beside)]
    # What pickling raises is anything: it runs the code of all that is pickled.
    except Exception as error:
        culprit, reason = _culprit(loader.dataset, error)
        raise ArgumentError(
            f"`workers` must be 0 where something can't be sent to another process; {culprit} "
            f"can't be pickled: {type(reason).__name__}: {reason}. Make what it needs (an open "
            "file, a lock, a model) inside of it."
        ) from reason


def _culprit(dataset: Dataset, error: Exception) -> tuple[str, Exception]:
    """Return which function of a dataset can't be pickled and why, or the dataset itself."""
    for function in _functions(dataset):
        try:
            dumps(function)
        except Exception as reason:
            return f"the mapped function {getattr(function, '__qualname__', function)!r}", reason
    return repr(dataset), error


def _functions(dataset: Dataset) -> Iterator[Callable[..., Any]]:
    """Yield the functions of a dataset and of those that it is made of."""
    if isinstance(dataset, Map):
        yield dataset.fn
    described: Iterable[Any] = fields(dataset) if is_dataclass(dataset) else ()
    for field in described:
        for part in leaves(getattr(dataset, field.name)):
            if isinstance(part, Dataset):
                yield from _functions(part)


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
