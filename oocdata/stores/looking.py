"""What lies at URLs: several objects asked for at once, while files are opened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from oocdata.errors import MissingFileError, SourceError
from oocdata.stores.address import Address
from oocdata.stores.answer import Answer
from oocdata.stores.blocks import BEGINNING
from oocdata.stores.files import StoredFile
from oocdata.stores.link import link
from oocdata.stores.versions import looked_at, note

__all__ = ["look", "probe", "small"]


def probe(url: str, names: Iterable[str]) -> tuple[list[str], SourceError | None]:
    """Ask at once for an object, and for objects below it.

    Return those of the names that lead to JSON (some servers have a page for whatever is asked
    for), and why the object itself can't be read; None where it can, by `StoredFile.at`.
    """
    address, each = Address.of(url), list(names)
    if isinstance(looked_at().get(address), StoredFile):  # as `look` found it
        return [], None
    beginning = link().start(lambda: link().get(address, 0, BEGINNING))
    below = small([address / name for name in each])
    error = beginning.exception()
    if error is None:
        answer = beginning.result()
        assert answer is not None
        note(address, StoredFile.beginning(address, answer))
    elif not isinstance(error, SourceError):
        raise error
    found = zip(each, below, strict=True)
    answers = ((name, answer) for name, answer in found if isinstance(answer, Answer))
    there = [name for name, answer in answers if bytes(answer.data).lstrip().startswith(b"{")]
    refused = next((one for one in below if isinstance(one, SourceError)), None)
    if isinstance(error, MissingFileError) and not there and refused is not None:
        raise refused  # it may be there all the same
    return there, error


def look(urls: Iterable[str]) -> None:
    """Ask at once for the beginnings of objects; what can't be read is asked for again by its user.

    Within `one_look`, in which they are opened.
    """
    each = [Address.of(url) for url in urls]
    begun = [link().start(partial(link().get, one, 0, BEGINNING)) for one in each]
    for one, done in zip(each, begun, strict=True):
        answer = None if done.exception() is not None else done.result()
        if answer is not None:
            note(one, StoredFile.beginning(one, answer))


def small(addresses: Sequence[Address]) -> list[Answer | SourceError | None]:
    """Return small objects, asked for at once; None where there is none, or why it can't be read.

    Within `one_look`, each is asked for once.
    """
    known: dict[Address, Any] = looked_at()
    wanted = {one: known[one] for one in addresses if one in known}
    begun = {one: link().start(partial(link().get, one)) for one in addresses if one not in wanted}
    for one, done in begun.items():
        error = done.exception()
        if isinstance(error, MissingFileError):
            wanted[one] = None
        elif error is None or isinstance(error, SourceError):
            wanted[one] = error or done.result()
        else:
            raise error
        note(one, wanted[one])
    return [wanted[one] for one in addresses]
