"""The bound on bytes of answers: those under way, and those that lie ready until they are read.

Room is granted in the order in which it is asked for. What was read stays, for whoever reads it
again, until somebody else needs the room. Then goes first what nobody said that it would read
again; for an answer that somebody waits for, also what others asked for long before they read it.
That is fetched again when it is read. So the bound holds, but for an answer that is larger.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Protocol

from oocdata.memory import scratch_share

__all__ = ["AHEAD", "AT_ONCE", "Room", "Turn"]

_WAITED_FOR, AT_ONCE, AHEAD = range(3)
"""Who comes first: an answer that somebody waits for, those that are read next, those for later."""


class Holder(Protocol):
    """Several answers that are asked for together."""

    is_read: bool  #: whether somebody has begun to read them

    def fetch(self, number: int) -> None:
        """Begin to fetch an answer: it has room."""
        ...

    def give_up(self, number: int) -> None:
        """Hold an answer no more."""
        ...


class Turn:
    """The room for one answer.

    Attributes
    ----------
    holder : Holder
    number : int
        Of the answer.
    nbytes : int
        About how many bytes it has.
    left : int
        How many will be read of it.
    is_taken, is_waited_for : bool
        Somebody has read it; somebody is about to, and would wait for ever if it were given up.
    """

    __slots__ = ("holder", "is_taken", "is_waited_for", "left", "nbytes", "number")

    def __init__(self, holder: Holder, number: int, nbytes: int, left: int) -> None:
        self.holder, self.number, self.nbytes, self.left = holder, number, nbytes, left
        self.is_taken = self.is_waited_for = False


class Room:
    """Who holds bytes of answers, and who waits to.

    All but `note_read`, `count` and what is asked of it is called in the loop of the link.

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
        self._granted: dict[Turn, None] = {}
        self._waiting: tuple[dict[Turn, None], ...] = {}, {}, {}
        # What was read to its end, and what in parts; the first that was read, first.
        self._read: tuple[dict[Turn, None], ...] = {}, {}
        self._lock = threading.Lock()
        self._serving = False

    def enter(self, turns: Iterable[Turn], rank: int) -> None:
        """Have answers fetched as soon as there is room."""
        for turn in turns:
            turn.is_waited_for = rank == AT_ONCE
            self._waiting[rank][turn] = None
        self.serve()

    def hurry(self, turn: Turn) -> None:
        """Have an answer fetched before all that nobody waits for."""
        turn.is_waited_for = True
        for queue in self._waiting:
            if turn in queue:
                del queue[turn]
                self._waiting[_WAITED_FOR][turn] = None
                self.serve()
                return

    def leave(self, turn: Turn) -> None:
        """Give back the room that was asked for, whether it was granted or not."""
        for queue in self._waiting:
            queue.pop(turn, None)
        with self._lock:
            if turn in self._granted:
                del self._granted[turn]
                self.held -= turn.nbytes
            for some in self._read:
                some.pop(turn, None)
        self.serve()

    def serve(self) -> None:
        """Grant room to whoever waits for it, as far as there is any."""
        if self._serving:  # what is given up makes room for whoever is being served
            return
        self._serving = True
        try:
            for rank, queue in enumerate(self._waiting):
                while queue:
                    turn = next(iter(queue))
                    if not self._make_room(turn, rank):
                        return
                    del queue[turn]
                    self._granted[turn] = None
                    self.held += turn.nbytes
                    self.most_held = max(self.most_held, self.held)
                    turn.holder.fetch(turn.number)
        finally:
            self._serving = False

    def _make_room(self, turn: Turn, rank: int) -> bool:
        """Return whether an answer may be fetched; give others up for it."""
        over = self.held + turn.nbytes - scratch_share()
        if over <= 0 or not self._granted:
            return True
        if rank == AHEAD and not turn.holder.is_read:
            return False
        given_up = []
        for one in self._least_wanted(rank):
            given_up.append(one)
            over -= one.nbytes
            if over <= 0:
                break
        if over > 0 and len(given_up) < len(self._granted):
            return False
        for one in given_up:
            one.holder.give_up(one.number)
        return True

    def _least_wanted(self, rank: int) -> Iterator[Turn]:
        """Yield the answers that may be given up, in that order."""
        with self._lock:
            whole, parts = map(list, self._read)
        yield from whole
        unread = [turn for turn in reversed(self._granted) if not turn.is_taken]
        if rank != _WAITED_FOR or any(turn.is_waited_for for turn in unread):
            return  # whoever waits for one that has room reads it soon, and others may have that
        later = {turn: None for turn in unread if not turn.holder.is_read}
        yield from later
        yield from parts
        yield from (turn for turn in unread if turn not in later)

    # In any thread.

    def note_read(self, turn: Turn, nbytes: int) -> bool:
        """Note that bytes of an answer were read; return whether somebody waits for room."""
        with self._lock:
            turn.left -= nbytes
            turn.is_taken = True
            if turn in self._granted:
                for some in self._read:
                    some.pop(turn, None)
                self._read[turn.left > 0][turn] = None
        return any(self._waiting)

    def count(self, nbytes: int) -> None:
        """Count bytes as asked for; less than 0 as no more."""
        with self._lock:
            self._asked += nbytes

    @property
    def has_room(self) -> bool:
        """Whether what is asked for now need not wait for room."""
        return self._asked < scratch_share()
