"""The code of a worker process: read a run, copy its batches into a slot, and answer."""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.spec import Batch, leaves
from oocdata.engines.buffers import ALIGNMENT, keep_freed_memory
from oocdata.errors import MapError, traceback_text
from oocdata.loader import Loader
from oocdata.memory import set_memory
from oocdata.reading.prefetcher import Prefetcher
from oocdata.reading.workers.sharing import dumps, map_loader

if TYPE_CHECKING:
    from oocdata.runs import Pass, Run
    from oocdata.stream import Stream

SlotArray = tuple[int, tuple[int, ...], np.dtype[Any]] | NDArray[Any]
"""Offset, shape and dtype of an array in a slot; or the array itself, if its elements are
objects."""


def main() -> None:
    """Serve the parent process until it ends or closes the connection."""
    # Ctrl-C goes to all processes of a terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    descriptors = [int(number) for number in sys.argv[1:5]]
    for descriptor in descriptors:  # processes that the user's functions start must not get them
        os.set_inheritable(descriptor, False)
    task, lifeline, slots, sent = descriptors
    del sys.argv[1:]
    die_with_parent(lifeline)
    connection = Connection(task)
    with suppress(EOFError, OSError):  # the parent has ended, or closed the connection
        _serve(connection, slots, sent)
    connection.close()


def die_with_parent(lifeline: int) -> None:
    """End this process when the other end of a pipe closes, whatever it is doing.

    The kernel sends SIGKILL (``F_SETSIG``, fcntl(2)), which needs no thread and no GIL. Unlike
    ``PR_SET_PDEATHSIG``, it isn't sent when only the thread that started this process ends. Where
    ``F_SETSIG`` is missing, a thread waits for the end.
    """
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_RDONLY | os.O_ASYNC)
    except (AttributeError, OSError):
        threading.Thread(target=_wait_for_end, args=(lifeline,), daemon=True).start()
        return
    closed = select.poll()  # select(2) takes no descriptors above 1023
    closed.register(lifeline, select.POLLIN)
    if closed.poll(0):  # closed before the signal was requested
        os.kill(os.getpid(), signal.SIGKILL)


def _wait_for_end(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _serve(connection: Connection[Any, Any], slots: int, sent: int) -> None:
    lengths, slot_bytes, memory_bytes = pickle.loads(connection.recv_bytes())
    set_memory(memory_bytes)
    keep_freed_memory()
    memory = np.frombuffer(mmap.mmap(slots, 0), np.uint8)
    os.close(slots)
    read: Callable[..., list[Batch]] | None = None
    while True:
        run, slot, turn = pickle.loads(connection.recv_bytes())
        answer: tuple[Any, ...]
        try:
            if read is None:
                # Copy on write: a function may change its closure's arrays, as in one process.
                loader = map_loader(mmap.mmap(sent, 0, access=mmap.ACCESS_COPY), lengths)
                read = _RemoteReader(loader).read if turn else loader.reader()
                os.close(sent)
            room = memory[slot * slot_bytes : (slot + 1) * slot_bytes]
            answer = ("read", copy_to_slot(room, read(run, *turn or ())))
        except BaseException as error:
            answer = ("raised", *_dump_error(error))
        for stream in (sys.stdout, sys.stderr):  # the parent ends this process without warning
            with suppress(Exception):
                stream.flush()
        connection.send_bytes(pickle.dumps(answer))


class _RemoteReader:
    """Reader of a loader whose bytes are in stores; also requests later runs of a pass."""

    def __init__(self, loader: Loader | Stream) -> None:
        assert isinstance(loader, Loader)
        self._loader = loader
        self._prefetch: Prefetcher | None = None

    def read(self, run: Run, pass_: Pass, number: int, every: int) -> list[Batch]:
        """Read a run, and request later runs of its pass."""
        if self._prefetch is None or not self._prefetch.continues(pass_, number):
            if self._prefetch is not None:
                self._prefetch.close()
            self._prefetch = Prefetcher(self._loader, pass_, number, every)
        with self._prefetch.reading(number):
            return self._loader.read_requested(run)


def copy_to_slot(slot: NDArray[np.uint8], batches: Sequence[Batch]) -> list[list[SlotArray]]:
    """Copy batches into a slot; return the offset, shape and dtype of each array.

    The loader can't read into the slot directly: a mapped function may keep the arrays that it gets
    or returns, and the slot is written to again. The copy is made here, in parallel to the trainer.
    Raises MapError if the batches are larger than their spec.
    """
    end, placed = 0, []
    for batch in batches:
        places: list[SlotArray] = []
        for array in leaves(batch):
            if array.dtype.hasobject:  # bytes of unequal length are pickled with the answer
                places.append(array)
                continue
            start = -(-end // ALIGNMENT) * ALIGNMENT
            end = start + array.nbytes
            if end > len(slot):
                raise MapError(
                    f"a batch must be as large as its spec says; {array.nbytes} bytes of shape "
                    f"{array.shape} don't fit."
                )
            dtype = array.dtype.newbyteorder("=")
            np.copyto(slot[start:end].view(dtype).reshape(array.shape), array)
            places.append((start, array.shape, dtype))
        placed.append(places)
    return placed


def _dump_error(error: BaseException) -> tuple[bytes | None, str]:
    """Return an exception pickled, None if it can't be, and its traceback as text."""
    text = traceback_text(error)
    # The second form is for exceptions whose ``__init__`` takes other arguments than ``args``.
    for value in (error, (type(error), error.args, error.__dict__)):
        with suppress(Exception):  # both forms may run code of the exception's class
            pickled = dumps(value)
            load_error(pickled)
            return pickled, text
    return None, text


def load_error(pickled: bytes) -> BaseException:
    """Return the exception of a pickle made by `_dump_error`."""
    error: Any = pickle.loads(pickled)
    if isinstance(error, tuple):
        kind, args, state = error
        error = kind.__new__(kind, *args)
        error.__dict__.update(state)
    exception: BaseException = error
    return exception
