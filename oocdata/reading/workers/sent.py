"""What a worker process is sent: a loader's description, and beside it what JSON can't hold.

The description is a few hundred bytes. Functions, sources and arrays go beside it, pickled. Their
numbers (data in memory, positions) are left out of the pickle (PEP 574): they are copied to shared
memory once, which all workers map.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oocdata.describe import as_json, from_json
from oocdata.engines.buffers import ALIGNMENT
from oocdata.errors import ArgumentError

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream

__all__ = ["check_workers", "dumps", "loads", "nameless", "sent"]


def nameless(nbytes: int) -> int:
    """Return a descriptor of new shared memory, for the caller to close.

    It takes room when it is written to, and is gone with the last descriptor and mapping of it.
    """
    try:
        descriptor = os.memfd_create("oocdata", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux: a file that has lost its name already
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor


def check_workers(loader: Loader | Stream) -> None:
    """Raise ArgumentError if a loader can't be sent to other processes: names what, and why."""
    _pickled(loader)


def sent(loader: Loader | Stream) -> tuple[int, tuple[int, ...]]:
    """Copy a loader to shared memory, the pickle first, then its arrays, and how long each is.

    Each part begins at a multiple of 64. The caller hands the descriptor to workers and closes it.

    Examples
    --------
    >>> import mmap, numpy as np, oocdata as ooc
    >>> descriptor, lengths = sent(ooc.open(np.arange(6)).batches(2))
    >>> loads(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY), lengths).batch(1)
    array([2, 3])
    >>> os.close(descriptor)
    """
    parts = [memoryview(part).cast("B") for part in _pickled(loader)]
    lengths = tuple(map(len, parts))
    descriptor = nameless(sum(map(_aligned, lengths)))
    with open(descriptor, "wb", closefd=False) as file:
        for part, length in zip(parts, lengths, strict=True):
            file.write(part)
            file.seek(_aligned(length) - length, os.SEEK_CUR)
    return descriptor, lengths


def loads(memory: Any, lengths: Sequence[int]) -> Loader | Stream:
    """Return the loader that was sent; its arrays lie in `memory`."""
    views, place = [], 0
    for length in lengths:
        views.append(memoryview(memory)[place : place + length])
        place += _aligned(length)
    text, beside = pickle.loads(views[0], buffers=views[1:])
    return from_json(text, beside=beside)


def dumps(value: object, buffers: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Pickle a value for another process, which never imports this one's script.

    What is defined in the script, in a function or in a notebook travels by value.
    """
    import cloudpickle  # not for `import oocdata`: it is slow

    pickled: bytes = cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers)
    return pickled


def _pickled(loader: Loader | Stream) -> list[Any]:
    """Return the pickle of a loader, and the buffers that it leaves out."""
    beside: list[Any] = []
    text = as_json(loader, beside=beside)
    buffers: list[pickle.PickleBuffer] = []
    try:
        return [dumps((text, beside), buffers.append), *(buffer.raw() for buffer in buffers)]
    # What pickling raises is anything: it runs the code of all that is pickled.
    except Exception as error:
        culprit, reason = _culprit(beside, error)
        raise ArgumentError(
            f"`workers` must be 0 where something can't be sent to another process; {culprit} "
            f"can't be pickled: {type(reason).__name__}: {reason}. Make what it needs (an open "
            "file, a lock, a model) inside of it; open data by its path."
        ) from reason


def _culprit(beside: Sequence[Any], error: Exception) -> tuple[str, Exception]:
    """Return what can't be pickled, and why."""
    for value in beside:
        try:
            dumps(value)
        except Exception as reason:
            name = getattr(value, "__qualname__", None)
            return (repr(value) if name is None else f"the function {name!r}"), reason
    return "it", error


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
