"""Identify the version of an object, and share lookups while files are opened.

While files are opened, several parts of the package look at the same few objects. Their answers are
shared for that time, so that each object is requested once and has one version for all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from oocdata.errors import SourceError
from oocdata.stores.address import Address
from oocdata.stores.answers import Answer
from oocdata.stores.folder import CacheFolder
from oocdata.stores.link import link
from oocdata.stores.user_stores import is_user_store


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


def version_number(answer: Answer | None) -> int:
    """Return a number, never 0, for the version of an object; -1 if there is none."""
    return -1 if answer is None else hash((answer.nbytes, answer.tag, answer.modified)) or 1


_opening: ContextVar[tuple[dict[Any, Future[Any]] | None, str | None]] = ContextVar(
    "lookups and cache folder", default=(None, None)
)


@contextmanager
def shared_lookups(cache: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Share lookups during a block: each object is requested once, and has one version.

    `cache` is the cache folder of the files that are opened in this block; by default that of the
    environment.
    """
    lookups, folder = _opening.get()
    if cache is not None:
        folder = CacheFolder.at(cache).path  # raises here if it can't be used
    token = _opening.set(({} if lookups is None else lookups, folder))
    try:
        yield
    finally:
        _opening.reset(token)


def cache_folder() -> str:
    """Return the path of the cache folder; empty without one."""
    _, chosen = _opening.get()
    return os.environ.get("OOCDATA_CACHE", "") if chosen is None else chosen


def request_once(key: Any, work: Callable[[], Coroutine[Any, Any, Any]]) -> Future[Any]:
    """Return the lookup of a key within `shared_lookups`, or start it on the link."""
    lookups, _ = _opening.get()
    if lookups is None:
        return link().start(work)
    if key not in lookups:
        lookups[key] = link().start(work)
    return lookups[key]


def request_small(addresses: Sequence[Address]) -> list[Future[Answer | None]]:
    """Request small objects at once; within `shared_lookups`, each once."""
    return [request_once(one, partial(link().get, one, missing_ok=True)) for one in addresses]


def fetch_small(addresses: Sequence[Address]) -> list[Answer | SourceError | None]:
    """Fetch small objects at once: the answer of each, None if there is none, or its error.

    Within `shared_lookups`, each is requested once.
    """
    return [
        error if isinstance(error := done.exception(), SourceError) else done.result()
        for done in request_small(addresses)
    ]


def was_requested(key: Any) -> bool:
    """Return whether a key was looked up within `shared_lookups`."""
    return key in (_opening.get()[0] or ())
