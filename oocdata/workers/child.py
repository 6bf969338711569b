"""What runs in a worker process: read a run into the slot that comes with it, answer, wait."""

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
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.datasets.spec import leaves
from oocdata.errors import MapError
from oocdata.sources.buffers import Place, placing
from oocdata.sources.slots import set_chunk_budget
from oocdata.workers.description import dumps, loads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from oocdata.loader import Loader
    from oocdata.runs import Run

__all__ = ["die_with", "main", "read_into"]


def main() -> None:
    """Serve the process that started this one, until it goes or closes the connection."""
    # Ctrl-C goes to all processes of a terminal; the one that started us says what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    numbers = [int(number) for number in sys.argv[1:5]]
    for number in numbers:  # whatever the user's functions start must not keep us alive
        os.set_inheritable(number, False)
    task, lifeline, arena, description = numbers
    del sys.argv[1:]
    die_with(lifeline)
    connection = Connection(task)
    with suppress(EOFError, OSError):  # the other side is gone, or done with us
        _serve(connection, arena, description)
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
    if select.select([lifeline], [], [], 0)[0]:  # closed already, before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def _wait_for_the_end(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _serve(connection: Connection[Any, Any], arena: int, description: int) -> None:
    lengths, slot_bytes, budget = pickle.loads(connection.recv_bytes())
    set_chunk_budget(budget)
    memory = np.frombuffer(mmap.mmap(arena, 0), np.uint8)
    os.close(arena)
    loader: Loader | None = None
    while True:
        run, slot = pickle.loads(connection.recv_bytes())
        answer: tuple[Any, ...]
        try:
            if loader is None:
                # Private: a function may change what it closes over, as it could in one process.
                loader = loads(mmap.mmap(description, 0, access=mmap.ACCESS_COPY), lengths)
                os.close(description)
            place = memory[slot * slot_bytes : (slot + 1) * slot_bytes]
            answer = ("read", read_into(place, loader, run))
        except BaseException as error:
            answer = ("raised", *_sent(error))
        for stream in (sys.stdout, sys.stderr):  # what a function printed, before we are ended
            with suppress(Exception):
                stream.flush()
        connection.send_bytes(pickle.dumps(answer))


def read_into(
    memory: NDArray[np.uint8], loader: Loader, run: Run
) -> list[tuple[int, tuple[int, ...], str]]:
    """Read a run into memory that begins at an aligned address.

    Returns
    -------
    list of (offset, shape, dtype)
        Where in it each array of the run's batches lies; they don't overlap.

    Examples
    --------
    >>> import oocdata as ooc
    >>> from oocdata.runs import Run
    >>> from oocdata.sources.buffers import empty
    >>> memory = empty((256,), "u1")
    >>> read_into(memory, ooc.open(np.arange(10)).batches(3), Run(0, 2, 3))
    [(0, (3,), '<i8')]
    >>> memory[:24].view("i8")
    array([6, 7, 8])
    """
    place = Place(memory)
    if loader.dataset.is_mapped:
        # A function may keep what it gets, for good: the slot will be written to again.
        arrays = list(leaves(loader.run(run)))
    else:
        with placing(place):
            arrays = list(leaves(loader.run(run)))
    if any(array.nbytes and place.offset_of(array) is None for array in arrays):
        # Not what was read, but what was made of it, maybe in the way: laid out anew.
        made = arrays if loader.dataset.is_mapped else [array.copy() for array in arrays]
        place = Place(memory)
        arrays = [place.empty(each.shape, each.dtype.newbyteorder("=")) for each in made]
        for array, each in zip(arrays, made, strict=True):
            np.copyto(array, each)
    answer = []
    for array in arrays:
        offset = place.offset_of(array) if array.nbytes else 0
        if offset is None:
            raise MapError(
                f"a batch must be as large as its spec says; {array.nbytes} bytes of shape "
                f"{array.shape} don't fit."
            )
        answer.append((offset, array.shape, array.dtype.str))
    return answer


def _sent(error: BaseException) -> tuple[bytes | None, str]:
    """Return an exception pickled, if it can be, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    for value in (error, _AsItIs(error)):
        # Both ways may run code of the exception's class.
        with suppress(Exception):
            pickled = dumps(value)
            pickle.loads(pickled)
            return pickled, text
    return None, text


class _AsItIs:
    """Unpickles as an exception whose ``__init__`` takes other arguments than it passes on."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self._error), self._error.args, self._error.__dict__)


def _made_again(
    kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]
) -> BaseException:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error
