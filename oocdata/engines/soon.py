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

__all__ = ["Asks", "Soon", "asked", "soon"]


class Asks(Hashable, Protocol):
    """A file that takes long to answer; equal for all that is of one version of it."""

    def asking(self, wanted: Sequence[Any]) -> AbstractContextManager[Any]:
        """Have the bytes under way for as long as a block takes.

        Parameters
        ----------
        wanted : sequence
            What several `Soon` say.
        """
        ...


class Soon(NamedTuple):
    """Bytes that will be read.

    Attributes
    ----------
    file : Asks
    wanted : object
        As the file takes it.
    """

    file: Asks
    wanted: Any


def soon(source: Any, origins: NDArray[np.int64], extent: Extent) -> list[Soon]:
    """Return what reading boxes of a source will take out of stores; see `Source.read`."""
    found = getattr(source, "soon", None)
    return [] if found is None or not len(origins) else list(found(origins, extent))


@contextmanager
def asked(all_soon: Iterable[Soon]) -> Iterator[None]:
    """Have bytes under way for as long as a block takes; those of one file are asked for once.

    Examples
    --------
    >>> class File:
    ...     def asking(self, wanted):
    ...         return ExitStack() if print("asked for", wanted) else ExitStack()
    >>> file = File()
    >>> with asked([Soon(file, "a"), Soon(file, "b")]):
    ...     pass
    asked for ['a', 'b']
    """
    files: dict[Asks, list[Any]] = {}
    for one in all_soon:
        files.setdefault(one.file, []).append(one.wanted)
    with ExitStack() as stack:
        for file, wanted in files.items():
            stack.enter_context(file.asking(wanted))
        yield
