"""What TensorFlow's threads call: runs of steps, read by feeds that it knows by their numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.spec import leaves
from oocdata.errors import DatasetGoneError
from oocdata.frontends.gate import gate
from oocdata.frontends.handover import cut, handed_over
from oocdata.frontends.identity import refuse_other
from oocdata.frontends.originals import forget_originals, keep_original
from oocdata.runs import Pass
from oocdata.workers.reader import Reader

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["BEGINNING", "Feed", "add", "begin", "feed_of", "forget", "read"]

_Result = TypeVar("_Result")

BEGINNING = -1
"""The run before the first, without steps. A checkpoint holds the state before the run it is in, so
the first must not be the one that begins the pass: restored, it would begin another."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What one dataset reads: a loader, pass after pass."""

    loader: Loader
    begin: Callable[[], Pass]
    """Begins the next pass."""
    identity: str
    """What a position in it belongs to; see `oocdata.frontends.identity`."""
    reader: Reader

    def enter(self, over: NDArray[np.int64], saved: str) -> NDArray[np.int64]:
        """Begin the next pass, or go on with one that was restored.

        Parameters
        ----------
        over : ndarray of int64, shape (4,)
            A pass: where it begins, its length, the steps of a run, and its runs; or negative.
        saved : str
            The identity of the feed that `over` is of.

        Raises
        ------
        oocdata.errors.RestoreError
            If that is another one.
        """
        refuse_other(saved, self.identity)
        if over[0] >= 0:
            return over
        self.reader.renew()
        made = self.begin()
        return np.array([made.first, made.length, made.together, len(made)], np.int64)

    def read(self, over: NDArray[np.int64], number: int) -> list[NDArray[Any]]:
        """Read a run of a pass; what it returns is said in `oocdata.frontends.handover.cut`."""
        if number == BEGINNING:
            specs = leaves(self.loader.spec)
            arrays = [np.empty((0, *spec.shape[1:]), spec.dtype) for spec in specs]
        else:
            first, length, together, _ = map(int, over)
            run = Pass(first, length, len(self.loader), together).run(number)
            arrays = [handed_over(array) for array in leaves(self.reader.read(run))]
        return cut(arrays, self.loader)


_feeds: dict[int, Feed] = {}
_numbers = itertools.count()


def add(feed: Feed) -> int:
    """Note a feed; return the number by which TensorFlow knows it."""
    number = next(_numbers)
    _feeds[number] = feed
    return number


def forget(number: int) -> None:
    """Drop a feed and what it holds: its dataset is gone."""
    feed = _feeds.pop(number, None)
    if feed is not None:
        feed.reader.close()
    forget_originals(number)


def feed_of(number: Any) -> Feed:
    """Return the feed that a dataset reads.

    Raises
    ------
    oocdata.errors.DatasetGoneError
    """
    try:
        return _feeds[int(number)]
    except KeyError:
        gone = DatasetGoneError(
            "an iterator must not outlive the dataset that `to_tf` returned. "
            "Keep a reference to it."
        )
        keep_original(gone, int(number))
        raise gone from None


def begin(feed: Any, over: Any, saved: Any, number: Any) -> Any:
    """Begin the next pass, or go on with one that was restored: called by TensorFlow for either."""
    with gate:
        return _called(feed_of(feed).enter, int(feed), over, saved.decode())


def read(feed: Any, over: Any, number: Any) -> list[NDArray[Any]]:
    """Read a run of steps: called by TensorFlow, in its own threads."""
    # A list, always: TensorFlow leaks a bare array without axes.
    with gate:
        return _called(feed_of(feed).read, int(feed), over, int(number))


def _called(function: Callable[..., _Result], feed: int, *arguments: Any) -> _Result:
    """Call a function; keep what it raises, and raise what TensorFlow passes on."""
    try:
        return function(*arguments)
    except StopIteration as error:
        # As it is, it would end the dataset in silence; a generator does the same (PEP 479).
        wrapped = RuntimeError(f"reading a batch raised StopIteration: {error}")
        wrapped.__cause__ = error
        keep_original(wrapped, feed)
        raise wrapped from error
    except BaseException as error:
        if feed in _feeds:  # or its dataset went while this was read: nobody will ask
            keep_original(error, feed)
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
