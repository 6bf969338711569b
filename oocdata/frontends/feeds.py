"""What TensorFlow's threads call: runs of steps, read by feeds that it knows by their numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from oocdata.describe import refuse_other
from oocdata.engines.buffers import empty
from oocdata.errors import DatasetGoneError
from oocdata.frontends.batching import tensors_of
from oocdata.frontends.originals import forget_originals, passed_on
from oocdata.frontends.shutdown import calls
from oocdata.reading.ahead import ReadAhead, Reader
from oocdata.reading.merged import Merged
from oocdata.runs import Pass, Passes

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream

__all__ = ["BEGINNING", "Feed", "add", "called", "forget", "read"]

_Result = TypeVar("_Result")

BEGINNING = -1
"""The run before the first, without steps. A checkpoint holds the state before the run it is in, so
the first must not be the one that begins the pass: restored, it would begin another."""


class Feed:
    """What one dataset reads: a loader, pass after pass.

    TensorFlow keeps the place of an iterator: an array of int64, shape (5,), that holds where the
    pass begins, its length, the steps of a run, the number of runs, and a key. The tensor aliases
    the array, which so lives as long as the iterator does: when it goes, reading ahead ends. A
    place belongs to a fingerprint; the reader's runs are arrays as `tensors_of` returns them.
    """

    def __init__(
        self, loader: Loader | Stream, begin: Passes, fingerprint: str, reader: Reader
    ) -> None:
        self.loader, self.begin, self.reader = loader, begin, reader
        self.fingerprint = fingerprint
        self._own = fingerprint.encode()
        self._keys = itertools.count()
        self._places: WeakValueDictionary[int, NDArray[np.int64]] = WeakValueDictionary()
        self._runs: WeakValueDictionary[int, ReadAhead | Merged] = WeakValueDictionary()

    def read(self, place: NDArray[np.int64], saved: bytes, number: int) -> list[NDArray[Any]]:
        """Return the place of an iterator, and the arrays of a run: none past the last run.

        `place` is as it was returned, here or where the iterator was saved; `saved` the fingerprint
        that it belongs to, RestoreError if that is another feed's.
        """
        if saved != self._own:
            refuse_other(saved.decode(), self.fingerprint)
        if number == BEGINNING:
            place, runs = self._entered(self.begin(), 0)
            arrays = None
        else:
            place, runs = self._taken(place, number)
            try:
                arrays = runs.read()
            except BaseException:
                runs.close()
                if isinstance(runs, Merged):  # generators can't go on: what follows is the end
                    self._runs[int(place[-1])] = runs
                raise
            if arrays is None:  # the end, which is not always known before it is there
                place = np.array([*place[:3], number, *place[4:]])
        self._runs[int(place[-1])] = runs
        return [place, *(arrays or tensors_of([], self.loader))]

    def _taken(
        self, place: NDArray[np.int64], number: int
    ) -> tuple[NDArray[np.int64], ReadAhead | Merged]:
        """Return the place of an iterator and its runs, which nobody else finds until put back."""
        first, length, together, _, key = map(int, place)
        over = replace(self.loader.over(0), first=first, length=length, together=together)
        own, runs = self._places.get(key), self._runs.pop(key, None)
        if own is not None and runs is not None and (runs.over, runs.number) == (over, number):
            return own, runs
        if runs is not None:
            self._runs[key] = runs
        # An iterator that was restored, or one whose last read failed.
        self.begin.follow(over)
        return self._entered(over, number)

    def _entered(self, over: Pass, number: int) -> tuple[NDArray[np.int64], ReadAhead | Merged]:
        """Return a place of its own for an iterator, and its runs from `number` on."""
        key, runs = next(self._keys), self.reader.begin(over, number)
        place = empty((5,), np.dtype(np.int64))
        place[:] = over.first, over.length, over.together, len(over), key
        finalize(place, runs.close).atexit = False
        self._places[key] = place
        return place, runs


_feeds: dict[int, Any] = {}
_numbers = itertools.count()


def add(feed: Any) -> int:
    """Note a feed; return the number by which TensorFlow knows it."""
    number = next(_numbers)
    _feeds[number] = feed
    return number


def forget(number: int) -> None:
    """Drop a feed and what it holds: its dataset is gone."""
    feed = _feeds.pop(number, None)
    if isinstance(feed, Feed):
        feed.reader.close()
    forget_originals(number)


def read(feed: Any, place: Any, saved: Any, number: Any) -> list[NDArray[Any]]:
    """Read a run of steps; see `Feed.read`."""
    return called(feed, Feed.read, place, saved, int(number))


def called(number: Any, method: Callable[..., _Result], *arguments: Any) -> _Result:
    """Call a method of a feed for TensorFlow; raise what it turns into the original exception."""
    with calls:
        feed = _feeds.get(int(number))
        if feed is None:
            raise DatasetGoneError(
                "an iterator must not outlive the dataset that `to_tf` returned. "
                "Keep a reference to it."
            )
        try:
            return method(feed, *arguments)
        except BaseException as error:
            if int(number) not in _feeds:
                raise  # the dataset is gone, and nothing would forget the exception
            raise passed_on(error, int(number)) from error
