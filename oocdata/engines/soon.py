"""Prefetch bytes over a link: request all ranges that a batch needs before any of it is read.

A read works piece by piece, and over a link each piece costs a round trip. So all ranges of a batch
are requested before the first is read; the reads then find them in flight, or fetched. Sources that
read local files return no fetches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent

__all__ = ["GAP", "Asks", "Cost", "Soon", "asked", "by_file", "cost_of", "soon"]

GAP = 32 << 10
"""Largest gap, in bytes, between two ranges that is cheaper to fetch than a second request."""


class Cost(NamedTuple):
    """Cost of fetching some bytes.

    Attributes
    ----------
    requests : int
    nbytes : int
        Bytes sent; more than are used where neighbouring ranges are joined.
    exact : bool
        False if objects of unknown length are fetched whole.
    """

    requests: int = 0
    nbytes: int = 0
    exact: bool = True


class Asks(Hashable, Protocol):
    """A file behind a slow link. Two objects are equal if they stand for the same version of it."""

    def asking(self, requests: Sequence[Soon]) -> AbstractContextManager[Any]:
        """Fetch bytes in the background during a block."""
        ...

    def has_room(self) -> bool:
        """Return whether further requests would be sent at once, within the budget."""
        ...

    def is_cold(self) -> bool:
        """Return whether connections are still to be opened and to reach their speed."""
        ...

    def cost(self, requests: Sequence[Soon]) -> Cost:
        """Return the cost of requests."""
        ...

    def fetch_all(self, requests: Sequence[Soon]) -> int:
        """Fetch and discard bytes, to measure the link; return how many arrived."""
        ...


class Soon(NamedTuple):
    """Bytes of a remote file that will be read.

    Attributes
    ----------
    file : Asks
    wanted : object
        The ranges or objects, in a form of the file's own.
    cached : bool
        True if the first reader caches what it decodes, so that no other requests it meanwhile.
    """

    file: Asks
    wanted: Any
    cached: bool = False


def soon(source: Any, origins: NDArray[np.int64], extent: Extent) -> list[Soon]:
    """Return the fetches that reading boxes of a source will need; see `Source.read`.

    A source implements this by a method `soon`; a source made of others by `read_boxes`, which
    returns the boxes of the others that it reads.
    """
    if not len(origins) or 0 in extent.lengths:
        return []
    if method := getattr(source, "soon", None):
        return list(method(origins, extent))
    below = getattr(source, "read_boxes", None)
    return [fetch for boxes in below(origins, extent) for fetch in soon(*boxes)] if below else []


@contextmanager
def asked(fetches: Iterable[Soon]) -> Iterator[Sequence[Asks]]:
    """Fetch bytes in the background during a block, with one call per file; provide the files.

    Examples
    --------
    >>> class File:
    ...     def asking(self, requests):
    ...         print("requested", [request.wanted for request in requests])
    ...         return ExitStack()
    >>> file = File()
    >>> with asked([Soon(file, "a"), Soon(file, "b")]):
    ...     pass
    requested ['a', 'b']
    """
    files = by_file(fetches)
    with ExitStack() as stack:
        for file, requests in files.items():
            stack.enter_context(file.asking(requests))
        yield list(files)


def by_file(fetches: Iterable[Soon]) -> dict[Asks, list[Soon]]:
    """Group fetches by file."""
    files: dict[Asks, list[Soon]] = {}
    for fetch in fetches:
        files.setdefault(fetch.file, []).append(fetch)
    return files


def cost_of(fetches: Iterable[Soon]) -> Cost:
    """Return the cost of fetching bytes together, as `asked` does.

    Examples
    --------
    >>> cost_of([])
    Cost(requests=0, nbytes=0, exact=True)
    """
    costs = [file.cost(requests) for file, requests in by_file(fetches).items()]
    return Cost(
        sum(cost.requests for cost in costs),
        sum(cost.nbytes for cost in costs),
        all(cost.exact for cost in costs),
    )
