"""One process at a time makes a result."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from types import TracebackType

from oocdata.errors import SourceError
from oocdata.writers.placement import LOCKED, Placement

__all__ = ["Lock"]

_NOTE = """What oocdata had written of {name} when it was stopped; {name} itself is not touched.
{hint}Nothing else needs this folder: it may be deleted.
"""


class Lock:
    """One process at a time makes a result; the lock goes with the process, however it ends.

    Parameters
    ----------
    placement : Placement
    hint : str
        For the note: how to go on.

    Raises
    ------
    oocdata.errors.SourceError
        If another process has it.
    """

    def __init__(self, placement: Placement, hint: str = "") -> None:
        self._placement = placement
        self._number = -1
        try:
            # Who had it before may have deleted the folder between two of these steps.
            while not self.held():
                self.release()
                _make_folder(placement.folder)
                name = os.path.join(placement.folder, LOCKED)
                with suppress(FileNotFoundError):
                    self._number = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
                    fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise SourceError(
                "only one process may write a file; another one is at it. Wait, or choose "
                "another name.",
                path=placement.path,
            ) from error
        except OSError as error:
            self.release()
            raise SourceError(
                f"the folder must be writable; {error}.", path=placement.path
            ) from error
        note = _NOTE.format(name=os.path.basename(placement.path), hint=hint)
        os.ftruncate(self._number, 0)
        os.pwrite(self._number, note.encode(), 0)

    def held(self) -> bool:
        """Return whether what is locked is the file that is there."""
        try:
            there = os.stat(os.path.join(self._placement.folder, LOCKED))
        except FileNotFoundError:
            return False
        return self._number >= 0 and os.path.samestat(os.fstat(self._number), there)

    def check(self) -> None:
        """Raise if the folder was deleted meanwhile, and with it a part of what was made.

        Raises
        ------
        oocdata.errors.SourceError
        """
        if not self.held():
            raise SourceError(
                f"the folder in which a result is made must stay until it is done; "
                f"'{self._placement.folder}' was deleted. Do it again.",
                path=self._placement.path,
            )

    def release(self) -> None:
        """Let others write."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _make_folder(path: str) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        # Not with makedirs, which fails where the folder goes while it looks at it.
        if os.path.islink(path) and not os.path.exists(path):
            raise
