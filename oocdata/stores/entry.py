"""An object in the cache folder: which of its bytes are missing, keeping and reading them.

A byte for each page says that it is there, and was checked by this process or written by it. Such
pages are read as from any local file, at the same places, by the kernel, many runs at once. All
others are read and compared with their checksums first, once a process: 0.7 s a GiB.

What is known of pages goes with the file that it was set for: whoever finds that deleted forgets
both, and they are looked at together with the descriptor that is read. So nobody reads the holes of
a file that was made later under the same name.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import Descriptor
from oocdata.engines.runs import UnfinishedError
from oocdata.errors import MissingFileError, SourceError
from oocdata.stores.kept import Blob, KeptFile, make, page_sums
from oocdata.stores.pieces import Pieces, pages_of, ranges_of

if TYPE_CHECKING:
    from oocdata.stores.folder import CacheFolder

__all__ = ["Entry"]

Ints = NDArray[np.int64]

_PAGES_AT_ONCE = 256
"""Read to be compared with their checksums."""


class Entry:
    """One version of an object in a cache folder; made by `CacheFolder.entry`.

    Safe to use from several threads, by several processes and after a fork.
    """

    def __init__(self, folder: CacheFolder, name: str, version: str, nbytes: int):
        self.name, self.version, self.nbytes = name, version, nbytes
        self._folder, self._page = folder, folder.page
        self.path = folder.file(folder.stem(name, version, nbytes), "pages")
        pages = -(-nbytes // self._page)
        self._sums_at = pages * self._page
        # Memory is given as they are set: 16 MiB for 64 GiB.
        self._have = np.zeros(pages, np.bool_)
        self._file: KeptFile | None = None

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
            self._check(pages)
        first, past = ranges_of(pages[~self._have[pages]])
        return first * self._page, np.minimum(past * self._page, self.nbytes) - first * self._page

    def _pages_of(self, starts: Ints, lengths: Ints) -> Ints:
        return pages_of(starts // self._page, (starts + lengths - 1) // self._page)

    def _check(self, pages: Ints) -> None:
        """Note those of some pages that have the checksum that is written of them."""
        looked = self._look()
        if looked is None:
            return
        kept, descriptor = looked
        file, page = descriptor.number, self._page
        ranges = (found.tolist() for found in ranges_of(pages[~self._have[pages]]))
        for first, past in zip(*ranges, strict=True):
            for at in range(first, past, _PAGES_AT_ONCE):
                stop = min(past, at + _PAGES_AT_ONCE)
                nbytes = min(stop * page, self.nbytes) - at * page
                with suppress(OSError):
                    noted = np.frombuffer(
                        os.pread(file, 4 * (stop - at), self._sums_at + 4 * at), "<u4"
                    )
                    data = memoryview(os.pread(file, nbytes, at * page) if noted.any() else b"")
                    if len(data) == nbytes:
                        self._add(kept, at + np.flatnonzero(page_sums(data, page) == noted))

    # Reading ------------------------------------------------------------------------------------

    def read_runs(self, runs: Pieces) -> bool:
        """Read runs of bytes into memory, as from any file.

        Return False where bytes are not there (any more), or were never asked for by `missing`:
        then memory holds a part of them or nothing.
        """
        if not len(runs.runs):
            return True
        opened = self._opened(self._pages_of(runs.offsets, runs.counts))
        try:
            if opened is not None:
                opened.read_runs(runs.offsets, runs.addresses, runs.counts, None)
        except UnfinishedError:
            return self._forget(opened)
        return opened is not None

    def read_into(self, memory: memoryview, offset: int) -> bool:
        """Fill memory with one run, as `read_runs` does.

        A chunk of 20 KB takes 5 µs of the processor's time so, and 20 by a table of runs.
        """
        end = offset + len(memory)
        if end > self.nbytes:  # where there are checksums
            return False
        opened = self._opened(slice(offset // self._page, -(-end // self._page)))
        try:
            if opened is not None:
                opened.read_into(memory, offset)
        except UnfinishedError:
            return self._forget(opened)
        return opened is not None

    def _opened(self, pages: Ints | slice) -> Descriptor | None:
        """Return the file, open; None where one of the pages that are read is not there."""
        with self._folder.lock:
            kept = self._file
            if kept is None or not self._have[pages].all():
                return None
            try:
                opened = kept.opened()
            except SourceError:
                self._forget_file()
                return None
        kept.note_use(opened)
        return opened

    # Writing ------------------------------------------------------------------------------------

    def write(self, start: int, data: Any) -> None:
        """Keep whole pages of the object, if the folder has room and can be written.

        A `CacheFolderWarning`, once, if the disk is full or the folder is gone: from then on
        nothing is kept.
        """
        given, page = memoryview(data).cast("B"), self._page
        assert not start % page
        assert not len(given) % page or start + len(given) == self.nbytes
        try:
            if not len(given) or not self._folder.make_room(len(given)):
                return
            looked = self._look(create=True)
            if looked is None:
                return
            kept, descriptor = looked
            # Pages first, then their checksums: whoever is killed leaves none that is torn.
            sums, first = page_sums(given, page).astype("<u4"), start // page
            _write_all(descriptor.number, given, start)
            _write_all(descriptor.number, sums.data.cast("B"), self._sums_at + 4 * first)
            self._add(kept, np.arange(first, first + len(sums)))
        except OSError as error:
            self._folder.stop(error)

    def blob(self, part: str) -> Blob:
        """Return small bytes that are kept with this version of the object."""
        return Blob(self._folder, self.name, self.version, self.nbytes, part)

    # The file -----------------------------------------------------------------------------------

    def _look(self, *, create: bool = False) -> tuple[KeptFile, Descriptor] | None:
        """Return the file, open; None where there is none."""
        header = {"name": self.name, "version": self.version, "nbytes": self.nbytes}
        length = self._sums_at + 4 * self._have.size
        for _ in range(3):
            is_damaged = False
            with self._folder.lock:
                known = self._file
                try:
                    kept = known or KeptFile(self.path, length)
                    descriptor = kept.opened()
                    if kept.is_there(descriptor):
                        self._file = kept
                        return kept, descriptor
                except MissingFileError:
                    pass
                except SourceError:  # it was cut, or is none
                    is_damaged = True
                self._forget_file()
            if known is None:  # else perhaps another process has made it anew
                if not create:
                    return None
                make(self.path, header, length, replaces=is_damaged)
        return None  # somebody deletes what is made, again and again

    def _add(self, kept: KeptFile, pages: Ints) -> None:
        """Note pages that were read from the file or written to it, while it is in use."""
        with self._folder.lock:
            if self._file is kept:
                self._have[pages] = True

    def give_up_deleted(self) -> None:
        """Close what others have deleted, or its space on the disk would not come free."""
        with self._folder.lock:
            descriptor = self._file and self._file._descriptor
            if self._file and descriptor and not self._file.is_there(descriptor):
                self._forget_file()

    def _forget(self, descriptor: Descriptor | None) -> bool:
        """Forget a file that could not be read to its end, unless it is another by now."""
        with self._folder.lock:
            if self._file is not None and self._file._descriptor is descriptor:
                self._forget_file()
        return False

    def _forget_file(self) -> None:
        """Forget the file and its pages; under the lock."""
        if self._file is not None:
            self._file = None
            self._have[:] = False


def _write_all(file: int, data: memoryview, offset: int) -> None:
    while data:
        done = os.pwrite(file, data, offset)
        data, offset = data[done:], offset + done
