"""Serve TensorFlow's calls: read runs of steps for datasets that are identified by numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakValueDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.describe import check_fingerprint
from oocdata.engines.buffers import empty
from oocdata.errors import DatasetGoneError
from oocdata.frontends.batching import stack_batches
from oocdata.frontends.originals import error_for_tensorflow, forget_originals
from oocdata.frontends.shutdown import calls
from oocdata.generator_batches import Merged
from oocdata.reading.ahead import ReadAhead, Reader
from oocdata.runs import Pass, Passes

_Result = TypeVar("_Result")

BEGINNING = -1
"""Number of a run before the first one, without steps. A checkpoint holds the state before the
current run. If the first run began the pass, an iterator restored there would begin another
pass."""


class Feed:
    """The reads of one dataset: pass after pass over its loader's steps.

    TensorFlow keeps the position of each iterator as an int64 array of shape (4,): the first step
    of the pass, its length, the steps of a run, and a key. The tensor aliases the array, so when
    the iterator goes, the array goes, and reading ahead ends.
    """

    def __init__(self, passes: Passes, fingerprint: str, reader: Reader) -> None:
        self.loader, self.passes, self.reader = reader.loader, passes, reader
        self.fingerprint = fingerprint
        self._fingerprint_bytes = fingerprint.encode()
        self._keys = itertools.count()
        self._positions: WeakValueDictionary[int, Ints] = WeakValueDictionary()
        self._runs: WeakValueDictionary[int, ReadAhead | Merged] = WeakValueDictionary()

    def read(self, position: Ints, saved: bytes, number: int) -> list[NDArray[Any]] | None:
        """Return the position of an iterator, and the arrays of a run; None past the last run.

        `position` was returned here, or where the iterator was saved; `saved` is the fingerprint
        that it is valid for. Raises RestoreError if `saved` is another feed's fingerprint.
        """
        if saved != self._fingerprint_bytes:
            check_fingerprint(saved.decode(), self.fingerprint)
        if number == BEGINNING:
            position, runs = self._enter(self.passes(), 0)
            arrays: list[Any] | None = stack_batches([], self.loader)
        else:
            position, runs = self._take(position, number)
            try:
                arrays = runs.read()
            except BaseException:
                runs.close()
                if isinstance(runs, Merged):  # generators can't continue: the next read is the end
                    self._runs[int(position[-1])] = runs
                raise
        self._runs[int(position[-1])] = runs
        return None if arrays is None else [position, *arrays]

    def _take(self, position: Ints, number: int) -> tuple[Ints, ReadAhead | Merged]:
        """Take an iterator's runs from the table; return its position and the runs."""
        first, length, together, key = map(int, position)
        pass_ = replace(self.loader.pass_from(0), first=first, length=length, together=together)
        current, runs = self._positions.get(key), self._runs.pop(key, None)
        if runs is not None:
            if current is not None and (runs.pass_, runs.number) == (pass_, number):
                return current, runs
            self._runs[key] = runs
        # The iterator was restored, or its last read failed.
        self.passes.follow(pass_)
        return self._enter(pass_, number)

    def _enter(self, pass_: Pass, number: int) -> tuple[Ints, ReadAhead | Merged]:
        """Return a new position for an iterator, and its runs from `number` on."""
        key, runs = next(self._keys), self.reader.begin(pass_, number)
        pass_ = runs.pass_  # may have shorter runs
        position = empty((4,), np.dtype(np.int64))
        position[:] = pass_.first, pass_.length, pass_.together, key
        finalize(position, runs.close).atexit = False
        self._positions[key] = position
        return position, runs


_feeds: dict[int, Any] = {}
_numbers = itertools.count()


def add(feed: Any) -> int:
    """Register a feed; return the number by which TensorFlow refers to it."""
    number = next(_numbers)
    _feeds[number] = feed
    return number


def forget(number: int) -> None:
    """Drop a feed whose dataset is gone, with everything that it holds."""
    feed = _feeds.pop(number, None)
    if isinstance(feed, Feed):
        feed.reader.close()
    forget_originals(number)


def read(feed: Any, position: Any, saved: Any, number: Any) -> list[NDArray[Any]]:
    """Read a run of steps; see `Feed.read`. Raise StopIteration past the last run."""
    arrays = call(feed, Feed.read, position, saved, int(number))
    if arrays is None:
        raise StopIteration
    return arrays


def call(number: Any, method: Callable[..., _Result], *arguments: Any) -> _Result:
    """Call a method of a feed for TensorFlow; wrap exceptions so that `fit` raises them."""
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
                raise  # the dataset is gone, and nothing would drop a kept exception
            raise error_for_tensorflow(error, int(number)) from error
