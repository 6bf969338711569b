"""Identify the version of an object, and share lookups while files are opened.

While files are opened, several parts of the package look at the same few objects. Their answers are
shared for that time, so that each object is requested once and has one version for all.
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
from oocdata.stores.user_stores import is_user_store

__all__ = [
    "ObjectVersion",
    "VersionTable",
    "cache_folder",
    "request_once",
    "shared_lookups",
    "was_requested",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """Identity of one version of an object."""

    path: str  #: its URL
    nbytes: int
    tag: str  #: the store's name of the version (ETag); empty where it gives none
    modified: int  #: nanoseconds since the epoch, to the second
    #: the cache folder; empty without one
    cache: str = field(default="", compare=False)

    @classmethod
    def of(cls, address: Address, answer: Answer, cache: str | None = None) -> ObjectVersion:
        """Return the version that an answer belongs to."""
        folder = cache_folder() if cache is None else cache
        # Without a tag, two versions of one second look the same; and the name of a store that the
        # user opened may mean another store in another process.
        folder = folder if answer.tag and not is_user_store(address.root) else ""
        return cls(address.url, answer.nbytes, answer.tag, answer.modified, folder)


_MOST_OBJECTS = 1 << 24
"""Largest number of objects whose versions are compared."""


class VersionTable:
    """A version number for each of many objects, 8 bytes each; 0 where none is known.

    Examples
    --------
    >>> versions = VersionTable(10)
    >>> versions.record(3, 7), versions.record(3, 7), versions.record(3, 8), versions.get(3)
    (True, True, False, 7)
    """

    def __init__(self, count: int) -> None:
        # Pages of it take memory once they are written to.
        self._each = np.zeros(count if count <= _MOST_OBJECTS else 0, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the table, once all objects were read."""
        return self._each.nbytes

    def get(self, number: int) -> int:
        """Return the version number of an object, 0 if unknown."""
        return int(self._each[number]) if len(self._each) else 0

    def record(self, number: int, version: int) -> bool:
        """Set the version of an object if it is unknown; return False if it is another one."""
        before = self.get(number)
        if len(self._each):
            self._each[number] = before or version
        return before in (0, version)


_lookups: ContextVar[dict[Any, Future[Any]] | None] = ContextVar("lookups", default=None)
_cache: ContextVar[str | None] = ContextVar("cache", default=None)


@contextmanager
def shared_lookups(cache: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Share lookups during a block: each object is requested once, and has one version.

    `cache` is the cache folder of the files that are opened in this block; by default that of the
    environment.
    """
    folder = _cache.get()
    if cache is not None:
        folder = os.path.abspath(os.path.expanduser(os.fspath(cache)))
        CacheFolder.at(folder)  # raises here if it can't be used
    lookups = _lookups.get()
    lookups_token = _lookups.set({} if lookups is None else lookups)
    cache_token = _cache.set(folder)
    try:
        yield
    finally:
        _cache.reset(cache_token)
        _lookups.reset(lookups_token)


def cache_folder() -> str:
    """Return the path of the cache folder; empty without one."""
    chosen = _cache.get()
    return os.environ.get("OOCDATA_CACHE", "") if chosen is None else chosen


def request_once(key: Any, request: Callable[[], Future[Any]]) -> Future[Any]:
    """Return the lookup of a key within `shared_lookups`, or start it by calling `request`."""
    lookups = _lookups.get()
    if lookups is None:
        return request()
    if key not in lookups:
        lookups[key] = request()
    return lookups[key]


def was_requested(key: Any) -> bool:
    """Return whether a key was looked up within `shared_lookups`."""
    return key in (_lookups.get() or ())
