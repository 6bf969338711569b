"""Write arrays from their lock to their final path, and resume those that were stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from oocdata.errors import SourceError
from oocdata.index import as_count
from oocdata.writers.disk import Lock, write_json
from oocdata.writers.placement import Placement
from oocdata.writers.storage import Storage
from oocdata.writers.upload import Upload

SAVE_BYTES = 256 << 20
"""Bytes of rows after which the array is synced, and the journal written."""


class Output:
    """An array under construction, or several of equally many rows; nobody else may write them.

    `open_storages` creates the `Storage` of each, or resumes those of which it is given the number
    of rows that are done. With `about`, texts that identify what is written, a journal says how
    many rows are safe on the disk, and a later output with an equal `about` continues after these
    `done` rows. Without texts nothing is continued. If another process writes the same, this one
    `waits`, or raises `SourceError`.
    """

    def __init__(
        self,
        open_storages: Callable[[int], Iterable[Storage]],
        placement: Placement | Upload,
        about: Mapping[str, str],
        *,
        waits: bool = False,
    ) -> None:
        self._open_storages, self._placement, self._about = open_storages, placement, dict(about)
        self._journal = os.path.join(placement.folder, "journal")
        self._unsaved, self._is_complete = 0, False
        self.done = 0
        self._storages: list[Storage] = []
        self._lock = Lock(placement, waits=waits)
        try:
            if not self._resumed():
                self._abandon()
                placement.begin()
                self._open(0)
        except BaseException:
            self.close()
            raise

    def _open(self, done: int) -> None:
        self.done = done
        for storage in self._open_storages(done):
            self._storages.append(storage)

    def _abandon(self) -> None:
        for storage in self._storages:
            storage.abandon()
        self._storages.clear()

    def _resumed(self) -> bool:
        """Continue what an earlier process wrote; return whether that is possible."""
        if not self._about:
            return False
        # A missing or damaged journal, or a damaged array: the array is written from its beginning.
        with suppress(SourceError, OSError, ValueError, KeyError, TypeError):
            with open(self._journal, encoding="utf-8") as file:
                journal = json.load(file)
            done = as_count("done", journal["done"], at_least=0)
            placing = as_count("placing", journal["placing"], at_least=0)
            # With another inode, the result was exchanged with the old array, which is here now.
            is_here = placing in (0, self._placement.inode)
            if journal["about"] == self._about and done and is_here:
                self._open(done)
                return True
        return False

    def write(self, first: int, *arrays: NDArray[Any]) -> None:
        """Write rows of each array from row `first` on, after all earlier rows."""
        for storage, rows in zip(self._storages, arrays, strict=True):
            storage.write(first, rows)
        self._unsaved += sum(rows.nbytes for rows in arrays)
        if self._unsaved >= SAVE_BYTES:
            self.save(first + len(arrays[0]))

    def save(self, done: int) -> None:
        """Flush the rows written so far to the disk, and note in the journal how many they are."""
        if self._about:
            for storage in self._storages:
                storage.save()
            self.note(done)
        self._unsaved = 0

    def note(self, done: int, placing: int = 0) -> None:
        """Write to the journal how many rows are safe, and the inode of a result to be renamed."""
        if self._about:
            node = {"about": self._about, "done": done, "placing": placing}
            write_json(self._journal, node)
        self.done = done

    def finish(self, rows: int, verify: Callable[[], None] = lambda: None) -> int:
        """Complete the arrays with so many rows, verify them, and move them into place.

        Return the bytes that they take where they are stored.
        """
        placement = self._placement
        if self._unsaved:
            self.save(rows)
        self._lock.check()
        for storage in self._storages:
            storage.close(rows)
        if placement.on_disk:
            verify()
            self._lock.check()
        self.note(rows, placement.inode)
        if not placement.on_disk:  # an array in a store can be read only in its place
            placement.place()
            try:
                verify()
            except BaseException:
                placement.withdraw()
                raise
        self._abandon()
        stored = placement.stored_bytes()
        if placement.on_disk:
            self._place(placement)
        placement.remove()
        return stored

    def _place(self, placement: Placement) -> None:
        """Rename the complete array; if that fails, keep it: it may have taken hours to make."""
        inode = placement.inode
        try:
            placement.place()
        except Exception as error:
            if placement.inode != inode:  # the rename has succeeded
                raise
            self._is_complete = True
            raise SourceError(
                f"a complete array must get its name; {error} It was kept as '{placement.result}': "
                "rename that, before you write another one.",
                path=placement.path,
            ) from error

    @property
    def is_kept(self) -> bool:
        """Whether what is written stays after `close`: it is complete, or can be resumed."""
        return self._is_complete or bool(self.done and self._about)

    def close(self) -> None:
        """End writing, and delete what is written unless it is kept."""
        self._abandon()
        if self._lock.held() and not self.is_kept:  # another process may have the folder by now
            self._placement.remove()
        self._lock.close()
