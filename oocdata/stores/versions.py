"""Which version of an object is read, and where what is fetched of it is kept.

While files are opened, several parts of the package look at the same few objects. What they find is
kept for as long as that takes, so that each object is asked for once and is one version for all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oocdata.stores.address import Address
from oocdata.stores.answer import Answer
from oocdata.stores.folder import CacheFolder
from oocdata.stores.given import is_given

__all__ = ["Noted", "ObjectVersion", "cache_folder", "once", "one_look", "was_asked"]


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """What tells one version of an object from another."""

    path: str  #: its URL
    nbytes: int
    tag: str  #: the store's name of the version (ETag); empty where it gives none
    modified: int  #: nanoseconds since the epoch, to the second
    #: the folder in which what is fetched is kept; empty without one
    cache: str = field(default="", compare=False)

    @classmethod
    def of(cls, address: Address, answer: Answer, cache: str | None = None) -> ObjectVersion:
        """Return the version of which an answer is a part."""
        kept = cache_folder() if cache is None else cache
        # Times alone don't tell two versions of a second apart; and what one process calls a store
        # that its user opened, another calls so too.
        kept = kept if answer.tag and not is_given(address.root) else ""
        return cls(address.url, answer.nbytes, answer.tag, answer.modified, kept)


_MOST_OBJECTS = 1 << 24
"""From so many on, nothing is noted of an object."""


class Noted:
    """A number that is noted of each of many objects, 8 bytes each; 0 where none was.

    Examples
    --------
    >>> versions = Noted(10)
    >>> versions.first(3, 7), versions.first(3, 7), versions.first(3, 8), versions.get(3)
    (True, True, False, 7)
    """

    def __init__(self, count: int) -> None:
        # It takes memory where it is written to.
        self._each = np.zeros(count if count <= _MOST_OBJECTS else 0, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, once all objects were read."""
        return self._each.nbytes

    def get(self, number: int) -> int:
        """Return what was noted of an object."""
        return int(self._each[number]) if len(self._each) else 0

    def first(self, number: int, noted: int) -> bool:
        """Note it where nothing was; return False if something else was."""
        before = self.get(number)
        if len(self._each):
            self._each[number] = before or noted
        return before in (0, noted)


_looked: ContextVar[dict[Any, Future[Any]] | None] = ContextVar("looked", default=None)
_cache: ContextVar[str | None] = ContextVar("cache", default=None)


@contextmanager
def one_look(cache: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Ask once for what several look at, for as long as a block takes: one version of each.

    What is fetched of the files that are opened in this block, then and later, is kept in the
    folder `cache`; by default the environment says in which.
    """
    folder = _cache.get()
    if cache is not None:
        folder = os.path.abspath(os.path.expanduser(os.fspath(cache)))
        CacheFolder.at(folder)  # or an error, here
    looked = _looked.get()
    asked, kept = _looked.set({} if looked is None else looked), _cache.set(folder)
    try:
        yield
    finally:
        _cache.reset(kept)
        _looked.reset(asked)


def cache_folder() -> str:
    """Return the folder in which what is fetched is kept; empty without one."""
    chosen = _cache.get()
    return os.environ.get("OOCDATA_CACHE", "") if chosen is None else chosen


def once(key: Any, ask: Callable[[], Future[Any]]) -> Future[Any]:
    """Return what was asked for under a key within `one_look`, or ask for it now."""
    looked = _looked.get()
    if looked is None:
        return ask()
    if key not in looked:
        looked[key] = ask()
    return looked[key]


def was_asked(key: Any) -> bool:
    """Return whether something was asked for under a key within `one_look`."""
    return key in (_looked.get() or ())
