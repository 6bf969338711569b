"""Keep one object in the cache folder: find its missing pages, write pages and read them.

A flag for each page says that it is in the file, and was written or verified by this process. Such
pages are read as from any local file, at the same offsets, by the kernel, many runs at once. Other
pages are first compared with their checksums, once a process: 0.7 s a GiB.

The flags belong to one file: they are cleared once that is found deleted, and are checked together
with the descriptor that is read. So no holes are read of a file that was made later under the same
name.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import Descriptor
from oocdata.engines.ragged import cut_runs
from oocdata.engines.runs import UnfinishedError
from oocdata.errors import MissingFileError, SourceError
from oocdata.stores.cache_files import Blob, PagedFile, create_file, page_checksums
from oocdata.stores.pieces import Pieces, ranges_of

if TYPE_CHECKING:
    from oocdata.stores.folder import CacheFolder

__all__ = ["Entry"]

Ints = NDArray[np.int64]

_PAGES_AT_ONCE = 256
"""Pages read at a time to compare them with their checksums."""


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
        # Memory is taken as flags are set: 16 MiB for 64 GiB.
        self._is_present = np.zeros(pages, np.bool_)
        self._file: PagedFile | None = None

    # Missing pages ------------------------------------------------------------------------------

    def missing(self, starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
        """Return starts and lengths of the parts of ranges that are missing or damaged.

        Fetch them, and pass them to `write`. They ascend, don't touch, and begin and end at borders
        of pages, except for the end of the object.

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
        pages, _, _ = cut_runs(starts, lengths, self._page)
        if not self._is_present[pages].all():
            pages = np.unique(pages)
            self._check(pages)
        first, past = ranges_of(pages[~self._is_present[pages]])
        return first * self._page, np.minimum(past * self._page, self.nbytes) - first * self._page

    def _check(self, pages: Ints) -> None:
        """Set the flags of the pages whose bytes have their recorded checksum."""
        opened = self._open()
        if opened is None:
            return
        paged, descriptor = opened
        file, page = descriptor.number, self._page
        ranges = (found.tolist() for found in ranges_of(pages[~self._is_present[pages]]))
        for first, past in zip(*ranges, strict=True):
            for at in range(first, past, _PAGES_AT_ONCE):
                stop = min(past, at + _PAGES_AT_ONCE)
                nbytes = min(stop * page, self.nbytes) - at * page
                with suppress(OSError):
                    recorded = np.frombuffer(
                        os.pread(file, 4 * (stop - at), self._sums_at + 4 * at), "<u4"
                    )
                    data = memoryview(os.pread(file, nbytes, at * page) if recorded.any() else b"")
                    if len(data) == nbytes:
                        is_whole = page_checksums(data, page) == recorded
                        self._mark(paged, at + np.flatnonzero(is_whole))

    # Reading ------------------------------------------------------------------------------------

    def read_runs(self, runs: Pieces) -> bool:
        """Read runs of bytes into memory, as from any file.

        Return False if bytes are not in the file, or if `missing` was never called for them: then
        memory may hold a part of them.
        """
        if not len(runs.runs):
            return True
        opened = self._descriptor_of(cut_runs(runs.offsets, runs.counts, self._page)[0])
        try:
            if opened is not None:
                opened.read_runs(runs.offsets, runs.addresses, runs.counts, None)
        except UnfinishedError:
            self._forget(opened)
            return False
        return opened is not None

    def read_into(self, memory: memoryview, offset: int) -> bool:
        """Fill memory with one run, as `read_runs` does.

        For a chunk of 20 KB this takes 5 µs of the processor's time, a table of runs 20.
        """
        end = offset + len(memory)
        if end > self.nbytes:  # there the file holds checksums
            return False
        opened = self._descriptor_of(slice(offset // self._page, -(-end // self._page)))
        try:
            if opened is not None:
                opened.read_into(memory, offset)
        except UnfinishedError:
            self._forget(opened)
            return False
        return opened is not None

    def _descriptor_of(self, pages: Ints | slice) -> Descriptor | None:
        """Return the descriptor for reading pages; None if one of them is not in the file."""
        with self._folder.lock:
            file = self._file
            if file is None or not self._is_present[pages].all():
                return None
            try:
                opened = file.opened()
            except SourceError:
                self._forget_file()
                return None
        file.note_use(opened)
        return opened

    # Writing ------------------------------------------------------------------------------------

    def write(self, start: int, data: Any) -> None:
        """Write whole pages of the object, if the folder has room.

        A `CacheFolderWarning`, once, if the disk is full or the folder is gone: from then on
        nothing is written.
        """
        content, page = memoryview(data).cast("B"), self._page
        assert not start % page
        assert not len(content) % page or start + len(content) == self.nbytes
        try:
            if not len(content) or not self._folder.make_room(len(content)):
                return
            opened = self._open(create=True)
            if opened is None:
                return
            file, descriptor = opened
            # Pages first, then their checksums: a process that is killed leaves no torn page.
            sums, first = page_checksums(content, page).astype("<u4"), start // page
            _write_all(descriptor.number, content, start)
            _write_all(descriptor.number, sums.data.cast("B"), self._sums_at + 4 * first)
            self._mark(file, np.arange(first, first + len(sums)))
        except OSError as error:
            self._folder.stop(error)

    def blob(self, part: str) -> Blob:
        """Return the blob `part` of this version of the object."""
        return Blob(self._folder, self.name, self.version, self.nbytes, part)

    # The file -----------------------------------------------------------------------------------

    def _open(self, *, create: bool = False) -> tuple[PagedFile, Descriptor] | None:
        """Return the file and its descriptor; None if there is none."""
        header = {"name": self.name, "version": self.version, "nbytes": self.nbytes}
        length = self._sums_at + 4 * self._is_present.size
        for _ in range(3):
            is_damaged = False
            with self._folder.lock:
                known = self._file
                try:
                    file = known or PagedFile(self.path, length)
                    descriptor = file.opened()
                    if file.is_there(descriptor):
                        self._file = file
                        return file, descriptor
                except MissingFileError:
                    pass
                except SourceError:  # it was cut short, or is no such file
                    is_damaged = True
                self._forget_file()
            if known is None:  # else another process may have made it again
                if not create:
                    return None
                create_file(self.path, header, length, replaces=is_damaged)
        return None  # another process keeps deleting it

    def _mark(self, file: PagedFile, pages: Ints) -> None:
        """Set the flags of pages that were verified or written, if the file is still in use."""
        with self._folder.lock:
            if self._file is file:
                self._is_present[pages] = True

    def close_deleted(self) -> None:
        """Close the file if it was deleted, so that its space on the disk comes free."""
        with self._folder.lock:
            descriptor = self._file and self._file._descriptor
            if self._file and descriptor and not self._file.is_there(descriptor):
                self._forget_file()

    def _forget(self, descriptor: Descriptor | None) -> None:
        """Forget a file that could not be read to its end, unless it was replaced since."""
        with self._folder.lock:
            if self._file is not None and self._file._descriptor is descriptor:
                self._forget_file()

    def _forget_file(self) -> None:
        """Forget the file and the flags of its pages; called under the lock."""
        if self._file is not None:
            self._file = None
            self._is_present[:] = False


def _write_all(file: int, data: memoryview, offset: int) -> None:
    while data:
        done = os.pwrite(file, data, offset)
        data, offset = data[done:], offset + done
