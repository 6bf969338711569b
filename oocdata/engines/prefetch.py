"""Prefetch bytes over a link: request all ranges that a batch needs before any of it is read.

Otherwise each piece of a read would cost a round trip. Sources of local files return no fetches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

from oocdata.box import Extent, Ints

GAP = 32 << 10
"""Largest gap, in bytes, between two ranges that is cheaper to fetch than a second request."""


class Cost(NamedTuple):
    """Cost of fetching some bytes; more are sent than used where neighbouring ranges are joined.

    Not `exact` if objects of unknown length are fetched whole.
    """

    requests: int = 0
    nbytes: int = 0
    exact: bool = True


class Link(Protocol):
    """The slow link to remote files."""

    def has_room(self) -> bool:
        """Return whether further requests would be sent at once, within the budget."""

    def is_cold(self) -> bool:
        """Return whether connections are still to be opened and to reach their speed."""


class RemoteFile(Hashable, Protocol):
    """A file behind a slow link. Two objects are equal if they stand for the same version of it."""

    def prefetch(self, requests: Sequence[Fetch]) -> AbstractContextManager[Link]:
        """Fetch bytes in the background during a block; provide the link."""

    def cost(self, requests: Sequence[Fetch], *, cold: bool) -> Cost:
        """Return the cost of requests, over a link that is cold or not; see `Link.is_cold`."""


class Fetch(NamedTuple):
    """Bytes of a remote file that will be read: `ranges` or objects, in a form of the file's own.

    They are `cached` if the first reader caches what it decodes, so that no other requests it
    meanwhile.
    """

    file: RemoteFile
    ranges: Any
    cached: bool = False


def fetches(source: Any, origins: Ints, extent: Extent) -> list[Fetch]:
    """Return the fetches that reading boxes of a source will need; see `Source.read`.

    A source implements this by a method `fetches`; a source made of others by `read_boxes`, which
    returns the boxes of the others that it reads.
    """
    if not len(origins) or 0 in extent.lengths:
        return []
    if method := getattr(source, "fetches", None):
        return list(method(origins, extent))
    below = getattr(source, "read_boxes", None)
    return [fetch for boxes in below(origins, extent) for fetch in fetches(*boxes)] if below else []


@contextmanager
def prefetched(fetches: Iterable[Fetch]) -> Iterator[Sequence[Link]]:
    """Fetch bytes in the background during a block, with one call per file; provide their links."""
    files = by_file(fetches)
    with ExitStack() as stack:
        yield [stack.enter_context(file.prefetch(requests)) for file, requests in files.items()]


def by_file(fetches: Iterable[Fetch]) -> dict[RemoteFile, list[Fetch]]:
    """Group fetches by file."""
    files: dict[RemoteFile, list[Fetch]] = {}
    for fetch in fetches:
        files.setdefault(fetch.file, []).append(fetch)
    return files


def cost_of(fetches: Iterable[Fetch], *, cold: bool = False) -> Cost:
    """Return the cost of fetching bytes together, as `prefetched` does over such a link."""
    costs = [file.cost(requests, cold=cold) for file, requests in by_file(fetches).items()]
    return Cost(
        sum(cost.requests for cost in costs),
        sum(cost.nbytes for cost in costs),
        all(cost.exact for cost in costs),
    )
