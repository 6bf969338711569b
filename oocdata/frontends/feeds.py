"""What TensorFlow's threads call: runs of steps, read by feeds that it knows by their numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocdata.describe import refuse_other
from oocdata.errors import DatasetGoneError
from oocdata.frontends.batching import tensors_of
from oocdata.frontends.originals import forget_originals, passed_on
from oocdata.frontends.shutdown import calls
from oocdata.reading.reader import Reader
from oocdata.runs import Pass

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["BEGINNING", "Feed", "add", "called", "enter", "feed_of", "forget", "read"]

_Result = TypeVar("_Result")

BEGINNING = -1
"""The run before the first, without steps. A checkpoint holds the state before the run it is in, so
the first must not be the one that begins the pass: restored, it would begin another."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What one dataset reads: a loader, pass after pass.

    Attributes
    ----------
    loader : Loader
    begin : callable
        Begins the next pass.
    fingerprint : str
        What a position in it belongs to; see `oocdata.describe.fingerprint`.
    reader : Reader
    """

    loader: Loader
    begin: Callable[[], Pass]
    fingerprint: str
    reader: Reader
    _own: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_own", self.fingerprint.encode())

    def enter(self, over: NDArray[np.int64], saved: bytes) -> NDArray[np.int64]:
        """Return the pass that a run is of: begun now, or restored, or known.

        Parameters
        ----------
        over : ndarray of int64, shape (4,)
            A pass: where it begins, its length, the steps of a run, and its runs; or negative.
        saved : bytes
            The fingerprint of the feed that `over` is of.

        Raises
        ------
        oocdata.errors.RestoreError
            If that is another one.
        """
        if saved != self._own:
            refuse_other(saved.decode(), self.fingerprint)
        if over[0] >= 0:
            return over
        self.reader.renew()
        made = self.begin()
        return np.array([made.first, made.length, made.together, len(made)], np.int64)

    def read(self, over: NDArray[np.int64], number: int) -> list[NDArray[Any]]:
        """Read a run of a pass, as `oocdata.frontends.batching.tensors_of` returns it."""
        if number == BEGINNING:
            return tensors_of([], self.loader)
        first, length, together, _ = map(int, over)
        run = Pass(first, length, len(self.loader), together).run(number)
        return tensors_of(self.reader.read(run), self.loader)


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


def feed_of(number: Any) -> Any:
    """Return the feed that a dataset reads.

    Raises
    ------
    oocdata.errors.DatasetGoneError
    """
    try:
        return _feeds[int(number)]
    except KeyError:
        raise DatasetGoneError(
            "an iterator must not outlive the dataset that `to_tf` returned. "
            "Keep a reference to it."
        ) from None


def enter(feed: Any, over: Any, saved: Any, number: Any) -> list[NDArray[np.int64]]:
    """Return the pass that a run is of; see `Feed.enter`."""
    return [called(feed, Feed.enter, over, saved)]


def read(feed: Any, over: Any, number: Any) -> list[NDArray[Any]]:
    """Read a run of steps; see `Feed.read`."""
    return called(feed, Feed.read, over, int(number))


def called(number: Any, method: Callable[..., _Result], *arguments: Any) -> _Result:
    """Call a method of a feed for TensorFlow; raise what it turns into the original exception."""
    with calls:
        try:
            return method(feed_of(number), *arguments)
        except BaseException as error:
            if int(number) not in _feeds:
                raise  # the dataset is gone, and nothing would forget the exception
            raise passed_on(error, int(number)) from error
