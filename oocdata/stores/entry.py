"""An object in the cache folder: which of its bytes are missing, keeping and reading them.

What a process knows to be there (`oocdata.stores.presence`) is read as from any local file, by the
kernel, many runs at once. Reading 32 runs of 64 KB takes 1.2 times the processor's time that they
take from one file, 32 runs of 1 MB 1.05 times. What it does not know yet is read and compared with
its checksums first, once a process: 0.45 s a GiB.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.runs import UnfinishedError, read_runs
from oocdata.errors import ArgumentError
from oocdata.stores.blobs import Blob
from oocdata.stores.pages import cut, groups, parts_of, ranges_of
from oocdata.stores.presence import Presence
from oocdata.stores.segments import HEADER, SECONDS_A_USE, page_sums

if TYPE_CHECKING:
    from oocdata.stores.folder import CacheFolder

__all__ = ["Entry"]

Ints = NDArray[np.int64]

_SEGMENTS_AT_ONCE = 64
"""Open while pages of them are read."""

_CHECKED_AT_ONCE = 4 << 20
"""Bytes that are read to be checked, at a time."""


class Entry:
    """One version of an object in a cache folder; made by `CacheFolder.entry`, picklable.

    Safe to use from several threads, by several processes and after a fork.

    Attributes
    ----------
    name, version : str
    nbytes : int
        Of the whole object.
    """

    def __init__(self, folder: CacheFolder, name: str, version: str, nbytes: int, stem: str):
        self.name, self.version, self.nbytes = name, version, nbytes
        self._folder, self._stem = folder, stem
        self._page, self._size = folder.page, folder.segment
        self._header = {"name": name, "version": version, "nbytes": nbytes}
        self._there = Presence(folder, stem, self._header)
        self._data_at = folder.data_at

    def __reduce__(self) -> tuple[Any, ...]:
        return (_entry, (self._folder, self.name, self.version, self.nbytes))

    def __repr__(self) -> str:
        return f"<Entry {self.name!r}, version {self.version!r}: {self.nbytes:,} bytes>"

    # What is there ------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Whether all of the object is known to be in the folder."""
        return self._there.is_whole

    def missing(self, starts: Ints, lengths: Ints | int) -> tuple[Ints, Ints]:
        """Return which bytes of some ranges are not in the folder, or damaged there.

        Parameters
        ----------
        starts, lengths : ndarray of int64, shape (n,)
            In any order; they may overlap.

        Returns
        -------
        starts, lengths : ndarray of int64, shape (m,)
            Ranges that ascend and don't touch, from border to border of a page, but for the end of
            the object: to fetch, and to give to `write`.

        Raises
        ------
        oocdata.errors.ArgumentError
            If a range is not in the object.

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
        ends = self._ends(starts, lengths)
        some = ends > starts
        if not some.all():
            starts, ends = starts[some], ends[some]
        pages = self._there.lacking(starts, ends)
        checked = 0
        # Again where a segment was found deleted: other pages of it were taken to be there.
        while pages.size > checked:
            checked = pages.size - self._check(pages)
            pages = self._there.lacking(starts, ends)
        if not pages.size:
            return pages, pages
        first, past = ranges_of(pages)
        return first * self._page, np.minimum(past * self._page, self.nbytes) - first * self._page

    def _ends(self, starts: Ints, lengths: Ints | int) -> Ints:
        """Return where ranges end; raise if one is not in the object."""
        ends: Ints = starts + lengths
        if starts.size and (starts.min() < 0 or ends.max() > self.nbytes):
            raise ArgumentError(
                f"ranges must be in the object, which has {self.nbytes} bytes; got one from "
                f"{starts.min()}, and one to {ends.max()}."
            )
        return ends

    def _check(self, pages: Ints) -> int:
        """Note those of some pages, which ascend, that are there and right; return how many."""
        numbers = pages * self._page // self._size
        firsts, _ = parts_of(numbers[1:] != numbers[:-1])
        each = zip(numbers[firsts].tolist(), np.split(pages, firsts[1:]), strict=True)
        return sum(self._check_in(number, some) for number, some in each)

    def _check_in(self, number: int, pages: Ints) -> int:
        """Do so for those of a segment."""
        looked = self._there.look(number)
        if looked is None:
            return 0
        segment, descriptor = looked
        try:
            right = self._right(descriptor.number, pages - number * (self._size // self._page))
        except OSError:
            self._there.lose(number, segment)
            return 0
        pages = pages[right]
        return pages.size if self._there.add(number, segment, pages) else 0

    def _right(self, file: int, pages: Ints) -> NDArray[np.bool_]:
        """Return which pages of an open segment have the checksum that is written of them."""
        size, most = self._page, _CHECKED_AT_ONCE // self._page
        right = np.zeros(pages.size, np.bool_)
        written = os.pread(file, 4 * (self._size // size), HEADER)
        table = np.frombuffer(written, "<u4", len(written) // 4)
        at = (table[pages] > 0).nonzero()[0] if table.size > pages[-1] else pages[:0]
        buffer = memoryview(bytearray(min(at.size, most) * size))
        while at.size:
            # A range of them, of a few MiB at most, and the others after it.
            gaps = np.diff(pages[at[:most]]) != 1
            count = 1 + int(np.argmax(np.append(gaps, True)))
            few, at = at[:count], at[count:]
            place = self._data_at + int(pages[few[0]]) * size
            data = buffer[: os.preadv(file, [buffer[: few.size * size]], place)]
            sums = page_sums(data[one : one + size] for one in range(0, len(data), size))
            right[few[: sums.size]] = sums == table[pages[few[: sums.size]]]
        return right

    # Reading ------------------------------------------------------------------------------------

    def read_runs(self, offsets: Ints, addresses: Ints, lengths: Ints | int, target: Any) -> bool:
        """Read runs of bytes into memory, as `oocdata.engines.runs.read_runs` does from a file.

        Parameters
        ----------
        offsets, addresses : ndarray of int64, shape (n,)
            Where each run lies in the object, and where it goes in memory.
        lengths : ndarray of int64, shape (n,), or int
            Bytes of each run.
        target : object
            Whose memory it is.

        Returns
        -------
        bool
            False where bytes are not there (any more), or were never asked for by `missing`: then
            memory holds a part of them or nothing.
        """
        ends = self._ends(offsets, lengths)
        if isinstance(lengths, int):
            lengths = np.full(offsets.size, lengths)
        some = lengths > 0
        if not some.all():
            offsets, addresses, lengths = offsets[some], addresses[some], lengths[some]
            ends = ends[some]
        if not offsets.size:
            return True
        numbers = offsets // self._size
        if (numbers != (ends - 1) // self._size).any():
            offsets, addresses, lengths, numbers = cut(offsets, addresses, lengths, self._size)
        if len(set(numbers.tolist())) <= _SEGMENTS_AT_ONCE:
            return self._read_few(offsets, addresses, lengths, numbers, target)
        order = numbers.argsort(kind="stable")
        return all(
            self._read_few(offsets[few], addresses[few], lengths[few], numbers[few], target)
            for few in (order[some] for some in groups(numbers[order], _SEGMENTS_AT_ONCE))
        )

    def _read_few(
        self, offsets: Ints, addresses: Ints, lengths: Ints, numbers: Ints, target: Any
    ) -> bool:
        each = numbers.tolist()
        opened = self._there.opened(set(each), offsets, lengths)
        if opened is None:
            return False
        descriptors = {number: one[1].number for number, one in opened.items()}
        files = np.array([descriptors[number] for number in each])
        places = offsets - numbers * self._size + self._data_at
        try:
            read_runs(files, places, addresses, lengths, target)
        except UnfinishedError as error:
            number = each[error.run]
            self._there.lose(number, opened[number][0])
            return False
        now = time.monotonic()
        for segment, descriptor in opened.values():
            if now - segment.touched > SECONDS_A_USE:
                segment.touched = now
                with suppress(OSError):
                    os.utime(descriptor.number)  # says which ones go first
        self._folder.look_around(now)
        return True

    # Writing ------------------------------------------------------------------------------------

    def write(self, start: int, data: Any) -> None:
        """Keep bytes of the object, as far as the folder has room and can be written.

        Parameters
        ----------
        start : int
            Where they begin: at the border of a page.
        data : buffer
            To the border of a page, or to the object's end.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the bytes are not of whole pages of the object.

        Warns
        -----
        oocdata.errors.CacheFolderWarning
            Once, if the disk is full or the folder is gone: from then on nothing is kept.
        """
        given = np.frombuffer(data, np.uint8)
        end = start + given.size
        whole = end % self._page == 0 or end == self.nbytes
        if start % self._page or not whole or not 0 <= start <= end <= self.nbytes:
            raise ArgumentError(
                f"`start` must begin a page of {self._page} bytes, and data must end one, or the "
                f"object at {self.nbytes}; got bytes {start} to {end}."
            )
        size = self._size
        for number in range(start // size, -(-end // size)):
            low, high = max(start, number * size), min(end, (number + 1) * size)
            try:
                if self._folder.make_room(high - low):
                    self._write(number, low - number * size, given[low - start : high - start])
            except OSError as error:
                self._folder.stop(error)

    def _write(self, number: int, start: int, data: NDArray[np.uint8]) -> None:
        """Write pages of a segment, and then their checksums."""
        found = self._there.look(number, create=True)
        if found is None:
            return  # somebody deletes what is made, again and again
        segment, descriptor = found
        page = self._page
        whole = data.size // page * page
        rest = [data[whole:]] if whole < data.size else []
        sums = page_sums(chain(data[:whole].reshape(-1, page), rest)).astype("<u4")
        _write_all(descriptor.number, data, self._data_at + start)
        _write_all(descriptor.number, sums.view(np.uint8), HEADER + 4 * (start // page))
        first = (number * self._size + start) // page
        self._there.add(number, segment, np.arange(first, first + sums.size))

    def give_up_deleted(self) -> None:
        """Close what others have deleted, or its space on the disk would not come free."""
        self._there.give_up_deleted()

    def blob(self, part: str) -> Blob:
        """Return small bytes that are kept with this version of the object."""
        return Blob(self._folder, self.name, self.version, self.nbytes, part)


def _entry(folder: CacheFolder, name: str, version: str, nbytes: int) -> Entry:
    return folder.entry(name, version, nbytes)


def _write_all(file: int, data: NDArray[np.uint8], offset: int) -> None:
    left = data.data
    while left:
        done = os.pwrite(file, left, offset)
        left, offset = left[done:], offset + done
