"""What will be read soon, so that bytes that take long to come are asked for together.

A read does its work piece by piece, and may wait for each. Where the bytes lie in a store, a piece
is a round trip. So all that a batch takes is asked for before any of it is read; whoever reads then
finds it under way, or there. Sources that read files of this machine say nothing here.
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
"""Bytes between two ranges of a store that cost less to fetch than a request of their own does."""


class Cost(NamedTuple):
    """What it takes to fetch some bytes.

    Attributes
    ----------
    requests : int
    nbytes : int
        That are sent; more than are used where neighbouring ranges are joined.
    exact : bool
        False where objects are fetched whole whose lengths are not known.
    """

    requests: int = 0
    nbytes: int = 0
    exact: bool = True


class Asks(Hashable, Protocol):
    """A file that takes long to answer; equal for all that is of one version of it."""

    def asking(self, wanted: Sequence[Soon]) -> AbstractContextManager[Any]:
        """Have the bytes under way for as long as a block takes."""
        ...

    def has_room(self) -> bool:
        """Return whether asking for more now has it under way now."""
        ...

    def is_cold(self) -> bool:
        """Return whether connections are yet to be opened, and to become fast."""
        ...

    def cost(self, wanted: Sequence[Soon]) -> Cost:
        """Return what it takes to ask for it."""
        ...

    def fetch_all(self, wanted: Sequence[Soon]) -> int:
        """Fetch it for nobody, and return how many bytes came; of what the link can do."""
        ...


class Soon(NamedTuple):
    """Bytes that will be read.

    Attributes
    ----------
    file : Asks
    wanted : object
        As the file takes it.
    cached : bool
        True where whoever reads it first caches it: nobody asks for it again meanwhile.
    """

    file: Asks
    wanted: Any
    cached: bool = False


def soon(source: Any, origins: NDArray[np.int64], extent: Extent) -> list[Soon]:
    """Return what reading boxes of a source will take out of stores; see `Source.read`.

    A source says it by a method `soon`; one that is made of others, by `read_boxes`, which returns
    the boxes of these that it reads.
    """
    if not len(origins) or 0 in extent.lengths:
        return []
    if ask := getattr(source, "soon", None):
        return list(ask(origins, extent))
    below = getattr(source, "read_boxes", None)
    return [one for boxes in below(origins, extent) for one in soon(*boxes)] if below else []


@contextmanager
def asked(all_soon: Iterable[Soon]) -> Iterator[Sequence[Asks]]:
    """Have bytes under way for as long as a block takes; those of one file are asked for once.

    Provides the files that were asked.

    Examples
    --------
    >>> class File:
    ...     def asking(self, wanted):
    ...         print("asked for", [one.wanted for one in wanted])
    ...         return ExitStack()
    >>> file = File()
    >>> with asked([Soon(file, "a"), Soon(file, "b")]):
    ...     pass
    asked for ['a', 'b']
    """
    files = by_file(all_soon)
    with ExitStack() as stack:
        for file, wanted in files.items():
            stack.enter_context(file.asking(wanted))
        yield list(files)


def by_file(all_soon: Iterable[Soon]) -> dict[Asks, list[Soon]]:
    """Return what is wanted of each file."""
    files: dict[Asks, list[Soon]] = {}
    for one in all_soon:
        files.setdefault(one.file, []).append(one)
    return files


def cost_of(all_soon: Iterable[Soon]) -> Cost:
    """Return what it costs to ask for bytes together, as `asked` does.

    Examples
    --------
    >>> cost_of([])
    Cost(requests=0, nbytes=0, exact=True)
    """
    each = [file.cost(wanted) for file, wanted in by_file(all_soon).items()]
    return Cost(
        sum(one.requests for one in each),
        sum(one.nbytes for one in each),
        all(one.exact for one in each),
    )
