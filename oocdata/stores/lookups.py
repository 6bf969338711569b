"""Request several objects at once, while files are opened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial

from oocdata.errors import MissingFileError, SourceError
from oocdata.stores.address import Address
from oocdata.stores.answer import Answer
from oocdata.stores.files import StoredFile
from oocdata.stores.link import link
from oocdata.stores.versions import request_once, was_requested

__all__ = ["fetch_small", "probe", "request_small"]


def probe(url: str, names: Iterable[str]) -> tuple[list[str], SourceError | None]:
    """Request an object and objects below it at once.

    Return those of the names that lead to JSON (some servers answer any request with a page). If
    there are none, also return the error of the object itself; None if it can be read, by
    `StoredFile.at`.
    """
    address, each = Address.of(url), list(names)
    is_file = was_requested((StoredFile, address))  # its opening was announced
    beginning = StoredFile.request_at(url)
    if is_file and beginning.exception() is None:
        return [], None
    below = fetch_small([address / name for name in each])
    answers = ((name, one) for name, one in zip(each, below, strict=True) if type(one) is Answer)
    found = [name for name, one in answers if bytes(one.data).lstrip().startswith(b"{")]
    if found:  # do not wait for the folder itself: a server may redirect, a round trip more
        return found, None
    error = beginning.exception()
    if error is not None and not isinstance(error, SourceError):
        raise error
    refused = next((one for one in below if isinstance(one, SourceError)), None)
    if isinstance(error, MissingFileError) and refused is not None:
        raise refused  # the object may exist all the same
    return [], error


def request_small(addresses: Sequence[Address]) -> list[Future[Answer | None]]:
    """Request small objects at once; within `shared_lookups`, each once."""
    return [request_once(one, partial(link().get, one, missing_ok=True)) for one in addresses]


def fetch_small(addresses: Sequence[Address]) -> list[Answer | SourceError | None]:
    """Fetch small objects at once: the answer of each, None if there is none, or its error.

    Within `shared_lookups`, each is requested once.
    """
    each = request_small(addresses)
    errors = [done.exception() for done in each]
    return [
        error if isinstance(error, SourceError) else done.result()
        for done, error in zip(each, errors, strict=True)
    ]
