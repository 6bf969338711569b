"""An object in the cache folder: which of its bytes are there, and reading them.

A process keeps one bit for each page: it is there, and was checked by this process or written by
it. Bits go with the segment they were set for: whoever finds its file deleted forgets both. What
has its bit is read as from any local file, by the kernel, many runs at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import Descriptor
from oocdata.engines.runs import UnfinishedError, read_runs
from oocdata.errors import ArgumentError, MissingFileError, SourceError
from oocdata.stores.pages import BITS, cut, groups, pages_of, ranges_of, set_bits, words_of
from oocdata.stores.segments import (
    HEADER,
    Layout,
    Segment,
    blob_sum,
    make,
    page_sums,
    read_blob,
)

if TYPE_CHECKING:
    from oocdata.stores.folder import CacheFolder

__all__ = ["Entry"]

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

_SEGMENTS_AT_ONCE = 64
"""Open while pages of them are read."""

_CHECKED_AT_ONCE = 1 << 20
"""Bytes that are read to be checked, at a time."""

_SECONDS_A_USE = 60.0
"""A segment that is read has its time of last use set so often, at most."""


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
        self._page = folder.page
        self._each = folder.segment // folder.page  # pages of a segment
        # A bit for each page, 32 MiB for an object of a TiB: memory is given as they are set.
        self._have = np.zeros(-(-nbytes // (self._page * BITS)), np.uint64)
        # Where the first page lies in the file of the last segment, and of all others.
        self._last = nbytes // folder.segment
        self._last_at = Layout(nbytes - self._last * folder.segment, folder.page).data_at
        self._usual_at = Layout(folder.segment, folder.page).data_at
        self._segments: dict[int, Segment] = {}
        # Segments of which all pages have their bits: then nobody need look at them.
        self._whole: set[int] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_entry, (self._folder, self.name, self.version, self.nbytes))

    def __repr__(self) -> str:
        return f"<Entry {self.name!r}, version {self.version!r}: {self.nbytes:,} bytes>"

    # What is there ------------------------------------------------------------------------------

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
        size = self._folder.segment
        first, last = starts // size, (ends - 1) // size
        which = {*first.tolist(), *last.tolist()}
        if self._whole.issuperset(which) and (last - first <= 1).all():
            return np.empty(0, np.int64), np.empty(0, np.int64)
        words, masks = self._wanted(starts, ends)
        pages = self._lacking(words, masks)
        checked = 0
        # Again where a segment was found deleted: other pages of it were taken to be there.
        while pages.size > checked:
            checked = pages.size - int(np.count_nonzero(self._check(pages)))
            pages = self._lacking(words, masks)
        if not pages.size:
            return pages, pages
        first, past = ranges_of(pages)
        return first * self._page, np.minimum(past * self._page, self.nbytes) - first * self._page

    def _lacking(self, words: Ints, masks: Words) -> Ints:
        """Return the pages, of those asked for, that have no bit."""
        lacking = masks & ~self._have[words]
        if not lacking.any():
            return np.empty(0, np.int64)
        at = lacking.nonzero()[0]
        return pages_of(words[at], lacking[at])

    def _holds(self, starts: Ints, ends: Ints) -> bool:
        """Return whether all pages of ranges have their bits."""
        words, masks = self._wanted(starts, ends)
        return not (masks & ~self._have[words]).any()

    def _ends(self, starts: Ints, lengths: Ints | int) -> Ints:
        """Return where ranges end; raise if one is not in the object."""
        ends: Ints = starts + lengths
        if starts.size and (starts.min() < 0 or ends.max() > self.nbytes):
            raise ArgumentError(
                f"ranges must be in the object, which has {self.nbytes} bytes; got one from "
                f"{starts.min()}, and one to {ends.max()}."
            )
        return ends

    def _wanted(self, starts: Ints, ends: Ints) -> tuple[Ints, Words]:
        """Return the words of `_have` that hold the pages of ranges, and their bits in each."""
        return words_of(starts // self._page, (ends - 1) // self._page)

    def _check(self, pages: Ints) -> NDArray[np.bool_]:
        """Return which of some pages, which ascend, are there and right; set their bits."""
        found = np.zeros(pages.size, bool)
        numbers = pages // self._each
        for some in groups(numbers, _SEGMENTS_AT_ONCE):
            while not self._check_few(pages[some], numbers[some], found[some]):
                pass  # without the segment that could not be read, which was forgotten
        return found

    def _check_few(self, pages: Ints, numbers: Ints, found: NDArray[np.bool_]) -> bool:
        """Do so for those of a few segments; return False where one of them can't be read."""
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        each = [self._look(number) for number in numbers[firsts].tolist()]
        opened = np.array([-1 if one is None else one[1].number for one in each])
        files = np.repeat(opened, np.diff(firsts, append=pages.size))
        there = np.flatnonzero(files >= 0)
        inside = pages % self._each
        sums = np.zeros(pages.size, np.uint32)
        asked = there
        try:
            if there.size:
                offsets = HEADER + 4 * inside[there]
                part = np.empty(there.size, "<u4")
                read_runs(files[there], offsets, _addresses(part, 4), 4, part)
                sums[there] = part
            there = np.flatnonzero(sums)
            many = max(1, _CHECKED_AT_ONCE // self._page)
            for start in range(0, there.size, many):
                asked = few = there[start : start + many]
                data = np.empty((few.size, self._page), np.uint8)
                lengths = np.minimum(self.nbytes - pages[few] * self._page, self._page)
                offsets = self._data_at(numbers[few]) + inside[few] * self._page
                read_runs(files[few], offsets, _addresses(data, self._page), lengths, data)
                whole: Iterator[Any] = iter(data)
                if lengths[-1] < self._page:  # the object's end
                    whole = chain(data[:-1], [data[-1, : lengths[-1]]])
                right = page_sums(whole) == sums[few]
                found[few[right]] = True
        except UnfinishedError as error:
            number = numbers[asked[error.run]]
            lost = each[int(np.searchsorted(numbers[firsts], number))]
            self._lose(int(number), lost and lost[0])
            found[:] = False
            return False
        with self._folder.lock:
            for number, one in zip(numbers[firsts].tolist(), each, strict=True):
                if one is None or self._segments.get(number) is not one[0]:
                    found[numbers == number] = False  # was deleted meanwhile
            set_bits(self._have, pages[found])
            self._note_whole(set(numbers[found].tolist()))
        return True

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
        size = self._folder.segment
        numbers = offsets // size
        if (numbers != (ends - 1) // size).any():
            offsets, addresses, lengths, numbers = cut(offsets, addresses, lengths, size)
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
        which = set(each)
        segments: dict[int, Segment] = {}
        opened: dict[int, Descriptor] = {}
        # Bits and descriptors are looked at together: so the bits are those of what is open.
        with self._folder.lock:
            if not (self._whole.issuperset(which) or self._holds(offsets, offsets + lengths)):
                return False
            for number in which:
                segments[number] = self._segments[number]
                try:
                    opened[number] = segments[number].opened()
                except SourceError:
                    self._forget(number)
                    return False
        descriptors = {number: one.number for number, one in opened.items()}
        files = np.array([descriptors[number] for number in each])
        places = offsets - numbers * self._folder.segment + self._data_at(numbers)
        try:
            read_runs(files, places, addresses, lengths, target)
        except UnfinishedError as error:
            number = each[error.run]
            self._lose(number, segments[number])
            return False
        now = time.monotonic()
        for number, segment in segments.items():
            if now - segment.touched > _SECONDS_A_USE:
                segment.touched = now
                with suppress(OSError):
                    os.utime(descriptors[number])  # says which ones go first
        self._folder.look_around(now)
        return True

    def _data_at(self, numbers: Ints) -> Ints:
        """Return where the first page lies in the files of segments."""
        return np.where(numbers < self._last, self._usual_at, self._last_at)

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
        size = self._folder.segment
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
            return  # somebody deletes what is made, again and again
        segment, descriptor = found
        page = self._page
        whole = data.size // page * page
        rest = [data[whole:]] if whole < data.size else []
        sums = page_sums(chain(data[:whole].reshape(-1, page), rest)).astype("<u4")
        _write_all(descriptor.number, data, segment.layout.data_at + start)
        _write_all(descriptor.number, sums.view(np.uint8), HEADER + 4 * (start // page))
        at = np.array([number * self._folder.segment + start])
        words, masks = self._wanted(at, at + data.size)
        with self._folder.lock:
            if self._segments.get(number) is segment:
                self._have[words] |= masks
                self._note_whole({number})

    # Segments -----------------------------------------------------------------------------------

    def _look(self, number: int, *, create: bool = False) -> tuple[Segment, Descriptor] | None:
        """Return a segment that has a file, open, and its descriptor; None where there is none."""
        path = self._folder.file(self._stem, str(number))
        size = self._folder.segment
        layout = Layout(min(size, self.nbytes - number * size), self._page)
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
                        _unlink(path)
            if not create:
                return None
            self._folder.make_room(layout.data_at)
            header = {"name": self.name, "version": self.version, "nbytes": self.nbytes}
            make(path, {**header, "length": layout.nbytes, "page": layout.page}, layout.file_nbytes)
        return None

    def _forget(self, number: int) -> None:
        """Forget a segment and its bits; under the lock."""
        self._have[self._words(number)] = 0
        self._whole.discard(number)
        self._segments.pop(number, None)

    def _words(self, number: int) -> slice:
        """Return where the bits of a segment are."""
        words = self._each // BITS
        return slice(number * words, (number + 1) * words)

    def _note_whole(self, numbers: set[int]) -> None:
        """Note which of some segments are whole by now; under the lock."""
        for number in numbers:
            bits = self._have[self._words(number)]
            if (bits[:-1] == bits[:1]).all():  # most are not whole yet
                last = min(self._each, -(-self.nbytes // self._page) - number * self._each) - 1
                if (bits == words_of(np.array([0]), np.array([last]))[1]).all():
                    self._whole.add(number)

    def _lose(self, number: int, segment: Segment | None) -> None:
        """Delete a segment whose file is cut short, or can't be read."""
        with self._folder.lock:
            if segment is not None and self._segments.get(number) is segment:
                self._forget(number)
                _unlink(segment.version.path)

    def give_up_deleted(self) -> None:
        """Close what others have deleted, or its space on the disk would not come free."""
        with self._folder.lock:
            for number, segment in list(self._segments.items()):
                descriptor = segment._descriptor
                if descriptor is not None and not segment.is_there(descriptor.number):
                    self._forget(number)

    # Blobs --------------------------------------------------------------------------------------

    def blob(self, name: str) -> bytes | None:
        """Return small bytes that were kept with this version of the object; None without them.

        Examples
        --------
        >>> import tempfile
        >>> from oocdata.stores.folder import CacheFolder
        >>> with tempfile.TemporaryDirectory() as path:
        ...     entry = CacheFolder(path).entry("https://host/a.h5", '"etag"', 10_000)
        ...     entry.keep_blob("chunks", b"a table")
        ...     entry.blob("chunks"), entry.blob("other")
        (b'a table', None)
        """
        return read_blob(self._folder.file(self._stem, _blob_name(name)))

    def keep_blob(self, name: str, data: bytes) -> None:
        """Keep small bytes with this version of the object, whole or not at all; see `write`."""
        path = self._folder.file(self._stem, _blob_name(name))
        header = {"name": self.name, "version": self.version, "nbytes": self.nbytes}
        header |= {"length": len(data), "checksum": blob_sum(data)}
        try:
            if self._folder.make_room(HEADER + len(data)):
                make(path, header, HEADER + len(data), data, replace=True)
        except OSError as error:
            self._folder.stop(error)


def _entry(folder: CacheFolder, name: str, version: str, nbytes: int) -> Entry:
    return folder.entry(name, version, nbytes)


def _blob_name(name: str) -> str:
    if not (name.isascii() and name.isidentifier()):
        raise ArgumentError(f"`name` of a blob must be letters and digits; got {name!r}.")
    return name


def _addresses(array: NDArray[Any], each: int) -> Ints:
    first: int = array.__array_interface__["data"][0]
    return first + np.arange(len(array)) * each


def _write_all(file: int, data: NDArray[np.uint8], offset: int) -> None:
    left = data.data
    while left:
        done = os.pwrite(file, left, offset)
        left, offset = left[done:], offset + done


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
