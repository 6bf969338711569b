"""The bound on bytes of answers: those under way, and those that lie ready until they are read.

Room is granted in the order in which it is asked for, first to whoever waits. What was read stays,
for whoever reads it again, until somebody else needs the room. For an answer that somebody waits
for, also what nobody waits for is given up, the last first; that is fetched again when it is read.
But what is on its way into a folder is not: it is there soon, and so is its room.
So the bound holds, but for an answer that is larger.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from oocdata.memory import scratch_share

__all__ = ["Request", "Room"]

Made = TypeVar("Made")


class Request(Generic[Made]):
    """One answer, from when it is asked for until nobody holds it.

    `nbytes` is about how long it is, `left` how many bytes will be read of it; with `to_folder`, it
    is kept there when it comes.
    """

    __slots__ = (
        "done", "fetch", "is_asked", "is_taken", "is_waited_for", "left", "nbytes", "task",
        "to_folder",
    )  # fmt: skip

    def __init__(
        self,
        fetch: Callable[[Any], Coroutine[Any, Any, Made]],
        nbytes: int,
        left: int,
        *,
        to_folder: bool = False,
    ) -> None:
        self.to_folder = to_folder
        self.fetch, self.nbytes, self.left = fetch, nbytes, left
        self.done: Future[Made] = Future()
        self.task: asyncio.Task[Made] | None = None
        self.is_taken = self.is_waited_for = False
        self.is_asked = False

    @property
    def is_awaited(self) -> bool:
        """Whether somebody is about to read it, and would wait for ever without it."""
        return self.is_waited_for and not self.is_taken

    def end(self) -> None:
        """Hold the answer no more, and give up what is under way; in the loop."""
        if self.task is not None:
            self.task.cancel()
            self.task = None  # it would hold the answer
        self.done.cancel()  # where it was never begun
        self.done = Future()
        self.done.cancel()


class Room:
    """Who holds bytes of answers, and who waits to.

    All but `ask`, `note_read` and `has_room` is called in the loop of the link.

    Attributes
    ----------
    held : int
        Bytes of answers that are under way, or that nobody has let go yet.
    most_held : int
        The same, at most since the process began.
    """

    def __init__(self) -> None:
        self.held = self.most_held = 0
        self._asked = 0
        self._granted: dict[Request[Any], None] = {}
        #: Those that somebody waits for, those that are read next, and those for later.
        self._waiting: tuple[dict[Request[Any], None], ...] = {}, {}, {}
        self._read: dict[Request[Any], None] = {}  # to the end; the first that was read, first
        self._lock = threading.Lock()
        self._serving = False

    def begin(self, request: Request[Any]) -> None:
        """Begin to fetch an answer: it has room."""
        raise NotImplementedError

    def enter(self, requests: Iterable[Request[Any]], *, at_once: bool) -> None:
        """Have answers fetched as soon as there is room; `at_once` if they are read next."""
        for request in requests:
            request.is_waited_for = at_once
            self._waiting[1 if at_once else 2][request] = None
        self.serve()

    def hurry(self, request: Request[Any]) -> None:
        """Have an answer fetched before all that nobody waits for."""
        request.is_waited_for = True
        for queue in self._waiting[1:]:
            if request in queue:
                del queue[request]
                self._waiting[0][request] = None
                self.serve()

    def leave(self, *requests: Request[Any]) -> None:
        """Let answers go, which are held, under way or wait."""
        for request in requests:
            for queue in self._waiting:
                queue.pop(request, None)
            with self._lock:
                if request in self._granted:
                    del self._granted[request]
                    self.held -= request.nbytes
                self._read.pop(request, None)
                if request.is_asked:
                    request.is_asked = False
                    self._asked -= request.nbytes
            request.end()
        self.serve()

    def serve(self) -> None:
        """Grant room to whoever waits for it, as far as there is any."""
        if self._serving:  # what is given up makes room for whoever is being served
            return
        self._serving = True
        try:
            for queue in self._waiting:
                while queue:
                    request = next(iter(queue))
                    if not self._make_room(request, is_waited_for=queue is self._waiting[0]):
                        return
                    del queue[request]
                    self._granted[request] = None
                    self.held += request.nbytes
                    self.most_held = max(self.most_held, self.held)
                    self.begin(request)
        finally:
            self._serving = False

    def _make_room(self, request: Request[Any], *, is_waited_for: bool) -> bool:
        """Return whether an answer may be fetched; give others up for one that is waited for."""
        over = self.held + request.nbytes - scratch_share()
        with self._lock:
            may_go = [one for one in self._read if one.done.done() and not one.is_awaited]
        # Whoever waits for one that has room reads it soon, and others may have that.
        if is_waited_for and not any(one.is_awaited for one in self._granted):
            may_go += [
                one
                for one in reversed(self._granted)
                if one not in may_go and (one.done.done() or not one.to_folder)
            ]
        given_up = []
        for one in may_go:
            if over <= 0:
                break
            given_up.append(one)
            over -= one.nbytes
        if over > 0 and len(given_up) < len(self._granted):
            return False
        self.leave(*given_up)
        return True

    def keep_elsewhere(self, request: Request[Any]) -> None:
        """Note that a folder has an answer, so that its room goes before that of others."""
        with self._lock:
            if request in self._granted:
                self._read[request] = None

    # In any thread.

    def note_read(self, request: Request[Any], nbytes: int) -> bool:
        """Note that bytes of an answer were read; return whether somebody waits for room."""
        with self._lock:
            request.left -= nbytes
            request.is_taken = True
            if request.left <= 0 and request in self._granted:
                self._read[request] = None
        return any(self._waiting)

    def ask(self, requests: Iterable[Request[Any]]) -> None:
        """Count answers as asked for, until they are let go."""
        with self._lock:
            for request in requests:
                request.is_asked = True
                self._asked += request.nbytes

    @property
    def has_room(self) -> bool:
        """Whether what is asked for now need not wait for room."""
        return self._asked < scratch_share()
