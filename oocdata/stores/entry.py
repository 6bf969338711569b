"""An object in the cache folder: which of its bytes are missing, keeping and reading them.

A byte for each page says that it is there, and was checked by this process or written by it. Such
pages are read as from any local file, by the kernel, many runs at once. All others are read and
compared with their checksums first, once a process: 0.7 s a GiB.

What is known of pages goes with the segment that it was set for: whoever finds its file deleted
forgets both, and they are looked at together with the descriptor that is read. So nobody reads the
holes of a file that was made later under the same name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import Descriptor
from oocdata.engines.runs import UnfinishedError, read_runs
from oocdata.errors import MissingFileError, SourceError
from oocdata.stores.pieces import Pieces, pages_of, ranges_of
from oocdata.stores.segments import HEADER, Blob, Segment, data_at, make, page_sums, unlink_damaged

if TYPE_CHECKING:
    from oocdata.stores.folder import CacheFolder

__all__ = ["Entry"]

Ints = NDArray[np.int64]

_SEGMENTS_AT_ONCE = 64
"""Open while pages of them are read."""


class Entry:
    """One version of an object in a cache folder; made by `CacheFolder.entry`.

    Safe to use from several threads, by several processes and after a fork.
    """

    def __init__(self, folder: CacheFolder, name: str, version: str, nbytes: int):
        self.name, self.version, self.nbytes = name, version, nbytes
        self._folder, self._stem = folder, folder.stem(name, version, nbytes)
        self._page, self._size = folder.page, folder.segment
        self._pages = self._size // self._page
        self._data_at = data_at(self._pages)
        # Memory is given as they are set: 16 MiB for 64 GiB.
        self._have = np.zeros(-(-nbytes // self._page), np.bool_)
        self._segments: dict[int, Segment] = {}

    # What is there ------------------------------------------------------------------------------

    def missing(self, starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
        """Return which bytes of some ranges are not in the folder, or damaged there.

        They are to fetch, and to give to `write`: ranges that ascend and don't touch, from border
        to border of a page, but for the end of the object.

        Examples
        --------
        >>> import tempfile
        >>> from oocdata.stores.folder import CacheFolder
        >>> with tempfile.TemporaryDirectory() as path:
        ...     entry = CacheFolder(path).entry("s3://bucket/a.npy", '"etag"', 10_000)
        ...     entry.write(0, bytes(4096))
        ...     [part.tolist() for part in entry.missing(np.array([8000, 100]), np.array([9, 5]))]
        [[4096], [4096]]
        """
        some = lengths > 0
        pages = self._pages_of(starts[some], lengths[some])
        if not self._have[pages].all():
            pages = np.unique(pages)
            numbers = pages // self._pages
            for number in np.unique(numbers[~self._have[pages]]).tolist():
                self._check(number, pages[numbers == number])
        first, past = ranges_of(pages[~self._have[pages]])
        return first * self._page, np.minimum(past * self._page, self.nbytes) - first * self._page

    def _pages_of(self, starts: Ints, lengths: Ints) -> Ints:
        return pages_of(starts // self._page, (starts + lengths - 1) // self._page)

    def _check(self, number: int, pages: Ints) -> None:
        """Note those of a segment's pages that have the checksum that is written of them."""
        looked = self._look(number)
        if looked is None:
            return
        segment, descriptor = looked
        pages = pages[~self._have[pages]]  # more of them where the file is another by now
        table, first = np.zeros(self._pages, "<u4"), number * self._pages
        with suppress(OSError):
            os.preadv(descriptor.number, [table.data], HEADER)
            pages = pages[table[pages - first] > 0]
            places = (self._data_at + (pages - first) * self._page).tolist()
            sums = page_sums(os.pread(descriptor.number, self._page, at) for at in places)
            self._add(number, segment, pages[sums == table[pages - first]])

    # Reading ------------------------------------------------------------------------------------

    def read_runs(self, runs: Pieces) -> bool:
        """Read runs of bytes into memory, as `oocdata.engines.runs.read_runs` does from a file.

        Return False where bytes are not there (any more), or were never asked for by `missing`:
        then memory holds a part of them or nothing.
        """
        begins = np.arange(0, self.nbytes, self._size)
        runs, numbers = runs.within(begins, begins + self._size)
        each = np.unique(numbers)
        few = [each[at : at + _SEGMENTS_AT_ONCE] for at in range(0, len(each), _SEGMENTS_AT_ONCE)]
        if len(few) == 1:
            return self._read_few(runs, numbers)
        some = (np.isin(numbers, part) for part in few)
        return all(self._read_few(runs.of(these), numbers[these]) for these in some)

    def _read_few(self, runs: Pieces, numbers: Ints) -> bool:
        each = numbers.tolist()
        opened = self._opened(set(each), self._pages_of(runs.offsets, runs.counts))
        if opened is None:
            return False
        descriptors = {number: one[1].number for number, one in opened.items()}
        files = np.array([descriptors[number] for number in each])
        places = runs.offsets - numbers * self._size + self._data_at
        try:
            read_runs(files, places, runs.addresses, runs.counts, None)
        except UnfinishedError as error:  # it was cut, or the disk fails
            number = each[error.run]
            with self._folder.lock:
                self._forget(number, opened[number][0])
            return False
        for one in opened.values():
            one[0].note_use(one[1])
        return True

    def read_into(self, memory: memoryview, offset: int) -> bool:
        """Fill memory with one run, as `read_runs` does; also False where it is in two files.

        A chunk of 20 KB takes 6 µs so, and 33 by tables of runs.
        """
        number, within = divmod(offset, self._size)
        if not memory or within + len(memory) > self._size:
            return False
        pages = slice(offset // self._page, -(-(offset + len(memory)) // self._page))
        opened = self._opened((number,), pages)
        if opened is None:
            return False
        segment, descriptor = opened[number]
        try:
            descriptor.read_into(memory, self._data_at + within)
        except UnfinishedError:
            with self._folder.lock:
                self._forget(number, segment)
            return False
        segment.note_use(descriptor)
        return True

    def _opened(
        self, numbers: Iterable[int], pages: Ints | slice
    ) -> dict[int, tuple[Segment, Descriptor]] | None:
        """Return segments, open; None where one of the pages that are read is not there."""
        found = {}
        with self._folder.lock:
            if not self._have[pages].all():
                return None
            for number in numbers:
                segment = self._segments[number]
                try:
                    found[number] = segment, segment.opened()
                except SourceError:
                    self._forget(number, segment)
                    return None
        return found

    # Writing ------------------------------------------------------------------------------------

    def write(self, start: int, data: Any) -> None:
        """Keep whole pages of the object, as far as the folder has room and can be written.

        A `CacheFolderWarning`, once, if the disk is full or the folder is gone: from then on
        nothing is kept.
        """
        given, size = np.frombuffer(data, np.uint8), self._size
        end = start + given.size
        assert not start % self._page
        assert not end % self._page or end == self.nbytes
        for number in range(start // size, -(-end // size)):
            low, high = max(start, number * size), min(end, (number + 1) * size)
            try:
                if self._folder.make_room(high - low):
                    self._write(number, low - number * size, given[low - start : high - start])
            except OSError as error:
                self._folder.stop(error)

    def _write(self, number: int, start: int, data: NDArray[np.uint8]) -> None:
        """Write pages of a segment, and then their checksums."""
        found = self._look(number, create=True)
        if found is None:
            return
        segment, descriptor = found
        page = self._page
        whole = data.size // page * page
        rest = [data[whole:]] if whole < data.size else []
        sums = page_sums(chain(data[:whole].reshape(-1, page), rest)).astype("<u4")
        _write_all(descriptor.number, data, self._data_at + start)
        _write_all(descriptor.number, sums.view(np.uint8), HEADER + 4 * (start // page))
        first = (number * self._size + start) // page
        self._add(number, segment, np.arange(first, first + sums.size))

    def blob(self, part: str) -> Blob:
        """Return small bytes that are kept with this version of the object."""
        return Blob(self._folder, self.name, self.version, self.nbytes, part)

    # Segments -----------------------------------------------------------------------------------

    def _look(self, number: int, *, create: bool = False) -> tuple[Segment, Descriptor] | None:
        """Return a segment that has a file, open; None where there is none."""
        path = self._folder.file(self._stem, str(number))
        nbytes = min(self._size, self.nbytes - number * self._size)
        length = self._data_at + nbytes
        for _ in range(3):
            with self._folder.lock:
                known = self._segments.get(number)
                try:
                    segment = known or Segment(path, length)
                    descriptor = segment.opened()
                    if segment.is_there(descriptor):
                        self._segments[number] = segment
                        return segment, descriptor
                except MissingFileError:
                    pass
                except SourceError:  # it was cut, or is none
                    if create and known is None:
                        unlink_damaged(path, length)
                self._forget(number, known)
            if known is not None:
                continue  # perhaps another process has made it anew
            if not create:
                return None
            self._folder.make_room(HEADER + 4 * (-(-nbytes // self._page)))
            make(path, {"name": self.name, "version": self.version, "nbytes": self.nbytes}, length)
        return None  # somebody deletes what is made, again and again

    def _add(self, number: int, segment: Segment, pages: Ints) -> None:
        """Note pages that were read from a segment or written to it, while it is in use."""
        with self._folder.lock:
            if self._segments.get(number) is segment:
                self._have[pages] = True

    def give_up_deleted(self) -> None:
        """Close what others have deleted, or its space on the disk would not come free."""
        with self._folder.lock:
            for number, segment in list(self._segments.items()):
                descriptor = segment._descriptor
                if descriptor is not None and not segment.is_there(descriptor):
                    self._forget(number, segment)

    def _forget(self, number: int, segment: Segment | None) -> None:
        """Forget a segment and its pages, unless it is another by now; under the lock."""
        if segment is not None and self._segments.get(number) is segment:
            self._have[number * self._pages : (number + 1) * self._pages] = False
            del self._segments[number]


def _write_all(file: int, data: NDArray[np.uint8], offset: int) -> None:
    left = data.data
    while left:
        done = os.pwrite(file, left, offset)
        left, offset = left[done:], offset + done
