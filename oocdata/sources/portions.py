"""Decoding shared among threads: whoever waits for a chunk decodes what there is to decode.

A batch needs hundreds of chunks at the start of a shuffle window and none at its end, and the next
batch wants some of the same. Were each thread to decode its own and then to wait, cores would
stand still. Here the missing chunks are cut into *portions*, handed out in the order of asking;
a thread that waits for one takes the oldest that nobody has begun, its own or not. Where fewer
threads ask than there are cores, threads of a pool help.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from oocdata.errors import SourceError
from oocdata.sources.handles import handle
from oocdata.threads import cores, holds_hdf5

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["Portion", "complete", "wait_until_ended"]


class Portion:
    """Work that one thread does, whichever is first, while others may wait for its end.

    Parameters
    ----------
    ended : callable, optional
        Called with this portion once, after its work and before anybody is told.

    Attributes
    ----------
    work : callable or None
    error : BaseException or None
        Why it came to no good end.
    holders : int
        Whoever wants it may count itself here; nothing else uses it.

    Examples
    --------
    >>> portion = Portion()
    >>> portion.work = lambda: print("done")
    >>> portion.run(), portion.run()  # once
    done
    (None, None)
    """

    __slots__ = ("_claims", "_ended", "_on_end", "error", "holders", "work")

    def __init__(self, ended: Callable[[Portion], None] | None = None) -> None:
        self.error: BaseException | None = None
        self.work: Callable[[], None] | None = None
        self.holders = 0
        self._on_end = ended
        self._ended = threading.Event()
        # The first of the threads that claimed it has it. Appending is one step for all threads,
        # and whoever is interrupted right after it can still be told from the others.
        self._claims: list[int] = []

    @property
    def ended(self) -> bool:
        """Whether it is over, well or not."""
        return self._ended.is_set()

    def _claim(self) -> bool:
        me = threading.get_ident()
        self._claims.append(me)
        return self._claims[0] == me and not self.ended

    def run(self) -> None:
        """Do the work, unless another thread does; an error is kept for those who wait."""
        if not self._claim():
            return
        try:
            if self.work is not None:
                self.work()
        except Exception as error:
            self.error = error
        except BaseException as error:  # an interrupt is this thread's own
            self._end(_interrupted(error))
            raise
        self._end(self.error)

    def cancel(self) -> None:
        """Make sure that it is over, and if it was never begun, that nobody begins it.

        An interrupt doesn't end the waiting: the one that brought us here is on its way already.
        """
        while not self.ended:
            with suppress(KeyboardInterrupt):
                if self._claim():
                    self._end(_interrupted(None))
                else:
                    self._ended.wait()

    def wait(self) -> None:
        """Return when it is over."""
        self._ended.wait()

    def _end(self, error: BaseException | None) -> None:
        self.error = error
        self.work = None  # it holds what it works on
        if self._on_end is not None:
            self._on_end(self)
        self._ended.set()
        self._on_end = None


def _interrupted(cause: BaseException | None) -> SourceError:
    error = SourceError(
        "a chunk must be decoded to the end; the thread that did was interrupted. Read the rows "
        "again."
    )
    error.__cause__ = cause
    return error


_handed_out: deque[Portion] = deque()
"""Portions in the order of asking; some may have been begun meanwhile."""

_working: set[int] = set()
"""Threads that decode, or wait for others that do."""


def complete(own: Sequence[Portion], wanted: Iterable[Portion]) -> None:
    """Return when all wanted portions are over; work on what is to be done until then.

    Parameters
    ----------
    own : sequence of Portion
        New ones, with their work, to be handed out.
    wanted : iterable of Portion
        Own ones and those of other threads.
    """
    me = threading.get_ident()
    _working.add(me)
    try:
        _handed_out.extend(own)
        _call_helpers(0 if holds_hdf5() else len(own) - 1)
        # Interrupts come to the main thread. It begins nothing but its own, which it can cancel.
        if threading.current_thread() is threading.main_thread():
            for portion in own:
                portion.run()
                with suppress(ValueError):
                    _handed_out.remove(portion)
        else:
            for portion in wanted:
                while not portion.ended and _run_oldest():
                    pass
        for portion in wanted:
            portion.wait()
    finally:
        _working.discard(me)


def _run_oldest() -> bool:
    try:
        portion = _handed_out.popleft()
    except IndexError:
        return False
    portion.run()
    return True


def _help() -> None:
    me = threading.get_ident()
    _working.add(me)
    try:
        while _run_oldest():
            pass
    finally:
        _working.discard(me)


def _call_helpers(useful: int) -> None:
    """Wake threads of the pool for cores that have nothing to do."""
    count = min(useful, cores() - len(_working))
    if count > 0:
        pool = handle("decoding threads", _pool)
        with suppress(RuntimeError):  # no more threads: then without
            for _ in range(count):
                pool.submit(_help)


def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # not for `import oocdata`: it is slow

    return ThreadPoolExecutor(cores(), "oocdata-decode")


def wait_until_ended(tasks: Iterable[Any]) -> None:
    """Return when no task runs that writes into slots: until then nobody may have them.

    An interrupt doesn't end the waiting: the one that brought us here is on its way already.

    Parameters
    ----------
    tasks : iterable of Future
        Of TensorStore.
    """
    for task in tasks:
        while not task.done():
            with suppress(KeyboardInterrupt):
                task.exception()


def _forget_after_fork() -> None:
    # The threads that would go on with these are the parent's.
    _handed_out.clear()
    _working.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
