"""What runs in a worker process: read a run, lay it into the slot that comes with it, answer."""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.spec import Batch, leaves
from oocdata.engines.buffers import ALIGNMENT
from oocdata.errors import MapError
from oocdata.loader import Loader
from oocdata.memory import set_memory
from oocdata.reading.asking import AskAhead
from oocdata.reading.workers.sent import dumps, loads

if TYPE_CHECKING:
    from oocdata.runs import Pass, Run
    from oocdata.stream import Stream

__all__ = ["Laid", "die_with", "lay", "made_again", "main"]

Laid = tuple[int, tuple[int, ...], np.dtype[Any]] | NDArray[Any]
"""Where in a slot an array lies: its offset, shape and dtype; or the array, if it is of objects."""


def main() -> None:
    """Serve the process that started this one, until it goes or closes the connection."""
    # Ctrl-C goes to all processes of a terminal; the one that started us says what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    numbers = [int(number) for number in sys.argv[1:5]]
    for number in numbers:  # whatever the user's functions start must not keep us alive
        os.set_inheritable(number, False)
    task, lifeline, slots, sent = numbers
    del sys.argv[1:]
    die_with(lifeline)
    connection = Connection(task)
    with suppress(EOFError, OSError):  # the other side is gone, or done with us
        _serve(connection, slots, sent)
    connection.close()


def die_with(lifeline: int) -> None:
    """End this process when the other end of a pipe closes, whatever it is doing.

    The kernel sends SIGKILL (``F_SETSIG``, fcntl(2)): no thread and no GIL is needed, and unlike
    ``PR_SET_PDEATHSIG`` it isn't sent when merely the thread that started us ends. Where that is
    missing, a thread waits for the end.
    """
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_RDONLY | os.O_ASYNC)
    except (AttributeError, OSError):
        threading.Thread(target=_wait_for_the_end, args=(lifeline,), daemon=True).start()
        return
    closed = select.poll()  # select(2) takes no numbers from 1024 on
    closed.register(lifeline, select.POLLIN)
    if closed.poll(0):  # already, before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def _wait_for_the_end(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _serve(connection: Connection[Any, Any], slots: int, sent: int) -> None:
    lengths, slot_bytes, memory_bytes = pickle.loads(connection.recv_bytes())
    set_memory(memory_bytes)
    memory = np.frombuffer(mmap.mmap(slots, 0), np.uint8)
    os.close(slots)
    read: Callable[..., list[Batch]] | None = None
    while True:
        run, slot, turn = pickle.loads(connection.recv_bytes())
        answer: tuple[Any, ...]
        try:
            if read is None:
                # Private: a function may change what it closes over, as it could in one process.
                loader = loads(mmap.mmap(sent, 0, access=mmap.ACCESS_COPY), lengths)
                read = _Far(loader).read if turn else loader.reader()
                os.close(sent)
            place = memory[slot * slot_bytes : (slot + 1) * slot_bytes]
            answer = ("read", lay(place, read(run, *turn or ())))
        except BaseException as error:
            answer = ("raised", *_sent(error))
        for stream in (sys.stdout, sys.stderr):  # what a function printed, before we are ended
            with suppress(Exception):
                stream.flush()
        connection.send_bytes(pickle.dumps(answer))


class _Far:
    """A loader that takes bytes out of stores, for the runs of passes that come here."""

    def __init__(self, loader: Loader | Stream) -> None:
        assert isinstance(loader, Loader)
        self._loader = loader
        self._asking: AskAhead | None = None

    def read(self, run: Run, over: Pass, number: int, every: int) -> list[Batch]:
        """Read a run, and ask for those after it."""
        if self._asking is None or not self._asking.continues(over, number):
            if self._asking is not None:
                self._asking.close()
            self._asking = AskAhead(self._loader, over, number, every)
        with self._asking.reading(number):
            return self._loader.read(run)


def lay(slot: NDArray[np.uint8], batches: Sequence[Batch]) -> list[list[Laid]]:
    """Copy batches into a slot; return where the arrays of each lie.

    A mapped function may keep the arrays that it gets and returns, for good, and the slot will be
    written to again: so it is given memory of its own. The copy is made beside the trainer.
    MapError if the batches are larger than their spec says.

    Examples
    --------
    >>> slot = np.zeros(256, np.uint8)
    >>> lay(slot, [np.arange(3.0), np.arange(4, dtype="i2")])
    [[(0, (3,), dtype('float64'))], [(64, (4,), dtype('int16'))]]
    >>> slot[:24].view("f8")
    array([0., 1., 2.])
    """
    end, laid = 0, []
    for batch in batches:
        places: list[Laid] = []
        for array in leaves(batch):
            if array.dtype.hasobject:  # bytes of unequal length: pickled with the answer
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
        laid.append(places)
    return laid


def _sent(error: BaseException) -> tuple[bytes | None, str]:
    """Return an exception pickled, if it can be, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    # The second: of one whose ``__init__`` takes other arguments than it passes on.
    for value in (error, (type(error), error.args, error.__dict__)):
        # Both ways may run code of the exception's class.
        with suppress(Exception):
            pickled = dumps(value)
            made_again(pickled)
            return pickled, text
    return None, text


def made_again(pickled: bytes) -> BaseException:
    """Return an exception that was sent."""
    error: Any = pickle.loads(pickled)
    if isinstance(error, tuple):
        kind, args, state = error
        error = kind.__new__(kind, *args)
        error.__dict__.update(state)
    made: BaseException = error
    return made
