"""What lies at URLs: several objects asked for at once, while files are opened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial

from oocdata.errors import MissingFileError, SourceError
from oocdata.stores.address import Address
from oocdata.stores.answer import Answer
from oocdata.stores.files import StoredFile
from oocdata.stores.link import link
from oocdata.stores.versions import once, was_asked

__all__ = ["asked", "look", "probe", "small"]


def probe(url: str, names: Iterable[str]) -> tuple[list[str], SourceError | None]:
    """Ask at once for an object, and for objects below it.

    Return those of the names that lead to JSON (some servers have a page for whatever is asked
    for); where there are none, why the object itself can't be read; None where it can, by
    `StoredFile.at`.
    """
    address, each = Address.of(url), list(names)
    is_file = was_asked((StoredFile, address))  # by `look`
    beginning = StoredFile.asked_at(address)
    if is_file and beginning.exception() is None:
        return [], None
    below = small([address / name for name in each])
    answers = ((name, one) for name, one in zip(each, below, strict=True) if type(one) is Answer)
    there = [name for name, one in answers if bytes(one.data).lstrip().startswith(b"{")]
    if there:  # of the folder, a server may say where else to look, a round trip farther
        return there, None
    error = beginning.exception()
    if error is not None and not isinstance(error, SourceError):
        raise error
    refused = next((one for one in below if isinstance(one, SourceError)), None)
    if isinstance(error, MissingFileError) and refused is not None:
        raise refused  # it may be there all the same
    return [], error


def look(urls: Iterable[str]) -> None:
    """Ask at once for the beginnings of objects, within `one_look`, in which they are opened."""
    for url in urls:
        StoredFile.asked_at(Address.of(url))


def asked(addresses: Sequence[Address]) -> list[Future[Answer | None]]:
    """Ask at once for small objects; within `one_look`, once for each."""
    return [once(one, partial(link().start, partial(link().get, one))) for one in addresses]


def small(addresses: Sequence[Address]) -> list[Answer | SourceError | None]:
    """Return small objects, asked for at once; None where there is none, or why it can't be read.

    Within `one_look`, each is asked for once.
    """
    found: list[Answer | SourceError | None] = []
    for done in asked(addresses):
        try:
            found.append(done.result())
        except MissingFileError:
            found.append(None)
        except SourceError as error:
            found.append(error)
    return found
