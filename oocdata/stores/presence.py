"""Which pages of an object a process knows to be in the cache folder, and in which files.

A byte for each page says: it is there, and was checked by this process or written by it. It goes
with the segment that it was set for: whoever finds its file deleted forgets both, and they are
looked at together with the descriptor that is read. So nobody reads the holes of a file that was
made later under the same name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import Descriptor
from oocdata.errors import MissingFileError, SourceError
from oocdata.stores.pages import pages_of
from oocdata.stores.segments import Segment, data_at, make

if TYPE_CHECKING:
    from oocdata.stores.folder import CacheFolder

__all__ = ["Presence"]

Ints = NDArray[np.int64]


class Presence:
    """Pages and segments of one object; safe to use from several threads.

    Parameters
    ----------
    folder : CacheFolder
    stem : str
        How the names of its files begin.
    header : dict
        What they say of it: ``name``, ``version``, ``nbytes``.
    """

    def __init__(self, folder: CacheFolder, stem: str, header: Mapping[str, Any]) -> None:
        self._folder, self._stem, self._header = folder, stem, dict(header)
        self._nbytes: int = header["nbytes"]
        self._page, self._size = folder.page, folder.segment
        # Memory is given as they are set: 16 MiB for 64 GiB.
        self._have = np.zeros(-(-self._nbytes // self._page), np.bool_)
        self._segments: dict[int, Segment] = {}
        # Segments of which all pages are there: then nobody need look at them.
        self._whole: set[int] = set()

    @property
    def is_whole(self) -> bool:
        """Whether all pages of the object are there."""
        return len(self._whole) * self._size >= self._nbytes

    def lacking(self, starts: Ints, ends: Ints) -> Ints:
        """Return the pages of ranges, none of them empty, that are not there; ascending."""
        pages = pages_of(starts // self._page, (ends - 1) // self._page)
        return np.unique(pages[~self._have[pages]])

    def opened(
        self, numbers: set[int], starts: Ints, lengths: Ints
    ) -> dict[int, tuple[Segment, Descriptor]] | None:
        """Return the segments of ranges, open; None where a page is not there.

        Parameters
        ----------
        numbers : set of int
            Of all segments.
        starts, lengths : ndarray of int64, shape (n,)
            Each range within one of them.
        """
        with self._folder.lock:
            if not self._whole.issuperset(numbers) and self.lacking(starts, starts + lengths).size:
                return None
            found = {}
            for number in numbers:
                segment = self._segments[number]
                try:
                    found[number] = segment, segment.opened()
                except SourceError:
                    self._forget(number)
        return found if len(found) == len(numbers) else None

    def look(self, number: int, *, create: bool = False) -> tuple[Segment, Descriptor] | None:
        """Return a segment that has a file, open; None where there is none."""
        path = self._folder.file(self._stem, str(number))
        nbytes = min(self._size, self._nbytes - number * self._size)
        length = self._folder.data_at + nbytes
        for _ in range(3):
            with self._folder.lock:
                known = self._segments.get(number)
                try:
                    segment = known or Segment(path, length)
                    descriptor = segment.opened()
                    if segment.is_there(descriptor.number):
                        self._segments[number] = segment
                        return segment, descriptor
                except MissingFileError:
                    pass
                except SourceError as error:
                    if known is None and error.__cause__ is None:  # it was cut, or is none
                        with suppress(OSError):
                            os.unlink(path)
                self._forget(number)
            if known is not None:
                continue  # perhaps another process has made it anew
            if not create:
                return None
            self._folder.make_room(data_at(-(-nbytes // self._page)))
            make(path, self._header, length)
        return None  # somebody deletes what is made, again and again

    def add(self, number: int, segment: Segment, pages: Ints) -> bool:
        """Note pages that were read from a segment or written to it.

        Returns
        -------
        bool
            False where that segment is not in use any more: then nothing is noted.
        """
        with self._folder.lock:
            if self._segments.get(number) is not segment:
                return False
            self._have[pages] = True
            if self._have[self._pages(number)].all():
                self._whole.add(number)
            return True

    def lose(self, number: int, segment: Segment) -> None:
        """Delete a segment whose file is cut short, or can't be read."""
        with self._folder.lock:
            if self._segments.get(number) is segment:
                self._forget(number)
                with suppress(OSError):  # perhaps another one by now: then it is fetched again
                    os.unlink(segment.version.path)

    def give_up_deleted(self) -> None:
        """Close what others have deleted, or its space on the disk would not come free."""
        with self._folder.lock:
            for number, segment in list(self._segments.items()):
                descriptor = segment._descriptor
                if descriptor is not None and not segment.is_there(descriptor.number):
                    self._forget(number)

    def _forget(self, number: int) -> None:
        """Forget a segment and its pages; under the lock."""
        self._have[self._pages(number)] = False
        self._whole.discard(number)
        self._segments.pop(number, None)

    def _pages(self, number: int) -> slice:
        """Return the pages of a segment."""
        pages = self._size // self._page
        return slice(number * pages, (number + 1) * pages)
