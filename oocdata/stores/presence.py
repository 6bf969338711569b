"""Which pages of an object a process knows to be in the cache folder, and in which files.

One bit for each page says: it is there, and was checked by this process or written by it. Bits go
with the segment that they were set for: whoever finds its file deleted forgets both, and they are
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
from oocdata.stores.pages import BITS, pages_of, set_bits, words_of
from oocdata.stores.segments import Layout, Segment, make

if TYPE_CHECKING:
    from oocdata.stores.folder import CacheFolder

__all__ = ["Presence"]

Ints = NDArray[np.int64]


class Presence:
    """Bits and segments of one object; safe to use from several threads.

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
        # A bit for each page, 32 MiB for an object of a TiB: memory is given as they are set.
        self._have = np.zeros(-(-self._nbytes // (self._page * BITS)), np.uint64)
        self._segments: dict[int, Segment] = {}
        # Segments of which all pages have their bits: then nobody need look at them.
        self._whole: set[int] = set()

    @property
    def is_whole(self) -> bool:
        """Whether all pages of the object have their bits."""
        return len(self._whole) * self._size >= self._nbytes

    def lacking(self, starts: Ints, ends: Ints) -> Ints:
        """Return the pages of ranges, none of them empty, that have no bit; ascending."""
        first, last = starts // self._size, (ends - 1) // self._size
        if self._whole.issuperset({*first.tolist(), *last.tolist()}) and (last - first < 2).all():
            return np.empty(0, np.int64)
        words, bits = words_of(starts // self._page, (ends - 1) // self._page)
        lacking = bits & ~self._have[words]
        at = lacking.nonzero()[0]
        return pages_of(words[at], lacking[at]) if at.size else np.empty(0, np.int64)

    def opened(
        self, numbers: set[int], starts: Ints, lengths: Ints
    ) -> dict[int, tuple[Segment, Descriptor]] | None:
        """Return the segments of ranges, open; None where a page has no bit.

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
        layout = Layout(min(self._size, self._nbytes - number * self._size), self._page)
        for _ in range(3):
            with self._folder.lock:
                segment = self._segments.get(number)
                try:
                    if segment is None:
                        segment = Segment(path, layout)
                    descriptor = segment.opened()
                    if segment.is_there(descriptor.number):
                        self._segments[number] = segment
                        return segment, descriptor
                    self._forget(number)
                    continue  # perhaps another process has made it anew
                except MissingFileError:
                    self._forget(number)
                except SourceError as error:
                    self._forget(number)
                    if segment is not None:
                        continue  # it is another one by now
                    if error.__cause__ is None:  # it was cut, or is none
                        with suppress(OSError):
                            os.unlink(path)
            if not create:
                return None
            self._folder.make_room(layout.data_at)
            header = {**self._header, "length": layout.nbytes, "page": layout.page}
            make(path, header, layout.file_nbytes)
        return None  # somebody deletes what is made, again and again

    def add(self, pages: Ints, numbers: Ints, segments: Mapping[int, Segment]) -> set[int]:
        """Set the bits of pages that were read from segments or written to them.

        Parameters
        ----------
        pages, numbers : ndarray of int64, shape (n,)
            Pages, each once, and the number of each one's segment.
        segments : mapping of int to Segment

        Returns
        -------
        set of int
            The segments that are in use still: bits of others were not set.
        """
        with self._folder.lock:
            valid = {
                number
                for number, segment in segments.items()
                if self._segments.get(number) is segment
            }
            if len(valid) < len(segments):
                pages = pages[np.isin(numbers, list(valid))]
            set_bits(self._have, pages)
            for number in valid:
                bits = self._have[self._words(number)]
                if (bits[:-1] == bits[:1]).all():  # most are not whole yet
                    end = min((number + 1) * self._size, self._nbytes) - number * self._size
                    last = np.array([(end - 1) // self._page])
                    if (bits == words_of(np.zeros(1, np.int64), last)[1]).all():
                        self._whole.add(number)
        return valid

    def lose(self, number: int, segment: Segment) -> None:
        """Delete a segment whose file is cut short, or can't be read."""
        with self._folder.lock:
            if self._segments.get(number) is segment:
                self._forget(number)
                with suppress(OSError, SourceError):
                    descriptor = segment.opened()  # by its name, if it is not open any more
                    there = os.stat(segment.version.path)
                    if os.path.samestat(there, os.fstat(descriptor.number)):
                        os.unlink(segment.version.path)

    def give_up_deleted(self) -> None:
        """Close what others have deleted, or its space on the disk would not come free."""
        with self._folder.lock:
            for number, segment in list(self._segments.items()):
                descriptor = segment._descriptor
                if descriptor is not None and not segment.is_there(descriptor.number):
                    self._forget(number)

    def _forget(self, number: int) -> None:
        """Forget a segment and its bits; under the lock."""
        self._have[self._words(number)] = 0
        self._whole.discard(number)
        self._segments.pop(number, None)

    def _words(self, number: int) -> slice:
        """Return where the bits of a segment are."""
        words = self._size // (self._page * BITS)
        return slice(number * words, (number + 1) * words)
