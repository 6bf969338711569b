"""Share a loader with worker processes: its description, and objects that JSON can't hold.

The description is a few hundred bytes of JSON. Functions, sources and arrays are pickled beside it.
The buffers of arrays (data in memory, positions) are kept out of the pickle (PEP 574): they are
copied once to shared memory, which all workers map.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.describe import as_json, from_json
from oocdata.describe.functions import constants_read
from oocdata.engines.buffers import ALIGNMENT
from oocdata.errors import ArgumentError

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream


def anonymous_memory(nbytes: int) -> int:
    """Return a descriptor of new anonymous shared memory, which the caller must close.

    Pages are allocated when they are written to, and freed with the last descriptor and mapping.
    """
    try:
        descriptor = os.memfd_create("oocdata", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux: an unlinked temporary file
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor


def check_workers(loader: Loader | Stream) -> None:
    """Raise ArgumentError, naming the object, if a loader can't be sent to other processes."""
    _pickled(loader)


def share_loader(loader: Loader | Stream) -> tuple[int, tuple[int, ...]]:
    """Copy a loader to shared memory; return its descriptor, and the length of each part.

    The parts are the pickle and the buffers of its arrays; each begins at a multiple of 64 bytes.
    The caller passes the descriptor to the workers and closes it.
    """
    parts = _pickled(loader)
    lengths = tuple(map(len, parts))
    descriptor = anonymous_memory(sum(map(_aligned, lengths)))
    with open(descriptor, "wb", closefd=False) as file:
        for part, length in zip(parts, lengths, strict=True):
            file.write(part)
            file.seek(_aligned(length) - length, os.SEEK_CUR)
    return descriptor, lengths


def is_shared(loader: Loader | Stream, memory: Any, lengths: Sequence[int]) -> bool:
    """Return whether a loader is as it was when it was copied to shared memory."""
    parts = _pickled(loader)
    return tuple(map(len, parts)) == lengths and all(
        np.array_equal(np.frombuffer(part, np.uint8), np.frombuffer(view, np.uint8))
        for part, view in zip(parts, _parts(memory, lengths), strict=True)
    )


def _parts(memory: Any, lengths: Sequence[int]) -> list[memoryview]:
    views, offset = [], 0
    for length in lengths:
        views.append(memoryview(memory)[offset : offset + length])
        offset += _aligned(length)
    return views


def map_loader(memory: Any, lengths: Sequence[int]) -> Loader | Stream:
    """Return the loader in shared memory; its arrays refer to `memory`."""
    views = _parts(memory, lengths)
    text, objects, constants = pickle.loads(views[0], buffers=views[1:])
    own = constants_read(objects)
    for name, value in constants.items():
        if own.get(name) != value:
            raise ArgumentError(
                "`workers` must be 0 where a function reads what the program has changed in a "
                f"module: {name} is {value}, but {own.get(name)} in a worker process, which "
                "imports the module anew. Give the value as an argument: functools.partial(fn, …)."
            )
    return from_json(text, objects=objects)


def dumps(value: object, buffers: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Pickle a value for another process, which never imports this process's script.

    Functions and classes defined in the script, in a function or in a notebook are pickled by
    value.
    """
    import cloudpickle  # not for `import oocdata`: it is slow

    script = sys.modules.get("__mp_main__")
    if script is not None and script.__name__ == "__mp_main__":  # multiprocessing spawned this
        cloudpickle.register_pickle_by_value(script)
    pickled: bytes = cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers)
    return pickled


def _pickled(loader: Loader | Stream) -> list[memoryview]:
    """Return the bytes of a loader's pickle, and of the buffers kept out of it."""
    objects: list[Any] = []
    text = as_json(loader, objects=objects)
    buffers: list[pickle.PickleBuffer] = []
    try:
        parts = text, objects, constants_read(objects)
        pickled = memoryview(dumps(parts, buffers.append))
        return [pickled, *(buffer.raw().cast("B") for buffer in buffers)]
    except Exception as error:  # pickling runs code of the objects, which may raise anything
        names = ", ".join(getattr(each, "__qualname__", type(each).__name__) for each in objects)
        raise ArgumentError(
            "`workers` must be 0 where something can't be sent to another process; something "
            f"in {names} can't be pickled: {type(error).__name__}: {error}. Make what a function "
            "needs (an open file, a lock, a model) inside of it; open data by its path."
        ) from error


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
